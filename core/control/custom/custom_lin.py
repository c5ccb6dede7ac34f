"""custom_lin: the derivative of a custom_vjp function, of which only the transpose is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.inline_rules import has_tangent
from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


def forward_mode(name: str) -> CustomRuleError:
    """The error for jvp of a function that has reverse-mode rules only."""
    msg = (
        f"{name}: can't apply forward-mode autodiff (jvp) to a custom_vjp function, which "
        "defines its reverse mode only"
    )
    return CustomRuleError(
        msg, hint="use grad, vjp or jacrev, or define the function with custom_jvp"
    )


@final
class CustomLin(Primitive):
    """The derivative of a custom_vjp function: only its transpose is known.

    Arguments are residuals and the tangents of the perturbed arguments; results the tangents of
    the results that have some. ``backward(residuals, cotangents)`` is the rule.
    """

    name = "custom_lin"
    cost = Cost.OTHER
    holds_functions = True
    multiple_results = True
    transposes_inline = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return [a.tangent for a in params["out_avals"] if has_tangent(a)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        del ctx, operands
        raise forward_mode(params["fun_name"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        raise forward_mode(params["fun_name"])

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        raise forward_mode(params["fun_name"])

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        given = iter(ct)
        cts = [next(given) if has_tangent(a) else None for a in params["out_avals"]]
        n = len(args) - sum(params["perturbed"])
        if any([is_linear_input(a) for a in args[:n]]):
            raise forward_mode(params["fun_name"])
        results = params["backward"](args[:n], cts)
        return [
            *[None] * n,
            *[r for r, p in zip(results, params["perturbed"], strict=True) if p],
        ]


custom_lin_p = CustomLin()


def custom_lin(
    backward: Callable[..., list[Any]],
    fun_name: str,
    residuals: Sequence[Any],
    in_avals: Sequence[ShapedArray],
    perturbed: Sequence[bool],
    out_avals: Sequence[ShapedArray],
) -> Application:
    """The application; it is not interned, because it holds a function of the user."""
    tangents = [a.tangent for a, p in zip(in_avals, perturbed, strict=True) if p]
    avals = (*[r.aval for r in residuals], *tangents)
    params = {
        "backward": backward,
        "fun_name": fun_name,
        "perturbed": tuple(perturbed),
        "out_avals": tuple(out_avals),
    }
    return Application(custom_lin_p, avals, params)
