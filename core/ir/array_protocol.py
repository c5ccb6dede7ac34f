"""The one slot through which arrays and tracers reach the NumPy layer above the engine.

The composition root (bridge/_install) gives the slot a loader; the first operator, method or index
that is used loads ``tracebridge.numpy``. The engine itself never needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and_", "or_",
    "xor", "lshift", "rshift",
)  # fmt: skip
REFLECTED = (
    "radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow", "rmatmul", "rand",
    "ror", "rxor", "rlshift", "rrshift",
)  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = ("neg", "pos", "abs", "invert", "round_")
METHODS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "byteswap", "choose",
    "clip", "compress", "conj", "conjugate", "copy", "cumprod", "cumsum", "diagonal", "dot",
    "flatten", "max", "mean", "min", "nonzero", "prod", "ptp", "ravel", "repeat", "reshape",
    "round", "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take", "to_device",
    "trace", "transpose", "var", "view",
)  # fmt: skip
PROPERTIES = ("T", "mT", "at", "flat", "imag", "real")


class ArrayNamespace:
    """Attribute ``add`` implements ``x + y``, and so on.

    ``getitem(x, index)``; ``rows(x)``, an iterator; ``array_namespace(api_version)``; ``methods``
    and ``properties`` by name, those of ``METHODS`` and ``PROPERTIES``.
    All attributes are plain slots once the loader has run, so that an operator costs one attribute
    read.
    """

    __slots__ = (
        *BINARY, *REFLECTED, *COMPARISONS, *UNARY,
        "_loader", "array_namespace", "getitem", "methods", "properties", "rows",
    )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        # Reached only while a slot is empty.
        if name.startswith("_") or name not in self.__slots__:
            raise AttributeError(name)
        for key, function in self._loader().items():
            setattr(self, key, function)
        return object.__getattribute__(self, name)


NAMESPACE: Any = ArrayNamespace()


def install_array_namespace(loader: Callable[[], Mapping[str, Any]]) -> None:
    """Hook: ``loader()`` gives the functions of the NumPy layer by slot."""
    NAMESPACE._loader = loader  # noqa: SLF001 - an object of this file
