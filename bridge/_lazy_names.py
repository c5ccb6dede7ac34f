"""Names of a package that are loaded when they are first used: what nobody uses costs no import."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from tracebridge.core.errors.filtering import public


class LazyNames:
    """What a package hands on without loading it.

    A type checker does not see them here: the package imports them under ``TYPE_CHECKING``.
    """

    def __init__(
        self, package: str, by_module: Mapping[str, str], submodules: Iterable[str] = ()
    ) -> None:
        self.package = package
        self.module_of = {
            name: module for module, names in by_module.items() for name in names.split()
        }
        self.submodules = frozenset(submodules)

    def load(self, namespace: dict[str, Any], name: str) -> Any:
        """The value of a name, from now on in the namespace of the package.

        Args:
            namespace: that of the package, ``globals()``.
            name: what Python did not find there.

        Raises:
            AttributeError: the package has no such name, with what to use instead.
        """
        if name in self.module_of:
            value = getattr(importlib.import_module(self.module_of[name]), name)
            value = public(value, name, self.package)
        elif name in self.submodules:
            value = importlib.import_module(f"{self.package}.{name}")
        else:
            raise importlib.import_module("tracebridge._api.programs.missing").missing(
                self.package, name
            )
        namespace[name] = value
        return value

    def names(self) -> list[str]:
        """What a star import takes: no submodules, no names with underscores."""
        return sorted(name for name in self.module_of if not name.startswith("_"))
