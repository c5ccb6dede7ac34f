"""What options transfer_guard, no_tracing and no_execution forbid."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tracebridge.core.config.guard_levels import guard_levels
from tracebridge.core.config.values import option
from tracebridge.core.errors.runtime_errors import GuardError

logger = logging.getLogger("tracebridge.transfer")
_EXPLICIT: ContextVar[bool] = ContextVar("explicit transfers", default=False)


@contextmanager
def explicit_transfers() -> Iterator[None]:
    """Transfers inside are those that the user asked for by name."""
    token = _EXPLICIT.set(True)
    try:
        yield
    finally:
        _EXPLICIT.reset(token)


def check_transfer(direction: str, what: str, place: object) -> None:
    """Log or refuse a transfer as the option says. Asked only while a guard is in force.

    Raises:
        GuardError: the transfer is not allowed.
    """
    level = guard_levels(option("transfer_guard"))[direction]
    explicit = _EXPLICIT.get()
    if level == "allow" or (explicit and not level.endswith("_explicit")):
        return
    kind = "explicit" if explicit else "implicit"
    text = f"{kind} {direction.replace('_', '-')} transfer of {what} ({place})"
    if level.startswith("log"):
        logger.warning("%s", text)
        return
    raise GuardError(
        f"{text}, which transfer_guard={level!r} does not allow",
        hint=(
            "leave the block of transfer_guard for it"
            if explicit
            else "say that you want it: move the array with device_put, read it with device_get"
        ),
    )


def check_execution(name: str) -> None:
    """Raise GuardError if option no_execution is on."""
    if option("no_execution"):
        msg = f"{name} was to be executed, while option no_execution is on"
        raise GuardError(msg, hint="call it outside of the block of no_execution")


def check_tracing(name: str, where: str) -> None:
    """Raise GuardError if option no_tracing is on."""
    if option("no_tracing"):
        at = f" ({where})" if where else ""
        msg = f"jit({name}){at} was to be traced, while option no_tracing is on"
        raise GuardError(
            msg,
            hint="call it once with arguments of these shapes and dtypes before; "
            "explain_cache_misses tells what is new in a call",
        )
