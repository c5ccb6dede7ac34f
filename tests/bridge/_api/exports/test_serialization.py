"""Exported programs as bytes: other processes, structures, orders of derivatives, damage."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import export
from tracebridge._api.exports import trees
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.testing import assert_allclose

X = np.linspace(0.5, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def _registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that a test registers are unknown again after it."""
    monkeypatch.setattr(trees, "_BY_TYPE", dict(trees._BY_TYPE))
    monkeypatch.setattr(trees, "_BY_NAME", dict(trees._BY_NAME))


READER = """
import sys
import numpy as np
import tracebridge as tb
from pathlib import Path
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path({folder!r})
read = tb.export.deserialize((folder / "program").read_bytes())
x = np.load(folder / "x.npy")
f = lambda x: read.call(x)["y"].sum()
np.savez(folder / "results.npz", value=read.call(x)["y"], first=tb.grad(f)(x),
         second=tb.grad(lambda x: tb.grad(f)(x).sum())(x))
try:
    tb.grad(lambda x: tb.grad(lambda x: tb.grad(f)(x).sum())(x).sum())(x)
except tb.errors.ExportError as error:
    print(error)
"""


def test_another_process(tmp_path: Path, run_alone: Any) -> None:
    """It has neither the function nor its module: values, two orders, and the end of them."""
    scale = np.random.default_rng(1).normal(size=(3, 400)).astype(np.float32)

    def fun(x: Any) -> Any:
        return {"y": tnp.tanh(x @ scale) ** 2}

    spec = tb.ShapeDtypeStruct(export.symbolic_shape("b, 3"), np.float32)
    (tmp_path / "program").write_bytes(export.export(tb.jit(fun))(spec).serialize(vjp_order=2))
    np.save(tmp_path / "x.npy", X)
    said = run_alone(READER.format(folder=str(tmp_path)))
    assert "no derivative of this order" in said
    assert "serialize(vjp_order=n)" in said
    got = np.load(tmp_path / "results.npz")

    def total(x: Any) -> Any:
        return fun(x)["y"].sum()

    assert_allclose(got["value"], fun(X)["y"], rtol=1e-6)
    assert_allclose(got["first"], tb.grad(total)(X), rtol=1e-4, atol=1e-4)
    second = tb.grad(lambda x: tb.grad(total)(x).sum())(X)
    assert_allclose(got["second"], second, rtol=1e-3, atol=1e-2)


def test_equal_programs_are_equal_bytes() -> None:
    """Twice in a process."""

    def made() -> bytes:
        return bytes(export.export(tb.jit(tnp.sin))(X).serialize(vjp_order=1))

    assert made() == made()


class Point(NamedTuple):
    """A node that a process has to know."""

    x: Any
    y: Any


@tb.tree_util.register_pytree_node_class
class Scaled:
    """A node with auxiliary data."""

    def __init__(self, array: Any, factor: int) -> None:
        self.array, self.factor = array, factor

    def tree_flatten(self) -> tuple[tuple[Any], int]:
        return (self.array,), self.factor

    @classmethod
    def tree_unflatten(cls, factor: int, children: Any) -> Scaled:
        return cls(*children, factor)


def register_scaled(**options: Any) -> None:
    """Let ``Scaled`` be saved."""
    export.register_pytree_node_serialization(
        Scaled,
        serialized_name="tests.Scaled",
        serialize_auxdata=lambda factor: str(factor).encode(),
        deserialize_auxdata=int,
        **options,
    )


TREES = [
    (),
    [1.0, (2.0, None), []],
    {"b": 1.0, "a": {"c": ()}},
    {2: 1.0, 1: 2.0},
    collections.OrderedDict(z=1.0, a=[2.0]),
    Point(1.0, {"k": Point(2.0, None)}),
    Scaled([1.0, 2.0], 3),
]


@pytest.mark.parametrize("tree", TREES, ids=lambda t: type(t).__name__)
def test_structures(tree: Any) -> None:
    """Those of arguments and results come back as what they were."""
    export.register_namedtuple_serialization(Point, serialized_name="tests.Point")
    register_scaled()
    e = export.export(tb.jit(lambda t: (t, tb.tree.map(lambda x: x * 2, t))))(tree)
    read = export.deserialize(e.serialize(vjp_order=1))
    assert (e.in_tree, e.out_tree) == (read.in_tree, read.out_tree)
    same, doubled = read.call(tree)
    assert tb.tree.structure(tree) == tb.tree.structure(same)
    assert [2 * x for x in tb.tree.leaves(tree)] == tb.tree.leaves(doubled)


def test_from_children() -> None:
    """A function of one's own makes the nodes."""
    made: list[int] = []

    def build(factor: int, children: Any) -> Scaled:
        made.append(factor)
        return Scaled(*children, factor)

    register_scaled(from_children=build)
    e = export.export(tb.jit(lambda t: t.array))(Scaled(1.0, 7))
    assert 2.0 == export.deserialize(e.serialize()).call(Scaled(2.0, 7))
    assert [7] == made


