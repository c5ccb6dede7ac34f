"""Errors about arrays, devices, compilation and execution."""

from __future__ import annotations

from tracebridge.core._jaxlib.version import UnsupportedJaxlibError
from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.errors.base import TracebridgeError

__all__ = [
    "ArgumentMismatchError",
    "BackendNotFoundError",
    "CallbackError",
    "CompileError",
    "DeletedArrayError",
    "DevicePlacementError",
    "DonationError",
    "ForkedProcessError",
    "GuardError",
    "NonFiniteError",
    "PluginError",
    "UnsupportedJaxlibError",
    "XlaRuntimeError",
]


class DeletedArrayError(TracebridgeError, RuntimeError):
    """An array was used after it had been deleted, or donated to a computation."""

    def __init__(self, array: str = "", *, donated_to: str = "", message: str = "") -> None:
        what = f"the array {array}" if array else "an array"
        if donated_to:
            text = f"{what} was donated to {donated_to} and cannot be used any more"
            hint = "do not use an argument after donating it, or drop donate_argnums"
        else:
            text = f"{what} has been deleted or donated and cannot be used any more"
            hint = "keep a copy (x.copy()) if the value is needed after delete() or donation"
        super().__init__(message or text, hint=hint)


class DonationError(TracebridgeError, RuntimeError, ValueError):
    """A buffer cannot be donated: it is borrowed, or passed twice, or the argument is wrong."""


class DevicePlacementError(TracebridgeError, ValueError):
    """Arguments of one computation are committed to different devices, or to unfit ones."""


class ForkedProcessError(TracebridgeError, RuntimeError):
    """The engine was used in a process that was forked after the engine had started threads."""


class GuardError(TracebridgeError, RuntimeError):
    """A transfer, a trace or an execution that an option does not allow."""


class BackendNotFoundError(TracebridgeError, RuntimeError):
    """There is no backend or device of this name."""


class PluginError(TracebridgeError, RuntimeError):
    """A device plugin is installed but cannot be loaded."""


class CompileError(TracebridgeError, XlaRuntimeError):
    """XLA rejected a program or failed to compile it."""


class CallbackError(TracebridgeError, XlaRuntimeError):
    """A Python callback inside a compiled program raised, or returned the wrong thing."""


class NonFiniteError(TracebridgeError, FloatingPointError):
    """A NaN or an infinity appeared while `debug_nans` or `debug_infs` is on."""


class ArgumentMismatchError(TracebridgeError, TypeError):
    """A compiled function was called with arguments that it was not compiled for."""
