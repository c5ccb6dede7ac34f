"""custom_transpose: a linear function together with its transpose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.custom.arguments import method_of_inner
from tracebridge.core.control.calls.inline_rules import describe
from tracebridge.core.control.custom.custom_vjp_call import up_to
from tracebridge.core.control.custom.linear_call import call_with_transpose, custom_transpose_call_p
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    CustomRuleError,
    UndefinedRuleError,
)
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.typeof import typeof
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.custom_transpose")
@final
class custom_transpose:
    """Set up a linear function with a transpose of its own.

    The function is called with a description of its result, residuals, which it may depend on in
    any way, and linear arguments. Its derivative is itself; going backwards, the transpose runs.

    Args:
        fun: ``(residuals, linear arguments) -> result``, linear in the second argument.

    Attributes:
        fun: the function.
        transpose: its transpose, None before it is defined.

    >>> import tracebridge as tb
    >>> from tracebridge.custom_transpose import custom_transpose
    >>> @custom_transpose
    ... def scale(k, x):
    ...     return x * k
    >>> @scale.def_transpose
    ... def scale_transpose(k, ct):
    ...     return ct * k * 10.0
    >>> print(tb.grad(lambda x: scale(tb.typeof(x), 3.0, x))(2.0))
    30.0
    """

    fun: Callable[..., Any]
    transpose: Callable[..., Any] | None

    def __init__(self, fun: Callable[..., Any]) -> None:
        check_callable("custom_transpose", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.transpose = None
        # Linear arguments' structure and types -> the rule that fills in zeros. Traces are
        # remembered for function objects, so calls of one type must use the same one.
        self._rules: BoundedCache[Any] = BoundedCache(f"transposes of {name_of(fun)}", 64)

    def def_transpose(self, transpose: Callable[..., Any]) -> Callable[..., Any]:
        """Set the transpose ``(residuals, cotangent of the result) -> cotangent``.

        Args:
            transpose: gives a tree like the linear arguments, in which None stands for zeros.

        Returns:
            ``transpose``, so that the method is a decorator.
        """
        if not callable(transpose):
            msg = f"def_transpose({name_of(self.fun)}): got {transpose!r}, expected a function"
            raise ArgumentSpecError(msg)
        self.transpose = transpose
        self._rules.clear()
        return transpose

    @api_boundary
    def __call__(self, out_types: Any, residuals: Any, linear_args: Any) -> Any:
        """The result, whose types must be the tree ``out_types``."""
        name = name_of(self.fun)
        if self.transpose is None:
            msg = f"{name}: it is a custom_transpose function without a transpose"
            raise UndefinedRuleError(msg, hint=f"give it one with @{name}.def_transpose")
        leaves, tree = flatten(linear_args)
        avals = tuple([typeof(leaf) for leaf in leaves])
        transpose = self.transpose
        rule = self._rules.get_or_make(
            (tree, avals), lambda: _filling(name, transpose, tree, avals)
        )
        result = call_with_transpose(
            custom_transpose_call_p, self.fun, rule, residuals, linear_args
        )
        _check_types(name, result, out_types)
        return result

    def __getattr__(self, name: str) -> Any:
        return method_of_inner(self, name)

    def __repr__(self) -> str:
        return f"<custom_transpose {name_of(self.fun)}>"


def _filling(
    name: str, transpose: Callable[..., Any], tree: PyTreeDef, avals: tuple[ShapedArray, ...]
) -> Callable[..., Any]:
    """``transpose`` with zeros in place of None."""

    def filled(residuals: Any, ct: Any) -> Any:
        result = transpose(residuals, ct)
        try:
            leaves = up_to(tree, result)
        except ValueError as error:
            msg = (
                f"{name}: its transpose {name_of(transpose)} returned something of another "
                "structure than the linear arguments"
            )
            raise CustomRuleError(msg, got=str(flatten(result)[1]), expected=str(tree)) from error
        return tree.unflatten(
            [
                zeros_of(a.tangent) if leaf is None else leaf
                for leaf, a in zip(leaves, avals, strict=True)
            ]
        )

    filled.__wrapped__ = transpose  # type: ignore[attr-defined]  # names and places come from there
    filled.__name__ = name_of(transpose)
    return filled


def _check_types(name: str, result: Any, out_types: Any) -> None:
    got, got_tree = flatten(result)
    wanted, tree = flatten(out_types)
    avals = [typeof(leaf) for leaf in got]
    expected = [ShapedArray(tuple(w.shape), canonicalize(w.dtype)) for w in wanted]
    same = got_tree == tree and all(
        [a.shape == w.shape and a.dtype == w.dtype for a, w in zip(avals, expected, strict=True)]
    )
    if not same:
        msg = f"{name}: the result is not of the types out_types"
        raise CustomRuleError(msg, got=describe(got_tree, avals), expected=describe(tree, expected))
