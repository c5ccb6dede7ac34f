"""What rules may ask of the interpreter that runs them (the implementations are above)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr


class BatchContext(Protocol):
    """Given to ``Primitive.batch``: the size and the name of the axis that is being batched."""

    size: Any
    axis_name: Any


class LoweringContext(Protocol):
    """Given to ``Primitive.lower``; builders are in core/mlir/builders.py."""

    avals_in: tuple[ShapedArray, ...]
    avals_out: tuple[ShapedArray, ...]
    platform: str

    def constant(self, value: Any, aval: ShapedArray) -> Any:
        """A splat or dense constant of ``aval``."""
        ...

    def lower_fun(self, fun: Callable[..., Any], *operands: Any, **kwargs: Any) -> list[Any]:
        """Trace ``fun`` on the avals of ``operands`` and emit it inline."""
        ...

    def call_jaxpr(self, jaxpr: Jaxpr, operands: Sequence[Any], name: str) -> list[Any]:
        """Emit ``jaxpr`` once as a private function and call it."""
        ...

    def inline_jaxpr(self, jaxpr: Jaxpr, operands: Sequence[Any]) -> list[Any]:
        """Emit the equations of ``jaxpr`` here."""
        ...
