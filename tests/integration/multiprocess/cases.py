"""What each of two processes with two devices computes; run by test_distributed.py.

Each case is a function without arguments; its result, or its error, goes to the test as text. All
processes run all cases in the order in which they stand here.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.experimental import multihost_utils as several
from tracebridge.experimental.array_serialization import pytree_serialization as folders
from tracebridge.sharding import Mesh, NamedSharding

P = tb.P
CASES: dict[str, object] = {}


def case(fun):
    """Both processes have to come to the same calls, also where one of them gets an error."""
    CASES[fun.__name__] = fun
    return fun


def me() -> int:
    return tb.process_index()


def rows() -> NamedSharding:
    return NamedSharding(tb.make_mesh((4,), ("x",), tb.sharding.AxisType.Auto), P("x"))


def spread() -> tb.Array:
    """0.0 to 7.0, two elements on each device."""
    return tb.make_array_from_process_local_data(rows(), np.arange(4.0) + 4 * me())


def whole(x):
    return several.process_allgather(x, tiled=True)


# devices and arrays ------------------------------------------------------------------------------


@case
def devices():
    ids = [d.process_index for d in tb.devices()]
    return ids, tb.process_count(), tb.local_device_count(), tb.distributed.is_initialized()


@case
def parts_of_an_array():
    x = spread()
    held = [(s.index[0].start, s.data) for s in x.addressable_shards]
    every = [(s.index[0].start, s.data is None) for s in x.global_shards]
    return x.shape, x.is_fully_addressable, held, every


@case
def reading_what_others_hold():
    return np.asarray(spread())


@case
def text_of_an_array():
    return [repr(spread()), str(spread())]


@case
def reading_what_all_hold():
    return np.asarray(tb.device_put(np.arange(3.0), NamedSharding(rows().mesh, P())))


@case
def putting_other_things_in_each_process():
    return tb.device_put(np.arange(8.0) + me(), rows())


@case
def putting_on_a_device_of_another_process():
    return tb.device_put(np.ones(2), tb.devices()[2 - 2 * me()])


@case
def moving_to_a_device_of_another_process():
    return tb.device_put(tnp.ones(2), tb.devices()[2 - 2 * me()])


@case
def split_in_another_way():
    grid = tb.make_mesh((2, 2), ("a", "b"), tb.sharding.AxisType.Auto)
    x = tb.make_array_from_callback(
        (4, 4), NamedSharding(grid, P("a", "b")), lambda i: np.arange(16.0).reshape(4, 4)[i]
    )
    turned = tb.device_put(x, NamedSharding(grid, P("b", "a")))
    backwards = Mesh(np.array(tb.devices())[::-1], ("y",))
    last = tb.device_put(x, NamedSharding(backwards, P("y"))).addressable_shards[-1]
    here = tb.device_put(x, tb.local_devices()[1])
    return whole(turned), last.data, here.sum(), here.devices() == {tb.local_devices()[1]}


@case
def data_of_processes():
    grid = tb.make_mesh((2, 2), ("a", "b"), tb.sharding.AxisType.Auto)
    data = np.arange(8.0).reshape(4, 2) + 10 * me()
    by_columns = NamedSharding(grid, P("b", "a"))
    make = tb.make_array_from_process_local_data
    return [
        whole(make(by_columns, data, (4, None))),
        whole(make(rows(), np.arange(8.0), (8,))),
        whole(make(NamedSharding(grid, P()), np.arange(2))),
    ]


@case
def data_that_is_no_part():
    return tb.make_array_from_process_local_data(rows(), np.arange(3.0), (8,))


# programs ----------------------------------------------------------------------------------------


@case
def programs_for_whole_arrays():
    x = spread()
    total, doubled = tb.jit(lambda x: (x.sum(), 2 * x))(x)
    return float(total), whole(doubled), whole(x[5]), [float(v) for v in x][6], whole(x[::-1])


@case
def arguments_of_the_host():
    return whole(tb.jit(lambda x: x + 1, in_shardings=rows())(np.arange(8.0)))


@case
def arrays_that_programs_close_over():
    small, large = spread(), tb.jit(lambda: tnp.ones(80_000), out_shardings=rows())()
    added = tb.jit(lambda w: lax.fori_loop(0, 2, lambda i, c: c + small.sum() + large.sum(), w))
    mapped = tb.pmap(lambda x: lax.psum(x + tnp.ones(20_000).sum(), "i"), axis_name="i")
    return added(1.0), tb.jit(lambda: small.sum())(), mapped(np.zeros(2))


@case
def training():
    inputs = np.random.RandomState(0).normal(size=(16, 3)).astype(np.float32)
    targets = inputs @ np.array([1, 2, 3], np.float32)
    by_rows = NamedSharding(rows().mesh, P("x"))
    x, y = tb.device_put((inputs, targets), by_rows)
    w = tb.device_put(np.zeros(3, np.float32), NamedSharding(rows().mesh, P()))

    def loss(w):
        return tnp.mean((x @ w - y) ** 2)

    step = tb.jit(lambda w: w - 0.1 * tb.grad(loss)(w))
    for _ in range(100):
        w = step(w)
    return np.round(w, 2)


@case
def programs_of_devices():
    summed = tb.shard_map(
        lambda b: lax.psum(b, "x"), mesh=rows().mesh, in_specs=P("x"), out_specs=P()
    )
    return np.asarray(summed(spread()))


@case
def loops():
    carry, every = tb.jit(lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x))(spread())
    return float(carry), whole(every)


@case
def callbacks():
    double = tb.jit(
        lambda x: tb.pure_callback(
            lambda v: np.asarray(v) * 2, tb.ShapeDtypeStruct((8,), np.float32), x
        )
    )
    return whole(double(spread()))


@case
def values_that_are_not_finite():
    x = tb.make_array_from_process_local_data(rows(), np.full(4, -1.0 + 2 * me()))
    with tb.debug_nans(True):
        tb.jit(tnp.sqrt)(x)


# pmap: each process maps its elements ------------------------------------------------------------


@case
def maps_over_all_devices():
    def element(x):
        return lax.psum(x, "i"), lax.axis_index("i"), lax.axis_size("i")

    mapped = tb.pmap(element, axis_name="i")
    first = mapped(np.arange(2.0) + 10 * me())
    return first, mapped(np.arange(2.0))[0]


@case
def maps_with_given_devices():
    mapped = tb.pmap(lambda x: lax.pmax(x, "i"), axis_name="i", devices=tb.devices())
    return mapped(tnp.arange(2) + 10 * me())


@case
def derivatives_of_maps():
    def total(w, out_axes):
        def element(x, w):
            return lax.psum(x * w, "i")

        mapped = tb.pmap(element, axis_name="i", in_axes=(0, None), out_axes=out_axes)
        return mapped(np.arange(2.0) + 2 * me(), w)

    return [tb.grad(lambda w: total(w, 0).sum())(3.0), tb.grad(total)(3.0, None)]


@case
def maps_of_other_sizes():
    return tb.pmap(lambda x: x)(np.arange(1.0))


@case
def maps_inside_programs():
    return tb.jit(tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i"))(np.arange(2.0))


# what processes tell each other ------------------------------------------------------------------


@case
def gathering():
    tree = {
        "a": np.arange(2) + me(),
        "b": 2.5 * me(),
        "c": np.array([1 << 40]),
        "d": np.zeros((0, 2)),
    }
    dtypes = [x.dtype.name for x in tb.tree.leaves(several.process_allgather(tree))]
    return several.process_allgather(tree), several.process_allgather(tree, tiled=True), dtypes


@case
def gathering_other_shapes():
    return several.process_allgather(np.arange(3 + me()))


@case
def gathering_without_tiles():
    return several.process_allgather(spread())


@case
def broadcasting():
    tree = {"a": np.arange(3.0) + me(), "b": np.int64(me()) + (1 << 40)}
    return several.broadcast_one_to_all(tree), several.broadcast_one_to_all(tree, me() == 1)


@case
def broadcasting_from_two():
    return several.broadcast_one_to_all(1.0, is_source=True)


@case
def equal_data():
    several.sync_global_devices("here")
    several.assert_equal({"a": 1, "b": np.array([np.nan])})


@case
def other_places():
    several.sync_global_devices(f"in process {me()}")


@case
def other_data():
    several.assert_equal({"a": me()}, "seeds differ")


@case
def arrays_of_processes_and_back():
    mesh = rows().mesh
    made = several.host_local_array_to_global_array(
        {"x": np.arange(4.0) + 10 * me(), "y": np.ones(2)}, mesh, {"x": P("x"), "y": P()}
    )
    back = several.global_array_to_host_local_array(made, mesh, {"x": P("x"), "y": P()})
    return made["x"].shape, made["y"].shape, whole(made["x"]), back


@case
def saving_to_a_folder():
    folder, everywhere = Path(sys.argv[3]).parent / "state", NamedSharding(rows().mesh, P())
    saved = {"x": spread(), "n": np.arange(3)}
    folders.save(saved, folder)
    loaded = folders.load(folder, everywhere)
    folders.nonblocking_save({**loaded, "x": loaded["x"] * 2}, folder).result(60)
    parts = folders.load(folder, {"n": everywhere, "x": rows()})["x"]
    files = sorted([f.name for f in (folder / "1").iterdir()])
    return loaded["x"], loaded["n"], whole(parts), files


@case
def meeting_twice():
    tb.distributed.initialize("localhost:1", 2, me())


@case
def saving_before_one_is_ended():
    ends = None
    for step in range(1000):
        if several.reached_preemption_sync_point(step):
            ends = step
            break
        if step == 2 and me() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.02)
    return len(set(several.process_allgather(np.int64(-1 if ends is None else ends)))), ends is None


def plain(value):
    """A result as JSON takes it."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return np.asarray(value).tolist() if hasattr(value, "dtype") else value


def main(address: str, index: int, file: Path) -> None:
    tb.distributed.initialize(address, 2, index, initialization_timeout=60)
    results = {}
    for name, fun in CASES.items():
        try:
            results[name] = plain(fun())
        except tb.errors.TracebridgeError as error:
            results[name] = f"{type(error).__name__}: {error}"
    file.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
