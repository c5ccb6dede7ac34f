"""Where computations run while set_mesh is in force: on the devices of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.sharding import AxisType, Mesh, NamedSharding

P = tb.P
X = np.arange(8, dtype="f4")


def mesh(axis_type: AxisType = AxisType.Auto) -> Mesh:
    return tb.make_mesh((4, 2), ("x", "y"), axis_types=(axis_type, axis_type))


def spread(out: Any, place: Mesh) -> bool:
    """Whether a result is committed to the devices of the mesh."""
    whole = P(*[None] * len(out.sharding.spec))
    return out.sharding == NamedSharding(place, whole) and out.committed


CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "jit": (tb.jit(lambda x: 2 * x), 2 * X),
    "no argument used": (tb.jit(lambda _: tnp.ones(3)), np.ones(3)),
    "operation": (tnp.sin, np.sin(X)),
    "operator": (lambda x: x + 1, X + 1),
    "primitive": (lambda x: tb.lax.neg(x), -X),
    "grad": (tb.grad(lambda x: tnp.sum(x**2)), 2 * X),
    "jit of grad": (tb.jit(tb.grad(lambda x: tnp.sum(x**2))), 2 * X),
    "vmap": (tb.vmap(lambda x: x * x), X * X),
    "scan": (lambda x: tb.lax.scan(lambda c, y: (c + y, c), 0.0, x)[1], np.cumsum(X) - X),
    "cond": (lambda x: tb.lax.cond(True, lambda v: v + 1, lambda v: v, x), X + 1),
    "callback": (lambda x: tb.pure_callback(lambda v: np.asarray(v) + 1, x, x), X + 1),
    "stages": (lambda x: tb.jit(lambda v: v + 1).lower(x).compile()(x), X + 1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_uncommitted_arguments_go_to_the_mesh(name: str, axis_type: AxisType) -> None:
    """Results are whole on each device while the mesh is in force, and as before after it."""
    f, expected = CALLS[name]
    place = mesh(axis_type)
    x = tnp.asarray(X)

    before = f(x)
    with tb.set_mesh(place):
        inside = f(x)
        again = f(inside)
    after = f(x)

    assert spread(inside, place)
    assert spread(again, place)
    assert np.allclose(expected, inside)
    for out in (before, after):
        assert out.sharding == x.sharding
        assert np.allclose(expected, out)


def test_the_statement_reaches_cached_calls() -> None:
    """``set_mesh`` as a statement: functions and operations that ran before it go to the mesh."""
    place, x = mesh(), tnp.asarray(X)
    f = tb.jit(lambda v: v + 1)
    calls = (f, tnp.sin, lambda v: tb.lax.neg(v), lambda v: v + 1)
    for call in calls:
        call(x)

    tb.set_mesh(place)
    try:
        assert all(spread(call(x), place) for call in calls for _ in range(2))
    finally:
        tb.set_mesh(None)
    assert all(call(x).sharding == x.sharding for call in calls)


def test_arguments_over_the_mesh_keep_their_parts() -> None:
    """Of arrays that are split over the mesh in force, of its constraints, and of transfers."""
    place = mesh()
    rows = NamedSharding(place, P("x"))
    f = tb.jit(lambda v: 2 * v)
    with tb.set_mesh(place):
        split = tb.device_put(X, P("x"))
        assert rows == f(split).sharding == (split + 1).sharding
        assert rows == tb.jit(lambda v: tb.lax.with_sharding_constraint(v, P("x")))(X).sharding
        assert rows == tb.jit(lambda v: v + 1, out_shardings=P("x"))(X).sharding
        assert 1 == len(tb.device_put(X).sharding.device_set)


@pytest.mark.parametrize("where", [0, 3])
def test_arguments_committed_elsewhere_are_refused(where: int) -> None:
    """They name both places."""
    x = tb.device_put(X, tb.devices()[where])
    with (
        tb.set_mesh(mesh()),
        pytest.raises(
            DevicePlacementError, match=r"argument 0 is committed to .* the mesh of set_mesh"
        ),
    ):
        tb.jit(lambda v: v + 1)(x)


def test_results_go_with_arguments_of_one_device() -> None:
    """After the block: the results are committed, and uncommitted arrays follow them."""
    place = mesh()
    with tb.set_mesh(place):
        out = tb.jit(lambda v: v + 1)(X)

    assert spread(tb.jit(lambda a, b: a + b)(out, tnp.asarray(X)), place)
    with pytest.raises(DevicePlacementError, match="committed to different devices"):
        tb.jit(lambda a, b: a + b)(out, tb.device_put(X, tb.devices()[1]))


def test_with_mesh_and_abstract_meshes_move_nothing() -> None:
    """``with mesh`` and ``use_abstract_mesh`` say what specifications mean, and no more."""
    place, x = mesh(), tnp.asarray(X)
    f = tb.jit(lambda v: v + 1)
    with tb.set_mesh(place):
        assert spread(f(x), place)
        with place:
            assert x.sharding == f(x).sharding == tnp.sin(x).sharding
            assert NamedSharding(place, P("x")) == tb.device_put(x, P("x")).sharding
    with tb.sharding.use_abstract_mesh(place.abstract_mesh):
        assert x.sharding == f(x).sharding
    with place:
        assert x.sharding == f(x).sharding


def test_a_mesh_of_one_device() -> None:
    """It commits results to it."""
    place = tb.make_mesh((1,), ("x",), devices=tb.devices()[2:3])
    with tb.set_mesh(place):
        out = tb.jit(lambda v: v + 1)(X)

    assert {tb.devices()[2]} == out.sharding.device_set
    assert spread(out, place)


def test_other_computations_inside() -> None:
    """pmap, a device of its own, effects and donation work while a mesh is in force."""
    with tb.set_mesh(mesh()):
        assert np.array_equal(2 * X, tb.pmap(lambda v: 2 * v)(X))
        assert np.array_equal(2 * X, tb.pmap(lambda v: 2 * v)(tnp.sin(tnp.zeros(8)) + X))
        seen: list[Any] = []
        tb.jit(lambda v: tb.debug.callback(lambda w: seen.append(float(w)), v.sum()))(X)
        tb.effects_barrier()
        assert 28.0 in seen
        given = tnp.asarray(X)
        assert np.array_equal(X + 1, tb.jit(lambda v: v + 1, donate_argnums=0)(given))
        key = tb.jit(lambda v: v + 1, static_argnums=())(3.0)
        assert 4.0 == float(key)


def test_numbers_as_operands() -> None:
    """Python numbers follow arrays to their mesh, each with its own sign, type and value."""
    rows = NamedSharding(mesh(), P("x"))
    split = tb.device_put(X, rows)

    for _ in range(2):
        for number in (1, 1.0, True, 2.5, 0.0, -0.0):
            out = split * number
            assert np.array_equal(X * np.float32(number), out)
            assert np.array_equal(np.signbit(X * np.float32(number)), np.signbit(out))
            assert rows == out.sharding
        assert np.array_equal(X // 2, split // 2)
        assert np.array_equal(np.clip(X, 1, 5), tnp.clip(split, 1, 5))
        mixed = tnp.where(split > 3, tnp.float32(7), 2.0)
        assert np.array_equal(np.where(X > 3, 7, 2), mixed)
    with tb.set_mesh(mesh()):
        assert spread(tnp.asarray(X) + 1, mesh())


def test_names_of_axes_survive_over_one_device() -> None:
    """Nothing is split there; results are named as the first argument of their shape."""
    place = NamedSharding(Mesh([tb.devices()[0]], ("x",)), P(None, "x"))
    x = tb.device_put(np.ones((2, 3)), place)

    found = [2 * x, *tb.jit(lambda x: (x.T, x + 1))(x)]
    assert [place.spec, P(), place.spec] == [out.sharding.spec for out in found]
    typed = NamedSharding(tb.make_mesh((1,), ("x",), AxisType.Explicit), P("x"))
    made = tb.jit(lambda x: (2 * x, tnp.ones(4)))(tb.device_put(np.ones(4), typed))
    assert [P("x"), P()] == [out.sharding.spec for out in made]
