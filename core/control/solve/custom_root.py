"""custom_root: a root of a function, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import Body, trace_body
from tracebridge.core.control.calls.carry import unchanged
from tracebridge.core.control.calls.inline_rules import has_tangent
from tracebridge.core.control.custom.custom_jvp import JvpCall, call_custom_jvp
from tracebridge.core.control.custom.symbolic_zeros import concrete_zeros
from tracebridge.core.control.solve.parts import SolverParts, check_functions
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[Callable[[Any], Any], Any], Any],
    has_aux: bool = False,
) -> Any:
    """Find ``x`` with ``f(x) = 0`` by a given solver, with derivatives of what ``f`` closes over.

    With ``f(x, p) = 0`` the tangent of ``x`` solves the linear system ``df/dx dx = -df/dp dp``.
    The solver and the guess are not differentiated.

    Args:
        f: function of a tree like ``initial_guess``, with a result of the same type.
        initial_guess: where the solver starts, a tree of arrays.
        solve: ``(f, initial_guess) -> x``. With ``has_aux`` it returns ``(x, aux)``.
        tangent_solve: ``(g, y) -> x`` with ``g(x) = y``, where ``g`` is linear. It has to be
            linear in ``y``, and for reverse mode transposable: use operations, or
            ``custom_linear_solve``.
        has_aux: ``solve`` also returns auxiliary results, which have no derivative.

    Returns:
        The root; with ``has_aux`` the pair ``(root, aux)``.

    Raises:
        ArgumentSpecError: an argument is no function, or, with ``has_aux``, ``solve`` returns no
            pair.
        TreeMismatchError: ``f`` or a solver returns something of another type than the guess.

    >>> import tracebridge as tb
    >>> def newton(f, x):
    ...     return tb.lax.fori_loop(0, 20, lambda i, x: x - f(x) / tb.grad(f)(x), x)
    >>> def root(a):
    ...     return tb.lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> print(root(4.0), tb.grad(root)(4.0))
    2.0 0.25
    """
    check_functions("custom_root", f=f, solve=solve, tangent_solve=tangent_solve)
    problem = _Problem(initial_guess)
    residual = problem.part("f", f)
    problem.n_residual = len(residual.hoisted)
    problem.solve = problem.part(
        "solve", lambda x: solve(problem.caller("f", residual), x), aux=has_aux
    )
    problem.residual = residual
    solving = _stopped(problem.solve.hoisted)
    # Traced also where no derivative can be asked for: its errors are those of every call.
    problem.tangent = problem.tangent_part(tangent_solve)
    moving = problem.tangent.hoisted
    problem.n_solve = len(solving)
    leaves = [*residual.hoisted, *solving, *_stopped(problem.values), *moving]
    call = JvpCall(
        problem.run,
        problem.rule,
        flatten(tuple([0] * len(leaves)))[1],
        f"custom_root({name_of(f)})",
        "custom_root",
        False,
        problem,
        None,
    )
    outs = unchanged(call_custom_jvp(call, leaves))
    n = len(problem.values)
    root = problem.tree.unflatten(outs[:n])
    return (root, problem.solve.out.unflatten(outs[n:])) if has_aux else root


def _stopped(values: Sequence[Any]) -> list[Any]:
    """Values without derivatives."""
    return [lax.stop_gradient(v) if has_tangent(v.aval) else v for v in values]


@final
class _Problem(SolverParts):
    """One call: types, the traced function and solvers, the derivative rule.

    Flat arguments are the values that the function closed over, those that the solver closed
    over, the guess, and the values that the solver of the tangents closed over.
    """

    def __init__(self, guess: Any) -> None:
        super().__init__("custom_root", "initial_guess", guess)
        self.n_residual = 0
        self.n_solve = 0
        self.residual: Body
        self.solve: Body
        self.tangent: Body

    def tangent_part(self, tangent_solve: Callable[..., object]) -> Body:
        """Trace the solver of the tangents as a function of the root and the right side.

        It may close over values that are differentiated: their derivatives are those of the root,
        but derivatives of higher order need them as arguments.
        """
        residual = self.residual
        n, n_x = self.n_residual, len(self.avals)

        def solve(root: object, right: object) -> Any:
            point = [as_value(v) for v in (*residual.hoisted, *flatten(root)[0])]
            process = current_trace().process
            moved = [has_tangent(v.aval) for v in point[n:]]
            by_root = linearize_jaxpr(residual.jaxpr, (*[False] * n, *moved), True)
            kept = _residuals(by_root, point, process, n_x)

            def linear(x: object) -> Any:
                what = "the argument of the linear function"
                leaves = self.checked("the linear function was called with", what, x)
                results = eval_jaxpr(by_root.linear, current_trace().process, [*kept, *leaves])
                return self.tree.unflatten(results)

            return tangent_solve(linear, right)

        def take_apart(result: object) -> tuple[list[Any], Any]:
            what = "the result of tangent_solve"
            return self.checked("tangent_solve returned", what, result), None

        tree = self.tree
        in_tree = flatten((tree.unflatten(range(n_x)), tree.unflatten(range(n_x))))[1]
        avals = (*self.avals, *self.avals)
        return trace_body("custom_root tangent_solve", solve, in_tree, avals, take_apart, "tangent")

    def run(self, *args: Any) -> list[Any]:
        """Solve: root and auxiliary results."""
        end = self.n_residual + self.n_solve + len(self.avals)
        rest = [as_value(a) for a in args[self.n_residual : end]]
        return eval_jaxpr(self.solve.jaxpr, current_trace().process, rest)

    def rule(
        self, primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[list[Any], list[Any]]:
        """Root, and the solution of the linearised equation."""
        n, n_x = self.n_residual, len(self.avals)
        call = JvpCall(
            self.run,
            self.rule,
            flatten(tuple(primals))[1],
            "custom_root",
            "custom_root",
            False,
            self,
            None,
        )
        outs = call_custom_jvp(call, primals)
        root, further = outs[:n_x], outs[n_x:]
        point = [as_value(v) for v in (*primals[:n], *root)]
        moved = [has_tangent(v.aval) for v in point]
        nonzero_tangents = [as_value(t) for t, m in zip(tangents[:n], moved[:n], strict=True) if m]
        jaxpr, process = self.residual.jaxpr, current_trace().process
        # Along the parameters, at a fixed root.
        by_params = linearize_jaxpr(jaxpr, (*moved[:n], *[False] * n_x), True)
        right = _pushed(by_params, point, nonzero_tangents, process, n_x)
        closed_over = [as_value(p) for p in primals[n + self.n_solve + n_x :]]
        operands = [*closed_over, *[as_value(r) for r in root], *[lax.neg(r) for r in right]]
        tangents_of_root = eval_jaxpr(self.tangent.jaxpr, process, operands)
        return outs, [
            *tangents_of_root,
            *[concrete_zeros(as_value(v).aval.tangent) for v in further],
        ]


def _residuals(split: Any, point: Sequence[Any], process: Any, n_out: int) -> list[Any]:
    results = eval_jaxpr(split.primal, process, point)
    return [*[point[i] for i in split.forwarded], *results[n_out:]]


def _pushed(
    split: Any, point: Sequence[object], tangents: Sequence[Any], process: Any, n_out: int
) -> list[Any]:
    kept = _residuals(split, point, process, n_out)
    return eval_jaxpr(split.linear, process, [*kept, *tangents])
