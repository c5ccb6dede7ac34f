"""custom_jvp: a function together with its forward-mode derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.custom.arguments import CustomArguments, check_rule, method_of_inner
from tracebridge.core.control.custom.custom_jvp import JvpCall, call_custom_jvp
from tracebridge.core.control.custom.symbolic_zeros import zero_from_primal
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    CustomRuleError,
    UndefinedRuleError,
)
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.lax.elementwise.arithmetic import add
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge")
@final
class custom_jvp:
    """Set up a function with a derivative rule of its own, for both modes of differentiation.

    Reverse mode follows from the rule by transposition, so the tangent must be linear in the
    tangents of the arguments. Without differentiation only the function itself runs.

    Args:
        fun: the function. What it closes over is not differentiated.
        nondiff_argnums: positions of arguments that are no arrays, such as functions and strings.
            The rule gets them first: ``rule(*nondiff_args, primals, tangents)``.
        nondiff_argnames: the same by name.

    >>> import tracebridge as tb
    >>> @tb.custom_jvp
    ... def f(x, y):
    ...     return x * y
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     x, y = primals
    ...     x_dot, y_dot = tangents
    ...     return f(x, y), y * x_dot + x * y_dot
    >>> print(tb.grad(f)(2.0, 3.0))
    3.0
    """

    fun: Callable[..., Any]
    jvp: Callable[..., Any] | None
    symbolic_zeros: bool

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        functools.update_wrapper(self, fun)
        self._arguments = CustomArguments("custom_jvp", fun, nondiff_argnums, nondiff_argnames)
        self.fun = fun
        self.nondiff_argnums = self._arguments.nondiff
        self.jvp = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule ``(primals, tangents) -> (result, tangent of the result)``.

        Args:
            jvp: the rule; primals and tangents are tuples of the arguments' structure.
            symbolic_zeros: give tangents that are zero as ``SymbolicZero`` objects instead of
                arrays of zeros.

        Returns:
            ``jvp``, so that the method is a decorator.
        """
        if not callable(jvp):
            msg = f"defjvp({name_of(self.fun)}): got {jvp!r}, expected a function"
            raise ArgumentSpecError(msg)
        self.jvp = jvp
        self.symbolic_zeros = bool(symbolic_zeros)
        self._arguments.forget()
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule per argument: ``(tangent, result, *primals) -> tangent of the result``.

        None in place of a rule says that the result does not depend on that argument.

        >>> import tracebridge as tb
        >>> @tb.custom_jvp
        ... def f(x, y):
        ...     return x * y
        >>> f.defjvps(lambda t, ans, x, y: t * y, None)
        >>> x_bar, y_bar = tb.grad(f, argnums=(0, 1))(2.0, 3.0)
        >>> print(x_bar, y_bar)
        3.0 0.0
        """
        name = name_of(self.fun)
        if self._arguments.nondiff:
            msg = f"defjvps({name}): not with nondiff_argnums"
            raise ArgumentSpecError(msg, hint="use defjvp, which gets the other arguments first")
        for rule in jvps:
            check_rule(f"defjvps({name})", rule)

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                msg = (
                    f"{name}: defjvps got {len(jvps)} rules, the call has {len(primals)} arguments"
                )
                raise CustomRuleError(msg, hint="give one rule, or None, per argument")
            result = self(*primals)
            total = None
            for rule, tangent in zip(jvps, tangents, strict=True):
                if rule is not None:
                    part = rule(tangent, result, *primals)
                    total = part if total is None else tree_map(_add, total, part)
            return result, tree_map(zero_from_primal, result) if total is None else total

        self.defjvp(jvp)

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.fun)
        if self.jvp is None:
            msg = f"No JVP defined for custom_jvp function {name} using defjvp"
            raise UndefinedRuleError(msg, hint=f"give it one with @{name}.defjvp")
        bound = self._arguments.bind(args, kwargs)
        leaves, in_tree = flatten(bound.differentiable)
        rule = functools.partial(self.jvp, *bound.constants) if bound.constants else self.jvp
        call = JvpCall(
            bound.function(self.fun),
            rule,
            in_tree,
            name,
            name_of(self.jvp),
            self.symbolic_zeros,
            self,
            None if bound.constants else self._arguments.memo,
        )
        return call_custom_jvp(call, leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return method_of_inner(self, name)

    def __repr__(self) -> str:
        return f"<custom_jvp {name_of(self.fun)}>"


def _add(x: Any, y: Any) -> Any:
    return add(x, y)
