"""Linear algebra of large matrices: top eigenvalues, sparse systems."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._eigenvalues import lobpcg_standard
from tracebridge.experimental.sparse._systems import spsolve

__all__ = ["lobpcg_standard", "spsolve"]

_shield(globals(), __name__)
