"""What ``tracebridge.numpy`` says of itself as a namespace of the Python array API standard.

Source: https://data-apis.org/array-api/2024.12/API_specification/inspection.html
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import tracebridge.numpy
from tracebridge._api.devices.devices import devices
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.util.public_path import public_path

__array_api_version__ = "2024.12"
"""The version of the standard whose names and behaviours are those of the namespace."""

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_REAL = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": (*_SIGNED, *_UNSIGNED),
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": (*_SIGNED, *_UNSIGNED, *_REAL, *_COMPLEX),
}


def namespace_of_array(api_version: object = None) -> ModuleType:
    """The namespace whose functions take arrays: ``x.__array_namespace__()``.

    Raises:
        ArgumentValueError: a version of the standard that the namespace does not follow.
    """
    if api_version not in (None, __array_api_version__):
        raise ArgumentValueError(
            call="__array_namespace__",
            got=f"api_version={api_version!r}",
            expected=f"{__array_api_version__!r}, or None for whatever there is",
        )
    return tracebridge.numpy


@public_path("tracebridge.numpy")
class ArrayNamespaceInfo:
    """Capabilities, devices and dtypes of ``tracebridge.numpy``, as the standard asks for them.

    >>> import tracebridge.numpy as tnp
    >>> info = tnp.__array_namespace_info__()
    >>> info.default_dtypes()["real floating"], sorted(info.dtypes(kind="unsigned integer"))
    (dtype('float32'), ['uint16', 'uint32', 'uint8'])
    """

    def capabilities(self) -> dict[str, Any]:
        """What generic code may rely on, inside of ``jit`` too.

        Masks as indices and results whose shapes depend on elements work where values are known,
        and not in traced programs: generic code cannot tell, so both are False.
        """
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new arrays: the option ``default_device``, or None for the first one."""
        return option("default_device")

    def devices(self) -> list[Any]:
        """What functions take as ``device``: None and the devices of this process."""
        return [None, *devices()]

    def default_dtypes(self, *, device: object = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of arrays that are made without one; 64 bits with the option enable_x64."""
        del device  # the same everywhere
        return {
            "real floating": canonicalize(np.float64),
            "complex floating": canonicalize(np.complex128),
            "integral": canonicalize(np.int64),
            "indexing": canonicalize(np.int64),
        }

    def dtypes(
        self, *, device: object = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes by name; those of 64 bits with the option enable_x64 only.

        Args:
            device: any; the dtypes are those of all devices.
            kind: as in ``isdtype``, or None for all.

        Raises:
            ArgumentValueError: a kind that the standard does not have.
        """
        del device
        if kind is None:
            names: tuple[str, ...] = ("bool", *_KINDS["numeric"])
        elif isinstance(kind, tuple):
            return {name: t for k in kind for name, t in self.dtypes(kind=k).items()}
        elif isinstance(kind, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass types
            if kind not in _KINDS:
                raise ArgumentValueError(
                    call="__array_namespace_info__().dtypes",
                    got=f"kind={kind!r}",
                    expected="one of " + ", ".join(map(repr, _KINDS)) + ", or a tuple of them",
                )
            names = _KINDS[kind]
        else:
            raise ArgumentTypeError(
                call="__array_namespace_info__().dtypes",
                got=f"kind of type {type(kind).__name__}",
                expected="a string, a tuple of strings or None",
            )
        every = {name: np.dtype(name) for name in names}
        return {name: t for name, t in every.items() if canonicalize(t) == t}


def __array_namespace_info__() -> ArrayNamespaceInfo:  # noqa: N807 - the standard's name
    """Capabilities, devices and dtypes of this namespace, see ``ArrayNamespaceInfo``."""
    return ArrayNamespaceInfo()
