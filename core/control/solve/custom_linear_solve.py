"""custom_linear_solve: the solution of a linear system, differentiated by solving again.

The solver is a function of the user, of any kind: a factorisation, an iteration with a loop that
has no derivative. Derivatives do not pass through it: with ``A x = b``, the tangent of ``x`` solves
``A dx = db - dA x``, and the cotangent of ``b`` solves the transposed system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import Body
from tracebridge.core.control.solve.parts import SolverParts, check_functions
from tracebridge.core.errors.transform_errors import (
    CustomRuleError,
    LinearityError,
)
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import to_front

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


# The programs of an equation, and by what each is replaced when the system is transposed.
PARTS = ("matvec", "vecmat", "solve", "transpose_solve")
TRANSPOSED = {
    "matvec": "vecmat",
    "vecmat": "matvec",
    "solve": "transpose_solve",
    "transpose_solve": "solve",
}


@final
class LinearSolve(HigherOrderPrimitive):
    """``solve``: (values it closed over, b) -> (x, further results).

    ``matvec`` and ``vecmat``: (values, x) -> A x, and the transpose. ``transpose_solve`` is like
    ``solve`` for the transposed system. The two of the transposed system are None if there is no
    way to solve it. Arguments are the values that each part closed over, ``const_counts`` of them
    in the order of ``PARTS``, then ``b``.
    """

    name = "custom_linear_solve"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["solve"].out_avals)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        groups = _groups(params, operands)
        return ctx.inline_jaxpr(params["solve"], [*groups["solve"], *groups["b"]])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        values, changes = _groups(params, primals), _groups(params, tangents)
        n = len(values["b"])
        outs = self.bind(*primals, **params)
        solution = outs[:n]
        right: list[Any] = list(changes["b"])
        matvec_tangents = [t for t in changes["matvec"] if t is not None]
        if matvec_tangents:
            nonzero = tuple([t is not None for t in changes["matvec"]])
            product, present = jvp_jaxpr(params["matvec"], (*nonzero, *[False] * n))
            args = [*values["matvec"], *solution, *matvec_tangents]
            results = iter(eval_jaxpr(product, current_trace().process, args)[n:])
            moved = [next(results) if here else None for here in present]
            right = [_difference(t, m) for t, m in zip(right, moved, strict=True)]
        no_tangents = [None] * (len(outs) - n)
        if all([r is None for r in right]):
            return outs, [*[None] * n, *no_tangents]
        filled = [
            zeros_of(x.aval.tangent) if r is None else r
            for x, r in zip(solution, right, strict=True)
        ]
        tangents_of_solution = self.bind(*primals[: len(primals) - n], *filled, **params)
        return outs, [*tangents_of_solution[:n], *no_tangents]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        groups = _groups(params, args)
        n = len(groups["b"])
        if any([is_linear_input(a) for a in args[: len(args) - n]]):
            msg = "custom_linear_solve: transposed with respect to the matrix"
            raise LinearityError(msg)
        if params["transpose_solve"] is None:
            msg = "custom_linear_solve: transpose_solve required for reverse mode"
            raise CustomRuleError(
                msg, hint="pass transpose_solve, or symmetric=True if the matrix is symmetric"
            )
        if any([c is not None for c in ct[n:]]):
            msg = "custom_linear_solve: the auxiliary results are differentiated"
            raise CustomRuleError(msg, hint="pass them through lax.stop_gradient")
        cts = [
            zeros_of(b.aval) if c is None else c for c, b in zip(ct[:n], groups["b"], strict=True)
        ]
        swapped: dict[str, Any] = {part: params[TRANSPOSED[part]] for part in PARTS}
        counts: dict[str, int] = dict(zip(PARTS, params["const_counts"], strict=True))
        swapped["const_counts"] = tuple([counts[TRANSPOSED[part]] for part in PARTS])
        consts = [c for part in PARTS for c in groups[TRANSPOSED[part]]]
        solution = self.bind(*consts, *cts, **swapped)
        return [*[None] * len(consts), *solution[:n]]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """Solution and right-hand side are batched; what the parts close over is as it is."""
        where = _groups(params, dims)
        n = len(where["b"])
        first_b = len(args) - n
        moved = [
            to_front(a, d, ctx.size) if i >= first_b or d is not None else a
            for i, (a, d) in enumerate(zip(args, dims, strict=True))
        ]
        batched = dict(params)
        for part in PARTS:
            jaxpr: Jaxpr | None = params[part]
            if jaxpr is not None:
                in_dims = (*[None if d is None else 0 for d in where[part]], *[0] * n)
                batched[part], _ = batch_jaxpr(jaxpr, ctx.size, ctx.axis, in_dims, True)
        outs = self.bind(*moved, **batched)
        return outs, [0] * len(outs)


linear_solve_p = LinearSolve()


def _groups(params: Params, args: Sequence[Any]) -> dict[str, list[Any]]:
    """Arguments by the part that takes them, and the right-hand side as ``b``."""
    found: dict[str, list[Any]] = {}
    start = 0
    for part, count in zip(PARTS, params["const_counts"], strict=True):
        found[part] = list(args[start : start + count])
        start += count
    found["b"] = list(args[start:])
    return found


def _difference(a: Any, b: Any) -> Any:
    if b is None:
        return a
    return lax.neg(b) if a is None else lax.sub(a, b)


# the function ------------------------------------------------------------------------------------


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: object,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Solve ``matvec(x) = b`` by a given solver, with derivatives that solve linear systems too.

    Derivatives follow from ``matvec`` and ``b``; the solver itself is not differentiated, so that
    it may loop with ``while_loop`` or call foreign code.

    Args:
        matvec: linear function of a tree like ``b``, with a result of the same type.
        b: right-hand side, a tree of float or complex arrays.
        solve: ``(matvec, b) -> x``. With ``has_aux`` it returns ``(x, aux)``.
        transpose_solve: ``(vecmat, b) -> x`` for the transposed system, where ``vecmat`` is the
            transpose of ``matvec``; returns what ``solve`` returns. Needed for reverse mode.
        symmetric: ``matvec`` is its own transpose, and ``solve`` solves both systems.
        has_aux: the solvers also return auxiliary results, which have no derivative.

    Returns:
        ``x``, a tree like ``b``; with ``has_aux`` the pair ``(x, aux)``.

    Raises:
        ArgumentSpecError: an argument is no function, or, with ``has_aux``, ``solve`` returns no
            pair.
        TreeMismatchError: ``matvec`` or a solver returns something of another type than ``b``.
        CustomRuleError: reverse mode without a solver of the transposed system.

    >>> import tracebridge as tb
    >>> def quotient(a, b):
    ...     return tb.lax.custom_linear_solve(
    ...         lambda x: a * x, b, lambda matvec, b: b / matvec(1.0), symmetric=True)
    >>> print(quotient(2.0, 3.0), tb.grad(quotient)(2.0, 3.0))
    1.5 -0.75
    """
    check_functions("custom_linear_solve", matvec=matvec, solve=solve)
    if transpose_solve is not None:
        check_functions("custom_linear_solve", transpose_solve=transpose_solve)
    system = _System("custom_linear_solve", "b", b)
    back = solve if symmetric else transpose_solve
    return system.solved(matvec, solve, back, symmetric=symmetric, has_aux=has_aux)


