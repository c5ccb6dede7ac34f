"""custom_vmap: a function together with its batching rule; sequential_vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

from tracebridge._api.custom.arguments import CustomArguments, method_of_inner
from tracebridge.core.control.custom.custom_batching import call_custom_vmap
from tracebridge.core.control.custom.custom_batching_rules import VmapCall
from tracebridge.core.control.loops.map import map as lax_map
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError, UndefinedRuleError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.custom_batching")
@final
class custom_vmap:
    """Set up a function with a rule of its own for ``vmap``.

    Without ``vmap`` only the function itself runs. Derivatives of a mapped function are those
    of what the rule does; mapped derivatives are derived from the rule too.

    Args:
        fun: function of arrays and trees of arrays.

    Attributes:
        fun: the function.
        vmap_rule: the rule, None before it is defined.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> @tb.custom_batching.custom_vmap
    ... def f(x, y):
    ...     return x + y
    >>> @f.def_vmap
    ... def f_vmap_rule(axis_size, in_batched, x, y):
    ...     x_batched, y_batched = in_batched
    ...     return 10 * (x + y), x_batched or y_batched
    >>> print(f(1, 2), tb.vmap(f, in_axes=(0, None))(tnp.arange(3), 2))
    3 [20 30 40]
    """

    fun: Callable[..., Any]
    vmap_rule: Callable[..., Any] | None

    def __init__(self, fun: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun)
        self._arguments = CustomArguments("custom_vmap", fun)
        self.fun = fun
        self.vmap_rule = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule ``(axis_size, in_batched, *args) -> (result, out_batched)``.

        Args:
            vmap_rule: gets the size of the mapped axis; a list of trees of booleans like the
                arguments, which say which leaves have that axis in front; and the arguments. It
                returns the result and a tree of booleans like it.

        Returns:
            ``vmap_rule``, so that the method is a decorator.
        """
        if not callable(vmap_rule):
            msg = f"def_vmap({name_of(self.fun)}): got {vmap_rule!r}, expected a function"
            raise ArgumentSpecError(msg)
        self.vmap_rule = vmap_rule
        self._arguments.forget()
        return vmap_rule

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.fun)
        if self.vmap_rule is None:
            msg = f"No batching rule defined for custom_vmap function {name}"
            raise UndefinedRuleError(msg, hint=f"give it one with @{name}.def_vmap")
        leaves, in_tree = flatten(self._arguments.bind(args, kwargs).differentiable)
        names = name, name_of(self.vmap_rule)
        call = VmapCall(self.fun, self.vmap_rule, in_tree, names, self._arguments.memo)
        return call_custom_vmap(call, leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return method_of_inner(self, name)

    def __repr__(self) -> str:
        return f"<custom_vmap {name_of(self.fun)}>"


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """A ``custom_vmap`` function whose rule is a loop: one example after the other.

    For functions whose batched form needs too much memory, or does not exist.

    Args:
        f: function of arrays and trees of arrays.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> @tb.custom_batching.sequential_vmap
    ... def f(x):
    ...     return x + 1.0
    >>> print(tb.vmap(f)(tnp.arange(3.0)))
    [1. 2. 3.]
    """
    mapped = custom_vmap(f)

    @mapped.def_vmap
    def sequential_rule(axis_size: Any, in_batched: Any, *args: Any) -> Any:
        del axis_size
        leaves, tree = flatten(args)
        flags = flatten(in_batched)[0]

        def one(rows: Any) -> Any:
            remaining_rows = iter(rows)
            each = [next(remaining_rows) if b else x for x, b in zip(leaves, flags, strict=True)]
            return mapped(*tree.unflatten(each))

        result = lax_map(one, [x for x, b in zip(leaves, flags, strict=True) if b])
        return result, tree_map(lambda _: True, result)

    return mapped
