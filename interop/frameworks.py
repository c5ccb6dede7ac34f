"""What a module says that needs a framework which is not installed."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any


def needs(framework: str, module: str, way_out: str) -> None:
    """Find out whether a framework is installed, without importing it.

    Args:
        framework: name of its top module.
        module: which module of ours needs it.
        way_out: how to install it.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    if sys.modules.get(framework) is not None:
        return
    try:
        spec = find_spec(framework)
    except ImportError:
        spec = None
    if spec is None:
        msg = f"{module} needs the package {framework!r}, which is not installed: {way_out}"
        raise ModuleNotFoundError(msg, name=framework)


def load_beside(framework: str, module: str) -> None:
    """Import ``module`` if the framework is imported already, or a user says ``import`` to ours.

    A look at an attribute of the package (``look_at``) imports no framework.
    """
    if framework in sys.modules or not _LOOKING[0]:
        importlib.import_module(module)


_LOOKING = [0]


def look_at(module: str) -> Any:
    """Import a module because somebody looks at an attribute."""
    _LOOKING[0] += 1
    try:
        return importlib.import_module(module)
    finally:
        _LOOKING[0] -= 1
