"""The one slot through which arrays and tracers reach the NumPy layer above the engine.

``tracebridge.numpy`` fills ``NAMESPACE.functions`` when the package is imported (bridge/_install).
The engine itself never needs it.
"""

from __future__ import annotations

from typing import Any, Protocol


class ArrayNamespace(Protocol):
    """Functions that operators, indexing and methods of arrays delegate to."""

    def getitem(self, x: Any, index: Any) -> Any: ...
    def method(self, name: str) -> Any: ...
    def at(self, x: Any) -> Any: ...


class Namespace:
    """Attribute ``add`` implements ``x + y`` and so on; set once by ``install``."""

    __slots__ = (
        "abs", "add", "and_", "at", "bool_", "complex_", "divmod", "eq", "float_", "floordiv",
        "format_", "ge", "getitem", "gt", "index_", "int_", "invert", "iter_", "le", "lshift",
        "lt", "matmul", "methods", "mod", "mul", "ne", "neg", "or_", "pos", "pow", "properties",
        "radd", "rand", "rdivmod", "rfloordiv", "rlshift", "rmatmul", "rmod", "rmul", "ror",
        "round_", "rpow", "rrshift", "rshift", "rsub", "rtruediv", "rxor", "sub", "truediv",
        "xor",
    )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        msg = f"array operation {name!r} needs tracebridge.numpy; import tracebridge first"
        raise AttributeError(msg)


NAMESPACE: Any = Namespace()


def install_array_namespace(functions: dict[str, Any]) -> None:
    """Hook: fill the slot with the functions of the NumPy layer."""
    for name, function in functions.items():
        setattr(NAMESPACE, name, function)
