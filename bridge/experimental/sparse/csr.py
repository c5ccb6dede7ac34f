"""The CSR and CSC formats of matrices: compressed rows and columns."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._matrices import (
    CSC,
    CSR,
)
from tracebridge.experimental.sparse._matrix_functions import (
    csr_fromdense,
    csr_fromdense_p,
    csr_matmat,
    csr_matmat_p,
    csr_matvec,
    csr_matvec_p,
    csr_todense,
    csr_todense_p,
)

__all__ = [
    "CSC",
    "CSR",
    "csr_fromdense",
    "csr_fromdense_p",
    "csr_matmat",
    "csr_matmat_p",
    "csr_matvec",
    "csr_matvec_p",
    "csr_todense",
    "csr_todense_p",
]

_shield(globals(), "tracebridge.experimental.sparse")
