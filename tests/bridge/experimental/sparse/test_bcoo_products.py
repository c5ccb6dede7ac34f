"""Products of BCOO arrays and their derivatives, beside dense ones."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.experimental.sparse.test_bcoo import LAYOUTS, dense, host, padded
from tests.quick_compiles import check_grads, quick_jit
from tracebridge.core.errors.shape_errors import BroadcastError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import GradientTypeError
from tracebridge.experimental import sparse

# Axes of the first, axes of the second, batches of both, shape of the second.
DOTS = [
    ((2,), (0,), (), (), (4,)),
    ((2,), (1,), (0,), (0,), (2, 4, 3)),
    ((0, 1), (1, 0), (), (), (3, 2, 2)),
    ((1,), (0,), (2,), (1,), (3, 4)),
    ((), (), (), (), (2,)),
]


@pytest.mark.parametrize("layout", LAYOUTS[::3])
def test_elementwise_products_and_sums(layout: tuple[int, int]) -> None:
    """Operators give what NumPy gives, with dense and sparse operands that broadcast."""
    array, other = dense(2, 3, 4), dense(2, 3, 4, seed=1)
    mat, second = padded(array, *layout), padded(other, 1, 0)
    cases = {
        "number": (mat * 2 / 4, array / 2),
        "dense": (mat * other, array * other),
        "row": (other[0, :1] * mat, array * other[0, :1]),
        "more axes": (mat * other[None], array * other[None]),
        "quotient": (mat / (other + 2), array / (other + 2)),
        "sparse": (mat * second, array * other),
        "broadcast": (mat * second[:1], array * other[:1]),
        "sum": (mat + second, array + other),
        "difference": (other - mat, other - array),
        "power": (abs(-mat) ** 2, array**2),
    }

    for name, (actual, expected) in cases.items():
        np.testing.assert_allclose(expected, host(actual), rtol=1e-6, err_msg=name)
    assert (padded(array) * sparse.BCOO.fromdense(other)).nse == padded(array).nse


@pytest.mark.parametrize("layout", LAYOUTS[::3])
@pytest.mark.parametrize("dims", DOTS)
def test_products_of_any_axes(dims: tuple[tuple[int, ...], ...], layout: tuple[int, int]) -> None:
    """Sparse with dense, dense with sparse, and both sparse, as ``lax.dot_general``."""
    lc, rc, lb, rb, shape = dims
    array, other = dense(2, 3, 4), dense(*shape, seed=1)
    mat, second = padded(array, *layout), sparse.BCOO.fromdense(other)
    numbers, swapped = ((lc, rc), (lb, rb)), ((rc, lc), (rb, lb))
    dot = sparse.bcoo_dot_general

    expected = tb.lax.dot_general(array, other, numbers)
    np.testing.assert_array_equal(expected, dot(mat, other, dimension_numbers=numbers))
    np.testing.assert_array_equal(expected, host(dot(mat, second, dimension_numbers=numbers)))
    traced = quick_jit(lambda a, b: dot(a, b, dimension_numbers=numbers))(mat, second)
    np.testing.assert_array_equal(expected, host(traced))
    expected = tb.lax.dot_general(other, array, swapped)
    np.testing.assert_array_equal(expected, dot(other, mat, dimension_numbers=swapped))


def test_matmul_has_the_axes_of_numpy() -> None:
    """Vectors, matrices and stacks of them on both sides."""
    matrix, stack = dense(3, 4), dense(2, 3, 4)
    pairs = [(matrix, dense(4)), (dense(3), matrix), (stack, matrix.T), (dense(5, 3), stack)]
    pairs += [(stack, dense(2, 4, 3)), (stack[:1], dense(2, 4, 3))]

    for a, b in pairs:
        np.testing.assert_array_equal(a @ b, sparse.BCOO.fromdense(a) @ b)
        np.testing.assert_array_equal(a @ b, a @ sparse.BCOO.fromdense(b))
    with pytest.raises(ShapeMismatchError, match=r"\(3, 4\) and \(3,\)"):
        sparse.BCOO.fromdense(matrix) @ np.ones(3, np.float32)
    with pytest.raises(BroadcastError):
        sparse.BCOO.fromdense(matrix) + sparse.eye(2)


def test_samples_and_extracts() -> None:
    """Elements at coordinates; each once where they are equal, zero outside."""
    left, right = dense(2, 3, 4), dense(2, 4, 5, seed=1)
    product = left @ right
    numbers = (((2,), (1,)), ((0,), (0,)))
    for n_batch, n_sparse in ((0, 2), (0, 3), (1, 1), (1, 2)):
        places = np.random.default_rng(0).integers(
            0,
            [*product.shape[n_batch : n_batch + n_sparse]],
            (*product.shape[:n_batch], 6, n_sparse),
        )
        places[..., 0, :] = 9
        found = sparse.bcoo_dot_general_sampled(left, right, places, dimension_numbers=numbers)
        like = sparse.BCOO((np.zeros(found.shape, np.float32), places), shape=product.shape)
        wanted = sparse.bcoo_extract(like, product, assume_unique=True).data
        np.testing.assert_array_equal(wanted, found)
    twice = sparse.BCOO((np.ones(3, np.float32), np.array([[1], [1], [9]])), shape=(3,))
    assert sparse.bcoo_extract(twice, np.array([4.0, 5.0, 6.0])).data.tolist() == [5, 0, 0]


def test_gradients_stay_at_the_coordinates() -> None:
    """Derivatives by a sparse array are sparse, and those of the dense function there."""
    array, vector = dense(3, 4), dense(4) + 1
    mat = sparse.BCOO.fromdense(array)

    def loss(m: object, v: object) -> object:
        return tnp.sum((m @ v) ** 2)  # type: ignore[operator]  # arrays of either kind

    wanted = tb.grad(loss, (0, 1))(array, vector)
    by_mat, by_vector = sparse.grad(loss, (0, 1))(mat, vector)
    np.testing.assert_allclose(wanted[0] * (array != 0), host(by_mat))
    np.testing.assert_allclose(wanted[1], by_vector)
    assert by_mat.data.shape == mat.data.shape
    value, (again, _) = sparse.value_and_grad(lambda t, v: loss(t[0], v))((mat, 1.0), vector)
    np.testing.assert_allclose(loss(array, vector), value)
    np.testing.assert_allclose(host(by_mat), host(again))
    for mode in (sparse.jacfwd, sparse.jacrev):
        jacobian = mode(lambda m: {"a": m @ vector})(mat)["a"]
        dense_one = tb.jacrev(lambda m: m @ vector)(array) * (array != 0)
        np.testing.assert_allclose(dense_one, host(jacobian))
    with pytest.raises(GradientTypeError, match="indices"):
        tb.grad(loss)(mat, vector)


def test_derivatives_of_every_product() -> None:
    """Both modes agree with differences, through products, sums and conversions."""
    mat, second = padded(dense(3, 4)), sparse.BCOO.fromdense(dense(4, 3, seed=1))
    vector = dense(4, seed=2)

    def run(data: object, other: object, v: object) -> object:
        a = sparse.BCOO((data, mat.indices), shape=mat.shape)
        b = sparse.BCOO((other, second.indices), shape=second.shape, unique_indices=True)
        product = (a @ b).todense() + (a * v) @ (b * b).todense()
        return product, sparse.bcoo_extract(b, b.todense()).sum_duplicates(nse=5).data

    with tb.enable_x64():
        args = [np.asarray(x, np.float64) for x in (mat.data, second.data, vector)]
        check_grads(run, args, 1)


def test_empty_arrays_and_other_dtypes() -> None:
    """Arrays without elements, axes or sizes; whole, complex and truth values."""
    array, none = dense(3, 4), sparse.empty((3, 4))
    mat = sparse.BCOO.fromdense(array)

    np.testing.assert_array_equal(np.zeros(3), none @ np.ones(4, np.float32))
    np.testing.assert_array_equal(array, host(none + mat))
    for product in (none * mat, mat * none):
        np.testing.assert_array_equal(array * 0, host(product))
    assert host(mat @ sparse.empty((4, 2))).tolist() == [[0, 0]] * 3
    assert (sparse.empty((0, 4)) @ np.ones(4, np.float32)).shape == (0,)
    assert host(sparse.empty((3, 0)).sum_duplicates()).shape == (3, 0)
    wide = mat.astype("complex64") @ (np.ones(4) * 1j).astype(np.complex64)
    np.testing.assert_allclose(array.sum(1) * 1j, wide)
    whole = sparse.BCOO.fromdense(array.astype(np.int32)) @ np.arange(4, dtype=np.int32)
    np.testing.assert_array_equal(array @ np.arange(4), whole)
    np.testing.assert_array_equal(array != 0, host(sparse.BCOO.fromdense(array != 0)))
