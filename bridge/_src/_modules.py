"""The private modules as objects: their names are looked up in modules of ours when asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final

from tracebridge._src._table import MODULES, NAMES


@final
class PrivateModule(ModuleType):
    """A module whose names come from others."""

    def __init__(self, name: str) -> None:
        rows = {
            public: (module, own or public)
            for module, names in NAMES.get(name, ())
            for public, _, own in [entry.partition("=") for entry in names.split()]
        }
        sources = MODULES[name] or sorted({module for module, _ in rows.values()})
        super().__init__(f"{__package__}.{name}", f"Names of {', '.join(sources) or 'nothing'}.")
        vars(self)["__path__"] = []  # a package: other private modules may be below it
        self.__package__ = self.__name__
        self.__spec__ = ModuleSpec(self.__name__, None, is_package=True)
        self._rows = rows
        self._sources = MODULES[name]
        self._originals: dict[str, object] = {}

    def __getattr__(self, name: str) -> Any:
        """Look a name up and keep it.

        Raises:
            AttributeError: no module of ours has a name for it.
        """
        if name in self._rows:
            module, own = self._rows[name]
            value = getattr(importlib.import_module(module), own)
        elif name.startswith("_"):
            raise self._missing(name)
        else:
            value = self._looked_up(name)
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """Set a name, where it comes from, too: libraries replace functions for a while."""
        if name in vars(self).get("_rows", ()):
            module, own = self._rows[name]
            source = importlib.import_module(module)
            self._originals.setdefault(name, getattr(source, own))
            setattr(source, own, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Take back what was set: the name is the original again, where it comes from, too.

        Raises:
            AttributeError: the name was neither set nor looked up.
        """
        super().__delattr__(name)
        if name in self._originals:
            module, own = self._rows[name]
            setattr(importlib.import_module(module), own, self._originals.pop(name))

    def __dir__(self) -> list[str]:
        """The names that were looked up or have a row; asking loads nothing."""
        return sorted({*vars(self), *self._rows})

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """In pickles a module is its name, for functions that have it among their globals."""
        return importlib.import_module, (self.__name__,)

    def _looked_up(self, name: str) -> Any:
        for source in self._sources:
            found = getattr(importlib.import_module(source), name, self)
            if found is not self:
                return found
        raise self._missing(name)

    def _missing(self, name: str) -> AttributeError:
        return AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)


def _install() -> None:
    """Let import statements find the modules; each is an attribute of its package, too."""
    for name in sorted(MODULES):
        module = PrivateModule(name)
        sys.modules[module.__name__] = module
        package, _, last = module.__name__.rpartition(".")
        setattr(sys.modules[package], last, module)


_install()
