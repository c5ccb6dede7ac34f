"""What to put into a bug report."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from tracebridge.core.config.config import config
from tracebridge.core.runtime.backends.clients import get_backend


def print_environment_info(return_string: bool = False) -> str | None:
    """Print versions, devices and changed options.

    Args:
        return_string: give the text instead of printing it.

    >>> import tracebridge as tb
    >>> text = tb.print_environment_info(return_string=True)
    >>> 'jaxlib' in text and 'devices' in text
    True
    """
    rows = [(name, _version(name)) for name in ("tracebridge", "jaxlib", "numpy")]
    rows += [
        ("python", sys.version.replace("\n", " ")),
        ("platform", platform.platform()),
        ("devices", ", ".join(map(str, get_backend().devices))),
        ("options", repr(config)),
    ]
    text = "\n".join(f"{name + ':':13}{value}" for name, value in rows)
    if return_string:
        return text
    sys.stdout.write(text + "\n")
    return None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
