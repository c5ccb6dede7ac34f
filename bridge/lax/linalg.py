"""Linear algebra on batches of matrices: factors, eigenvalues, singular values, systems."""

from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.core.linalg.cholesky import (
    cholesky,
    cholesky_p,
    cholesky_update,
    cholesky_update_p,
)
from tracebridge.core.linalg.lu import (
    lu,
    lu_p,
    lu_pivots_to_permutation,
    lu_pivots_to_permutation_p,
)
from tracebridge.core.linalg.qr import (
    householder_product,
    householder_product_p,
    ormqr,
    ormqr_p,
    qr,
    qr_p,
)
from tracebridge.core.linalg.triangular import triangular_solve, triangular_solve_p

__all__ = [
    "cholesky",
    "cholesky_p",
    "cholesky_update",
    "cholesky_update_p",
    "householder_product",
    "householder_product_p",
    "lu",
    "lu_p",
    "lu_pivots_to_permutation",
    "lu_pivots_to_permutation_p",
    "ormqr",
    "ormqr_p",
    "qr",
    "qr_p",
    "triangular_solve",
    "triangular_solve_p",
]

_publish(globals(), __name__)
