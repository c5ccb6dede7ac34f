"""reshard, auto_axes, explicit_axes: arrays over meshes with axes of the type Explicit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import AxisSpecError, TreeMismatchError
from tracebridge.sharding import (
    AxisType,
    ManualAxisType,
    NamedSharding,
    auto_axes,
    explicit_axes,
    reshard,
)
from tracebridge.testing import assert_allclose

eight = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
P = tb.P
X = np.arange(16, dtype="f4").reshape(4, 4)


def mesh(types: Any = AxisType.Explicit) -> Any:
    return tb.make_mesh((4, 2), ("x", "y"), types)


@eight
def test_reshard() -> None:
    """Trees, at once and compiled, by shardings and by specifications."""
    rows = NamedSharding(mesh(), P("x"))

    for f in (reshard, tb.reshard, tb.jit(reshard, static_argnums=1)):
        assert rows.update(spec=P("x", None)) is f(X, rows).sharding
        assert_allclose(f(X, rows), X)
    with tb.set_mesh(mesh()):
        out = reshard({"a": X, "b": (X, X)}, {"a": P("x"), "b": P("y", "x")})
        assert (P("x", None), P("y", "x")) == (out["a"].sharding.spec, out["b"][1].sharding.spec)
    gradient = tb.grad(lambda x: (reshard(x, rows) ** 2).sum())(X)
    assert_allclose(gradient, 2 * X)
    assert_allclose(tb.vmap(lambda x: reshard(x, NamedSharding(mesh(), P("y"))))(X), X)


@eight
@pytest.mark.parametrize(
    ("error", "message", "shardings"),
    [
        (AxisSpecError, "out_shardings has a None", None),
        (AxisSpecError, "no mesh is in force", P("x")),
        (ArgumentTypeError, "out_sharding is 3 of type int", 3),
        (TreeMismatchError, "out_shardings", (P("x"), P("x"))),
    ],
)
def test_bad_shardings(error: Any, message: str, shardings: Any) -> None:
    """Of reshard."""
    with pytest.raises(error, match=message):
        reshard(X, shardings)
    with pytest.raises(AxisSpecError, match=r"'x' has the type AxisType\.Auto"):
        reshard(X, NamedSharding(mesh(AxisType.Auto), P("x")))


@eight
def test_auto_axes() -> None:
    """Results are split as asked for; over other meshes nothing changes."""
    double = lambda x: lax.with_sharding_constraint(2 * x, P("y"))
    with tb.set_mesh(mesh()):
        for f in (
            auto_axes(double, out_sharding=P("x")),
            auto_axes(axes="x", out_sharding=P("x"))(double),
            lambda x: auto_axes(double)(x, out_sharding=P("x")),
            tb.jit(auto_axes(double, out_sharding=P("x"))),
        ):
            assert P("x", None) == f(X).sharding.spec
            assert_allclose(f(X), 2 * X)
        with pytest.raises(ArgumentTypeError, match="auto_axes: out_sharding is not given"):
            auto_axes(double)(X)
    with tb.set_mesh(mesh(AxisType.Auto)):
        assert P("y") == auto_axes(double, out_sharding=P("x"))(X).sharding.spec


@eight
def test_explicit_axes() -> None:
    """Arguments are split as asked for."""
    seen: list[Any] = []

    def double(x: Any, y: Any) -> Any:
        seen.append((x.sharding.spec, y.sharding.spec))
        return x.sum() + y.sum()

    with tb.set_mesh(mesh(AxisType.Auto)):
        for f in (
            explicit_axes(double, in_sharding=(P("x"), P("y"))),
            explicit_axes(axes=("x", "y"), in_sharding=(P("x"), P("y")))(double),
            lambda x, y: explicit_axes(double)(x, y, in_sharding=(P("x"), P("y"))),
        ):
            assert_allclose(f(X, X), 2 * X.sum())
        with pytest.raises(ArgumentTypeError, match="explicit_axes: in_sharding is not given"):
            explicit_axes(double)(X, X)
    assert [(P("x", None), P("y", None))] * 3 == seen


def test_functions_are_checked() -> None:
    """At once, not at the call."""
    for make in (auto_axes, explicit_axes):
        with pytest.raises(TypeError, match=make.__name__):
            make(3)


def test_manual_axis_type() -> None:
    """Names of axes by role; a name has one role."""
    kind = ManualAxisType(varying=frozenset("xy"), reduced=frozenset("z"))

    assert (frozenset("xy"), frozenset(), frozenset("z")) == (
        kind.varying,
        kind.unreduced,
        kind.reduced,
    )
    assert kind == ManualAxisType(varying=frozenset("yx"), reduced=frozenset("z"))
    assert hash(kind) == hash(ManualAxisType(varying=frozenset("yx"), reduced=frozenset("z")))
    assert kind != ManualAxisType()
    empty = "ManualAxisType(varying=frozenset(), unreduced=frozenset(), reduced=frozenset())"
    assert empty == repr(ManualAxisType())
    with pytest.raises(AxisSpecError, match="a name has two roles"):
        ManualAxisType(varying=frozenset("x"), reduced=frozenset("x"))


@eight
def test_programs_over_explicit_axes() -> None:
    """Results are where their types say, at once and compiled; rows and numbers can be read."""
    place = NamedSharding(mesh(), P("x", "y"))
    x = tb.device_put(X, place)

    assert P("x", "y") == tb.typeof(x).sharding.spec
    for f in (lambda x: tb.numpy.sin(x).T, tb.jit(lambda x: tb.numpy.sin(x).T)):
        assert P("y", "x") == f(x).sharding.spec
        assert_allclose(f(x), np.sin(X).T, rtol=1e-6)
        gradient = tb.grad(lambda x, f=f: f(x).sum())(x)
        assert place is gradient.sharding
    assert place is tb.vmap(tb.numpy.sin)(x).sharding
    assert [*map(sum, X.tolist())] == [float(row.sum()) for row in x]
    with tb.set_mesh(mesh()):
        assert x is lax.with_sharding_constraint(x, P("x", "y"))
        with pytest.raises(AssertionError, match="is not split as"):
            lax.with_sharding_constraint(x, P("x"))


@eight
def test_types_as_arguments_keep_their_split() -> None:
    """The type of an array stands for the array where only types are asked for."""
    rows = tb.device_put(X, NamedSharding(mesh(), P("x")))

    for fun in (lambda x: x * 2, tb.grad(lambda x: (x * x).sum()), tb.jit(lambda x: x)):
        assert tb.eval_shape(fun, rows) == tb.eval_shape(fun, tb.typeof(rows))
        assert P("x", None) == tb.eval_shape(fun, tb.typeof(rows)).sharding.spec


@eight
@pytest.mark.parametrize("compiled", [False, True])
def test_equal_results_of_vmap_are_split_as_the_others(compiled: bool) -> None:
    """The new axis of what does not depend on mapped arguments; not where its axis is taken."""

    def f(x: Any, y: Any) -> Any:
        return x, tb.numpy.zeros(3), y

    mapped = tb.vmap(f, in_axes=(0, None), out_axes=(0, 1, 1))
    run = tb.jit(mapped) if compiled else mapped
    with tb.set_mesh(mesh()):
        x, columns, free = (
            tb.device_put(X, NamedSharding(mesh(), spec)) for spec in (P("x"), P("y"), P())
        )
        for other, spec in ((free, P(None, "x", None)), (columns, P("y", "x", None))):
            outs = run(x, other)
            assert [P(None, "x"), spec] == [o.sharding.spec for o in outs[1:]]
            assert_allclose(outs[2], np.stack([X] * 4, 1))
        taken = tb.vmap(lambda x, y: y, in_axes=(0, None))(x, x)
        assert_allclose(taken, np.stack([X] * 4))
        gradient = tb.grad(lambda y: (run(x, y)[2] ** 2).sum())(free)
        assert_allclose(gradient, 8 * X)


@eight
def test_open_axes_of_arguments_are_refused() -> None:
    """UNCONSTRAINED is for constraints."""
    open_axis = NamedSharding(mesh(AxisType.Auto), P(P.UNCONSTRAINED, "x"))
    for option in ("in_shardings", "out_shardings"):
        with pytest.raises(ValueError, match=f"{option}: Unconstrained dims are not allowed"):
            tb.jit(lambda x: x, **{option: open_axis})


@eight
def test_constraints_of_free_axes_stay_beside_types() -> None:
    """A constraint over an axis of type Auto does not take what the type says away."""
    mixed = mesh((AxisType.Explicit, AxisType.Auto))
    with tb.set_mesh(mixed):
        x = tb.device_put(np.arange(16.0).reshape(8, 2), P("x"))
        for spec in (P("y"), P(("x", "y")), P(P.UNCONSTRAINED), P(None, "y"), P()):
            out = tb.jit(lambda x, s=spec: lax.with_sharding_constraint(x, s) * 2)(x)
            assert P("x", None) == tb.typeof(out).sharding.spec
            assert_allclose(out, 2 * x)


@eight
def test_results_that_are_not_split_say_so_for_each_axis() -> None:
    """At once as in programs."""

    def made() -> tuple[Any, ...]:
        ones = tb.numpy.ones((4, 4), out_sharding=P("x"))
        return (
            tb.numpy.zeros((2, 3), out_sharding=P()),
            tb.numpy.einsum("ab,cb->ac", ones, tb.numpy.ones((2, 4)), out_sharding=P()),
            reshard(ones, P()),
        )

    with tb.set_mesh(mesh()):
        for outs in (made(), tb.jit(made)()):
            assert [P(None, None)] * 3 == [out.sharding.spec for out in outs]


@eight
def test_xla_splits_results_over_the_axes_that_types_leave_free() -> None:
    """Of a mesh with both kinds of axes, beside what types say; whole where nothing is split."""
    mixed = mesh((AxisType.Explicit, AxisType.Auto))
    with tb.set_mesh(mixed):
        x = tb.device_put(X, P("x", "y"))
        assert P("x", None) == tb.typeof(x).sharding.spec
        for run in (lambda f: f, tb.jit):
            turned, same, made = run(lambda x: (x.T, x * 2, tb.numpy.ones((4, 4))))(x)
            specs = [out.sharding.spec for out in (turned, same, made)]
            assert [P("y", "x"), P("x", "y"), P(None, None)] == specs
            assert_allclose(turned, X.T)
            last, all_steps = run(lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, length=3))(x)
            assert P("x", "y") == last.sharding.spec
            assert P(None, "x", "y") == all_steps.sharding.spec
            assert P("x", "y") == run(tb.grad(lambda x: (x * x).sum()))(x).sharding.spec
        fixed = tb.jit(lambda x: x * 2, out_shardings=P("x"))(x)
        assert P("x") == fixed.sharding.spec
        free = tb.device_put(X, P(None, "y"))
        assert P(None, "y") == (free + 1).sharding.spec
        summed = tb.jit(lambda x: x.sum(0))(x)
        assert P("y") == summed.sharding.spec
        keys = tb.jit(lambda k: tb.random.split(k, 4))(tb.random.key(0))
        assert keys.is_fully_replicated


@eight
def test_types_stay_where_xla_would_join_axes() -> None:
    """A program that moves what is split: the type says which axis the names stand at."""
    mixed = mesh((AxisType.Explicit, AxisType.Auto))
    with tb.set_mesh(mixed):
        x = tb.device_put(np.arange(64.0, dtype="f4").reshape(8, 8), P(("x", "y"), None))
        both = tb.jit(lambda x: reshard(x, P(None, "x")) + 1)(x)
        assert P(None, "x") == tb.typeof(both).sharding.spec
        assert_allclose(both, np.arange(64.0).reshape(8, 8) + 1)
        y = tb.device_put(np.arange(64.0, dtype="f4").reshape(8, 8), P(("y", "x"), None))
        same = tb.jit(lambda y: y * 1)(y)
        assert P("x", None) == tb.typeof(same).sharding.spec
        assert_allclose(same, y)
        three = tb.jit(lambda x: x.reshape(2, 4, 8), out_shardings=P())(both)
        assert_allclose(three, both.reshape(2, 4, 8))


@eight
def test_results_of_exported_programs_have_their_types() -> None:
    """Saved and loaded too, at once and in programs; with derivatives."""
    with tb.set_mesh(mesh()):
        x = tb.device_put(X, P("x", "y"))
        made = tb.export.export(tb.jit(lambda x: (x * 2, x.sum(0))))(x)
        for program in (made, tb.export.deserialize(made.serialize(vjp_order=1))):
            for call in (program.call, tb.jit(program.call)):
                doubled, summed = call(x)
                assert (P("x", "y"), P("y")) == (doubled.sharding.spec, summed.sharding.spec)
                assert_allclose(doubled, 2 * X)
            gradient = tb.grad(lambda x, p=program: (p.call(x)[0] ** 2).sum())(x)
            assert P("x", "y") == gradient.sharding.spec
            assert_allclose(gradient, 8 * X)
