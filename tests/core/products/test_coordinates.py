"""Products of matrices in coordinates with dense ones: values, derivatives, blocks, the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.products import coordinates
from tracebridge.core.products.coordinates import sparse_dot_p

M, N = 6, 5
ROWS = np.array([0, 0, 1, 3, 3, 3, 5, 6, 6])
ENDS = np.array([0, 2, 3, 3, 6, 6, 7])
COLUMNS = np.array([1, 4, 0, 2, 3, 3, 0, 5, 7])
DATA = np.linspace(-1, 2, 9, dtype=np.float32)
ORDERS = ("any", "sorted", "ends")


def close(found: Any, expected: Any, tolerance: float) -> None:
    """Within a tolerance that is relative to the largest number."""
    expected = np.asarray(expected)
    most = float(np.max(np.abs(expected), initial=1.0))
    np.testing.assert_allclose(np.asarray(found), expected, tolerance, tolerance * most)


def dense(k: int) -> Any:
    """A matrix with k columns."""
    return np.linspace(-2, 1, N * k, dtype=np.float32).reshape(N, k)


def given(order: str) -> tuple[Any, Any]:
    """Rows as they are given, and columns."""
    return tnp.asarray(ENDS if order == "ends" else ROWS), tnp.asarray(COLUMNS)


def product(data: Any, rows: Any, columns: Any, x: Any, order: str) -> Any:
    """The product by the primitive."""
    values = [as_value(v) for v in (data, rows, columns, x)]
    return sparse_dot_p.bind(*values, size=M, order=order)


def whole(data: Any) -> Any:
    """The sparse matrix in dense form."""
    out = np.zeros((M, N), np.float32)
    np.add.at(out, (ROWS[:7], COLUMNS[:7]), np.asarray(data)[:7])
    return out


@pytest.mark.parametrize("k", [3, 20])
@pytest.mark.parametrize("order", ORDERS)
def test_products_and_derivatives_are_those_of_the_dense_matrix(order: str, k: int) -> None:
    """By the kernel or without it; padding counts as nothing."""
    rows, columns = given(order)
    weights = np.cos(np.arange(M * k, dtype=np.float32)).reshape(M, k)

    def loss(data: Any, x: Any) -> Any:
        out = product(data, rows, columns, x, order)
        return (out * weights).sum(), out

    (by_data, by_x), found = tb.jit(tb.grad(loss, (0, 1), has_aux=True))(DATA, dense(k))
    slopes = np.zeros(9, np.float32)
    slopes[:7] = (weights @ dense(k).T)[ROWS[:7], COLUMNS[:7]]

    close(found, whole(DATA) @ dense(k), 1e-5)
    close(by_x, whole(DATA).T @ weights, 1e-5)
    close(by_data, slopes, 1e-4)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("axes", [(0, None, None, None), (None, 0, 0, None), (None, None, None, 1)])
def test_mapped_products_equal_a_loop(order: str, axes: tuple[int | None, ...]) -> None:
    """Over elements, over coordinates, over the dense matrix; with derivatives."""
    rows, columns = given(order)
    # The second matrix has its columns in another order, and no elements in its last row.
    more = [
        np.stack([DATA, 2 * DATA]),
        np.stack([rows, np.minimum(rows, 6)]),
        np.stack([columns, columns[::-1]]),
        np.stack([dense(8), dense(8) + 1], 1),
    ]
    one = [DATA, rows, columns, dense(8)]
    args = [one[i] if a is None else more[i] for i, a in enumerate(axes)]

    def slopes(*args: Any) -> Any:
        return tb.grad(lambda d, x: (product(d, *args[1:3], x, order) ** 2).sum(), (0, 1))(
            args[0], args[3]
        )

    found = tb.jit(tb.vmap(slopes, axes))(*args)
    for i in range(2):
        single = [v if a is None else np.take(v, i, a) for a, v in zip(axes, args, strict=True)]
        expected = slopes(*[tnp.asarray(v) for v in single])
        for many, value in zip(found, expected, strict=True):
            close(many[i], value, 1e-4)


def test_the_kernel_is_called_where_it_is_faster() -> None:
    """For elements in order and enough columns, of its dtypes; it reads nothing from outside."""

    def text(order: str, k: int, dtype: str = "float32") -> str:
        rows, columns = given(order)
        args = tnp.asarray(DATA, dtype), rows, columns, tnp.asarray(dense(k), dtype)
        return tb.jit(lambda *xs: product(*xs, order)).lower(*args).as_text()

    assert [True, True, False] == ["cpu_csr_sparse" in text(order, 8) for order in reversed(ORDERS)]
    assert "cpu_csr_sparse" not in text("ends", 3) + text("ends", 8, "float16")


def test_many_products_are_sorted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements in any order, by the kernel."""
    monkeypatch.setattr(coordinates, "LEAST_SORTED_PRODUCTS", 1)
    turned = np.array([3, 8, 1, 0, 7, 2, 6, 5, 4])
    rows, columns = [tnp.asarray(v[turned]) for v in (ROWS, COLUMNS)]
    compiled = tb.jit(lambda x: product(DATA[turned], rows, columns, x, "any"))

    assert "cpu_csr_sparse" in compiled.lower(dense(40)).as_text()
    close(compiled(dense(40)), whole(DATA) @ dense(40), 1e-5)
