"""Types of arrays say how they are split over Explicit axes; operations decide it for results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.sharding import AbstractMesh, AxisType, NamedSharding

P = tb.P
MESH = AbstractMesh((2, 2), ("x", "y"), AxisType.Explicit)


def array(shape: tuple[int, ...], *spec: Any, dtype: str = "float32") -> Any:
    """A stand-in that is split over the mesh."""
    return tb.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def spec_of(fun: Callable[..., Any], *args: Any) -> Any:
    """How the result of ``fun`` is split."""
    (aval,) = tb.make_jaxpr(fun)(*args).out_avals
    return aval.sharding.spec


X = array((8, 4), "x", "y")
ROWS = array((8, 4), "x")
DECIDED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "elementwise": (lambda x: tnp.sin(x) * 2 + x, (X,), P("x", "y")),
    "of two": (lambda x, y: x + y, (ROWS, array((8, 4), None, "y")), P("x", "y")),
    "transpose": (lambda x: x.T, (X,), P("y", "x")),
    "sum": (lambda x: x.sum(1), (X,), P("x")),
    "new axis": (lambda x: x[:, None], (X,), P("x", None, "y")),
    "squeeze": (lambda x: x.squeeze(1), (array((8, 1), "x"),), P("x")),
    "product": (lambda x, y: x @ y, (ROWS, array((4, 6), None, "y")), P("x", "y")),
    "batches": (lambda x, y: x @ y, (array((8, 3, 4), "x"), array((8, 4, 2))), P("x", None, None)),
    "axis in two": (lambda x: x.reshape(8, 2, 2), (X,), P("x", "y", None)),
    "two axes in one": (lambda x: x.reshape(32), (ROWS,), P("x")),
    "slice": (lambda x: x[:, :2], (X,), P("x", "y")),
    "pad": (lambda x: tnp.pad(x, ((0, 0), (2, 2))), (X,), P("x", "y")),
    "argmax": (lambda x: tnp.argmax(x, 0), (X,), P("y")),
    "concatenate": (lambda x: tnp.concatenate([x, x], 1), (X,), P("x", "y")),
    "stack": (lambda x: tnp.stack([x, x]), (X,), P(None, "x", "y")),
    "cumsum": (lambda x: tnp.cumsum(x, 1), (ROWS,), P("x", None)),
    "windows": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 1), "VALID"),
        (X,),
        P("x", None),
    ),
    "windows of equal parts": (
        lambda x: lax.reduce_window(x, -tnp.inf, lax.max, (1, 2), (1, 2), "SAME"),
        (array((8, 8), "x", "y"),),
        P("x", "y"),
    ),
    "gradient of windows": (
        tb.grad(lambda x: lax.reduce_window(x, -tnp.inf, lax.max, (1, 2), (1, 2), "SAME").sum()),
        (array((8, 8), "x", "y"),),
        P("x", "y"),
    ),
    "tangents of windows": (
        lambda x: tb.jvp(
            lambda x: lax.reduce_window(x, -tnp.inf, lax.max, (1, 2), (1, 2), "SAME"), (x,), (x,)
        )[1],
        (array((8, 8), "x", "y"),),
        P("x", "y"),
    ),
    "numbers added to whole rows": (
        lambda x: x.at[:, tnp.array([0, 2])].add(1.0),
        (ROWS,),
        P("x", None),
    ),
    "gradient of what the other spreads": (
        tb.grad(lambda x, y: tnp.sum(x + y)),
        (array((8, 4)), X),
        P(None, None),
    ),
    "gradient of the other": (
        tb.grad(lambda y, x: tnp.sum(x + y)),
        (X, array((8, 4))),
        P("x", "y"),
    ),
    "where": (lambda x: tnp.where(x > 0, x, 0), (X,), P("x", "y")),
    "rows by position": (lambda x: x[:, tnp.array([0, 2])], (ROWS,), P("x", None)),
    "rows of batches": (
        tb.vmap(lambda x, i: x[i]),
        (ROWS, array((8, 3), "x", dtype="int32")),
        P("x", None),
    ),
    "bits": (lambda x: lax.bitcast_convert_type(x, "int8"), (X,), P("x", "y", None)),
    "loop": (lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, 3)[1], (X,), P(None, "x", "y")),
    "zeros": (tnp.zeros_like, (X,), P("x", "y")),
    "gradient": (tb.grad(lambda x: tnp.sum(tnp.sin(x))), (X,), P("x", "y")),
    "derivative of a choice": (tb.grad(lambda x: x.at[:, 1].get().sum()), (ROWS,), P("x", None)),
    "gradient of weights": (
        tb.grad(lambda w, x: tnp.sum((x @ w) ** 2)),
        (array((4, 6), None, "y"), ROWS),
        P(None, "y"),
    ),
    "gradient of rows": (
        tb.grad(lambda x, w: tnp.sum((x @ w) ** 2)),
        (ROWS, array((4, 6), None, "y")),
        P("x", None),
    ),
    "mapped": (tb.vmap(tnp.sin), (X,), P("x", "y")),
    "resharded": (
        lambda x: tb.sharding.reshard(x, NamedSharding(MESH, P(None, "x"))),
        (X,),
        P(None, "x"),
    ),
    "said": (
        lambda x: tnp.matmul(x, x.T, out_sharding=NamedSharding(MESH, P("x"))),
        (X,),
        P("x", None),
    ),
    "said of a choice": (
        lambda x: x.at[tnp.array([0, 3])].get(out_sharding=NamedSharding(MESH, P("x"))),
        (X,),
        P("x", None),
    ),
}


@pytest.mark.parametrize("name", DECIDED)
def test_results_are_split_as_their_operands_are(name: str) -> None:
    """Where no device needs elements of another."""
    fun, args, expected = DECIDED[name]

    assert expected == spec_of(fun, *args)
    assert expected == spec_of(tb.jit(fun), *args)


@pytest.mark.parametrize("update", [False, True])
def test_gradients_over_a_split_batch_are_those_of_whole_weights(update: bool) -> None:
    """Nobody is asked how sums over the batch are split: weights are not, so gradients are not."""

    def loss(weights: Any, rows: Any) -> Any:
        kernel, w, b = weights
        images = lax.conv(rows.reshape(8, 1, 2, 2), kernel, (1, 1), "SAME")
        return tnp.mean(tnp.tanh(rows @ w + b) ** 2) + tnp.sum(rows @ (w + 1)) + images.sum()

    def step(weights: Any, rows: Any) -> Any:
        gradients = tb.grad(loss)(weights, rows)
        if not update:
            return gradients
        return tb.tree.map(lambda w, g: w - g, weights, gradients)

    weights = (array((3, 1, 2, 2)), array((4, 6)), array((6,)))
    found = tb.make_jaxpr(step)(weights, ROWS).out_avals

    assert [(3, 1, 2, 2), (4, 6), (6,)] == [aval.shape for aval in found]
    assert not any(aval.split and any(aval.split.spec) for aval in found)


UNDECIDED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "conflict": (
        lambda x, y: x + y,
        (X, array((8, 4), "y")),
        "add got incompatible shardings",
    ),
    "same name": (
        lambda x, y: x @ y,
        (ROWS, array((4, 6), None, "x")),
        "illegally sharded result, over an axis of the mesh twice",
    ),
    "sums": (lambda x, y: x @ y, (X, array((4, 6), "y")), "Contracting dimensions are sharded"),
    "gather": (lambda x: x[tnp.array([0, 3])], (X,), r"say it: \.at\[...\]\.get\(out_sharding=\)"),
    "scatter": (lambda x: x.at[tnp.array([0, 3])].set(1.0), (X,), r"say it: \.at\[...\]\.set"),
    "slice": (
        lambda x: x[:, :3],
        (X,),
        "slicing on sharded dims: an axis of .* is split into 2 equal parts",
    ),
    "scan": (lambda x: lax.scan(lambda c, r: (c, r), 0.0, x), (X,), "the first axis of xs"),
    "select": (
        lambda x, y: lax.select(x > 0, x, y),
        (X, array((8, 4), "y")),
        "select cases must have the same shardings",
    ),
    "cumsum": (lambda x: tnp.cumsum(x, 0), (X,), "axis 0 of .* is split"),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_is_undecided_is_an_error(name: str) -> None:
    """Nothing is exchanged between devices unasked."""
    fun, args, message = UNDECIDED[name]

    with pytest.raises(ShardingTypeError, match=message):
        tb.make_jaxpr(fun)(*args)


def test_types_of_other_meshes_say_nothing() -> None:
    """Axes of type Auto are the compiler's."""
    mesh = AbstractMesh((2, 2), ("x", "y"), (AxisType.Auto, AxisType.Explicit))
    x = tb.ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(mesh, P("x", "y")))

    assert P(None, "y") == spec_of(lambda x: x, x)
    assert str(tb.make_jaxpr(tnp.sin)(x).out_avals[0]) == "float32[8,4@y]"