@final
class _System(SolverParts):
    """One system: ``x`` has the types of ``b``."""

    def solved(
        self,
        matvec: Callable[[Any], Any],
        solve: Callable[..., Any],
        back: Callable[..., Any] | None,
        *,
        symmetric: bool,
        has_aux: bool,
    ) -> Any:
        """Trace the parts and bind the equation."""
        forward = self.part("matvec", matvec)
        solver = self.part("solve", lambda x: solve(self.caller("matvec", forward), x), aux=has_aux)
        parts: dict[str, Body | None] = {"matvec": forward, "solve": solver}
        parts["vecmat"] = parts["transpose_solve"] = None
        if symmetric:
            parts["vecmat"], parts["transpose_solve"] = forward, solver
        elif back is not None:
            transposed = self.transposed(forward)
            parts["vecmat"] = transposed
            parts["transpose_solve"] = self.part(
                "transpose_solve", lambda x: back(self.caller("vecmat", transposed), x), aux=has_aux
            )
        consts = [h for p in PARTS for h in _hoisted(parts[p])]
        outs = linear_solve_p.bind(
            *consts,
            *self.values,
            const_counts=tuple([len(_hoisted(parts[p])) for p in PARTS]),
            **{p: None if (body := parts[p]) is None else body.jaxpr for p in PARTS},
        )
        n = len(self.values)
        x = self.tree.unflatten(outs[:n])
        return (x, solver.out.unflatten(outs[n:])) if has_aux else x

    def transposed(self, body: Body) -> Body:
        """The transpose of a traced part."""
        linear = (*[False] * len(body.hoisted), *[True] * len(self.avals))
        try:
            jaxpr, _ = transpose_jaxpr(body.jaxpr, linear)
        except LinearityError as error:
            msg = f"custom_linear_solve: matvec {body.jaxpr.debug.name} is not linear"
            raise LinearityError(msg) from error
        return Body(jaxpr, body.hoisted, body.out)


def _hoisted(body: Body | None) -> list[Any]:
    return [] if body is None else body.hoisted
