"""Composition root: fills the hooks of the engine. Nothing else changes anything at import.

1. the eager traces, which execute operations at once;
2. the array namespace, through which operators and methods of arrays reach tracebridge.numpy;
3. operations of symbolic sizes with arrays and other numbers;
4. the last finder of modules, which says what to use instead of those that are not here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tracebridge import _missing_modules
from tracebridge.core.ir.array_protocol import install_array_namespace
from tracebridge.core.ir.eager_slot import install_eager_traces
from tracebridge.core.symbolic.dims import install_array_operation


def _numpy_functions() -> Mapping[str, Any]:
    """What operators and methods need; loads the NumPy layer when the first one is used."""
    return importlib.import_module("tracebridge.numpy._array_methods").functions()


def _eager_traces() -> tuple[Any, Any]:
    """The runtime's eager traces; loads the runtime when the first operation is applied."""
    dispatch = importlib.import_module("tracebridge.core.runtime.calls.dispatch")
    return dispatch.EagerTrace(), dispatch.EagerTrace(debug=True)


def _array_operation(symbol: str, left: Any, right: Any) -> Any:
    """An operation that gives no symbolic size; loads the operations on arrays with the first."""
    return importlib.import_module("tracebridge.core.lax.shape.iota").array_operation(
        symbol, left, right
    )


install_eager_traces(_eager_traces)
install_array_namespace(_numpy_functions)
install_array_operation(_array_operation)
_missing_modules.install()
