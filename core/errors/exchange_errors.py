"""Errors about exchanging tensors with other libraries."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class ExchangeError(TracebridgeError, TypeError):
    """An object cannot be taken as, or given as, a tensor of another library."""


class UnsupportedExchangeDtypeError(ExchangeError):
    """The other library, or the exchange protocol, has no such dtype."""


class ProgramMismatchError(ExchangeError):
    """A saved or cached graph calls a function that is another one in this process."""


class LayoutError(TracebridgeError, ValueError):
    """The memory layout (strides, alignment, negative steps) cannot be shared."""


class OwnershipError(TracebridgeError, RuntimeError):
    """An operation would write to, donate or delete memory that belongs to somebody else."""
