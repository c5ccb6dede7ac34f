"""Frameworks that are not installed, and parts of them that are not imported yet."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, final


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


def when_imported(module: str, then: Callable[[], None]) -> None:
    """Call ``then`` when somebody has imported a module; at once if it is there.

    For parts of frameworks that are slow to import and that few users need.
    """
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watch(module, then))


@final
class _Watch:
    """Finds one module as others would, until it is imported, and has it say so.

    A finder by its method: ``importlib.abc`` takes longer to import than all of this.
    """

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self.module = module
        self.then = then
        self.asking = threading.local()  # whether this thread asks the other finders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module or getattr(self.asking, "now", False):
            return None
        self.asking.now = True
        try:
            spec = find_spec(fullname)
        finally:
            self.asking.now = False
        if spec is not None and spec.loader is not None:
            loader: Any = _Announced(spec.loader, self)  # by its methods, likewise
            spec.loader = loader
        return spec


@final
class _Announced:
    """Another loader, and a call when it has loaded."""

    def __init__(self, loader: Any, watch: _Watch) -> None:
        self.loader = loader
        self.watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # What asks the module for its loader, say for files beside it, finds the usual one.
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if self.watch in sys.meta_path:
            sys.meta_path.remove(self.watch)
            self.watch.then()
