"""gather, scatter and the slices equal plain loops for every geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracebridge as tb
from tests.core.lax.indexing.reference import Geometry, gathered, geometries, scattered
from tracebridge import lax

SCATTERS = {
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter_mul": np.multiply,
    "scatter_min": np.minimum,
    "scatter_max": np.maximum,
}


def drawn_indices(
    data: st.DataObject, g: Geometry, dtype: str, low: int = -3, high: int = 6
) -> np.ndarray[Any, Any]:
    """Indices that often leave the operand."""
    size = int(np.prod(g.indices_shape))
    if dtype.startswith("u"):
        low = 0
    flat = data.draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
    return np.array(flat, dtype).reshape(g.indices_shape)


def numbers(shape: tuple[int, ...], start: int = 1) -> np.ndarray[Any, Any]:
    """Distinct whole numbers as float32, small enough for exact products."""
    return (np.arange(int(np.prod(shape))) % 5 + start).reshape(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("mode", ["clip", "fill"])
@given(g=geometries(), data=st.data())
def test_gather_is_a_loop(mode: str, dtype: str, g: Geometry, data: st.DataObject) -> None:
    """Each element of the result is the element of the operand that the numbers say."""
    indices = drawn_indices(data, g, dtype)
    x = np.arange(np.prod(g.shape), dtype=np.float32).reshape(g.shape)

    found = lax.gather(x, indices, g.gather_numbers, g.sizes, mode=mode, fill_value=-7)

    np.testing.assert_array_equal(gathered(x, indices, g, mode, -7), np.asarray(found))


@pytest.mark.parametrize("name", SCATTERS)
@given(g=geometries(), data=st.data())
def test_combining_scatters_are_loops(name: str, g: Geometry, data: st.DataObject) -> None:
    """Every update counts once, in either mode."""
    mode = data.draw(st.sampled_from(["clip", "drop"]))
    indices = drawn_indices(data, g, data.draw(st.sampled_from(["int32", "int8"])))
    x, updates = numbers(g.shape), numbers(g.out_shape)

    found = getattr(lax, name)(x, indices, updates, g.scatter_numbers, mode=mode)

    want = scattered(x, indices, updates, g, mode, SCATTERS[name])
    np.testing.assert_allclose(want, np.asarray(found), rtol=1e-6)


@given(g=geometries(), data=st.data())
def test_scatter_keeps_one_of_the_updates(g: Geometry, data: st.DataObject) -> None:
    """An element has the value of one update that goes there, or its own if there is none."""
    mode = data.draw(st.sampled_from(["clip", "drop"]))
    indices = drawn_indices(data, g, "int32")
    x = np.zeros(g.shape, np.float32)
    updates = np.arange(1, np.prod(g.out_shape) + 1, dtype=np.float32).reshape(g.out_shape)

    found = np.asarray(lax.scatter(x, indices, updates, g.scatter_numbers, mode=mode))

    counts = scattered(x, indices, np.ones_like(updates), g, mode, np.add)
    assert ((found == 0) == (counts == 0)).all()
    # The element of the updates that stayed goes to this very place.
    for position in np.argwhere(found != 0):
        only = np.where(updates == found[tuple(position)], 1, 0).astype(np.float32)
        assert scattered(x, indices, only, g, mode, np.add)[tuple(position)] == 1


@pytest.mark.parametrize("mode", ["clip", "fill"])
@given(g=geometries(), data=st.data())
def test_scatter_add_is_the_transpose_of_gather(
    mode: str, g: Geometry, data: st.DataObject
) -> None:
    """<ct, gather(v)> equals <scatter_add(0, ct), v>, and the rules say so too."""
    indices = drawn_indices(data, g, "int32")
    v, ct = numbers(g.shape), numbers(g.out_shape, 2)

    def fun(x: Any) -> Any:
        return lax.gather(x, indices, g.gather_numbers, g.sizes, mode=mode, fill_value=0)

    out, pull = tb.vjp(fun, v)
    (back,) = pull(tb.device_put(ct))

    assert np.vdot(np.asarray(back), v) == np.vdot(ct, np.asarray(out))
    np.testing.assert_array_equal(
        scattered(np.zeros_like(v), indices, ct, g, mode, np.add), np.asarray(back)
    )


@pytest.mark.parametrize("in_axes", [(0, None, 0), (None, 0, None), (0, 0, 0), (1, 1, None)])
@given(g=geometries(), data=st.data())
def test_batching_is_a_loop(in_axes: Any, g: Geometry, data: st.DataObject) -> None:
    """vmap of gather and scatter_add equals calling them for each element of the batch."""
    draws = [drawn_indices(data, g, "int32") for _ in range(2)]
    xs = [numbers(g.shape, k) for k in range(2)]
    updates = [numbers(g.out_shape, k + 2) for k in range(2)]
    parts = [xs, draws, updates]

    def both(x: Any, i: Any, u: Any) -> Any:
        y = lax.gather(x, i, g.gather_numbers, g.sizes, mode="fill", fill_value=0)
        return y, lax.scatter_add(x, i, u, g.scatter_numbers)

    axes = [None if a is None else min(a, p[0].ndim) for a, p in zip(in_axes, parts, strict=True)]
    args = [p[0] if a is None else np.stack(p, a) for a, p in zip(axes, parts, strict=True)]
    found = tb.vmap(both, in_axes=tuple(axes))(*args)

    for k in range(2):
        row = [p[0] if a is None else p[k] for a, p in zip(axes, parts, strict=True)]
        x, i, u = row
        np.testing.assert_array_equal(gathered(x, i, g, "fill", 0), np.asarray(found[0])[k])
        np.testing.assert_array_equal(
            scattered(x, i, u, g, "drop", np.add), np.asarray(found[1])[k]
        )


@given(data=st.data())
def test_dynamic_slices_are_clamped_windows(data: st.DataObject) -> None:
    """dynamic_slice reads, and dynamic_update_slice writes, the window moved inwards."""
    ndim = data.draw(st.integers(0, 3))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=ndim, max_size=ndim)))
    sizes = tuple([data.draw(st.integers(0, n)) for n in shape])
    starts = [data.draw(st.integers(-8, 8)) for _ in shape]
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.int32)
    update = -np.ones(sizes, np.int32)
    front = [s + n if s < 0 else s for s, n in zip(starts, shape, strict=True)]
    low = [min(max(s, 0), n - m) for s, n, m in zip(front, shape, sizes, strict=True)]
    window = tuple([slice(s, s + m) for s, m in zip(low, sizes, strict=True)])
    written = x.copy()
    written[window] = update
    computed = np.array(starts, np.int32)

    for given_starts in (starts, computed, [np.int64(s) for s in starts]):
        read = lax.dynamic_slice(x, given_starts, sizes)
        np.testing.assert_array_equal(x[window], np.asarray(read))
        wrote = lax.dynamic_update_slice(x, update, given_starts)
        np.testing.assert_array_equal(written, np.asarray(wrote))


@given(data=st.data())
def test_slice_is_numpy_slicing(data: st.DataObject) -> None:
    """start:limit:stride along each axis, and the transpose of that."""
    ndim = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=ndim, max_size=ndim)))
    starts = [data.draw(st.integers(0, n)) for n in shape]
    limits = [data.draw(st.integers(s, n)) for s, n in zip(starts, shape, strict=True)]
    strides = [data.draw(st.integers(1, 3)) for _ in shape]
    window = tuple([slice(*b) for b in zip(starts, limits, strides, strict=True)])
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.float32)

    out, pull = tb.vjp(lambda v: lax.slice(v, starts, limits, strides), x)
    np.testing.assert_array_equal(x[window], np.asarray(out))
    back = np.zeros_like(x)
    back[window] = x[window] + 1
    np.testing.assert_array_equal(back, np.asarray(pull(tb.device_put(x[window] + 1))[0]))


@given(data=st.data())
def test_pad_and_its_transpose(data: st.DataObject) -> None:
    """pad places the elements at low + i * (interior + 1) and drops those outside."""
    n = data.draw(st.integers(0, 4))
    low, high = data.draw(st.integers(-4, 4)), data.draw(st.integers(-4, 4))
    interior = data.draw(st.integers(0, 2))
    size = low + high + n + max(n - 1, 0) * interior
    if size < 0:
        with pytest.raises(TypeError, match="expected at least 0"):
            lax.pad(np.ones(n, np.float32), 0.0, [(low, high, interior)])
        return
    x = np.arange(1, n + 1, dtype=np.float32)
    want = np.full(size, -1, np.float32)
    target = [low + i * (interior + 1) for i in range(n)]
    for i, t in enumerate(target):
        if 0 <= t < size:
            want[t] = x[i]

    out, pull = tb.vjp(lambda v, p: lax.pad(v, p, [(low, high, interior)]), x, np.float32(-1))
    np.testing.assert_array_equal(want, np.asarray(out))
    ct = np.arange(size, dtype=np.float32) + 1
    ct_x, ct_value = pull(tb.device_put(ct))
    np.testing.assert_array_equal(
        np.array([ct[t] if 0 <= t < size else 0 for t in target], np.float32), np.asarray(ct_x)
    )
    assert float(ct_value) == float(ct.sum() - np.asarray(ct_x).sum())


@pytest.mark.parametrize("mode", [None, "fill", "clip"])
def test_no_positions_in_an_empty_operand(mode: str | None) -> None:
    """Where nothing is gathered the window need not fit; the gradient is empty too."""
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    indices = np.zeros((0, 1), np.int32)

    def f(x: Any) -> Any:
        return lax.gather(x, indices, numbers, (1,), mode=mode)

    x = np.zeros(0, np.float32)
    assert f(x).shape == (0,)
    assert tb.grad(lambda x: f(x).sum())(x).shape == (0,)
