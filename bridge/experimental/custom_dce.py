"""custom_dce: what remains of a function when only some of its results are used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.args.statics import check_hashable
from tracebridge._api.custom.arguments import CustomArguments, method_of_inner
from tracebridge.core.control.custom.custom_dce import DceCall, call_custom_dce
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError, UndefinedRuleError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.listing import listing as _listing

__all__ = ["custom_dce"]

__dir__ = _listing(globals())


@final
class custom_dce:
    """Set up a function that says itself how to compute only some of its results.

    A compiled program leaves out what nobody uses. For operations that it knows this works by
    itself; for opaque ones, such as calls of kernels that compute several results, the rule tells
    what to do instead. It is used when a program is compiled: calls outside of ``jit``
    compute everything.

    Args:
        fun: function of arrays and trees of arrays, which ``jit`` can trace, like its rule.
        static_argnums: positions of arguments that are constants of the program. The rule gets
            them first: ``rule(*static_args, used_outs, *other_args)``.

    Attributes:
        fun: the function.
        static_argnums: the positions.
        dce_rule: the rule, None before it is defined.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.custom_dce import custom_dce
    >>> @custom_dce
    ... def f(x, y):
    ...     return tnp.sin(x) * y, x * tnp.sin(y)
    >>> @f.def_dce
    ... def f_dce_rule(used_outs, x, y):
    ...     return (
    ...         tnp.sin(x) * y if used_outs[0] else None,
    ...         x * tnp.sin(y) if used_outs[1] else None,
    ...     )
    >>> print(tb.jit(lambda x, y: f(x, y)[0])(0.0, 2.0))
    0.0
    """

    fun: Callable[..., Any]
    dce_rule: Callable[..., Any] | None

    def __init__(
        self, fun: Callable[..., object], *, static_argnums: int | Sequence[int] = ()
    ) -> None:
        functools.update_wrapper(self, fun)
        self._arguments = CustomArguments("custom_dce", fun, static_argnums, kind="static")
        self.fun = fun
        self.static_argnums = self._arguments.nondiff
        self.dce_rule = None

    def def_dce(self, dce_rule: Callable[..., object]) -> Callable[..., Any]:
        """Set the rule ``(used_outs, *args) -> result``.

        Args:
            dce_rule: gets a tree like the result with a boolean for each leaf, which says whether
                the leaf is used, and the arguments. It returns a tree like the result, in which
                leaves that are not used may be None.

        Returns:
            ``dce_rule``, so that the method is a decorator.
        """
        if not callable(dce_rule):
            msg = f"def_dce({name_of(self.fun)}): got {dce_rule!r}, expected a function"
            raise ArgumentSpecError(msg)
        self.dce_rule = dce_rule
        self._arguments.forget()
        return dce_rule

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.fun)
        if self.dce_rule is None:
            msg = f"No dce rule defined for custom_dce function {name}"
            raise UndefinedRuleError(msg, hint=f"give it one with @{name}.def_dce")
        bound = self._arguments.bind(args, kwargs)
        leaves, in_tree = flatten(bound.differentiable)
        constants = bound.constants
        for position, value in zip(self.static_argnums, constants, strict=True):
            check_hashable(f"custom_dce({name})", str(position), value)
        rule = functools.partial(self.dce_rule, *constants) if constants else self.dce_rule
        memo = None if constants else self._arguments.memo
        names = name, name_of(self.dce_rule)
        return call_custom_dce(
            DceCall(bound.function(self.fun), rule, in_tree, names, memo), leaves
        )

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return method_of_inner(self, name)

    def __repr__(self) -> str:
        return f"<custom_dce {name_of(self.fun)}>"
