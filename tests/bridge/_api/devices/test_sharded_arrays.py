"""Arrays over several devices: device_put, arrays of parts, meshes, operations on them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.runtime_errors import DeletedArrayError, DevicePlacementError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, AxisSpecError
from tracebridge.experimental.layout import Format, Layout
from tracebridge.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from tracebridge.sharding import PartitionSpec as P
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
X = np.arange(48, dtype="f4").reshape(6, 8)


def shardings() -> list[Any]:
    """Ways to spread X."""
    mesh = Mesh(np.array(tb.devices()[:6]).reshape(2, 3), ("x", "y"))
    other = Mesh(tb.devices()[1:4], "z")
    specs = [P(), P("x"), P("y"), P(None, "x"), P("y", "x"), P(("x", "y")), P(("y", "x"))]
    named = [NamedSharding(mesh, spec) for spec in specs]
    return [*named, NamedSharding(other, P("z")), SingleDeviceSharding(tb.devices()[5])]


def check_parts(array: Any, expected: Any) -> None:
    """Each device holds the part that its sharding says."""
    assert np.array_equal(expected, np.asarray(array))
    indices = array.sharding.devices_indices_map(array.shape)
    assert array.devices() == set(indices)
    for shard in array.addressable_shards:
        assert shard.index == indices[shard.device]
        assert {shard.device} == shard.data.devices()
        assert np.array_equal(expected[shard.index], np.asarray(shard.data))
        assert array.sharding.shard_shape(array.shape) == shard.data.shape


@pytest.mark.parametrize("first", range(9))
def test_device_put_between_all_shardings(first: int) -> None:
    """From the host to any sharding, and from each to each."""
    every = shardings()
    source = tb.device_put(X, every[first])
    check_parts(source, X)
    assert source.committed
    for sharding in every:
        moved = tb.device_put(source, sharding)
        assert moved.sharding is sharding
        check_parts(moved, X)


def test_device_put_of_trees() -> None:
    """Trees of shardings as prefixes; numbers become arrays on all devices."""
    every = shardings()
    out = tb.device_put({"a": X, "b": (2.0, X[0])}, {"a": every[1], "b": every[0]})

    check_parts(out["a"], X)
    assert out["b"][0].is_fully_replicated
    assert 2.0 == float(out["b"][0])
    copied = tb.device_put(out["a"], every[1], may_alias=False)
    out["a"].delete()
    check_parts(copied, X)


def test_uneven_parts_are_refused() -> None:
    """The message names axis, shape and number of parts."""
    with pytest.raises(ShapeMismatchError, match=r"splits axis 0 of shape \(6, 8\) into 4 parts"):
        tb.device_put(X, NamedSharding(tb.make_mesh((4,), ("x",)), P("x")))
    with pytest.raises(ShapeMismatchError, match="at least 2 axes, got 1"):
        tb.device_put(X[0], NamedSharding(tb.make_mesh((4,), ("x",)), P(None, "x")))


def test_properties() -> None:
    """What an array tells of its parts."""
    sharding = NamedSharding(tb.make_mesh((2, 3), ("x", "y"), AxisType.Auto), P("x"))
    x = tb.device_put(X, sharding)

    assert [0, 1, 2] * 2 == [s.replica_id for s in x.addressable_shards]
    assert (3, 8) == x.addressable_data(4).shape
    assert x.is_fully_addressable
    assert not x.is_fully_replicated
    assert x.device is x.sharding is sharding
    assert tnp.ones(2).addressable_shards[0].index == (slice(None),)
    assert any(y is x for y in tb.live_arrays())
    assert np.array_equal(X, pickle.loads(pickle.dumps(x)))
    assert sharding is copy.deepcopy(x).sharding
    assert X.tolist() == x.tolist()
    assert np.array_equal(X, tb.device_get(x.block_until_ready()))
    with pytest.raises(ExchangeError, match="spread over"):
        np.from_dlpack(x)
    x.delete()
    assert "<deleted Array f32[6,8]>" == repr(x)
    with pytest.raises(DeletedArrayError):
        x.addressable_shards  # noqa: B018 - the property raises


@pytest.mark.parametrize("place", range(8))
def test_operations_stay_on_the_devices(place: int) -> None:
    """Eager operations, jit and derivatives of spread arrays, without gathering them."""
    sharding = shardings()[place]
    x = tb.device_put(X, sharding)

    def f(x: Any) -> Any:
        return tnp.sin(x) + x[:, :1], (x @ x.T).sum(0), x.reshape(-1)[3:9], tnp.sort(x.T)

    assert_allclose(f(x), f(tnp.asarray(X)), rtol=1e-5)
    for out in (*f(x), *tb.jit(f)(x), x + 1, x[0], tb.grad(lambda x: (x * x).sum())(x)):
        assert out.committed
        assert out.devices() == x.devices()
    assert_allclose(tb.jit(f)(x), f(tnp.asarray(X)), rtol=1e-5)
    assert_allclose(tb.grad(lambda x: (x * x).sum())(x), 2 * X)


def test_operands_with_different_shardings() -> None:
    """Over the same devices they meet; uncommitted arrays and numbers follow; others don't."""
    every = shardings()
    a, b, c = (tb.device_put(X, every[i]) for i in (1, 4, 6))
    elsewhere = tb.device_put(X, every[7])

    for out in (a + b * c, tb.jit(lambda a, b, c: a + b * c)(a, b, c)):
        assert_allclose(out, X + X * X)
    assert_allclose(a + tnp.asarray(X) - 1.0, 2 * X - 1)
    with pytest.raises(DevicePlacementError, match="committed to different devices"):
        a + elsewhere
    with pytest.raises(DevicePlacementError, match="committed to different devices"):
        tb.jit(lambda a, b: a + b)(elsewhere, a)


