"""NumPy's linear algebra on engine arrays, batched and differentiable."""

from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.numpy.linalg._decompositions import cholesky as cholesky
from tracebridge.numpy.linalg._decompositions import eig as eig
from tracebridge.numpy.linalg._decompositions import eigh as eigh
from tracebridge.numpy.linalg._decompositions import eigvals as eigvals
from tracebridge.numpy.linalg._decompositions import eigvalsh as eigvalsh
from tracebridge.numpy.linalg._decompositions import qr as qr
from tracebridge.numpy.linalg._decompositions import svd as svd
from tracebridge.numpy.linalg._decompositions import svdvals as svdvals
from tracebridge.numpy.linalg._norms import cond as cond
from tracebridge.numpy.linalg._norms import matrix_norm as matrix_norm
from tracebridge.numpy.linalg._norms import matrix_rank as matrix_rank
from tracebridge.numpy.linalg._norms import norm as norm
from tracebridge.numpy.linalg._norms import vector_norm as vector_norm
from tracebridge.numpy.linalg._products import cross as cross
from tracebridge.numpy.linalg._products import diagonal as diagonal
from tracebridge.numpy.linalg._products import matmul as matmul
from tracebridge.numpy.linalg._products import matrix_power as matrix_power
from tracebridge.numpy.linalg._products import matrix_transpose as matrix_transpose
from tracebridge.numpy.linalg._products import multi_dot as multi_dot
from tracebridge.numpy.linalg._products import outer as outer
from tracebridge.numpy.linalg._products import tensordot as tensordot
from tracebridge.numpy.linalg._products import trace as trace
from tracebridge.numpy.linalg._products import vecdot as vecdot
from tracebridge.numpy.linalg._systems import det as det
from tracebridge.numpy.linalg._systems import inv as inv
from tracebridge.numpy.linalg._systems import lstsq as lstsq
from tracebridge.numpy.linalg._systems import pinv as pinv
from tracebridge.numpy.linalg._systems import slogdet as slogdet
from tracebridge.numpy.linalg._systems import solve as solve
from tracebridge.numpy.linalg._systems import tensorinv as tensorinv
from tracebridge.numpy.linalg._systems import tensorsolve as tensorsolve

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "inv", "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip

_publish(globals(), __name__)
