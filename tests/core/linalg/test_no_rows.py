"""Matrices without rows, and batches without matrices: values and derivatives of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

la = tnp.linalg
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "eigenvalues": lambda x: abs(la.eigvals(x)),
    "eigenvectors": lambda x: lax.linalg.eig(x, enable_eigvec_derivs=True)[2].real,
    "eigh": lambda x: la.eigh(x)[1],
    "svd": lambda x: la.svd(x)[0],
    "qr": lambda x: la.qr(x)[0],
    "cholesky": la.cholesky,
    "inverse": la.inv,
    "solve": lambda x: la.solve(x, x),
    "hessenberg": lambda x: lax.linalg.hessenberg(x)[0],
    "householder": lambda x: lax.linalg.householder_product(x, tnp.zeros(x.shape[:-1])),
    "update": lambda x: lax.linalg.cholesky_update(x, tnp.ones(x.shape[:-1])),
    "products": lambda x: lax.linalg.ormqr(x, x.sum(-1), x),
}


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_elements(name: str, shape: tuple[int, ...]) -> None:
    function = FUNCTIONS[name]
    x = tnp.zeros(shape)
    total = lambda x: function(x).sum()

    assert shape == function(x).shape or name == "eigenvalues"
    assert float(total(x)) == 0
    assert tb.grad(total)(x).shape == shape
    assert tb.eval_shape(tb.hessian(total), x).shape == shape * 2


def test_parts_that_have_rows_are_as_before() -> None:
    """The derivative of the eigenvalues of a triangular matrix sees its diagonal."""
    a = np.array([[1.0, 5.0], [0.0, 3.0]], np.float32)
    d = tb.grad(lambda x: la.eigvals(x).real.sum())(a)
    np.testing.assert_allclose(d, np.eye(2), atol=1e-6)