def test_large_constants_and_donation() -> None:
    """Constants go to all devices; donated arrays are gone."""
    table = np.arange(6 * 8 * 100, dtype="f4").reshape(100, 6, 8)
    constant = tnp.asarray(table)
    x = tb.device_put(X, shardings()[4])
    f = tb.jit(lambda x: x + constant[3], donate_argnums=0)

    assert_allclose(f(x), X + table[3])
    assert x.is_deleted()


def test_meshes_of_one_device() -> None:
    """A mesh may have one device: operations on its arrays stay there."""
    device = tb.devices()[3]
    x = tb.device_put(X, NamedSharding(Mesh([device], "x"), P("x")))
    mapped = tb.pmap(lambda x: x * 2, devices=[device])(X[None])

    assert X.sum() == float(x.sum())
    assert 2 * X.sum() == float(mapped.sum())
    assert {device} == (x + 1).devices() == mapped.sum().devices()
    assert [X.shape] == [s.data.shape for s in x.global_shards]


def test_compiled_stages() -> None:
    """lower and compile keep the shardings of the arguments."""
    x = tb.device_put(X, shardings()[1])
    compiled = tb.jit(lambda x: 2 * x).lower(x).compile()

    assert_allclose(compiled(x), 2 * X)
    assert_allclose(compiled(tnp.asarray(X)), 2 * X)
    assert x.sharding is compiled.input_shardings[0][0]
    assert x.sharding is compiled.output_shardings


def test_device_put_sharded() -> None:
    """One tree for each device; what does not fit is refused."""
    devices = tb.devices()[2:5]
    out = tb.device_put_sharded([(i, X + i) for i in range(3)], devices)

    assert [0, 1, 2] == out[0].tolist()
    check_parts(out[1], np.stack([X, X + 1, X + 2]))
    assert devices == [s.device for s in out[1].addressable_shards]
    assert_allclose(tb.pmap(lambda x: x + 1, devices=devices)(out[1]), np.asarray(out[1]) + 1)
    refused: list[tuple[type[Exception], str, Any]] = [
        (ArgumentSpecError, "shards is 3 of type int", 3),
        (ArgumentSpecError, "got 2 shards for 3 devices", [X, X]),
        (ShapeMismatchError, "shard 2 has the structure", [X, X, (X,)]),
        (ShapeMismatchError, r"shard 1 is f32\[8\], shard 0 f32\[6,8\]", [X, X[0], X]),
    ]
    for error, message, shards in refused:
        with pytest.raises(error, match=message):
            tb.device_put_sharded(shards, devices)
    with pytest.raises(ConcretizationTypeError):
        tb.jit(lambda x: tb.device_put_sharded([x], devices[:1]))(X)


