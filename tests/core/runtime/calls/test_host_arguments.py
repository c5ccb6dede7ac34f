"""Calls with ndarrays and numbers: each sees its own arguments, and no result changes later."""

from __future__ import annotations

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.lent import LARGEST, MOST_BYTES, Room

KINDS = [
    np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_, np.complex64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
]  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (2, 3, 4), (LARGEST // 4,)])
def test_results_do_not_change_with_later_calls(dtype: Any, shape: tuple[int, ...]) -> None:
    """Results of calls one after the other are those of their own arguments."""
    f = tb.jit(lambda x: (x, x[..., None]))
    hosts = [(np.arange(np.prod(shape)) % 5 + n).reshape(shape).astype(dtype) for n in range(4)]

    results = [f(host) for host in hosts]

    for host, (same, more) in zip(hosts, results, strict=True):
        np.testing.assert_array_equal(np.asarray(same), host.astype(same.dtype))
        np.testing.assert_array_equal(np.asarray(more)[..., 0], host.astype(same.dtype))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.bool_, float, int, bool])
def test_numbers_are_as_those_of_the_first_call(kind: type) -> None:
    """Types and values of the second call with a number are as for the first one."""
    f = tb.jit(lambda x, y: x * 2 + y)
    first = f(kind(1), np.arange(3, dtype="f"))

    second = [f(kind(n), np.full(3, n, "f")) for n in (1, 0, 1)]

    assert [r.dtype for r in second] == [first.dtype] * 3
    assert [r.weak_type for r in second] == [first.weak_type] * 3
    assert [r.tolist() for r in second] == [[3.0] * 3, [0.0] * 3, [3.0] * 3]


def test_views_and_foreign_byte_order_are_read_as_numpy_reads_them() -> None:
    """Strides, Fortran's order and byte order make no difference."""
    f = tb.jit(lambda x: x + 1)
    base = np.arange(24, dtype="f").reshape(4, 6)

    for _ in range(3):
        for host in (base.T, base[::-1, ::2], np.asfortranarray(base), base.astype(">f4")):
            np.testing.assert_array_equal(np.asarray(f(host)), host + 1)


def test_callbacks_may_keep_what_they_get() -> None:
    """Arguments that a callback has kept stay what they were."""
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    f = tb.jit(lambda x: tb.pure_callback(keep, tb.ShapeDtypeStruct((3,), np.float32), x))

    results = [f(np.full(3, n, "f")) for n in range(4)]

    assert [np.asarray(x).tolist() for x in kept] == [[n] * 3 for n in range(4)]
    assert [r.tolist() for r in results] == [[n] * 3 for n in range(4)]


def test_donated_ndarrays_are_copies() -> None:
    """A program that writes its result over its argument writes over no memory of others."""
    f = tb.jit(lambda x: x + 1, donate_argnums=0)

    results = [f(np.full(3, n, "f")) for n in range(4)]

    assert [r.tolist() for r in results] == [[n + 1] * 3 for n in range(4)]


def test_threads_have_memory_of_their_own() -> None:
    """Calls in several threads do not see each other's arguments."""
    f = tb.jit(lambda x, y: (x * y).sum())
    f(np.ones(512, "f"), np.ones(512, "f"))
    wrong: list[Any] = []

    def work(n: int) -> None:
        for k in range(200):
            got = float(f(np.full(512, n, "f"), np.full(512, k, "f")))
            if got != 512 * n * k:
                wrong.append((n, k, got))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_trees_and_keywords_with_ndarrays() -> None:
    """Leaves of trees and keywords that are ndarrays or numbers are converted on the way."""
    f = tb.jit(lambda tree, *, scale: tree["a"] * scale + tree["b"][0])
    g = tb.jit(lambda tree: tree["a"] * 2 + tree["b"][0])

    for n in range(4):
        tree = {"a": np.full(3, n, "f"), "b": (tnp.ones(3), 2.0)}
        assert f(tree, scale=np.float32(3)).tolist() == [3 * n + 1] * 3
        assert g(tree).tolist() == [2 * n + 1] * 3
    assert g.cache_info().slow["converted"] == 3


def test_leaves_of_trees_are_told_apart_by_kind() -> None:
    """Numbers of each type, ndarrays and arrays at one place of a tree have their own programs."""
    f = tb.jit(lambda tree: tree["w"] * tree["k"])
    w = np.arange(3, dtype=np.int32)
    leaves = [2, True, 0.5, 2j, np.int8(3), np.full(3, 2.5, "f"), tnp.ones(3), 0.0, -0.0, 3, False]

    for _ in range(3):
        for leaf in leaves:
            for tree in ({"w": tnp.asarray(w), "k": leaf}, {"w": w, "k": leaf}):
                got = f(tree)
                expected = tnp.multiply(w, leaf)

                assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())
        assert str(f({"w": tnp.ones(3), "k": -0.0}).tolist()) == "[-0.0, -0.0, -0.0]"
    with pytest.raises(tb.errors.IntegerRangeError):
        f({"w": tnp.asarray(w), "k": 1 << 70})
    with pytest.raises(tb.errors.UnsupportedDtypeError):
        f({"w": tnp.asarray(w), "k": object()})


def test_an_error_gives_the_memory_back() -> None:
    """After a call that fails the next one is right."""
    f = tb.jit(lambda x, y: x + y)
    f(np.ones(3, "f"), 1)

    for n in range(3):
        with pytest.raises(tb.errors.IntegerRangeError):
            f(np.full(3, n, "f"), 1 << 70)
        assert f(np.full(3, n, "f"), 1).tolist() == [n + 1] * 3


def test_operators_with_ndarrays() -> None:
    """Eager operators see the ndarray of their own call."""
    x = tnp.arange(3.0)

    results = [(np.full(3, n, "f") - x, x * np.full(3, n), np.float32(n) + x) for n in range(4)]

    for n, (a, b, c) in enumerate(results):
        assert a.tolist() == [n, n - 1, n - 2]
        assert b.tolist() == [0, n, 2 * n]
        assert c.tolist() == [n, n + 1, n + 2]


@pytest.mark.parametrize("number", [np.int64(2**40 + 3), np.uint64(2**63 + 3), np.int64(-(2**33))])
def test_numbers_of_numpy_wrap_in_each_call(number: Any) -> None:
    """A number with too many bits becomes what an array of it becomes, not only at first."""
    f = tb.jit(lambda x, y: (x, y))
    expected = int(np.asarray(number).astype(tb.dtypes.canonicalize_dtype(number.dtype)))

    results = [f(number, np.float32(n)) for n in range(4)]
    alone = [tb.jit(lambda x: x)(number) for _ in range(3)]

    assert [int(x) for x, _ in results] == [expected] * 4
    assert [float(y) for _, y in results] == [0.0, 1.0, 2.0, 3.0]
    assert [int(x) for x in alone] == [expected] * 3


def test_memory_for_ndarrays_is_bounded_over_all_functions() -> None:
    """Functions that have met ndarrays do not keep memory that was given up."""
    functions = []
    for n in range(2 * MOST_BYTES // LARGEST):
        f = tb.jit(lambda x: x[0])
        functions.append(f)
        host = np.ones(LARGEST // 4 - n, np.float32)
        for _ in range(3):
            f(host)

    rooms = [x for x in gc.get_objects() if type(x) is Room]

    assert sum([room.memory.nbytes for room in rooms]) <= MOST_BYTES
    assert all(
        [float(f(np.ones(LARGEST // 4 - n, "f"))) == 1 for n, f in enumerate(functions[-3:])]
    )
