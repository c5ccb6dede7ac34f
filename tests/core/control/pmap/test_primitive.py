"""pmap computes what vmap computes, under every transformation, on as many devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import UnboundAxisNameError
from tracebridge.testing import assert_allclose

Host = np.ndarray[Any, Any]
GROUPS = [[0, 3], [2, 1]]

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)


def sample(*shape: int) -> Host:
    """Random numbers, the same each time."""
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def both(f: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """``f`` mapped over devices and mapped by vmap."""
    return tb.pmap(f, axis_name="i", **options), tb.vmap(f, axis_name="i", **options)


def check_same(f: Callable[[Any], Any], x: Host) -> None:
    """The law for one function, plain and under each transformation, and in its results."""
    mapped, reference = both(f)
    assert_allclose(mapped(x), reference(x), rtol=1e-5, atol=1e-5)
    # Again: the cached call, with an array that is spread already.
    spread = tb.pmap(lambda x: x)(x)
    assert_allclose(mapped(spread), reference(x), rtol=1e-5, atol=1e-5)
    assert_allclose(mapped(spread), reference(x), rtol=1e-5, atol=1e-5)
    wide = np.stack([x, 2 * x], axis=1)
    assert_allclose(
        tb.vmap(mapped, in_axes=1)(wide), tb.vmap(reference, in_axes=1)(wide), rtol=1e-5, atol=1e-5
    )


def check_derivatives(f: Callable[[Any], Any], x: Host) -> None:
    """Forward and reverse derivatives of the map, and the map of derivatives."""
    mapped, reference = both(f)
    assert_allclose(
        tb.jvp(mapped, (x,), (x + 1,)), tb.jvp(reference, (x,), (x + 1,)), rtol=1e-4, atol=1e-4
    )

    def total(g: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: sum(tnp.sum(tnp.sin(y)) for y in tb.tree.leaves(g(x)))

    expected = tb.grad(total(reference))(x)
    assert_allclose(tb.grad(total(mapped))(x), expected, rtol=1e-4, atol=1e-4)
    inside, outside = both(tb.grad(total(f)))
    assert_allclose(inside(x), outside(x), rtol=1e-4, atol=1e-4)


COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "psum": lambda x: lax.psum(x, "i"),
    "psum of a tree": lambda x: lax.psum({"a": x, "b": (2 * x,)}, "i"),
    "psum in groups": lambda x: lax.psum(x, "i", axis_index_groups=GROUPS),
    "pmean": lambda x: x - lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "pmin": lambda x: lax.pmin(x, "i", axis_index_groups=GROUPS),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 3), (3, 2)]),
    "pshuffle": lambda x: lax.pshuffle(x, "i", [2, 0, 3, 1]),
    "pbroadcast": lambda x: lax.pbroadcast(x, "i", 2),
    "pswapaxes": lambda x: lax.pswapaxes(x, "i", 1),
    "all_gather": lambda x: lax.all_gather(x, "i", axis=1),
    "all_gather tiled": lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
    "all_gather in groups": lambda x: lax.all_gather(x, "i", axis_index_groups=GROUPS),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 1, 0),
    "all_to_all tiled": lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all in groups": lambda x: lax.all_to_all(x[:, :2], "i", 1, 0, axis_index_groups=GROUPS),
    "ragged_all_to_all": lambda x: lax.ragged_all_to_all(
        x[0],
        x[1] + 1,
        tnp.array([0, 1, 2, 0]),
        tnp.array([2, 1, 1, 3]),
        (tnp.arange(4) + lax.axis_index("i")) % 3,
        tnp.ones(4, "int32"),
        axis_name="i",
    ),
    "ragged_all_to_all in groups": lambda x: lax.ragged_all_to_all(
        x[0],
        x[1],
        tnp.array([0, 2]),
        tnp.array([1, 1]),
        tnp.array([1, 2]) - lax.axis_index("i") % 2,
        tnp.ones(2, "int32"),
        axis_name="i",
        axis_index_groups=GROUPS,
    ),
    "psum_scatter": lambda x: lax.psum_scatter(x, "i", scatter_dimension=1),
    "psum_scatter tiled": lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "psum_scatter in groups": lambda x: lax.psum_scatter(
        x[:, :2], "i", scatter_dimension=1, axis_index_groups=GROUPS
    ),
    "axis_index": lambda x: x * lax.axis_index("i"),
    "axis_size": lambda x: x * lax.axis_size("i"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_are_those_of_vmap(name: str) -> None:
    """Each collective between devices gives what it gives over a mapped axis."""
    check_same(COLLECTIVES[name], sample(4, 3, 4))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_derivatives_of_collectives(name: str) -> None:
    """Derivatives go through collectives between devices."""
    check_derivatives(COLLECTIVES[name], sample(4, 3, 4))


@pytest.mark.parametrize("dtype", ["i4", "u1", "f2", "c8", "?"])
def test_dtypes(dtype: str) -> None:
    """Sums and exchanges of other dtypes."""
    x = (10 * sample(4, 4)).round().astype(dtype)

    check_same(lambda x: (lax.psum(x, "i"), lax.ppermute(x, "i", [(0, 3)])), x)


def test_maps_of_vmap_and_inside_jit() -> None:
    """vmap inside the map; jit around it and around its gradient."""

    def f(x: Any) -> Any:
        return lax.psum(tnp.sin(x), "i") * x, lax.all_gather(x, "i")

    x = sample(4, 2, 3)
    inner = tb.vmap(f, axis_name="k")
    mapped, reference = both(inner)
    assert_allclose(mapped(x), reference(x), rtol=1e-5)
    assert_allclose(tb.jit(mapped)(x), reference(x), rtol=1e-5)
    expected = tb.grad(lambda x: reference(x)[0].sum())(x)
    assert_allclose(tb.jit(tb.grad(lambda x: mapped(x)[0].sum()))(x), expected, rtol=1e-4)


def test_control_flow() -> None:
    """Collectives in bodies of scan, while_loop and cond."""

    def scanned(x: Any) -> Any:
        return lax.scan(lambda c, y: (c + lax.pmean(c * y, "i"), c), x, x[0])

    def branched(x: Any) -> Any:
        return lax.cond(lax.axis_index("i") > 1, lambda x: 2 * x, lambda x: -x, lax.psum(x, "i"))

    def looped(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, lax.psum(c[1], "i")), (0, x))

    x = sample(4, 3, 3)
    for f in (scanned, branched, looped):
        mapped, reference = both(f)
        assert_allclose(mapped(x), reference(x), rtol=1e-5)
    check_derivatives(lambda x: scanned(x)[0], x)


def test_axes_of_arguments_and_results() -> None:
    """in_axes and out_axes as in vmap; the results are spread along the mapped axis."""
    x, y = sample(3, 4), sample(4, 3, 2)

    def f(a: Any, b: dict[str, Any], *, c: Any) -> Any:
        return {"s": a @ b["y"] + c, "t": (a, b["z"])}

    options: dict[str, Any] = {
        "in_axes": (1, {"y": 0, "z": None}),
        "out_axes": {"s": 1, "t": (-1, 0)},
    }
    mapped, reference = both(f, **options)
    given = (x, {"y": y, "z": np.float32(3)})
    result = mapped(*given, c=np.arange(4.0, dtype="f4"))

    assert_allclose(result, reference(*given, c=np.arange(4.0, dtype="f4")), rtol=1e-5)
    assert tb.sharding.PartitionSpec(None, "i") == result["s"].sharding.spec
    assert 4 == len(result["s"].addressable_shards)


def test_results_that_are_the_same_on_all_devices() -> None:
    """out_axes=None gives one of them; its cotangent is shared."""
    x = sample(4, 3)
    mean = tb.pmap(lambda x: lax.pmean(x, "i"), axis_name="i", out_axes=None)

    assert_allclose(mean(x), x.mean(0), rtol=1e-5)
    assert mean(x).is_fully_replicated
    assert_allclose(tb.jit(mean)(x), x.mean(0), rtol=1e-5)
    gradient = tb.grad(lambda x: (mean(x) ** 2).sum())(x)
    assert_allclose(gradient, np.broadcast_to(x.mean(0) / 2, x.shape), rtol=1e-5)


def test_arguments_of_all_devices() -> None:
    """The cotangent of an argument that is not mapped is the sum over the devices."""
    x, w = sample(4, 3), sample(3)
    mapped, reference = both(lambda w, x: tnp.sin(w * x), in_axes=(None, 0))
    expected = tb.grad(lambda w: reference(w, x).sum())(w)

    assert_allclose(tb.grad(lambda w: mapped(w, x).sum())(w), expected, rtol=1e-5)
    assert_allclose(
        tb.hessian(lambda w: mapped(w, x).sum())(w),
        tb.hessian(lambda w: reference(w, x).sum())(w),
        rtol=1e-4,
        atol=1e-5,
    )


def nested(x: Any) -> Any:
    """Collectives over rows, columns and both."""
    return (
        x / lax.psum(x, "r"),
        lax.all_gather(x, "c"),
        lax.psum(x, ("r", "c")),
        lax.axis_index(("r", "c")) - 2 * lax.axis_index("c"),
        lax.ppermute(x, "c", [(0, 1)]),
    )


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (2, 3), (1, 2)])
def test_nested_maps(shape: tuple[int, int]) -> None:
    """Sizes multiply; collectives go over inner, outer and all devices."""
    x = sample(*shape)
    inner = tb.pmap(nested, axis_name="c")
    expected = tb.vmap(tb.vmap(nested, axis_name="c"), axis_name="r")(x)

    assert_allclose(tb.pmap(inner, axis_name="r")(x), expected, rtol=1e-5)
    assert_allclose(tb.vmap(inner, axis_name="r")(x), expected, rtol=1e-5)
    both_axes = tb.pmap(tb.vmap(nested, axis_name="c"), axis_name="r")
    assert_allclose(both_axes(x), expected, rtol=1e-5)


def test_three_nested_maps_and_their_gradient() -> None:
    """Each level has its axis."""
    x = sample(2, 2, 2)

    def f(x: Any) -> Any:
        return tnp.sin(x) * lax.psum(x, ("a", "c")) + lax.psum(x, "b")

    def three(mapping: Any) -> Any:
        return mapping(mapping(mapping(f, axis_name="c"), axis_name="b"), axis_name="a")

    mapped, reference = three(tb.pmap), three(tb.vmap)
    assert_allclose(mapped(x), reference(x), rtol=1e-5)
    expected = tb.grad(lambda x: reference(x).sum())(x)
    assert_allclose(tb.grad(lambda x: mapped(x).sum())(x), expected, rtol=1e-4)


def test_siblings_of_different_size_inside() -> None:
    """Maps inside one map, which need different numbers of devices."""
    x, y = sample(2, 2), sample(2, 3)

    def f(x: Any, y: Any) -> Any:
        two = tb.pmap(lambda x: x + lax.psum(x, "i"), axis_name="i")(x)
        return two, tb.pmap(lambda y: y * lax.psum(y, "i"), axis_name="i")(y)

    def g(x: Any, y: Any) -> Any:
        two = tb.vmap(lambda x: x + lax.psum(x, "i"), axis_name="i")(x)
        return two, tb.vmap(lambda y: y * lax.psum(y, "i"), axis_name="i")(y)

    assert_allclose(tb.pmap(f)(x, y), tb.vmap(g)(x, y), rtol=1e-5)


def test_inside_a_jitted_function() -> None:
    """A map between other operations, also where its results are spread already."""

    @tb.jit
    def step(x: Any) -> Any:
        return tb.pmap(lambda x: x + lax.psum(x, "i"), axis_name="i")(2 * x) - 1

    x = sample(4, 2)
    expected = 2 * x + (2 * x).sum(0) - 1
    assert_allclose(step(x), expected, rtol=1e-5)
    spread = tb.pmap(lambda x: x)(x)
    assert_allclose(step(spread), expected, rtol=1e-5)
    assert 4 == step(spread).sharding.num_devices


def test_functions_that_close_over_values() -> None:
    """Closed-over arrays go to all devices; closed-over tracers are arguments."""
    x, w = sample(4, 3), tnp.asarray(sample(3))
    mapped = tb.pmap(lambda x: x @ w)

    assert_allclose(mapped(x), x @ np.asarray(w), rtol=1e-5)
    assert_allclose(mapped(tb.pmap(lambda x: x)(x)), x @ np.asarray(w), rtol=1e-5)
    gradient = tb.grad(lambda w: tb.pmap(lambda x: x @ w)(x).sum())(w)
    assert_allclose(gradient, x.sum(0), rtol=1e-5)
    table = tb.vmap(lambda w: tb.pmap(lambda x: x @ w)(x))(tnp.stack([w, 2 * w]))
    assert_allclose(table, np.stack([x @ np.asarray(w), 2 * x @ np.asarray(w)]), rtol=1e-5)


def test_custom_rules_may_name_the_axis() -> None:
    """A custom derivative with a collective, differentiated inside and outside the map."""

    @tb.custom_vjp
    def averaged(x: Any) -> Any:
        return 2 * x

    averaged.defvjp(lambda x: (2 * x, None), lambda _, ct: (lax.pmean(ct, "i"),))

    def loss(x: Any) -> Any:
        return (averaged(x) * lax.axis_index("i")).sum()

    x = sample(4, 3)
    expected = np.full((4, 3), 1.5, "f4")
    assert_allclose(tb.pmap(tb.grad(loss), axis_name="i")(x), expected)
    mapped = tb.pmap(loss, axis_name="i")
    assert_allclose(tb.grad(lambda x: mapped(x).sum())(x), expected)


def test_names_are_those_of_the_innermost_axis() -> None:
    """A name bound twice means the inner axis; an unbound one is refused."""
    x = sample(2, 3)
    twice = tb.pmap(tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="i")

    assert_allclose(twice(x), np.broadcast_to(x.sum(1, keepdims=True), x.shape), rtol=1e-5)
    with pytest.raises(UnboundAxisNameError, match="unbound axis name: k"):
        tb.pmap(lambda x: lax.psum(x, "k"), axis_name="i")(x)


def test_the_equation_in_a_jaxpr() -> None:
    """make_jaxpr shows one equation with its axes."""
    text = str(tb.make_jaxpr(tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i"))(sample(4, 2)))

    for part in ("pmap[", "axis_name=i", "axis_size=4", "in_axes=(0,)", "psum[axes=(i,)]"):
        assert part in text
    assert "backend" not in text or "backend=None" in text


def test_too_few_devices() -> None:
    """The message says how many are needed, and for what."""

    def f(x: Any) -> Any:
        return x

    with pytest.raises(DevicePlacementError, match=r"pmap\(f\): 9 devices are needed, but"):
        tb.pmap(f)(np.zeros(9))
    with pytest.raises(DevicePlacementError, match="the maps inside need 4 for each of 4 elements"):
        tb.pmap(tb.pmap(lambda x: x))(np.zeros((4, 4)))
    devices = tb.local_devices()
    with pytest.raises(DevicePlacementError, match="a pmap inside gives devices"):
        tb.pmap(tb.pmap(lambda x: x, devices=devices[:2]))(np.zeros((2, 2)))
    with pytest.raises(DevicePlacementError, match="there is another pmap inside"):
        tb.pmap(tb.pmap(lambda x: x), devices=devices[:2])(np.zeros((2, 2)))


MIXED = [(tb.pmap, tb.pmap), (tb.pmap, tb.vmap), (tb.vmap, tb.pmap)]


@pytest.mark.parametrize(("outer", "inner"), MIXED, ids=["pmap-pmap", "pmap-vmap", "vmap-pmap"])
def test_collectives_over_axes_of_both_kinds(outer: Any, inner: Any) -> None:
    """One name may be of pmap and the other of vmap."""

    def element(x: Any, y: Any) -> Any:
        z = x @ y
        return (
            z + lax.psum(z, ("i", "j")),
            lax.all_gather(z[0], ("j", "i")),
            lax.ppermute(z, "i", [(0, 1), (1, 0)]),
            lax.all_to_all(z, "j", 0, 1, tiled=True),
            lax.psum_scatter(z, "i", tiled=True) * (1 + lax.axis_index(("i", "j"))),
        )

    def mapped(first: Any, second: Any) -> Any:
        return first(second(element, axis_name="j"), axis_name="i")

    def total(f: Any) -> Any:
        return tb.grad(lambda x, y: sum(tnp.sum(o * o) for o in f(x, y)), argnums=(0, 1))

    x = sample(2, 2, 4, 4)
    f, reference = mapped(outer, inner), mapped(tb.vmap, tb.vmap)
    assert_allclose(f(x, x), reference(x, x), rtol=1e-4, atol=1e-4)
    assert_allclose(tb.jit(f)(x, x), reference(x, x), rtol=1e-4, atol=1e-4)
    assert_allclose(total(f)(x, x), total(reference)(x, x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_random_axes(seed: int) -> None:
    """Any mapped axes of arguments and results, also under vmap with any axes of its own."""
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (3, 1), (1, 4)]

    def random_axes() -> tuple[int | None, ...]:
        axes = [None if rng.random() < 0.3 else int(rng.integers(0, 3)) for _ in shapes]
        return (0, *axes[1:]) if all(a is None for a in axes) else tuple(axes)

    def widened(arrays: list[Host], axes: tuple[int | None, ...], n: int) -> list[Host]:
        return [
            a if axis is None else np.stack([a * (k + 1) for k in range(n)], axis=axis)
            for a, axis in zip(arrays, axes, strict=True)
        ]

    mine, theirs = random_axes(), random_axes()
    out, outer_out = int(rng.integers(0, 3)), int(rng.integers(-4, 4))
    args = widened([sample(*s) for s in shapes], mine, 4)
    mapped, reference = both(lambda x, y, z: tnp.sin(x + y) * z, in_axes=mine, out_axes=out)
    assert_allclose(mapped(*args), reference(*args), rtol=1e-5, atol=1e-5)
    gradients = [tb.grad(lambda *a, f=f: (f(*a) ** 2).sum(), argnums=(0, 1, 2))(*args)
                 for f in (mapped, reference)]  # fmt: skip
    assert_allclose(*gradients, rtol=1e-4, atol=1e-4)
    wide = widened(args, theirs, 2)
    batched = [tb.vmap(f, in_axes=theirs, out_axes=outer_out)(*wide) for f in (mapped, reference)]
    assert_allclose(*batched, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["pmap", "jit of pmap"])
def test_ordered_callbacks(wrap: Callable[[Any], Any]) -> None:
    """Each element calls; where the map is part of another program they do so in turn."""
    seen: list[float] = []

    def note(v: Any) -> Any:
        seen.append(float(v))
        return np.asarray(v) + 1

    def f(x: Any, y: Any) -> Any:
        noted = tb.experimental.io_callback(note, x[0], x.sum(), ordered=True)
        return noted, 2 * y, x * y

    x = sample(2, 3)
    mapped = wrap(tb.pmap(f, in_axes=(1, None), out_axes=(0, None, 1)))
    noted, doubled, product = mapped(x, np.float32(3))
    tb.effects_barrier()

    if wrap is not tb.jit:
        # Devices do not wait for each other: each keeps the order of its own calls.
        seen.sort()
        assert_allclose(np.sort(x.sum(0)), np.float32(seen), rtol=1e-6)
    else:
        assert_allclose(x.sum(0), np.float32(seen), rtol=1e-6)
    assert_allclose(noted, x.sum(0) + 1, rtol=1e-6)
    assert 6.0 == float(doubled)
    assert_allclose(product, 3 * x)


def test_a_mapped_axis_of_the_same_name() -> None:
    """Inside of pmap its own axis has the name, whatever maps it."""
    mapped = tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i")
    wide = np.stack([sample(4, 3), 2 * sample(4, 3)])
    expected = np.repeat(wide.sum(1, keepdims=True), 4, 1)

    assert_allclose(tb.vmap(mapped, axis_name="i")(wide), expected, rtol=1e-5, atol=1e-6)
