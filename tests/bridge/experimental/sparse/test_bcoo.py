"""BCOO arrays: layouts, moves, parts and sums, beside the same operations of NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentTypeError, UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import IndexingError, ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.experimental import sparse

Host = np.ndarray[Any, Any]
LAYOUTS = [(0, 0), (1, 0), (0, 1), (1, 1)]


def dense(*shape: int, seed: int = 0) -> Host:
    """Whole numbers, about half of them zero: sums of them are exact."""
    random = np.random.default_rng(seed)
    return random.integers(1, 9, shape).astype(np.float32) * (random.random(shape) < 0.5)


def padded(array: Host, n_batch: int = 0, n_dense: int = 0) -> sparse.BCOO:
    """The sparse form with padding, an element twice, and coordinates out of order."""
    mat = sparse.bcoo_fromdense(array, n_batch=n_batch, n_dense=n_dense)
    half, indices = np.asarray(mat.data) / 2, np.asarray(mat.indices)
    outside = np.full_like(indices[..., :1, :], 99)
    turned = slice(None, None, -1)
    if n_batch:
        data = np.concatenate([half, half[:, turned], half[:, :1]], 1)
    else:
        data = np.concatenate([half, half[turned], half[:1]])
    indices = np.concatenate([indices, indices[..., turned, :], outside], -2)
    return sparse.BCOO((data, indices), shape=array.shape)


def host(x: Any) -> Host:
    """The values of a sparse or dense array."""
    return np.asarray(sparse.todense(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_do_not_depend_on_the_layout(layout: tuple[int, int]) -> None:
    """Padding, equal coordinates and their order change nothing, in any layout."""
    array = dense(2, 3, 4)
    mat = padded(array, *layout)
    merged = mat.sum_duplicates()

    assert (mat.n_batch, mat.n_dense) == layout
    np.testing.assert_array_equal(array, host(mat))
    np.testing.assert_array_equal(array, host(merged))
    np.testing.assert_array_equal(array, host(mat.sort_indices()))
    assert merged.unique_indices
    assert merged.nse < mat.nse / 2
    wanted = sparse.bcoo_update_layout(mat, n_batch=1, n_dense=0, on_inefficient=None)
    np.testing.assert_array_equal(array, host(wanted))
    wanted = sparse.bcoo_update_layout(mat, n_batch=0, n_dense=2, on_inefficient=None)
    np.testing.assert_array_equal(array, host(wanted))


@pytest.mark.parametrize("layout", LAYOUTS[::3])
def test_moves_parts_and_sums(layout: tuple[int, int]) -> None:
    """Each operation gives what NumPy gives for the dense array."""
    array = dense(2, 3, 4)
    mat = padded(array, *layout)
    part = {"start_indices": (0, 1, 0), "limit_indices": (1, 3, 4), "strides": (1, 1, 2)}
    cases = {
        "slice": (sparse.bcoo_slice(mat, **part), array[0:1, 1:3, 0:4:2]),
        "dynamic": (sparse.bcoo_dynamic_slice(mat, (0, 1, 5), (1, 2, 2)), array[:1, 1:, 2:]),
        "rev": (sparse.bcoo_rev(mat, (0, 1, 2)), array[::-1, ::-1, ::-1]),
        "reshape": (mat.reshape(2, -1, 1, 4), array.reshape(2, 3, 1, 4)),
        "squeeze": (mat.reshape(2, 3, 1, 4)[:, :, 0], array),
        "sum 0": (mat.sum(0), array.sum(0)),
        "sum 1": (mat.sum(1, keepdims=True), array.sum(1, keepdims=True)),
        "sum 2": (mat.sum((1, 2)), array.sum((1, 2))),
        "all": (mat.sum(), array.sum()),
        "number": (mat[1, -1], array[1, -1]),
        "steps": (mat[..., ::-2], array[..., ::-2]),
        "new": (mat[None, :, 1:2], array[None, :, 1:2]),
        "join 0": (sparse.bcoo_concatenate([mat, mat], dimension=0), np.concatenate([array] * 2)),
        "join 1": (sparse.bcoo_concatenate([mat, mat], dimension=1), np.hstack([array] * 2)),
        "join 2": (sparse.bcoo_concatenate([mat, mat], dimension=-1), np.dstack([array] * 2)),
    }

    for name, (actual, expected) in cases.items():
        np.testing.assert_array_equal(expected, host(actual), err_msg=name)


def test_transposes_reshapes_and_broadcasts() -> None:
    """Axes with coordinates may be mixed among themselves; new ones repeat the elements."""
    array = dense(3, 4)
    mat = padded(array)

    np.testing.assert_array_equal(array.T, host(mat.T))
    np.testing.assert_array_equal(array.reshape(2, 6), host(mat.reshape((2, 6))))
    turned = sparse.bcoo_reshape(mat, new_sizes=(6, 2), dimensions=(1, 0))
    np.testing.assert_array_equal(array.T.reshape(6, 2), host(turned))
    wide = sparse.bcoo_broadcast_in_dim(mat, shape=(2, 3, 5, 4), broadcast_dimensions=(1, 3))
    np.testing.assert_array_equal(np.broadcast_to(array[:, None], (2, 3, 5, 4)), host(wide))
    assert wide.n_batch == 1
    with pytest.raises(UnsupportedArgumentError, match="mixes axes"):
        sparse.bcoo_update_layout(mat, n_batch=1, on_inefficient=None).transpose()
    with pytest.raises(ShapeMismatchError, match="mixes axes"):
        sparse.bcoo_update_layout(mat, n_batch=1, on_inefficient=None).reshape(-1)


def test_indices_with_arrays() -> None:
    """Arrays of integers and masks pick what they pick of dense arrays; numbers may be traced."""
    array = dense(3, 4)
    mat = padded(array)
    picks = np.array([2, 0, -1])

    np.testing.assert_array_equal(array[picks], host(mat[picks]))
    np.testing.assert_array_equal(
        array[[0, 1], [1, 3]], host(mat[np.array([0, 1]), np.array([1, 3])])
    )
    mask = np.array([True, False, True])
    np.testing.assert_array_equal(array[mask], host(mat[mask]))
    np.testing.assert_array_equal(array[-1, 1:], host(tb.jit(lambda m, i: m[i, 1:])(mat, -1)))
    for wrong, error in ((5, IndexingError), ("a", ArgumentTypeError)):
        with pytest.raises(error):
            mat[wrong]


def test_arrays_among_new_axes_and_slices() -> None:
    """Arrays at any axis, of any kind, beside None; numbers beyond the end are those of the end."""
    array = dense(3, 4)
    picks = np.array([2, 0])
    mixed = sparse.BCOO.fromdense(array, n_batch=1, n_dense=1)
    for mat, index in (
        (padded(array), (None, 0, picks)),
        (padded(array), (slice(None), None, picks)),
        (mixed, (picks, None, picks)),
    ):
        np.testing.assert_array_equal(array[index], host(mat[index]))
    np.testing.assert_array_equal(array[[2, 0]], host(mixed[np.array([9, 0])]))


def test_all_axes_of_an_empty_array_may_be_batches() -> None:
    """There is no size to find then."""
    m = sparse.BCOO.fromdense(tnp.zeros((2, 0)), n_batch=2)

    assert ((2, 0), 0) == (m.todense().shape, m.nse)


def test_from_dense_counts_what_is_stored() -> None:
    """Without ``nse`` the values decide; with it the rest is padding outside of the shape."""
    array = np.array([[0, 5, 0], [7, 0, 2]], np.float32)

    assert sparse.BCOO.fromdense(array).nse == 3
    assert sparse.bcoo_fromdense(array, n_batch=1).nse == 2
    more = sparse.bcoo_fromdense(array, nse=4)
    assert more.indices.tolist() == [[0, 1], [1, 0], [1, 2], [2, 3]]
    assert host(sparse.bcoo_fromdense(array, nse=2)).tolist() == [[0, 5, 0], [7, 0, 0]]
    with pytest.raises(ConcretizationTypeError, match="nse="):
        tb.jit(sparse.bcoo_fromdense)(array)
    with pytest.raises(sparse.SparseEfficiencyError, match="on_inefficient"):
        sparse.eye(3).update_layout(n_dense=1)
    with pytest.warns(sparse.SparseEfficiencyWarning):
        sparse.eye(3).update_layout(n_dense=1, on_inefficient="warn")


def test_matrices_of_scipy_and_creation() -> None:
    """SciPy's formats, unit matrices, empty and random arrays."""
    array = dense(3, 4)

    for kind in (scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        np.testing.assert_array_equal(array, host(sparse.BCOO.from_scipy_sparse(kind(array))))
    for k in (-4, -1, 0, 2):
        np.testing.assert_array_equal(np.eye(3, 4, k), host(sparse.eye(3, 4, k)))
        np.testing.assert_array_equal(np.eye(3, 4, k), host(sparse.eye(3, 4, k, n_batch=1)))
    none = sparse.empty((2, 3), nse=2, n_batch=1, dtype="int32")
    np.testing.assert_array_equal(np.zeros((2, 3)), host(none))
    some = sparse.random_bcoo(
        tb.random.key(0), (4, 6, 2), dtype="float32", nse=0.5, n_dense=1, sorted_indices=True
    )
    assert (some.nse, some.n_dense, len({*map(tuple, some.indices.tolist())})) == (12, 1, 12)
    assert some.indices.tolist() == sorted(some.indices.tolist())


def test_vmap_maps_over_batches() -> None:
    """What is mapped has one axis of batches less; others are refused."""
    array = dense(3, 4)
    mat = sparse.BCOO.fromdense(array, n_batch=1)
    vector = np.arange(4, dtype=np.float32)

    doubled = tb.vmap(lambda m: m * 2)(mat)
    assert doubled.n_batch == 1
    np.testing.assert_array_equal(array * 2, host(doubled))
    np.testing.assert_array_equal(array @ vector, tb.vmap(lambda m: m @ vector)(mat))
    with pytest.raises(AxisSpecError, match="0 axes of batches"):
        tb.vmap(lambda m: m.sum())(sparse.eye(3))


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Constructor and operators say what they got; nothing becomes dense unasked."""
    mat = sparse.eye(3)

    with pytest.raises(ShapeMismatchError, match=r"data float32\[2\], indices \[3, 2\]"):
        sparse.BCOO((np.ones(2, np.float32), np.zeros((3, 2), int)), shape=(2, 2))
    for wrong in (lambda: mat + 1, lambda: 1 / mat, lambda: mat**0):
        with pytest.raises(UnsupportedArgumentError, match="todense"):
            wrong()
    for wrong in (lambda: np.asarray(mat), lambda: bool(mat)):
        with pytest.raises(ArgumentTypeError, match="todense"):
            wrong()
    assert (
        repr(mat.update_layout(n_batch=1, on_inefficient=None))
        == "BCOO(float32[3, 3], nse=1, n_batch=1)"
    )


def test_arrays_are_trees() -> None:
    """They pass through programs and loops, and warn of nothing."""
    mat = sparse.eye(3)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, sums = tb.lax.scan(lambda c, _: (c * 2.0, c.sum()), mat, None, length=3)
    assert sums.tolist() == [3, 6, 12]
    paths = [tb.tree_util.keystr(p) for p, _ in tb.tree.leaves_with_path(mat)]
    assert paths == [".data", ".indices"]
    assert sum(1 for _ in mat) == len(mat) == 3
    big = sparse.BCOO(
        (tnp.ones(2), tnp.array([[70_000, 70_000], [1, 2]])), shape=(100_000, 100_000)
    )
    assert big.sort_indices().indices.tolist() == [[1, 2], [70_000, 70_000]]
