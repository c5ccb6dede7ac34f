"""All rules of slices, gathers and scatters agree with NumPy and with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.testing import check_rules

Gather = lax.GatherDimensionNumbers
Scatter = lax.ScatterDimensionNumbers
ROWS = Gather((1,), (0,), (0,))
ADD_ROWS = Scatter((1,), (0,), (0,))
ITEMS = Scatter((), (0,), (0,))


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Distinct elements, in no order."""
    order = np.random.default_rng(7).permutation(int(np.prod(shape)))
    return (order.reshape(shape) + 1).astype(dtype)


def ints(*values: Any, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    """An array of indices."""
    return np.array(values, dtype)


def updated(x: Any, u: Any, *window: slice) -> Any:
    """A copy of ``x`` with a window replaced."""
    x = x.copy()
    x[window] = u
    return x


SLICES = {
    "slice": (
        lambda x: lax.slice(x, (0, 1), (2, 6), (1, 2)),
        [array(3, 6)],
        lambda x: x[0:2, 1:6:2],
    ),
    "slice_in_dim": (
        lambda x: lax.slice_in_dim(x, -3, -1, 1, 1),
        [array(2, 5)],
        lambda x: x[:, -3:-1],
    ),
    "index_in_dim": (
        lambda x: lax.index_in_dim(x, -2, 1, False),
        [array(2, 5)],
        lambda x: x[:, -2],
    ),
    "dynamic_slice": (
        lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 2)),
        [array(3, 4), np.int32(1), np.int32(-2)],
        lambda x, i, j: x[1:3, 2:4],
    ),
    "dynamic_slice by a vector": (
        lambda x, i: lax.dynamic_slice(x, i, (2, 3)),
        [array(3, 4), ints(2, 0)],
        lambda x, i: x[1:3, 0:3],
    ),
    "dynamic_slice with a small index dtype": (
        lambda x, i: lax.dynamic_slice(x, (i,), (2,)),
        [array(300), np.int8(-1)],
        lambda x, i: x[298:300],
    ),
    "dynamic_index_in_dim": (
        lambda x, i: lax.dynamic_index_in_dim(x, i, 1, keepdims=False),
        [array(2, 4), np.int32(3)],
        lambda x, i: x[:, 3],
    ),
    "dynamic_update_slice": (
        lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
        [array(3, 4), -array(2, 2), np.int32(1), np.int32(5)],
        lambda x, u, i, j: updated(x, u, slice(1, 3), slice(2, 4)),
    ),
    "dynamic_update_slice_in_dim": (
        lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 1),
        [array(2, 4), -array(2, 2), np.int32(1)],
        lambda x, u, i: updated(x, u, slice(None), slice(1, 3)),
    ),
    "dynamic_update_index_in_dim": (
        lambda x, u, i: lax.dynamic_update_index_in_dim(x, u, i, -1),
        [array(2, 4), -array(2), np.int32(-1)],
        lambda x, u, i: updated(x, u, slice(None), 3),
    ),
}

GATHERS = {
    "gather rows": (
        lambda x, i: lax.gather(x, i, ROWS, (1, 3)),
        [array(4, 3), ints([2], [0], [2])],
        lambda x, i: x[i[:, 0]],
    ),
    "gather with fill": (
        lambda x, i: lax.gather(x, i, ROWS, (1, 2), mode="fill", fill_value=7),
        [array(4, 3), ints([2], [-1], [9])],
        lambda x, i: np.stack([x[2, :2], np.full(2, 7, x.dtype), np.full(2, 7, x.dtype)]),
    ),
    "gather with clip": (
        lambda x, i: lax.gather(x, i, Gather((1,), (), (0,)), (2,), mode="clip"),
        [array(5), ints([4], [-3], [1])],
        lambda x, i: np.stack([x[3:5], x[0:2], x[1:3]]),
    ),
    "gather with batching axes": (
        lambda x, i: lax.gather(x, i, Gather((), (1,), (1,), (0,), (1,)), (1, 1)),
        [array(2, 4), ints([[0], [3]], [[2], [1]])],
        lambda x, i: x[[[0, 1], [0, 1]], i[..., 0]],
    ),
    "index_take": (
        lambda x, i, j: lax.index_take(x, (i, j), (2, 0)),
        [array(2, 3, 4), ints(0, -1), ints(1, 1)],
        lambda x, i, j: x[j, :, i],
    ),
}


