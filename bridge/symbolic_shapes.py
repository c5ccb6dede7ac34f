"""Symbolic shapes: sizes that are names, for programs that are traced once for all sizes."""

from __future__ import annotations

from tracebridge._api.args.symbolic import symbolic_args_specs
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.symbolic.dims import is_symbolic_dim
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

__all__ = ["SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape"]

_shield(globals(), __name__)