def test_device_put_replicated() -> None:
    """A copy for each device."""
    out = tb.device_put_replicated({"a": 1.5, "b": X}, tb.devices()[:3])

    assert [1.5] * 3 == out["a"].tolist()
    check_parts(out["b"], np.stack([X] * 3))
    for devices in ([], None):
        with pytest.raises(ArgumentSpecError, match="devices is"):
            tb.device_put_replicated(X, devices)


def test_make_array_from_callback() -> None:
    """Each different part is asked for once."""
    for sharding in shardings():
        asked: list[Any] = []

        def part(index: Any, asked: list[Any] = asked) -> Any:
            asked.append(index)
            return X[index]

        check_parts(tb.make_array_from_callback((6, 8), sharding, part), X)
        assert len(asked) == len({str(i) for i in asked})
    sharding = shardings()[1]
    wide = tb.make_array_from_callback((6, 8), sharding, lambda i: X[i], dtype="i4")
    assert np.dtype("i4") == wide.dtype
    with pytest.raises(ShapeMismatchError, match=r"expected: the shape \(3, 8\) of one part"):
        tb.make_array_from_callback((6, 8), sharding, lambda i: X)
    with pytest.raises(DevicePlacementError, match="sharding is None"):
        tb.make_array_from_callback((6, 8), None, lambda i: X)  # type: ignore[arg-type]  # wrong on purpose


def test_arrays_of_parts_in_a_format() -> None:
    """A format is a sharding, where its layout is that of arrays."""
    spread = NamedSharding(tb.make_mesh((2,), ("x",), AxisType.Auto), P("x"))
    given = tb.device_put(X, spread)
    parts = [s.data for s in given.addressable_shards]

    for array in (
        tb.make_array_from_callback(X.shape, given.format, lambda index: X[index]),
        tb.make_array_from_single_device_arrays(X.shape, given.format, parts),
        tb.make_array_from_process_local_data(given.format, X),
    ):
        assert given.format == array.format
        assert_allclose(array, X)
    for layout, error in ((Layout.AUTO, TypeError), (Layout((1, 0)), ValueError)):
        with pytest.raises(error, match="make_array_from_callback"):
            tb.make_array_from_callback(X.shape, Format(layout, spread), lambda index: X[index])


def test_make_array_from_single_device_arrays() -> None:
    """The parts in any order; one on each device."""
    sharding = shardings()[4]
    parts = [s.data for s in tb.device_put(X, sharding).addressable_shards]
    make = tb.make_array_from_single_device_arrays

    check_parts(make((6, 8), sharding, parts[::-1]), X)
    with pytest.raises(DevicePlacementError, match="expected: one part on each of"):
        make((6, 8), sharding, parts[1:])
    with pytest.raises(DevicePlacementError, match="one part on each of"):
        make((6, 8), sharding, [*parts, parts[0]])
    with pytest.raises(ShapeMismatchError, match=r"arrays\[0\] is f32\[2,4\]"):
        make((12, 8), sharding, parts)
    with pytest.raises(DevicePlacementError, match="arrays on one device each"):
        make((6, 8), sharding, [tb.device_put(X, sharding)])


def test_arrays_of_keys_from_parts() -> None:
    """Keys, which NumPy does not have, are parts of arrays like numbers."""
    keys = tb.random.split(tb.random.key(0), 6)
    over = NamedSharding(Mesh(np.array(tb.devices()[:6]).reshape(2, 3), ("x", "y")), P("x"))
    whole = tb.make_array_from_callback((6,), over, lambda index: keys[index])
    parts = [s.data for s in whole.addressable_shards]

    for made in whole, tb.make_array_from_single_device_arrays((6,), over, parts):
        assert over == made.sharding
        assert bool((made == keys).all())


def test_arrays_of_parts_are_not_converted() -> None:
    """A dtype that is given is that of the parts; without parts there is no other."""
    over = NamedSharding(Mesh(tb.devices()[:2], "x"), P("x"))
    parts = [s.data for s in tb.device_put(np.ones(6, "f4"), over).addressable_shards]
    with pytest.raises(ValueError, match="dtype"):
        tb.make_array_from_single_device_arrays((6,), over, parts, dtype="i4")


def test_full_like_stays_where_the_array_is() -> None:
    """Unless it is told where to go, or nobody has placed the array."""
    over = NamedSharding(Mesh(tb.devices()[:2], "x"), P("x"))
    x = tb.device_put(np.ones(6, "f4"), over)

    assert over == tb.lax.full_like(x, 2.0).sharding
    assert not tb.lax.full_like(tnp.ones(3), 2.0).committed
    assert () == tb.lax.full_like(x, 2.0, shape=()).shape