def at(combine: Any) -> Any:
    """The reference of scatters to rows."""

    def reference(x: Any, i: Any, u: Any) -> Any:
        x = x.copy()
        for row, new in zip(i[:, 0], u, strict=True):
            if 0 <= row < len(x):
                x[row] = combine(x[row], new)
        return x

    return reference


REPEATED = [array(4, 3), ints([2], [0], [2], [-1]), array(4, 3) / 2 + 0.25]
DISTINCT = [array(4, 3), ints([3], [0], [2]), array(3, 3) / 2 + 0.25]
SCATTERS = {
    "scatter_add": (lax.scatter_add, REPEATED, np.add),
    "scatter_sub": (lax.scatter_sub, REPEATED, np.subtract),
    "scatter_mul": (lax.scatter_mul, REPEATED, np.multiply),
    "scatter_min": (lax.scatter_min, REPEATED, np.minimum),
    "scatter_max": (lax.scatter_max, REPEATED, np.maximum),
    "scatter": (lax.scatter, REPEATED, lambda old, new: new),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices(name: str) -> None:
    """Value, jit, derivatives of both modes and orders, and batching are those of NumPy."""
    fun, args, reference = SLICES[name]

    check_rules(fun, *args, reference=reference)


@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name: str) -> None:
    """Value, jit, derivatives of both modes and orders, and batching are those of NumPy."""
    fun, args, reference = GATHERS[name]

    check_rules(fun, *args, reference=reference)


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_of_repeated_indices(name: str) -> None:
    """All rules hold where windows overlap and where one is dropped."""
    fun, args, combine = SCATTERS[name]

    check_rules(lambda *a: fun(*a, ADD_ROWS), *args, reference=at(combine))


@pytest.mark.parametrize("mode", ["clip", "promise_in_bounds", "drop"])
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_of_unique_indices(name: str, mode: str) -> None:
    """The rules for unique indices are those of the general case."""
    fun, _, combine = SCATTERS[name]

    def unique(*args: Any) -> Any:
        return fun(*args, ADD_ROWS, unique_indices=True, mode=mode)

    check_rules(unique, *DISTINCT, reference=at(combine), vmap=mode == "clip")


def test_scatter_of_windows() -> None:
    """Windows that overlap in part and updates whose window axis comes first."""
    numbers = Scatter((0,), (), (0,))
    x, indices, updates = array(5), ints([0], [1], [3]), array(2, 3)

    def reference(x: Any, i: Any, u: Any) -> Any:
        x = x.copy()
        for k, (start,) in enumerate(i):
            x[start : start + 2] += u[:, k]
        return x

    check_rules(lambda *a: lax.scatter_add(*a, numbers), x, indices, updates, reference=reference)


def test_scatter_with_batching_axes() -> None:
    """An axis of the operand that is walked together with an axis of the indices."""
    numbers = Scatter((), (1,), (1,), (0,), (0,))
    x, indices, updates = array(2, 4), ints([[0], [3]], [[2], [2]]), array(2, 2)

    def reference(x: Any, i: Any, u: Any) -> Any:
        x = x.copy()
        np.add.at(x, ([[0, 0], [1, 1]], i[..., 0]), u)
        return x

    check_rules(lambda *a: lax.scatter_add(*a, numbers), x, indices, updates, reference=reference)


def test_scatter_mul_by_zeros() -> None:
    """Derivatives of products are finite differences' also where factors are zero."""
    x = np.array([1.0, 2.0, 3.0, 4.0])
    indices = ints([0], [0], [1], [1], [1], [3], [7])
    updates = np.array([0.0, 5.0, 0.0, 0.0, 3.0, 2.0, 0.0])

    check_rules(lambda *a: lax.scatter_mul(*a, ITEMS), x, indices, updates, vmap=False, order=1)


