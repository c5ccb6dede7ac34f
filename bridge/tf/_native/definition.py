"""Equations without a rule: by the operations of ours that their lowering consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.tf._native.builder import OTHERS, Builder, Tensor, rule

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr


@final
class Definition:
    """What a lowering may ask for here: to be written as operations of our own.

    Primitives that are lowered through such operations need no rule. ``platform`` is none of
    those that have better forms.
    """

    platform = "portable"
    platforms = ()

    def __init__(self, b: Builder, app: Application) -> None:
        self._b = b
        self.avals_in = app.avals
        self.avals_out = app.outs
        self.aval_out = app.outs[0] if app.outs else None

    def lower_fun(
        self,
        fun: Callable[..., Any],
        *xs: Tensor,
        avals_in: Sequence[ShapedArray] | None = None,
        **params: Any,
    ) -> list[Any]:
        """The results of ``fun``, a function of values of ours."""
        avals = self.avals_in if avals_in is None else avals_in

        def flat(*values: Any) -> list[Any]:
            out = fun(*values, **params)
            return list(out) if isinstance(out, list | tuple) else [out]

        return self._b.traced(flat, xs, avals)

    def inline_jaxpr(self, jaxpr: Jaxpr, xs: Sequence[Tensor]) -> list[Any]:
        """The results of a program."""
        return self._b.inline(jaxpr, xs)

    def call_jaxpr(self, jaxpr: Jaxpr, xs: Sequence[Tensor], name: str) -> list[Any]:
        """The results of a program that others would call."""
        del name
        return self._b.inline(jaxpr, xs)

    def broadcast_in_dim(self, x: Tensor, aval: ShapedArray, dims: Sequence[int]) -> Tensor:
        """``x`` repeated; scalars only."""
        del dims
        return self._b.full(aval.shape, 0, aval.dtype) + x


@rule(OTHERS)
def _by_definition(b: Builder, *xs: Tensor, **params: object) -> Any:
    """An equation by the operations that its lowering consists of; NotImplemented: others."""
    app = b.app
    try:
        found = app.primitive.lower(Definition(b, app), *xs, **params)
    except (AttributeError, TypeError, RuntimeError, ExportError) as error:
        if not _says_it_is_none(error):
            raise
        return NotImplemented
    outs = list(found) if isinstance(found, list | tuple) else [found]
    return outs if app.multiple else outs[0]


def _says_it_is_none(error: Exception) -> bool:
    """Whether a lowering does not consist of operations of ours, which is no mistake."""
    if isinstance(error, AttributeError):
        return error.obj.__class__ is Definition
    if isinstance(error, ExportError | MissingRuleError):
        return True  # functions of the host; there is no lowering
    # Functions of MLIR refuse tensors, and there is no module to write to.
    text = str(error)
    return "incompatible function arguments" in text or "An MLIR function requires a" in text