def test_make_array_from_process_local_data() -> None:
    """With one process the data is the whole array."""
    for sharding in shardings():
        check_parts(tb.make_array_from_process_local_data(sharding, X, (6, 8)), X)
    tree = tb.make_array_from_process_local_data(shardings()[1], {"a": X, "b": X[:, 0]})
    check_parts(tree["b"], X[:, 0])
    with pytest.raises(ShapeMismatchError, match=r"but global_shape=\(12, 8\)"):
        tb.make_array_from_process_local_data(shardings()[1], X, (12, 8))


def test_make_mesh() -> None:
    """The first devices, in a grid."""
    mesh = tb.make_mesh((4, 2), ("a", "b"))

    assert {"a": 4, "b": 2} == dict(mesh.shape)
    assert mesh.axis_types == (AxisType.Explicit, AxisType.Explicit)
    assert tb.make_mesh((2,), "a", (AxisType.Auto,)).are_all_axes_auto
    assert mesh is tb.make_mesh((4, 2), ("a", "b"))
    assert tb.devices()[3:5] == list(tb.make_mesh((2,), "a", devices=tb.devices()[3:]).devices)
    with pytest.raises(DevicePlacementError, match="needs 27 devices, but there are 8"):
        tb.make_mesh((9, 3), ("a", "b"))
    with pytest.raises(AxisSpecError, match="a positive size for each name"):
        tb.make_mesh((2,), ("a", "b"))


def test_types_follow_arrays_and_options_do_not_make_types() -> None:
    """An argument that only an option splits is whole in types; XLA splits the result then."""
    rows = NamedSharding(tb.make_mesh((2,), ("x",)), P("x"))
    seen = []

    def double(x: Any) -> Any:
        seen.append(tb.typeof(x).sharding.spec)
        return x * 2

    given = tb.jit(double)(tb.device_put(X, rows))
    asked = tb.jit(double, in_shardings=rows)(X)

    assert seen == [P("x", None), P(None, None)]
    assert all([out.sharding.is_equivalent_to(rows, 2) for out in (given, asked)])
    assert_allclose(asked, 2 * X)


def test_numbers_beside_spread_arrays_in_derivatives() -> None:
    """Also the second time, when the operations are compiled already."""
    mesh = Mesh(np.array(tb.devices()[:6]).reshape(2, 3), ("x", "y"))
    x = tb.device_put(X, NamedSharding(mesh, P("x")))

    for _ in range(3):
        gradient = tb.grad(lambda x: (3.0 * x**2).sum())(x)
        assert x.sharding.is_equivalent_to(gradient.sharding, 2)
        assert_allclose(gradient, 6 * X)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "i1", "bool", "c8"])
@pytest.mark.parametrize(("shape", "spec"), [((64, 320), (None, "a")), ((64, 8), ("a",))])
def test_extremes_over_a_split_axis(dtype: str, shape: tuple[int, ...], spec: Any) -> None:
    """XLA puts the parts together, and no NaN is lost in one of them."""
    rng = np.random.default_rng(0)
    host = np.rint(rng.standard_normal(shape) * 3).astype(dtype)
    if dtype == "c8":
        host = host + 1j * rng.standard_normal(shape).astype("f4")
    if host.dtype.kind in "fc":
        host[7, 5] = np.nan
    split = tb.device_put(host, NamedSharding(Mesh(tb.devices()[:4], "a"), P(*spec)))
    for axis in (0, 1, None):
        for extreme, of_numpy in ((tnp.max, np.max), (tnp.min, np.min)):
            found = np.asarray(tb.jit(lambda x, f=extreme, axis=axis: f(x, axis))(split))
            expected = of_numpy(host, axis)
            assert expected.dtype == found.dtype
            missing = np.isnan(expected)
            assert np.array_equal(missing, np.isnan(found))
            assert np.array_equal(expected[~missing], found[~missing])


def test_sizes_of_meshes_are_integers() -> None:
    """Those of NumPy as well."""
    with pytest.raises(ValueError, match="should be a sequence of ints"):
        tb.make_mesh(((1,), 1), ("x", "y"))
    assert (1, 1) == tb.make_mesh((np.int32(1), np.int64(1)), ("x", "y")).axis_sizes
