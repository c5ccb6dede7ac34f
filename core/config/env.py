"""The only reader of environment variables.

Everything else asks here, so that one search finds every variable that changes behaviour.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

PREFIX = "TRACEBRIDGE_"
"""Every option `name` is read from the variable PREFIX + NAME when the package is imported."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


def get(name: str, default: str | None = None) -> str | None:
    """Return a variable's text, or the default."""
    return os.environ.get(name, default)


def all_variables() -> Mapping[str, str]:
    """All variables, for those that look for what started the process."""
    return os.environ


def parse_bool(text: str) -> bool:
    """Return the truth value of a text.

    Raises:
        ValueError: if it is none of 1, true, yes, on, 0, false, no, off or empty.
    """
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"got {text!r}, expected one of 1, true, yes, on, 0, false, no, off")


def forced_host_device_count(environ: Mapping[str, str] | None = None) -> int | None:
    """Return N of XLA_FLAGS=--xla_force_host_platform_device_count=N, or None."""
    flags = (os.environ if environ is None else environ).get("XLA_FLAGS", "")
    found = re.findall(r"--xla_force_host_platform_device_count=(\d+)", flags)
    return int(found[-1]) if found else None


def full_tracebacks(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether TRACEBRIDGE_TRACEBACK=full asks for unfiltered tracebacks."""
    value = (os.environ if environ is None else environ).get(f"{PREFIX}TRACEBACK", "")
    return value.strip().lower() == "full"


def xla_flags() -> str:
    """The flags that XLA reads by itself."""
    return os.environ.get("XLA_FLAGS", "")
