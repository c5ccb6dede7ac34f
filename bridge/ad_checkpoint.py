"""Checkpointing in differentiation: names of values, policies, and what is kept."""

from __future__ import annotations

from tracebridge import checkpoint_policies
from tracebridge._api.derivatives.checkpoint import checkpoint, remat
from tracebridge._api.derivatives.saved_residuals import print_saved_residuals, saved_residuals
from tracebridge.core.control.remat.policies import Offloadable, Recompute, Saveable
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.lax.annotations import checkpoint_name

__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
    "saved_residuals",
]

_shield(globals(), __name__)