def test_classes_that_are_not_registered() -> None:
    """Here: how to register them. There: which name is missing."""
    e = export.export(tb.jit(lambda t: t.x))(Point(1.0, 2.0))
    with pytest.raises(ExportError, match="register_namedtuple_serialization"):
        e.serialize()
    other = export.export(tb.jit(lambda t: t.array))(Scaled(1.0, 2))
    with pytest.raises(ExportError, match="register_pytree_node_serialization"):
        other.serialize()
    export.register_namedtuple_serialization(Point, serialized_name="tests.Point")
    blob = e.serialize()
    trees._BY_NAME.pop("tests.Point")
    with pytest.raises(ExportError, match=r"'tests\.Point', unknown to this process"):
        export.deserialize(blob)
    with pytest.raises(ExportError, match=r"the key 1\.5 of type float"):
        export.export(tb.jit(lambda t: t[1.5]))({1.5: 1.0}).serialize()


def test_fields_that_changed() -> None:
    """A named tuple with other fields than it was saved with."""
    export.register_namedtuple_serialization(Point, serialized_name="tests.Point")
    blob = export.export(tb.jit(lambda t: t.x))(Point(1.0, 2.0)).serialize()
    trees._BY_NAME.pop("tests.Point")

    class other(NamedTuple):
        x: Any
        z: Any

    export.register_namedtuple_serialization(other, serialized_name="tests.Point")
    with pytest.raises(ExportError, match=r"fields \['x', 'y'\]"):
        export.deserialize(blob)


def test_registering_twice() -> None:
    """One name for a class, one class for a name."""
    export.register_namedtuple_serialization(Point, serialized_name="tests.Point")
    with pytest.raises(ArgumentValueError, match=r"already, as 'tests\.Point'"):
        export.register_namedtuple_serialization(Point, serialized_name="tests.Other")

    class other(NamedTuple):
        x: Any

    with pytest.raises(ArgumentValueError, match="is the name of"):
        export.register_namedtuple_serialization(other, serialized_name="tests.Point")
    with pytest.raises(ArgumentTypeError, match="namedtuple"):
        export.register_namedtuple_serialization(Scaled, serialized_name="tests.Scaled")


def test_orders() -> None:
    """As many as asked for; more cannot be saved of what was read with fewer."""
    e = export.export(tb.jit(lambda x: x**4))(1.0)
    zero, one = (export.deserialize(e.serialize(vjp_order=n)) for n in (0, 1))
    assert (True, False, True, False) == (
        e.has_vjp(), zero.has_vjp(), one.has_vjp(), one.vjp().has_vjp(),
    )  # fmt: skip
    assert 32.0 == tb.grad(one.call)(2.0)
    assert 32.0 == tb.grad(export.deserialize(one.serialize(vjp_order=1)).call)(2.0)
    for fails in (
        lambda: tb.grad(zero.call)(2.0),
        lambda: tb.grad(tb.grad(one.call))(2.0),
        lambda: one.serialize(vjp_order=2),
        zero.vjp,
    ):
        with pytest.raises(ExportError, match=r"no derivative of this order"):
            fails()
    with pytest.raises(ArgumentValueError, match="vjp_order=-1"):
        e.serialize(vjp_order=-1)


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "changed", "appended", "other"])
def test_damage(kind: str) -> None:
    """It is an ExportError, not a crash of the parser of programs."""
    blob = bytes(export.export(tb.jit(tnp.sin))(X).serialize())
    middle = len(blob) // 2
    damaged = {
        "empty": b"",
        "text": b"tracebridge-program:x:y:z",
        "cut": blob[:-7],
        "changed": blob[:middle] + bytes([blob[middle] ^ 1]) + blob[middle + 1 :],
        "appended": blob + b"more",
        "other": b"\x00\xff" * 50,
    }[kind]
    with pytest.raises(ExportError, match="damaged"):
        export.deserialize(damaged)


def test_later_formats() -> None:
    """Say what to install."""
    blob = bytes(export.export(tb.jit(tnp.sin))(X).serialize())
    head, _, rest = blob.partition(b":1:")
    with pytest.raises(ExportError, match="format 99, written by a later"):
        export.deserialize(head + b":99:" + rest)
    with pytest.raises(ArgumentTypeError, match="type str"):
        export.deserialize(str(blob))


def test_checks_are_values() -> None:
    """Equal, hashable, printed as they are written, and not to be changed."""
    check = export.DisabledSafetyCheck.custom_call("f")
    assert "f" == check.is_custom_call()
    assert export.DisabledSafetyCheck.platform().is_custom_call() is None
    assert {check} == {export.DisabledSafetyCheck.custom_call("f")}
    assert check != export.DisabledSafetyCheck.platform()
    assert "DisabledSafetyCheck.custom_call('f')" == repr(check)
    assert "DisabledSafetyCheck.platform()" == repr(export.DisabledSafetyCheck.platform())
    with pytest.raises(AttributeError):
        check.other = 1
