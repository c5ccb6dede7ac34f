"""Public functions that read and write at positions: arguments, limits of dtypes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.equations import equations_of
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import (
    AxisError,
    IndexingError,
    RankError,
    ShapeMismatchError,
)
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.runtime.arrays.transfer import put_numpy

X = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.arange(5, dtype=np.float32)
ITEMS = lax.GatherDimensionNumbers((), (0,), (0,))
TO_ITEMS = lax.ScatterDimensionNumbers((), (0,), (0,))
WINDOWS = lax.ScatterDimensionNumbers((1,), (), (0,))
I = np.array([[1], [2]], np.int32)  # noqa: E741 (indices)


def gather(x: Any = V, i: Any = I, numbers: Any = ITEMS, sizes: Any = (1,), **options: Any) -> Any:
    """A gather with most arguments right."""
    return lax.gather(x, i, numbers, sizes, **options)


def numbers(*parts: Any) -> Any:
    """Dimension numbers of a gather."""
    return lax.GatherDimensionNumbers(*parts)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "slice below 0": (
        lambda: lax.slice(V, (-1,), (3,)),
        ShapeMismatchError,
        r"slice: -1:3 for axis 0 of f32\[5\], expected 0 <= start <= limit <= 5",
    ),
    "slice beyond the end": (lambda: lax.slice(V, (1,), (8,)), ShapeMismatchError, "slice: 1:8"),
    "slice backwards": (lambda: lax.slice(V, (3,), (2,)), ShapeMismatchError, "slice: 3:2"),
    "slice by stride 0": (
        lambda: lax.slice(V, (0,), (2,), (0,)),
        ShapeMismatchError,
        "stride 0 for axis 0, expected at least 1",
    ),
    "slice of too few axes": (lambda: lax.slice(X, (0,), (2,)), RankError, "one entry for each"),
    "slice_in_dim": (lambda: lax.slice_in_dim(V, 0, 1, axis=1), AxisError, "axis 1 is out of"),
    "index_in_dim": (
        lambda: lax.index_in_dim(V, 5),
        IndexingError,
        "index 5 is out of bounds for axis 0 of size 5",
    ),
    "index_in_dim from the end": (lambda: lax.index_in_dim(V, -6), IndexingError, "index -6"),
    "dynamic_slice with too few starts": (
        lambda: lax.dynamic_slice(X, (0,), (1, 1)),
        RankError,
        "got 1 start indices, expected 2",
    ),
    "dynamic_slice with a wrong vector": (
        lambda: lax.dynamic_slice(X, np.zeros(3, np.int32), (1, 1)),
        RankError,
        r"start_indices must have shape \(2,\)",
    ),
    "dynamic_slice at a float": (
        lambda: lax.dynamic_slice(V, (1.0,), (1,)),
        DtypeMismatchError,
        "must be integer scalars",
    ),
    "dynamic_slice_p at two dtypes": (
        lambda: lax.dynamic_slice_p.bind(
            put_numpy(X), put_numpy(np.int8(1)), put_numpy(np.int32(1)), slice_sizes=(1, 1)
        ),
        DtypeMismatchError,
        "of one dtype",
    ),
    "dynamic_slice that is too large": (
        lambda: lax.dynamic_slice(V, (0,), (7,)),
        ShapeMismatchError,
        r"slice_sizes \(7,\) are larger than f32\[5\]",
    ),
    "dynamic_slice at a negative start": (
        lambda: lax.dynamic_slice(V, (-2,), (1,), allow_negative_indices=False),
        IndexingError,
        "start index -2 is negative",
    ),
    "dynamic_update_slice of another dtype": (
        lambda: lax.dynamic_update_slice(V, np.ones(2, np.int32), (0,)),
        DtypeMismatchError,
        r"operand f32\[5\], update i32\[2\]",
    ),
    "dynamic_update_slice of another rank": (
        lambda: lax.dynamic_update_slice(V, X, (0,)),
        RankError,
        "same rank",
    ),
    "dynamic_update_slice that is too large": (
        lambda: lax.dynamic_update_slice(V, np.ones(9, np.float32), (0,)),
        ShapeMismatchError,
        "the update is larger than the operand",
    ),
    "gather by floats": (lambda: gather(i=I * 1.0), DtypeMismatchError, "must be integers"),
    "gather by a scalar": (lambda: gather(i=np.int32(1)), RankError, "at least one axis"),
    "gather by long vectors": (
        lambda: gather(i=np.ones((2, 2), np.int32)),
        ShapeMismatchError,
        "index vectors have 2 entries",
    ),
    "gather of wide collapsed windows": (
        lambda: gather(sizes=(2,)),
        ShapeMismatchError,
        "slice size of the collapsed axis 0 must be 1, got 2",
    ),
    "gather of windows too large": (
        lambda: gather(numbers=numbers((1,), (), (0,)), sizes=(6,)),
        ShapeMismatchError,
        "slice size 6 of axis 0 does not fit",
    ),
    "gather with too few sizes": (lambda: gather(sizes=()), RankError, "one entry for each axis"),
    "gather with a repeated axis": (
        lambda: gather(X, np.ones((2, 2), np.int32), numbers((), (0, 1), (0, 0)), (1, 1)),
        ShapeMismatchError,
        r"start_index_map in gather op must not repeat, got \(0, 0\)",
    ),
    "gather with decreasing axes": (
        lambda: gather(X, I, numbers((), (1, 0), (0,)), (1, 1)),
        ShapeMismatchError,
        r"collapsed_slice_dims in gather op must be sorted, got \(1, 0\)",
    ),
    "gather with offsets that are missing": (
        lambda: gather(X, I, numbers((), (0,), (0,)), (1, 3)),
        ShapeMismatchError,
        "the window has 1 axes",
    ),
    "gather with overlapping roles": (
        lambda: gather(X, I, numbers((1,), (), (0,), (0,), (0,)), (1, 3)),
        ShapeMismatchError,
        "start_index_map and operand_batching_dims in gather op must be disjoint",
    ),
    "gather with batching sizes": (
        lambda: gather(X, np.ones((3, 1), np.int32), numbers((), (1,), (1,), (0,), (0,)), (1, 1)),
        ShapeMismatchError,
        r"sizes \[2\] in the operand and \[3\]",
    ),
    "gather in no mode": (lambda: gather(mode="wrap"), ValueError, "mode 'wrap' is unknown"),
    "scatter of another dtype": (
        lambda: lax.scatter(V, I, np.ones(2, np.int32), TO_ITEMS),
        DtypeMismatchError,
        "scatter: operand and updates need the same dtype",
    ),
    "scatter of too many updates": (
        lambda: lax.scatter_add(V, I, np.ones(3, np.float32), TO_ITEMS),
        ShapeMismatchError,
        r"scatter_add: the axes of updates f32\[3\] beside the window",
    ),
    "scatter of windows too large": (
        lambda: lax.scatter(V, I, np.ones((2, 7), np.float32), WINDOWS),
        ShapeMismatchError,
        "has size 7 along axis 0",
    ),
    "scatter_add of bool": (
        lambda: lax.scatter_add(V > 0, I, np.ones(2, bool), TO_ITEMS),
        UnsupportedDtypeError,
        "scatter_add works on numbers, got bool",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_messages(name: str) -> None:
    """An error says what was called, what was got and what was expected."""
    call, error, message = WRONG[name]

    with pytest.raises(error, match=message):
        call()


FILLS = {
    "float32": np.nan,
    "bfloat16": np.nan,
    "float8_e4m3fn": np.nan,
    "complex64": np.nan,
    "int8": -128,
    "int32": -(2**31),
    "uint8": 255,
    "int4": -8,
    "uint4": 15,
    "bool": True,
}


@pytest.mark.parametrize("dtype", FILLS)
def test_windows_out_of_bounds_are_filled(dtype: str) -> None:
    """NaN, the least signed integer, the greatest unsigned one, True."""
    x = lax.full((3,), 1, dtype)

    found = np.asarray(gather(x, np.array([[5], [-1], [2]]), mode="fill"))

    want = np.array([FILLS[dtype], FILLS[dtype], 1]).astype(found.dtype)
    np.testing.assert_array_equal(want.astype(np.complex64), found.astype(np.complex64))


def test_fill_values() -> None:
    """Any value can fill, and negative zero is not zero."""
    out = np.array([[9]], np.int32)

    assert float(gather(i=out, mode="fill", fill_value=7)[0]) == 7.0
    assert np.signbit(np.asarray(gather(i=out, mode="fill", fill_value=0.0))[0]) == 0
    assert np.signbit(np.asarray(gather(i=out, mode="fill", fill_value=-0.0))[0]) == 1


def test_filled_windows_have_no_derivative() -> None:
    """The fill value is a constant."""
    i = np.array([[9], [2]], np.int32)

    out, tangent = tb.jvp(lambda x: gather(x, i, mode="fill", fill_value=3), (V,), (V,))

    assert out.tolist() == [3.0, 2.0]
    assert tangent.tolist() == [0.0, 2.0]


MODES = {
    "clip": ([4.0, 0.0], [2.0, 0.0, 0.0, 0.0, 1.0]),
    "fill": ([-1.0, -1.0], [0.0] * 5),
    "drop": ([-1.0, -1.0], [0.0] * 5),
    "one_hot": ([-1.0, -1.0], [0.0] * 5),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    """Names, members and capitals mean the same; both operations follow them."""
    i = np.array([[9], [-1]], np.int32)
    read, wrote = MODES[mode]
    member = lax.GatherScatterMode.from_any(mode)

    for spelled in (mode, mode.upper(), member):
        assert read == gather(i=i, mode=spelled, fill_value=-1).tolist()
        zeros, updates = np.zeros(5, np.float32), np.array([1.0, 2.0], np.float32)
        found = lax.scatter_add(zeros, i, updates, TO_ITEMS, mode=spelled)
        assert wrote == found.tolist()


def test_modes_left_out() -> None:
    """gather promises, scatter drops."""
    (app,) = equations_of(stage(lambda x: [gather(x)], [tb.typeof(V)]), "gather")

    assert app.params["mode"] is lax.GatherScatterMode.PROMISE_IN_BOUNDS
    assert lax.GatherScatterMode.from_any(None) is lax.GatherScatterMode.FILL_OR_DROP
    dropped = lax.scatter_add(V, I + 4, np.ones(2, np.float32), TO_ITEMS)
    assert V.tolist() == dropped.tolist()


LARGE = {
    "uint8": (250, 250),
    "int8": (-6, 0),
    "int16": (-6, 0),
    "uint16": (65535, 299),
    "uint32": (2**32 - 1, 299),
    "int64": (2**40, 299),
    "uint64": (2**64 - 1, 299),
}


@pytest.mark.parametrize("dtype", LARGE)
def test_indices_of_every_dtype(dtype: str) -> None:
    """Bounds are computed without wrapping in the dtype of the index."""
    index, clipped = LARGE[dtype]
    x = np.arange(300, dtype=np.float32)
    i = put_numpy(np.array([[index]], dtype))
    scalar = (lax.reshape(i, ()),)

    read = gather(x, i, mode="clip")
    filled = gather(x, i, mode="fill", fill_value=-1)
    added = lax.scatter_add(x, i, np.ones(1, np.float32), TO_ITEMS, mode="clip")
    start = lax.dynamic_slice_p.bind(tb.device_put(x), *scalar, slice_sizes=(1,))
    wrote = lax.dynamic_update_slice_p.bind(
        tb.device_put(x), tb.device_put(np.zeros(1, np.float32)), *scalar
    )

    assert dtype == i.dtype.name
    inside = 0 <= index < 300
    assert [clipped] == read.tolist()
    assert [index if inside else -1] == filled.tolist()
    assert clipped + 1 == float(added[clipped])
    assert [clipped] == start.tolist()
    assert float(wrote[clipped]) == 0.0


@pytest.mark.parametrize("kind", ["int", "numpy", "array", "traced"])
def test_negative_starts_count_from_the_end(kind: str) -> None:
    """However the position is given, and only where that is allowed."""
    x = np.arange(300, dtype=np.float32)

    def at(i: Any, **options: Any) -> float:
        return float(lax.dynamic_slice(x, (i,), (1,), **options)[0])

    make = {"int": int, "numpy": np.int8, "array": lambda i: tb.device_put(np.int8(i))}
    if kind == "traced":
        assert float(tb.jit(lambda i: lax.dynamic_slice(x, (i,), (1,)))(np.int8(-2))[0]) == 298.0
        return
    assert at(make[kind](-2)) == 298.0
    if kind == "array":
        assert at(make[kind](-2), allow_negative_indices=False) == 0.0
        assert at(make[kind](-2), allow_negative_indices=[True]) == 298.0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_positions_of_several_dtypes(dtype: str) -> None:
    """Python ints take the dtype of the others, which are widened where they differ."""
    x = np.arange(900, dtype=np.float32).reshape(3, 300)
    row = put_numpy(np.array(2, dtype))

    assert float(lax.dynamic_slice(x, (row, 1), (1, 1))[0, 0]) == 601.0
    assert float(lax.dynamic_slice(x, (row, 299), (1, 1))[0, 0]) == 899.0
    assert float(lax.dynamic_slice(x, (row, -1), (1, 1))[0, 0]) == 899.0
    column = put_numpy(np.int32(-2))
    assert float(lax.dynamic_slice(x, (row, column), (1, 1))[0, 0]) == 898.0


def test_empty_index_vectors() -> None:
    """All windows are the whole operand, and all updates count."""
    empty = np.zeros((2, 0), np.int32)
    updates = np.array([1.0, 2.0], np.float32)

    to_item = lax.ScatterDimensionNumbers((), (0,), ())
    to_scalar = lax.ScatterDimensionNumbers((), (), ())

    one = lax.scatter_add(np.ones(1, np.float32), empty, updates, to_item)
    scalar = lax.scatter_add(np.float32(1), empty, updates, to_scalar)
    assert one.tolist() == [4.0]
    assert float(scalar) == 4.0
    read = gather(np.float32(3), empty, numbers((), (), ()), ())
    assert read.tolist() == [3.0, 3.0]


def test_mapping_over_nothing() -> None:
    """A batch of size 0 gives a result of size 0."""
    found = tb.vmap(gather)(np.zeros((0, 5), np.float32), np.zeros((0, 2, 1), np.int32))

    assert found.shape == (0, 2)


def test_mapping_windows_and_updates_over_nothing() -> None:
    """Positions that differ along a batch of size 0 fit it, in loops too."""
    x, i, u = np.zeros((0, 5), np.float32), np.zeros(0, np.int32), np.zeros((0, 2), np.float32)

    def loop(x: Any, i: Any) -> Any:
        return lax.scan(lambda c, j: (c.at[i + j].add(1.0), c[i]), x, np.arange(3))

    assert (0, 2) == tb.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,)))(x, i).shape
    assert (0, 2) == tb.vmap(lambda i: lax.dynamic_slice(np.ones(5), (i,), (2,)))(i).shape
    put = lax.dynamic_update_slice
    assert (0, 5) == tb.vmap(lambda x, u, i: put(x, u, (i,)))(x, u, i).shape
    assert (0, 5) == tb.jit(tb.vmap(lambda x, i: x.at[i].set(1.0)))(x, i).shape
    assert [(0, 5), (0, 3)] == [y.shape for y in tb.vmap(loop)(x, i)]


def test_index_take_checks_axes() -> None:
    """Axes are those of the operand."""
    with pytest.raises(AxisError, match="index_take: axis 2"):
        lax.index_take(X, (I[:, 0],), (2,))
