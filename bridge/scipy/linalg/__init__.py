"""SciPy's linear algebra on engine arrays, batched and differentiable."""

from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.scipy.linalg._eigen import (
    det,
    eigh,
    eigh_tridiagonal,
    hessenberg,
    polar,
    qr_multiply,
    rsf2csf,
    schur,
    svd,
)
from tracebridge.scipy.linalg._exponential import expm, expm_frechet
from tracebridge.scipy.linalg._factors import cholesky, lu, lu_factor, qr
from tracebridge.scipy.linalg._functions import funm, solve_sylvester, sqrtm
from tracebridge.scipy.linalg._patterns import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    fiedler,
    fiedler_companion,
    hankel,
    leslie,
    toeplitz,
)
from tracebridge.scipy.linalg._systems import (
    cho_factor,
    cho_solve,
    inv,
    lu_solve,
    solve,
    solve_triangular,
)
from tracebridge.scipy.linalg._tables import (
    dft,
    hadamard,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    pascal,
)

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion",
    "convolution_matrix", "det", "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet",
    "fiedler", "fiedler_companion", "funm", "hadamard", "hankel", "helmert", "hessenberg",
    "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve",
    "pascal", "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester",
    "solve_triangular", "sqrtm", "svd", "toeplitz",
]  # fmt: skip

_publish(globals(), __name__)