def test_scatter_mul_by_a_zero_in_second_order() -> None:
    """The Hessian of a product with one zero factor is complete."""

    def f(u: Any) -> Any:
        x = np.array([2.0], np.float32)
        return lax.reduce_sum(lax.scatter_mul(x, ints([0], [0], [0]), u, ITEMS), (0,))

    u = np.array([0.0, 3.0, 5.0], np.float32)
    grads = tb.jvp(tb.grad(f), (u,), (np.array([1.0, 0, 0], np.float32),))

    np.testing.assert_array_equal([30.0, 0.0, 0.0], np.asarray(grads[0]))
    np.testing.assert_array_equal([0.0, 10.0, 6.0], np.asarray(grads[1]))


@pytest.mark.parametrize("name", ["scatter_min", "scatter_max"])
def test_ties_of_extremes_share_the_derivative(name: str) -> None:
    """The operand and all updates that equal the result get the same part."""
    x = np.array([1.0, 1.0, 1.0], np.float32)
    indices, updates = ints([0], [0], [1], [5]), np.ones(4, np.float32)

    _, pull = tb.vjp(lambda x, u: getattr(lax, name)(x, indices, u, ITEMS), x, updates)
    ct_x, ct_u = pull(tb.device_put(np.array([6.0, 6.0, 6.0], np.float32)))

    np.testing.assert_allclose([2.0, 3.0, 6.0], np.asarray(ct_x))
    np.testing.assert_allclose([2.0, 2.0, 3.0, 0.0], np.asarray(ct_u))


def test_the_winner_of_a_scatter_gets_the_tangent() -> None:
    """The tangent comes from the update whose value stays."""
    x = np.zeros(3, np.float32)
    indices, updates = ints([1], [1], [2], [1]), np.array([1.0, 2.0, 3.0, 4.0], np.float32)

    out, tangent = tb.jvp(
        lambda x, u: lax.scatter(x, indices, u, ITEMS), (x, updates), (x + 7, 10 * updates)
    )

    np.testing.assert_array_equal(10 * np.asarray(out)[1:], np.asarray(tangent)[1:])
    assert float(np.asarray(tangent)[0]) == 7.0


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "bfloat16", "complex64"])
def test_every_dtype_moves(dtype: str) -> None:
    """Slices, gathers and scatters do not look at the elements."""
    for fun, args, reference in [SLICES["dynamic_update_slice"], GATHERS["gather rows"]]:
        moved = [a.astype(dtype) if a.dtype == np.float32 else a for a in args]
        check_rules(fun, *moved, reference=reference, order=0, vmap=False)
    x, indices, updates = DISTINCT
    check_rules(
        lambda *a: lax.scatter(*a, ADD_ROWS),
        x.astype(dtype), indices, updates.astype(dtype),
        reference=at(lambda old, new: new), order=0, vmap=False,
    )  # fmt: skip


def test_scatter_min_of_complex_numbers() -> None:
    """Complex numbers are ordered by real, then imaginary part, as in lax.min."""
    x = np.array([1 + 1j, 2 + 0j], np.complex64)
    u = np.array([1 + 0j, 3 + 0j], np.complex64)

    found = lax.scatter_min(x, ints([0], [1]), u, ITEMS)

    np.testing.assert_array_equal(np.array([1 + 0j, 2 + 0j], np.complex64), np.asarray(found))
    np.testing.assert_array_equal(np.asarray(lax.min(x, u)), np.asarray(found))


@pytest.mark.parametrize("name", SCATTERS)
def test_clipping_is_part_of_the_derivative(name: str) -> None:
    """Derivatives in mode clip are those at the clipped positions, also at ties."""
    random = np.random.default_rng(1)
    x, t, u = [random.integers(0, 3, s).astype(np.float32) for s in ((4, 2), (4, 2), (6, 2))]
    i = ints([-1], [5], [0], [3], [3], [2])
    found, want = [
        tb.vjp(lambda x, u, p=p: getattr(lax, name)(x, p, u, ADD_ROWS, mode="clip"), x, u)[1](
            tb.device_put(t)
        )
        for p in (i, np.clip(i, 0, 3))
    ]

    for f, w in zip(found, want, strict=True):
        np.testing.assert_array_equal(np.asarray(w), np.asarray(f))
