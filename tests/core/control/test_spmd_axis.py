"""vmap over an axis of a mesh: spmd_axis_name and the constraints inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.interpreters.staged_rules import SpmdAxis
from tracebridge.sharding import NamedSharding
from tracebridge.testing import assert_allclose

eight = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
P = tb.P
X = np.arange(4 * 8 * 2, dtype="f4").reshape(4, 8, 2)
OPEN = P.UNCONSTRAINED


def ns(*spec: Any) -> NamedSharding:
    """A sharding over a mesh with three axes, of two devices each where there are eight."""
    n = 2 if tb.local_device_count() >= 8 else 1
    return NamedSharding(
        tb.make_mesh((n, n, n), ("x", "y", "z"), tb.sharding.AxisType.Auto), P(*spec)
    )


def split(*spec: Any) -> Callable[[Any], Any]:
    """A function of one element with a constraint."""
    return lambda x: lax.with_sharding_constraint(2 * x, ns(*spec))


def specs(fun: Callable[..., Any], *args: Any) -> set[str]:
    """The constraints in the lowered program, as text."""
    text = tb.jit(fun).lower(*args).as_text()
    return set(re.findall(r"sdy\.sharding_constraint %\S+ <@mesh, (\[.*\])>", text))


@pytest.mark.parametrize(
    ("axis", "spec", "names", "expected"),
    [
        (0, ("x",), "y", '[{"y"}, {"x"}, {}]'),
        (1, ("x",), "y", '[{"x"}, {"y"}, {}]'),
        (2, ("x",), "y", '[{"x"}, {}, {"y"}]'),
        (-1, (None, "x"), "y", '[{}, {"x"}, {"y"}]'),
        (0, ("x",), ("y", "z"), '[{"y", "z"}, {"x"}, {}]'),
        (0, ("x",), (), '[{}, {"x"}, {}]'),
        (0, ("x",), None, '[{?}, {"x"}, {}]'),
        (0, (OPEN, "x"), "y", '[{"y"}, {?}, {"x"}]'),
        (0, (("x", "z"),), "y", '[{"y"}, {"x", "z"}, {}]'),
    ],
)
def test_name_goes_to_the_mapped_axis(axis: int, spec: Any, names: Any, expected: str) -> None:
    """The constraint of an element, with the axes of the mesh at the mapped axis."""
    f = tb.vmap(split(*spec), axis, axis, spmd_axis_name=names)

    assert {expected} == specs(f, X)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("y", "z", '[{"y"}, {"z"}, {"x"}]'),
        ("y", None, '[{"y"}, {?}, {"x"}]'),
        (None, "z", '[{?}, {"z"}, {"x"}]'),
        (None, None, '[{?}, {?}, {"x"}]'),
    ],
)
def test_nested(outer: Any, inner: Any, expected: str) -> None:
    """Each vmap puts its own name."""
    f = tb.vmap(tb.vmap(split("x"), spmd_axis_name=inner), spmd_axis_name=outer)

    assert {expected} == specs(f, X)


def custom() -> Callable[[Any], Any]:
    """A function with a rule for reverse mode, both with constraints."""

    @tb.custom_vjp
    def f(x: Any) -> Any:
        return split("x")(x)

    def bwd(_: None, ct: Any) -> Any:
        return (split("x")(ct),)

    f.defvjp(lambda x: (split("x")(x), None), bwd)
    return f


@pytest.mark.parametrize(
    "element",
    [
        tb.jit(split("x")),
        tb.jit(lambda x: 2 * x, in_shardings=ns("x"), out_shardings=ns("x")),
        lambda x: lax.scan(lambda c, _: (split("x")(c), None), x, None, length=3)[0],
        lambda x: lax.while_loop(lambda c: c.sum() < 999, split("x"), x),
        lambda x: lax.fori_loop(0, 3, lambda _, c: split("x")(c), x),
        lambda x: lax.cond(x.sum() > 0, split("x"), lambda c: c, x),
        lambda x: lax.switch(1, [lambda c: c, split("x")], x),
        tb.grad(lambda x: (split("x")(x) ** 2).sum()),
        tb.grad(tb.checkpoint(lambda x: (tnp.sin(split("x")(x)) ** 2).sum())),
        lambda x: tb.jvp(split("x"), (x,), (x,)),
        lambda x: custom()(x),
        tb.grad(lambda x: (custom()(x) ** 2).sum()),
    ],
)
def test_inside_other_transformations(element: Callable[[Any], Any]) -> None:
    """The name reaches constraints in bodies, branches, rules and derivatives."""
    f = tb.vmap(element, spmd_axis_name="y")

    assert {'[{"y"}, {"x"}, {}]'} == specs(f, X)


def test_outside_of_other_transformations() -> None:
    """The derivative of the map, and the map of a loop over slices."""
    f = tb.vmap(split("x"), spmd_axis_name="y")

    assert {'[{"y"}, {"x"}, {}]'} == specs(tb.grad(lambda x: (f(x) ** 2).sum()), X)
    g = tb.vmap(lambda x: lax.map(split("x"), x), spmd_axis_name="y")
    assert {'[{"y"}, {"x"}]'} == specs(g, np.ones((4, 3, 2), "f4"))


def test_same_function_with_several_names() -> None:
    """Names are part of what is remembered: no program is used for another name."""
    body = tb.jit(lambda x: lax.scan(lambda c, _: (split("x")(c), None), x, None, length=2)[0])

    for name, entry in (("y", '{"y"}'), (None, "{?}"), ("z", '{"z"}'), ("y", '{"y"}')):
        f = tb.vmap(body, spmd_axis_name=name)
        assert {f'[{entry}, {{"x"}}, {{}}]'} == specs(f, X)


def test_collectives_know_the_name_of_the_mapped_axis() -> None:
    """axis_name and spmd_axis_name are independent."""

    def element(x: Any) -> Any:
        return lax.psum(split("x")(x), "i") + lax.axis_index("i")

    f = tb.vmap(element, axis_name="i", spmd_axis_name="y")

    expected = 2 * X.sum(0) + np.arange(4, dtype="f4")[:, None, None]
    assert_allclose(tb.jit(f)(X), expected)
    assert {'[{"y"}, {"x"}, {}]'} == specs(f, X)


def test_unmapped_values_keep_their_constraint() -> None:
    """Only values with the mapped axis get the name."""
    f = tb.vmap(lambda x, y: x + split("x")(y), (0, None), spmd_axis_name="x")

    assert {'[{"x"}, {}]'} == specs(f, X, X[0])


@eight
def test_at_once_and_compiled() -> None:
    """The results lie as the constraint says."""
    f = tb.vmap(split("x"), spmd_axis_name="y")

    for g in (f, tb.jit(f)):
        out = g(X)
        assert P("y", "x") == out.sharding.spec
        assert_allclose(out, 2 * X)
    moved = tb.vmap(split("x"), 0, 1, spmd_axis_name=("z", "y"))(X)
    assert P("x", ("z", "y")) == moved.sharding.spec


@eight
def test_with_a_mesh_in_force() -> None:
    """Specifications without a mesh."""
    with tb.set_mesh(ns().mesh):
        f = tb.vmap(lambda x: lax.with_sharding_constraint(x, P("x")), spmd_axis_name="y")
        assert {'[{"y"}, {"x"}, {}]'} == specs(f, X)


@eight
def test_under_pmap() -> None:
    """Programs in replicas know no mesh."""
    f = tb.pmap(tb.vmap(split("x"), spmd_axis_name="y"))

    assert_allclose(f(np.stack([X, X])), 2 * np.stack([X, X]))


@pytest.mark.parametrize(
    ("spec", "names", "message"),
    [
        (("x",), "x", r"spmd_axis_name is 'x', but .* P\('x',\), which names 'x' too"),
        ((None, ("y", "x")), ("z", "x"), r"is \('z', 'x'\), but .* which names 'x' too"),
        (("x",), "q", r"names the axis 'q'"),
        (("x",), ("y", "y"), r"names the axis 'y' twice"),
    ],
)
def test_names_that_do_not_fit(spec: Any, names: Any, message: str) -> None:
    """A name that the specification has already, or that the mesh does not have."""
    with pytest.raises(AxisSpecError, match=message):
        tb.jit(tb.vmap(split(*spec), spmd_axis_name=names))(X)
    nested = tb.vmap(tb.vmap(split("x"), spmd_axis_name="y"), spmd_axis_name="y")
    with pytest.raises(AxisSpecError, match="which names 'y' too"):
        nested(X)


def test_rules_of_users_see_the_names() -> None:
    """``axis_data.spmd_name`` of fancy batching rules."""
    prim = tb.extend.core.Primitive("mine")
    prim.def_impl(lambda x: x)
    prim.def_abstract_eval(lambda x: x)
    seen: list[Any] = []

    def rule(data: Any, args: Any, dims: Any) -> Any:
        seen.append((data.name, data.size, data.spmd_name))
        return args[0], dims[0]

    tb.interpreters.batching.fancy_primitive_batchers[prim] = rule
    tb.vmap(prim.bind, axis_name="i", spmd_axis_name=("x", "y"))(X)
    tb.vmap(prim.bind)(X)

    assert [("i", 4, ("x", "y")), (None, 4, None)] == seen


def test_axes_compare_by_names() -> None:
    """Keys of staged rules: equal names are one key, and no name is another."""
    assert SpmdAxis("i", ("x",)) == SpmdAxis("i", ("x",))
    assert hash(SpmdAxis("i", ("x",))) == hash(SpmdAxis("i", ("x",)))
    assert SpmdAxis("i", ("x",)) != SpmdAxis("i", ("y",))
    assert SpmdAxis("i", ("x",)) != "i"
    assert "SpmdAxis('i', ('x',))" == repr(SpmdAxis("i", ("x",)))


@eight
def test_batches_of_gradients_stay_split() -> None:
    """The transpose of a reshard leaves the batch axis split as the types of arrays say."""
    mesh = tb.make_mesh((2, 2), ("x", "y"), tb.sharding.AxisType.Explicit)
    with tb.set_mesh(mesh):
        rows = tb.device_put(np.arange(96, dtype="f4").reshape(4, 24), P("x", None))
        apart = tb.shard_map(tnp.sin, in_specs=P("y"), out_specs=P("y"))
        for f in (apart, tnp.sin):
            slope = tb.vmap(tb.grad(lambda r, f=f: f(tb.reshard(r, P("y"))).sum()))
            out = tb.jit(slope)(rows)

            assert P("x", None) == out.sharding.spec
            assert_allclose(out, np.cos(rows), rtol=1e-5)


@eight
def test_names_that_types_say_too() -> None:
    """spmd_axis_name may say what types say, and nothing else."""
    mesh = tb.make_mesh((2, 2), ("x", "y"), tb.sharding.AxisType.Explicit)
    with tb.set_mesh(mesh):
        rows = tb.device_put(np.arange(96, dtype="f4").reshape(4, 24), P("x", "y"))
        f = tb.shard_map(tnp.sin, in_specs=P("y"), out_specs=P("y"))
        assert_allclose(tb.vmap(f, spmd_axis_name="x")(rows), np.sin(rows), rtol=1e-5)
        assert P("x", "y") == tb.jit(tb.vmap(f, spmd_axis_name="x"))(rows).sharding.spec
        with pytest.raises(AxisSpecError, match="types of arrays say already"):
            tb.vmap(tnp.sin, spmd_axis_name="y")(rows)
