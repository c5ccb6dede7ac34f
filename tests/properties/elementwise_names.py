"""Which public functions are elementwise, and which of them the tables of digits measure."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tracebridge as tb
from tracebridge import nn
from tracebridge import scipy as sc

MODULES: dict[str, types.ModuleType] = {
    "lax": tb.lax, "numpy": tb.numpy, "nn": nn, "special": sc.special,
    **{
        f"stats.{info.name}": importlib.import_module(f"{sc.stats.__name__}.{info.name}")
        for info in pkgutil.iter_modules(sc.stats.__path__)
    },
}  # fmt: skip
SHAPES = ((), (5,), (2, 3))
MOST_OPERANDS = 5
# Of functions that do not take such operands.
REFUSALS = (
    tb.errors.TracebridgeError, TypeError, ValueError, LookupError, AttributeError, OSError,
    RuntimeError,
)  # fmt: skip


def _shapes(function: Callable[..., Any], count: int) -> list[Any] | None:
    """Of the results for operands of each of the shapes; None if they are not taken."""
    found: list[Any] = []
    for shape in SHAPES:
        operand = tb.ShapeDtypeStruct(shape, np.float32)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(tb.eval_shape(function, *[operand] * count))
        except REFUSALS:
            return None
    return found


def is_elementwise(function: Callable[..., Any]) -> bool:
    """Whether floats of any shape give floats of the same shape."""
    for count in range(1, MOST_OPERANDS + 1):
        found = _shapes(function, count)
        if found is not None and all(map(_is_like, found, SHAPES)):
            return True
    return False


def _is_like(result: Any, shape: tuple[int, ...]) -> bool:
    leaves = tb.tree.leaves(result)
    return bool(leaves) and all(
        [getattr(v, "shape", None) == shape and v.dtype == np.float32 for v in leaves]
    )


def elementwise_names() -> Iterator[tuple[str, Callable[..., Any]]]:
    """``module.name`` of each public elementwise function, and the function."""
    for title, module in MODULES.items():
        public = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
        for name in public:
            value = getattr(module, name)
            is_function = callable(value) and not inspect.isclass(value)
            if is_function and not isinstance(value, types.ModuleType) and is_elementwise(value):
                yield f"{title}.{name}", value