def test_a_loop_keeps_the_split_of_its_carry() -> None:
    """A body that changes it is refused, as one that changes a dtype is."""

    def body(carry: Any, _: object) -> Any:
        return tb.sharding.reshard(carry, NamedSharding(MESH, P("y"))), None

    with pytest.raises(TypeError, match="the shardings differ"):
        tb.make_jaxpr(lambda x: lax.scan(body, x, None, 2))(X)


def test_uneven_parts() -> None:
    """A type divides an axis into parts of one size."""
    with pytest.raises(ValueError, match=r"splits axis 0 of the shape \(5,\) into 2 parts"):
        tb.typeof(1.0).update(shape=(5,)).__class__(
            (5,), "float32", sharding=NamedSharding(MESH, P("x"))
        )


def test_stand_ins_of_results_are_split() -> None:
    """What ``eval_shape`` and its kin return says where it is, and is an argument again."""
    with tb.sharding.use_abstract_mesh(MESH):
        results = [
            tb.eval_shape(tnp.sin, X),
            tb.jit(tnp.sin).eval_shape(X),
            tb.make_jaxpr(tnp.sin, return_shape=True)(X)[1],
        ]

    assert [X.sharding] * 3 == [x.sharding for x in results]
    assert tb.eval_shape(lambda x: x.T, results[0]).sharding.spec == P("y", "x")
    assert tb.eval_shape(lambda x: x, tb.ShapeDtypeStruct((2,), "float32")).sharding is None


@pytest.mark.skipif("tb.local_device_count() < 4", reason="needs 4 devices")
def test_stand_ins_are_lowered_for_the_mesh_in_force() -> None:
    """A sharding over an abstract mesh is one over the devices of the mesh that is set."""
    mesh = tb.make_mesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2)
    x = tb.device_put(tnp.ones((8, 4)), NamedSharding(mesh, P("x", "y")))
    stand_in = tb.eval_shape(lambda x: x, x)

    with tb.set_mesh(mesh):
        compiled = tb.jit(lambda x: x + 1).lower(stand_in).compile()

    assert x.sharding == compiled(x).sharding
