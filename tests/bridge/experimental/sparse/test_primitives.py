"""Primitives of sparse arrays: programs have them, and all transformations see through them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads, quick_jit
from tracebridge.experimental import sparse
from tracebridge.experimental.sparse._base import SparseInfo

DENSE = np.float32([[0, 2, 0, 1], [3, 0, 0, 0], [0, 4, 5, 0]])
X = np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])
MAT = sparse.BCOO.fromdense(DENSE)
ROWS = sparse.BCSR.fromdense(DENSE)
COO, CSR = sparse.COO.fromdense(DENSE), sparse.CSR.fromdense(DENSE)
INFO = SparseInfo(DENSE.shape)
PRODUCT = {"dimension_numbers": (((1,), (0,)), ((), ())), "preferred_element_type": None}


def _arrays(mat):
    return mat.tree_flatten()[0]


def _names(fun, *args):
    return [e.primitive.name for e in tb.make_jaxpr(fun)(*args).eqns]


@pytest.mark.parametrize(
    ("primitive", "operands", "params", "expected"),
    [
        (sparse.bcoo_todense_p, _arrays(MAT), {"spinfo": INFO}, DENSE),
        (sparse.bcsr_todense_p, _arrays(ROWS), {"spinfo": INFO}, DENSE),
        (sparse.coo_todense_p, _arrays(COO), {"spinfo": INFO}, DENSE),
        (sparse.csr_todense_p, _arrays(CSR), {"shape": (3, 4)}, DENSE),
        (sparse.todense_p, _arrays(MAT), {"tree": tb.tree.structure(MAT)}, DENSE),
        (sparse.bcoo_dot_general_p, (*_arrays(MAT), X), {"lhs_spinfo": INFO, **PRODUCT}, DENSE @ X),
        (
            sparse.bcsr_dot_general_p,
            (*_arrays(ROWS), X),
            {"lhs_spinfo": INFO, **PRODUCT},
            DENSE @ X,
        ),
        (
            sparse.coo_matmat_p,
            (*_arrays(COO), DENSE),
            {"spinfo": INFO, "transpose": True},
            DENSE.T @ DENSE,
        ),
        (
            sparse.csr_matvec_p,
            (*_arrays(CSR), X[:, 0]),
            {"shape": (3, 4), "transpose": False},
            DENSE @ X[:, 0],
        ),
        (
            sparse.bcoo_extract_p,
            (MAT.indices, DENSE),
            {"assume_unique": True},
            np.float32([2, 1, 3, 4, 5]),
        ),
    ],
    ids=lambda p: str(p) if isinstance(p, tb.extend.core.Primitive) else "",
)
def test_bind_computes_what_the_name_says(primitive, operands, params, expected):
    """At once and compiled, with one equation; linear in elements and in the dense operand."""

    def f(*operands):
        return primitive.bind(*operands, **params)

    assert _names(f, *operands) == [primitive.name]
    np.testing.assert_allclose(expected, f(*operands))
    floats = [k for k, x in enumerate(operands) if np.asarray(x).dtype == np.float32]
    chosen = [operands[k] for k in floats]

    def of_floats(*xs):
        full = list(operands)
        for k, x in zip(floats, xs, strict=True):
            full[k] = x
        return f(*full)

    def mapped(*xs):
        return tb.vmap(of_floats)(*[tnp.stack([x, 2 * x]) for x in xs])

    np.testing.assert_allclose(expected * 2 ** len(chosen), quick_jit(mapped)(*chosen)[1])
    check_grads(mapped, chosen, order=1)


def test_functions_bind_their_primitives():
    """Programs of functions and operators show the primitives by which others find them."""
    assert _names(lambda m, x: m @ x, MAT, X) == ["bcoo_dot_general"]
    assert _names(lambda m, x: m @ x, ROWS, X) == ["bcsr_dot_general"]
    assert _names(lambda m, x: m @ x, CSR, X) == ["csr_matmat"]
    assert _names(lambda m: m @ m.T, MAT) == ["bcoo_transpose", "bcoo_spdot_general"]
    assert _names(lambda m: m.todense(), ROWS) == ["bcsr_todense"]
    assert _names(lambda x: sparse.coo_fromdense(x, nse=5), DENSE) == ["coo_fromdense"]
    assert _names(lambda x: sparse.csr_fromdense(x, nse=5), DENSE) == ["csr_fromdense"]
    assert _names(lambda x: sparse.bcsr_fromdense(x, nse=5), DENSE) == ["bcsr_fromdense"]
    data, indices = sparse.bcoo_sort_indices_p.bind(*_arrays(MAT.T), spinfo=SparseInfo((4, 3)))
    assert data.tolist() == [3, 2, 4, 5, 1]
    assert indices[:, 0].tolist() == [0, 1, 1, 2, 3]


def test_zeros_without_coordinates_are_variables():
    """Where all axes are batches or dense, elements that are zero now have derivatives too."""
    x = np.float32([0, 1, 0])

    for kind in ({"n_batch": 1}, {"n_dense": 1}):
        f = quick_jit(tb.jacrev(lambda x, k=kind: sparse.bcoo_fromdense(x, nse=1, **k).todense()))
        np.testing.assert_array_equal(np.eye(3), f(x))


def test_sorting_shares_what_batches_share():
    """Coordinates that do not differ along an axis of batches are not repeated along it."""
    indices = np.int32([[[2], [0], [1]]])
    mat = sparse.BCOO((np.float32([[1, 2, 3], [4, 5, 6]]), indices), shape=(2, 3))

    out = mat.sort_indices()
    assert (out.indices.shape, out.data.shape) == ((1, 3, 1), (2, 3))
    np.testing.assert_array_equal(mat.todense(), out.todense())


def test_comparisons_are_refused():
    """They are no identity in disguise: the result would be dense."""
    for compare in (lambda: MAT == ROWS, lambda: MAT != 1, lambda: MAT < 2, lambda: MAT >= ROWS):
        with pytest.raises(NotImplementedError, match="todense"):
            compare()
    with pytest.raises(TypeError):
        hash(MAT)


def test_new_axes_after_batches_are_axes_of_batches():
    """Where no axis has coordinates, as where the next one does."""
    for n_batch, x in ((2, DENSE), (0, np.float32(2)), (1, DENSE[0])):
        mat = sparse.BCOO.fromdense(x, n_batch=n_batch)
        out = mat[..., None]
        assert out.n_batch == n_batch + 1
        np.testing.assert_array_equal(x[..., None], out.todense())


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("ad", {"grad", "jacrev"}),
        ("api", {"todense", "eye"}),
        ("bcoo", {"BCOO", "bcoo_reshape", "bcoo_spdot_general_p"}),
        ("bcsr", {"BCSR", "bcsr_dot_general"}),
        ("coo", {"COO", "coo_matvec"}),
        ("csr", {"CSC", "CSR", "csr_matmat_p"}),
        ("random", {"random_bcoo"}),
        ("transform", {"SparseTracer", "sparsify"}),
        ("util", {"CuSparseEfficiencyWarning", "SparseEfficiencyError"}),
    ],
)
def test_modules_of_formats_have_the_names_of_the_package(module: str, names: set[str]) -> None:
    """``sparse.bcoo.BCOO`` is ``sparse.BCOO``."""
    found = vars(importlib.import_module(f"tracebridge.experimental.sparse.{module}"))

    assert {n: found[n] for n in names} == {n: getattr(sparse, n) for n in names}
