"""custom_vjp: a function together with its reverse-mode derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.custom.arguments import CustomArguments, method_of_inner
from tracebridge.core.control.custom.custom_vjp import call_custom_vjp
from tracebridge.core.control.custom.custom_vjp_call import VjpCall
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    ClosedOverValueError,
    UndefinedRuleError,
)
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge")
@final
class custom_vjp:
    """Set up a function with a reverse-mode rule of its own.

    The rule is in two parts: one runs in place of the function and says what to keep, the other
    one turns the cotangent of the result into those of the arguments. Forward mode is an error.

    Args:
        fun: the function. What it closes over is not differentiated.
        nondiff_argnums: positions of arguments that are no arrays, such as functions and strings.
            The forward rule gets them in their places, the backward rule gets them first.
        nondiff_argnames: the same by name.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> @tb.custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (tnp.clip(ct, -1.0, 1.0),))
    >>> print(tb.grad(lambda x: 5.0 * clip_gradient(x))(2.0))
    1.0
    """

    fun: Callable[..., Any]
    fwd: Callable[..., Any] | None
    bwd: Callable[..., Any] | None
    symbolic_zeros: bool

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        functools.update_wrapper(self, fun)
        self._arguments = CustomArguments("custom_vjp", fun, nondiff_argnums, nondiff_argnames)
        self.fun = fun
        self.nondiff_argnums = self._arguments.nondiff
        self.fwd = None
        self.bwd = None
        self.symbolic_zeros = False
        self.optimize_remat = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the two parts of the rule.

        Args:
            fwd: takes the arguments of the function, gives ``(result, residuals)``; residuals are
                a tree of arrays.
            bwd: ``(*nondiff_args, residuals, cotangent)`` gives a tuple with one cotangent per
                differentiable argument, each of its structure, shapes and dtypes. None stands for
                zeros, also inside a tree.
            symbolic_zeros: ``fwd`` gets each leaf as a ``CustomVJPPrimal`` with its value and
                whether it is differentiated; ``bwd`` may get and return ``SymbolicZero`` objects.
            optimize_remat: in compiled programs ``fwd`` gives way to the function itself wherever
                its residuals are not used: in the forward pass of a checkpointed function, for
                instance. For rules whose ``fwd`` costs more than the function and is opaque to
                the compiler; the two must give the same result.
        """
        for role, rule in (("fwd", fwd), ("bwd", bwd)):
            if not callable(rule):
                msg = f"defvjp({name_of(self.fun)}): {role} is {rule!r}, expected a function"
                raise ArgumentSpecError(msg)
        self.fwd = fwd
        self.bwd = bwd
        self.symbolic_zeros = bool(symbolic_zeros)
        self.optimize_remat = bool(optimize_remat)
        self._arguments.forget()

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.fun)
        if self.fwd is None or self.bwd is None:
            msg = f"No VJP defined for custom_vjp function {name} using defvjp"
            raise UndefinedRuleError(msg, hint=f"give it some with {name}.defvjp(fwd, bwd)")
        bound = self._arguments.bind(args, kwargs)
        leaves, in_tree = flatten(bound.differentiable)
        constants = bound.constants
        if any([isinstance(leaf, Tracer) for leaf in flatten(constants)[0]]):
            msg = (
                f"{name}: a traced value is among the arguments that nondiff_argnums or "
                "nondiff_argnames of custom_vjp name"
            )
            hint = "name only arguments that are no arrays, and return None as cotangent of others"
            raise ClosedOverValueError(msg, hint=hint)
        call = VjpCall(
            bound.function(self.fun),
            bound.function(self.fwd),
            functools.partial(self.bwd, *constants) if constants else self.bwd,
            in_tree,
            (name, name_of(self.fwd), name_of(self.bwd)),
            self.symbolic_zeros,
            self,
            None if constants else self._arguments.memo,
        )
        call.optimize_remat = self.optimize_remat
        return call_custom_vjp(call, leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return method_of_inner(self, name)

    def __repr__(self) -> str:
        return f"<custom_vjp {name_of(self.fun)}>"
