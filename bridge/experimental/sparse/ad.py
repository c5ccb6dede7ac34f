"""Derivatives with respect to the elements that sparse arrays store."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._derivatives import (
    grad,
    jacfwd,
    jacobian,
    jacrev,
    value_and_grad,
)

__all__ = [
    "grad",
    "jacfwd",
    "jacobian",
    "jacrev",
    "value_and_grad",
]

_shield(globals(), "tracebridge.experimental.sparse")
