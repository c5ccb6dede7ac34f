"""Along which axes of a mesh values differ: what shard_map accepts, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import P, lax
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.interpreters.varying import Varying

X = np.ones((8, 8), "f4")
MESH = tb.sharding.AbstractMesh((2, 4), ("x", "y"))
Fun = Callable[[Any], Any]


def varies(f: Fun, *spec: Any) -> set[str]:
    """The axes over which the result of ``f`` of a block varies."""
    mapped = tb.shard_map(f, mesh=MESH, in_specs=P(*spec), out_specs=P(), check_vma=False)
    closed = tb.make_jaxpr(mapped)(X)
    (equation,) = closed.jaxpr.eqns
    names = frozenset(spec) - {None}
    constants = [frozenset()] * (len(equation.invars) - 1)
    jaxpr = equation.params["jaxpr"]
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    (found,) = Varying(frozenset("xy"), "f").walk(inner, [*constants, names])
    return set(found)


def same(b: Any) -> Any:
    """The sum over both axes."""
    return lax.psum(b.sum(), ("x", "y"))


def loop(step: Callable[[Any], Any]) -> Fun:
    """Three steps on a number that is the same for all."""
    return lambda b: lax.fori_loop(0, 3, lambda _, c: step((c, b)), 0.0)


RING = [(i, (i + 1) % 4) for i in range(4)]
CASES: dict[str, tuple[Fun, str]] = {
    "argument": (lambda b: b, "xy"),
    "constant": (lambda b: tnp.ones(3), ""),
    "psum": (lambda b: lax.psum(b, "x"), "y"),
    "pmean of both": (lambda b: lax.pmean(b, ("x", "y")), ""),
    "pmax": (lambda b: lax.pmax(b, "y"), "x"),
    "psum in groups": (lambda b: lax.psum(b, "y", axis_index_groups=[[0, 1], [2, 3]]), "xy"),
    "all_gather": (lambda b: lax.all_gather(b, "y"), "x"),
    "pbroadcast": (lambda b: lax.pbroadcast(b, "y", 1), "x"),
    "axis_index": (lambda b: lax.axis_index("y"), "y"),
    "ppermute of equal": (lambda b: lax.ppermute(same(b), "y", RING[:2]), "y"),
    "psum_scatter": (lambda b: lax.psum_scatter(lax.psum(b, "x"), "y"), "y"),
    "all_to_all": (lambda b: lax.all_to_all(lax.psum(b, "x"), "y", 0, 0), "y"),
    "mixed": (lambda b: lax.psum(b, "x") + lax.psum(b, "y"), "xy"),
    "jit": (lambda b: tb.jit(lambda z: lax.psum(z, "y"))(b), "x"),
    "checkpoint": (lambda b: tb.checkpoint(lambda z: lax.psum(z, "y"))(b), "x"),
    "custom_jvp": (lambda b: tb.nn.relu(lax.psum(b, "y")), "x"),
    "grad": (lambda b: tb.grad(lambda z: lax.psum(z.sum() ** 2, ("x", "y")))(same(b)), ""),
    "vmap": (lambda b: tb.vmap(lambda r: lax.psum(r, "y"))(b), "x"),
    "scan": (lambda b: lax.scan(lambda c, r: (c + lax.psum(r, "y"), None), 0 * b[0], b)[0], "xy"),
    "scan of sums": (lambda b: lax.scan(lambda c, r: (c, lax.psum(r, "y")), 0.0, b)[1], "x"),
    "loop": (loop(lambda s: s[0] + same(s[1])), ""),
    "loop that differs": (loop(lambda s: s[0] + s[1].sum()), "xy"),
    "while": (
        lambda b: lax.while_loop(lambda c: c < b.sum(), lambda c: c + 1, 0.0),
        "xy",
    ),
    "cond": (lambda b: lax.cond(same(b) > 0, same, lambda z: same(z) + 1, b), ""),
    "cond that differs": (lambda b: lax.cond(b.sum() > 0, lambda: 1.0, lambda: 2.0), "xy"),
    "branch that differs": (
        lambda b: lax.cond(same(b) > 0, same, lambda z: lax.psum(z.sum(), "x"), b),
        "y",
    ),
    "pure_callback": (
        lambda b: tb.pure_callback(lambda v: v, tb.ShapeDtypeStruct((), "f4"), same(b)),
        "",
    ),
    "pcast of a sum's parts": (lambda b: lax.psum(lax.pcast(b, "y", to="unreduced"), "y"), "x"),
    "pcast to what it is": (lambda b: lax.pcast(lax.psum(b, "y"), "y", to="reduced"), "x"),
    "pcast in a branch": (
        lambda b: lax.cond(b.sum() > 0, lambda: lax.pcast(1.0, ("x", "y"), to="varying"), b.sum),
        "xy",
    ),
    "precv": (
        lambda b: lax.precv(lax.psend(same(b), "y", RING), tb.typeof(same(b)), "y", RING),
        "y",
    ),
    "pmap inside": (lambda b: tb.pmap(lambda r: lax.psum(r, "y"), axis_name="y")(b[:1]), "xy"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_varies(name: str) -> None:
    """Collectives unite, positions and shares differ, all else is as its arguments are."""
    f, expected = CASES[name]

    assert set(expected) == varies(f, "x", "y")


def test_arguments_of_all_devices() -> None:
    """Where nothing is split nothing differs, but positions."""
    assert set() == varies(lambda b: tnp.sin(b) @ b, None)
    assert {"x"} == varies(lambda b: b * lax.axis_index("x"))


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda b: lax.cond(b.sum() > 0, same, same, b), "cond"),
        (lambda b: lax.while_loop(lambda c: c < b.sum(), lambda c: c + same(b), 0.0), "while_loop"),
    ],
    ids=["cond", "while"],
)
def test_devices_that_would_wait_for_ever(f: Fun, what: str) -> None:
    """A collective runs on all devices of its axis or on none."""
    mapped = tb.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P())
    expected = (
        rf"(?s)shard_map\(.*\): {what} decides by a value that varies over the axis 'x', and psum "
        r"over 'x' is inside: some devices would wait.*way out: decide by a value that is the same"
    )

    with pytest.raises(AxisSpecError, match=expected):
        tb.make_jaxpr(mapped)(X)


def test_values_that_are_let_to_vary_count_as_different() -> None:
    """Also those that are the same, while values that only meet such a one stay what they are."""

    def mapped(f: Fun) -> Any:
        return tb.eval_shape(tb.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P()), X)

    assert () == mapped(lambda b: same(b) + lax.all_gather(b, "x").sum()).shape
    with pytest.raises(AxisSpecError, match="varies over the axis 'y'"):
        mapped(lambda b: lax.pcast(same(b), "y", to="varying"))


def test_pcast_to_reduced_is_checked() -> None:
    """A value that varies over the axis is refused, and by nobody without the check."""

    def f(b: Any) -> Any:
        return lax.pcast(b, ("x", "y"), to="reduced")

    mapped = tb.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    expected = (
        r"shard_map\(.*\): pcast to 'reduced' got f32\[4,8\] on each device, which varies over 'x'"
    )

    with pytest.raises(AxisSpecError, match=expected):
        tb.make_jaxpr(mapped)(X)
    tb.make_jaxpr(tb.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P(), check_vma=False))(X)
