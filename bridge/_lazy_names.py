"""Names of a package that are loaded when they are first used: what nobody uses costs no import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from tracebridge.core.errors.filtering import public


class _NamespaceFilledWhenAsked(ModuleType):
    """A module whose ``vars()`` holds all names: libraries that wrap a package walk through it."""

    @property
    def __dict__(self) -> dict[str, Any]:
        # From now on, and while loading, a plain module.
        object.__setattr__(self, "__class__", ModuleType)
        namespace = vars(self)
        later = namespace["_LATER"]
        for name in (*later.module_of, *later.submodules):
            if name not in namespace:
                later.load(namespace, name)
        return namespace


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
        # Until somebody asks for the whole namespace; what ``import`` does asks for single names.
        sys.modules[package].__class__ = _NamespaceFilledWhenAsked

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
