"""Linear algebra on batches of matrices: factors, eigenvalues, singular values, systems."""

from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.core.linalg.cholesky import (
    cholesky,
    cholesky_p,
    cholesky_update,
    cholesky_update_p,
)
from tracebridge.core.linalg.eig import EigImplementation, eig, eig_p
from tracebridge.core.linalg.eigh import EighImplementation, eigh, eigh_p
from tracebridge.core.linalg.hessenberg import hessenberg, hessenberg_p, tridiagonal, tridiagonal_p
from tracebridge.core.linalg.lu import (
    lu,
    lu_p,
    lu_pivots_to_permutation,
    lu_pivots_to_permutation_p,
)
from tracebridge.core.linalg.polar import qdwh
from tracebridge.core.linalg.products import symmetric_product, symmetric_product_p
from tracebridge.core.linalg.qr import (
    householder_product,
    householder_product_p,
    ormqr,
    ormqr_p,
    qr,
    qr_p,
)
from tracebridge.core.linalg.schur import schur, schur_p
from tracebridge.core.linalg.svd import SvdAlgorithm, svd, svd_p
from tracebridge.core.linalg.triangular import triangular_solve, triangular_solve_p
from tracebridge.core.linalg.tridiagonal import tridiagonal_solve, tridiagonal_solve_p

__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_p",
    "cholesky_update",
    "cholesky_update_p",
    "eig",
    "eig_p",
    "eigh",
    "eigh_p",
    "hessenberg",
    "hessenberg_p",
    "householder_product",
    "householder_product_p",
    "lu",
    "lu_p",
    "lu_pivots_to_permutation",
    "lu_pivots_to_permutation_p",
    "ormqr",
    "ormqr_p",
    "qdwh",
    "qr",
    "qr_p",
    "schur",
    "schur_p",
    "svd",
    "svd_p",
    "symmetric_product",
    "symmetric_product_p",
    "triangular_solve",
    "triangular_solve_p",
    "tridiagonal",
    "tridiagonal_p",
    "tridiagonal_solve",
    "tridiagonal_solve_p",
]

_publish(globals(), __name__)
