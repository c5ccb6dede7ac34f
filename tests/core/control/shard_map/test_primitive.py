"""shard_map computes what a program of whole arrays computes, under every transformation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.control.shard_map.grids import TOL, Fun, Host, X, mesh, over, sample
from tests.quick_compiles import check_grads
from tracebridge import P, lax
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSizeError, AxisSpecError, EffectError
from tracebridge.experimental import io_callback
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
GRID = P("x", "y")
GROUPS = [[0, 2], [3, 1]]


def blocks(x: Any, sizes: tuple[int, int] = (2, 4)) -> Any:
    """The blocks of a matrix, as two axes in front."""
    a, b = sizes
    n, m = x.shape
    return x.reshape(a, n // a, b, m // b).transpose(0, 2, 1, 3)


def by_vmap(f: Fun) -> Fun:
    """What each device of the grid 2 x 4 computes of its block of a matrix, by vmap."""
    inner = tb.vmap(tb.vmap(f, axis_name="y"), axis_name="x")
    return lambda x: inner(blocks(x))


def collectives(b: Any) -> dict[str, Any]:
    """Results of each collective of a block of (4, 2), all of two axes."""
    ring = [(i, (i + 1) % 4) for i in range(4)]
    return {
        "psum": lax.psum(b * b, "x"),
        "psum of two": lax.psum(b * b, ("y", "x")),
        "psum in groups": lax.psum(b, "y", axis_index_groups=[[0], [3, 1, 2]]),
        "pmean": lax.pmean(b, "y") * b,
        "pmax": lax.pmax(b, ("x", "y")),
        "pmin": lax.pmin(b, "y", axis_index_groups=GROUPS),
        "ppermute": lax.ppermute(b, "y", ring),
        "ppermute of some": lax.ppermute(b, "x", [(0, 1)]),
        "ppermute of two": lax.ppermute(b, ("x", "y"), [(i, (i + 3) % 8) for i in range(8)]),
        "pshuffle": lax.pshuffle(b, "y", [2, 0, 3, 1]),
        "pbroadcast": lax.pbroadcast(b, "y", 2),
        "all_gather": lax.all_gather(b, "y")[:, 0],
        "all_gather tiled": lax.all_gather(b, ("x", "y"), axis=1, tiled=True),
        "all_gather in groups": lax.all_gather(b, "y", axis_index_groups=GROUPS, tiled=True),
        "psum_scatter": lax.psum_scatter(b, "y")[None],
        "psum_scatter tiled": lax.psum_scatter(b, "x", scatter_dimension=1, tiled=True),
        "psum_scatter in groups": lax.psum_scatter(b, "y", axis_index_groups=GROUPS, tiled=True),
        "all_to_all": lax.all_to_all(b, "y", 0, 1),
        "all_to_all tiled": lax.all_to_all(b, "x", 1, 0, tiled=True),
        "all_to_all in groups": lax.all_to_all(b, "y", 0, 1, axis_index_groups=GROUPS, tiled=True),
        "axis_index": b * (1.0 + lax.axis_index(("x", "y"))),
        "axis_size": b * lax.axis_size(("x", "y")),
    }


def control_flow(b: Any) -> dict[str, Any]:
    """Calls, loops and branches around collectives and positions."""

    def step(carry: Any, row: Any) -> Any:
        return carry + lax.psum(row, "y") * tnp.sin(carry), carry * lax.axis_index("y")

    total = lax.psum(b.sum(), ("x", "y"))
    branches = (lambda z: lax.psum(z, "x") * z, lambda z: lax.pmax(z, "x"))
    return {
        "jit": tb.jit(lambda z: lax.psum(tnp.sin(z), "x") * lax.axis_index("y"))(b),
        "scan": lax.scan(step, b[0], b)[1],
        "cond": lax.cond(total > 0, *branches, b),
        "own cond": lax.cond(b.sum() > 0, tnp.sin, tnp.cos, b),
        "fori_loop": lax.fori_loop(0, 3, lambda i, c: lax.pmean(tnp.sin(c), "y") + i * b, b),
        "checkpoint": tb.checkpoint(lambda z: lax.psum(tnp.sin(tnp.sin(z)), "y"))(b),
        "vmap": tb.vmap(lambda r: r * lax.psum(r, ("y", "k")), axis_name="k")(b),
        "grad": tb.grad(lambda z: tnp.sum(tnp.sin(z) ** 3))(b),
        "pmap": tb.pmap(lambda r: r * lax.psum(r, "k"), axis_name="k")(b),
    }


@pytest.mark.parametrize("f", [collectives, control_flow])
def test_values_and_derivatives(f: Fun) -> None:
    """Each device computes what its element computes under vmap, and so do derivatives."""
    mapped, reference = over(f, GRID, GRID), by_vmap(f)

    def whole(tree: Any) -> Any:
        """Blocks side by side."""
        return tb.tree.map(
            lambda z: z.transpose(0, 2, 1, 3).reshape(z.shape[0] * z.shape[2], -1), tree
        )

    def expected(x: Any) -> Any:
        return whole(reference(x))

    def total(g: Fun) -> Fun:
        return lambda x: sum(tnp.sum(tnp.sin(z)) for z in tb.tree.leaves(g(x)))

    v = sample(8, 8, seed=1)

    def slopes(g: Fun) -> Any:
        """The gradient, and its derivative in one direction."""
        return tb.jit(lambda x: tb.jvp(tb.grad(total(g)), (x,), (v,)))(X)

    assert_allclose(mapped(X), expected(X), **TOL)
    assert_allclose(slopes(mapped), slopes(expected), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sizes", [(8,), (2, 2), (2, 4), (1, 1), (8, 1)], ids=str)
def test_blocks_and_sums(sizes: tuple[int, ...]) -> None:
    """Values by NumPy: a sum over devices of blocks, positions, in eager and compiled calls."""
    names = tuple("xy"[: len(sizes)])
    n = int(np.prod(sizes))

    def f(b: Any) -> Any:
        return lax.psum(b, "x"), b + lax.axis_index(names)

    mapped = over(f, P(names), (P(names[1:] or None), P(names)), sizes)
    rest = n // sizes[0]
    sums = X.reshape(sizes[0], rest, 8 // n, 8).sum(0).reshape(8 // sizes[0], 8)
    places = X + np.repeat(np.arange(n), 8 // n)[:, None]

    assert_allclose(mapped(X), (sums, places), **TOL)
    assert_allclose(tb.jit(mapped)(X), (sums, places), **TOL)


def test_results_are_where_they_are_said_to_be() -> None:
    """The sharding of a result is that of its specification; the axes may come in any order."""
    f = over(lambda b: (b, lax.axis_index("x")[None]), P(("y", "x")), (P(None, ("x", "y")), P("x")))
    wide, index = f(X)
    order = [y * 2 + x for x in range(2) for y in range(4)]

    assert P(None, ("x", "y")) == wide.sharding.spec
    assert_allclose(wide, np.concatenate([X[i : i + 1] for i in order], 1))
    assert [0, 1] == index.tolist()
    assert (1, 8) == wide.addressable_shards[0].data.shape
    assert wide.committed


def test_rules_of_users_inside() -> None:
    """A custom_vjp, whose rules use the axes, and see cotangents as types say: once for all."""

    @tb.custom_vjp
    def f(b: Any) -> Any:
        return lax.psum(b, "x") * 2

    f.defvjp(lambda b: (f(b), None), lambda _, ct: (ct * 7,))
    mapped = over(f, P("x"), P("x"), (2,))

    assert_allclose(mapped(X), np.tile(2 * (X[:4] + X[4:]), (2, 1)), **TOL)
    assert_allclose(tb.grad(lambda x: mapped(x)[:4].sum())(X), np.full((8, 8), 7.0))


def test_gradients_by_finite_differences() -> None:
    """A value that all devices have, one that is split, a number; results that are the same."""

    def f(w: Any, b: Any, s: Any) -> Any:
        same = tnp.sin(w) * s
        return same, lax.psum(b @ same, "y"), lax.pmax(b, "x") * s

    mapped = over(f, (P(), GRID, None), (P(), P("x"), P(None, "y")))
    check_grads(mapped, (sample(2, 3), X, np.float32(0.7)), order=2, atol=2e-2, rtol=2e-2)


def test_shared_results_divide_their_cotangent() -> None:
    """Three devices with the same result give the gradient once, whatever is inside."""

    def total(f: Fun, *names: str) -> Any:
        return tb.grad(lambda x: over(f, P(), P(*names), (3,))(x).sum())(X)

    assert_allclose(total(lambda x: x * 3), np.full((8, 8), 3.0))
    assert_allclose(total(lambda x: lax.psum(x, "x")), np.full((8, 8), 3.0))
    assert_allclose(total(lambda x: x * 2, "x"), np.full((8, 8), 6.0))


def test_transformations_around() -> None:
    """vmap, loops and branches of an outer program, checkpoint, linearize."""
    f = over(lambda b: lax.psum(tnp.sin(b), "y"), GRID, P("x"))

    def g(x: Any) -> Any:
        return tnp.sin(x).reshape(8, 4, 2).sum(1)

    def around(h: Fun) -> Fun:
        def run(x: Any) -> Any:
            wide = tb.vmap(h, in_axes=1)(tnp.stack([x, 2 * x], 1))
            carry, ys = lax.scan(
                lambda c, k: (tnp.tile(h(c), (1, 4)) * k, h(c)), x, tnp.arange(1.0, 3)
            )
            chosen = tb.vmap(lambda p, z: lax.cond(p, h, lambda w: w[:, :2], z))(
                tnp.array([True, False]), tnp.stack([x, x])
            )
            pushed = tb.linearize(h, x)[1](x)
            kept = tb.checkpoint(lambda z: h(tnp.sin(z)))(x)
            return wide, carry, ys, chosen, pushed, kept

        return run

    def total(h: Fun) -> Fun:
        return lambda x: sum(tnp.sum(tnp.sin(z)) for z in tb.tree.leaves(around(h)(x)))

    assert_allclose(tb.jit(around(f))(X), around(g)(X), **TOL)
    assert_allclose(tb.jit(tb.grad(total(f)))(X), tb.grad(total(g))(X), rtol=1e-3, atol=1e-3)
    assert_allclose(
        tb.linear_transpose(over(lambda b: lax.psum(b, "y"), GRID, P("x")), X)(np.ones((8, 2)))[0],
        np.ones((8, 8)),
    )


def test_names_of_axes_around() -> None:
    """A mapped axis of the same name is another one; others can be named inside."""
    f = over(lambda b: lax.psum(b, "x"), P("x"), P(), (2,))
    g = over(lambda b: lax.psum(b, ("x", "k")), P("x"), P(), (2,))
    wide = np.stack([X, 2 * X, X + 1])
    sums = wide[:, :4] + wide[:, 4:]

    assert_allclose(tb.vmap(f, axis_name="x")(wide), sums, **TOL)
    assert_allclose(tb.vmap(g, axis_name="k")(wide), np.tile(sums.sum(0), (3, 1, 1)), **TOL)


def test_spmd_axis_name() -> None:
    """The mapped axis is split over an axis of the mesh that nothing inside names."""
    f = over(lambda b: lax.psum(b, "y"), P(None, "y"), P(), (2, 4))
    wide = np.stack([X, 2 * X])
    mapped = tb.vmap(f, spmd_axis_name="x")
    out = mapped(wide)

    assert P("x") == out.sharding.spec
    assert_allclose(out, wide.reshape(2, 8, 4, 2).sum(2), **TOL)
    assert_allclose(tb.grad(lambda x: mapped(x).sum())(wide), np.ones((2, 8, 8)))
    with pytest.raises(AxisSpecError, match=r"spmd_axis_name names the axis 'y', which shard_map"):
        tb.vmap(f, spmd_axis_name="y")(wide)
    with pytest.raises(AxisSizeError, match=r"of 2 devices, but the mapped axis has size 3"):
        mapped(np.stack([X, X, X]))


def test_some_axes_are_left_to_the_compiler() -> None:
    """Over ``axis_names`` arrays are blocks, over the others they are whole; also one in one."""
    f = over(
        lambda b: lax.psum(b, "x") * (1 + lax.axis_index("x")), P("x"), P("x"), axis_names={"x"}
    )
    total = X[:4] + X[4:]
    expected = np.concatenate([total, 2 * total])
    spread = tb.device_put(X, tb.NamedSharding(mesh(2, 4), GRID))

    def outer(b: Any) -> Any:
        def inner(c: Any) -> Any:
            return lax.psum(c, "y") + lax.axis_index("x") + 10 * lax.axis_index("y")

        mapped = tb.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"))
        assert ("x",) == tb.sharding.get_mesh().manual_axes
        return mapped(lax.psum(b, "x"))

    nested = over(outer, P("x"), P("x"), axis_names={"x"})
    sums = np.tile(total.reshape(4, 4, 2).sum(1), (1, 4)) + 10 * np.repeat(np.arange(4), 2)
    places = np.concatenate([sums, sums + 1])

    assert_allclose(f(X), expected, **TOL)
    assert_allclose(tb.jit(f)(spread), expected, **TOL)
    assert_allclose(tb.grad(lambda x: f(x).sum())(X), np.full((8, 8), 3.0), **TOL)
    assert_allclose(tb.jit(nested)(X), places, **TOL)
    assert_allclose(
        tb.grad(lambda x: (nested(x) ** 2).sum())(X), np.tile(8 * _back(places), (2, 1)), **TOL
    )


def _back(places: Host) -> Host:
    """Cotangents of the sums above, over rows of both halves, four blocks of columns each."""
    both = places[:4] + places[4:]
    return np.tile(both.reshape(4, 4, 2).sum(1), (1, 4)) / 4


def test_on_one_device() -> None:
    """Without a mesh of devices the blocks are computed as by vmap, also in exported programs."""
    abstract = tb.sharding.AbstractMesh((2, 4), ("x", "y"))

    def ranked(b: Any) -> Any:
        return lax.all_gather(tnp.sin(b), "y", axis=1, tiled=True) * lax.axis_index("x")

    f = tb.shard_map(ranked, mesh=abstract, in_specs=GRID, out_specs=P("x"))
    g = over(ranked, GRID, P("x"))
    spread = tb.device_put(X, tb.NamedSharding(mesh(2, 4), GRID))
    loaded = tb.export.deserialize(tb.export.export(tb.jit(g))(X).serialize())

    assert_allclose(tb.jit(f)(X), g(X), **TOL)
    assert_allclose(loaded.call(X), g(X), **TOL)
    assert_allclose(f(spread), g(X), **TOL)
    assert tb.eval_shape(g, X) == tb.eval_shape(f, X)
    with pytest.raises(DevicePlacementError, match="has no devices"):
        f(X)


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "complex64", "bool", "float64"])
def test_dtypes(dtype: str) -> None:
    """Numbers of all kinds are summed, gathered and sent."""
    x = (np.arange(16).reshape(4, 4) % 5).astype(tnp.bfloat16 if dtype == "bfloat16" else dtype)
    with tb.enable_x64(dtype == "float64"):
        total, gathered, sent = over(
            lambda b: (
                lax.psum(b, "x"),
                lax.all_gather(b, "x", tiled=True),
                lax.ppermute(b, "x", [(0, 1), (1, 0)]),
            ),
            P("x"),
            (P(), P(), P("x")),
            (2,),
        )(x)

    assert (x.dtype, x.dtype) == (gathered.dtype, sent.dtype)
    assert_allclose(gathered, x)
    assert_allclose(sent, np.concatenate([x[2:], x[:2]]))
    assert_allclose(total, x[:2].astype(total.dtype) + x[2:].astype(total.dtype))


def test_keys_numbers_and_empty_arrays() -> None:
    """Random keys are split and shared; scalars, no elements, no arguments, closed-over arrays."""
    keys = tb.random.split(tb.random.key(0), 8)
    draws = over(lambda k, b: b * tb.random.normal(k[0], b.shape), (P("x"), P("x")), P("x"), (8,))
    expected = np.stack([np.asarray(tb.random.normal(k, (1, 8)))[0] for k in keys])

    assert_allclose(draws(keys, X), X * expected, **TOL)
    assert_allclose(tb.grad(lambda x: draws(keys, x).sum())(X), expected, **TOL)
    assert_allclose(over(lambda s, b: s * b + X[:4, :2], (P(), GRID), GRID)(2.0, X)[:4, :2],
                    3 * X[:4, :2], **TOL)  # fmt: skip
    assert (0, 8) == np.asarray(over(lambda b: lax.psum(b, "x"), GRID, P(None, "y"))(X[:0])).shape
    assert [0, 1] == over(lambda: lax.axis_index("x")[None], (), P("x"), (2,))().tolist()


def test_callbacks() -> None:
    """Each device calls the host with its block; ordered calls are refused."""

    def triple(b: Any, **options: Any) -> Any:
        shape = tb.ShapeDtypeStruct(b.shape, b.dtype)
        return io_callback(lambda v: np.asarray(v) * 3, shape, b, **options)

    assert_allclose(over(triple, GRID, GRID)(X), 3 * X)
    with pytest.raises(EffectError, match=r"(?s)shard_map\(.*the devices have no common order"):
        over(lambda b: triple(b, ordered=True), GRID, GRID)(X)


def test_constraints_inside() -> None:
    """A constraint says something about axes that are left to the compiler, and only about them."""
    there = tb.NamedSharding(mesh(2, 4), P(None, "y"))

    def f(b: Any) -> Any:
        return lax.with_sharding_constraint(b * 2, there)

    assert_allclose(over(f, GRID, GRID)(X), 2 * X)
    assert_allclose(over(f, P("x"), P("x"), axis_names={"x"})(X), 2 * X)
    with pytest.raises(AxisSpecError, match=r"names the axis 'y', which is manual inside"):
        over(f, P(None, "y"), P(None, "y"), axis_names={"y"})(X)


def test_other_meshes() -> None:
    """Arguments come from anywhere; one program has one mesh."""
    f = over(lambda b: lax.psum(b, "y"), GRID, P("x"))
    expected = X.reshape(8, 4, 2).sum(1)
    other = tb.NamedSharding(mesh(8), P("x"))
    reverse = tb.sharding.Mesh(np.array(tb.devices()[::-1]).reshape(2, 4), ("x", "y"))
    g = tb.shard_map(lambda b: b, mesh=reverse, in_specs=GRID, out_specs=GRID)

    assert_allclose(f(tb.device_put(X, other)), expected, **TOL)
    assert_allclose(tb.jit(f)(tb.device_put(X, other)), expected, **TOL)
    assert_allclose(f(tb.device_put(X, tb.devices()[3])), expected, **TOL)
    assert_allclose(g(X), X)
    with pytest.raises(DevicePlacementError, match=r"(?s)its mesh .*use one mesh in a program"):
        tb.jit(lambda x: (f(x), g(x)))(X)


def test_unused_parts_go() -> None:
    """Results that nobody wants, and arguments that only they need, leave the program."""
    f = over(lambda a, b: (a * 2, lax.psum(b, "x")), (GRID, GRID), (GRID, P(None, "y")))
    text = tb.jit(lambda a, b: f(a, b)[0]).lower(X, X).as_text()
    total = tb.grad(lambda a: tnp.sum(f(a, X)[0]))(X)

    assert_allclose(total, np.full((8, 8), 2.0))
    assert "sdy.manual_computation" in text


def test_functions_of_a_module_are_called_from_different_places() -> None:
    """One jitted function, inside of programs that ask for positions, that do not, and outside."""
    double = tb.jit(lambda b: tnp.sin(b) * 2)
    placed = over(lambda b: double(b) + lax.axis_index("x"), GRID, GRID)
    plain = over(lambda b: double(b) + lax.psum(b, "x"), GRID, GRID)
    expected = 2 * np.sin(X)
    rows = np.repeat([0, 1], 4)[:, None]
    sums = np.tile(X[:4] + X[4:], (2, 1))

    for x in (
        tb.jit(lambda x: (placed(x), plain(x), double(x)))(X),
        tb.jit(lambda x: (placed(x), plain(x), double(x))[::-1])(X)[::-1],
    ):
        assert_allclose(x, (expected + rows, expected + sums, expected), **TOL)


@pytest.mark.parametrize("spec", [("x", None), ("x",), (None, "x"), (), (None,), (None, None)])
def test_results_have_the_specification_that_was_said(spec) -> None:
    """Entries at the end that are None stay."""
    spec = tb.sharding.PartitionSpec(*spec)
    line = tb.make_mesh((1,), ("x",), axis_types=(tb.sharding.AxisType.Auto,))
    f = tb.shard_map(lambda a: a, mesh=line, in_specs=spec, out_specs=spec)

    assert spec == f(np.ones((2, 3), np.float32)).sharding.spec
