"""Reverse-mode derivatives with any cotangent: vjp and linear_transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.argnums import check_callable, check_reduce_axes
from tracebridge._api.flat import FlatCall
from tracebridge._api.jvp import tangent_values
from tracebridge._api.values import (
    differentiable,
    public,
    spread,
    tangent_or_zeros,
    values_of,
)
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.linearize import Linearized, linearize_flat
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.tree.prefix import check_same_structure
from tracebridge.core.tree.tree import PyTreeDef, flatten


@final
class Pullback:
    """The linear function that ``vjp`` gives; see there."""

    __slots__ = ("_in_avals", "_in_tree", "_linear", "_name", "_out_avals", "_out_tree")

    def __init__(
        self,
        name: str,
        linear: Linearized,
        in_avals: Sequence[ShapedArray],
        in_tree: PyTreeDef,
        out_avals: Sequence[ShapedArray],
        out_tree: PyTreeDef,
    ) -> None:
        self._name = name
        self._linear = linear
        self._in_avals = in_avals
        self._in_tree = in_tree
        self._out_avals = out_avals
        self._out_tree = out_tree

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments for a cotangent of the result."""
        call = f"the pullback of {self._name}"
        leaves, tree = flatten(cotangent)
        if tree != self._out_tree:
            check_same_structure(call, tree, self._out_tree, "cotangent", "result")
        cts = tangent_values(call, leaves, self._out_avals, tree, ("cotangent", "result"))
        linear = self._linear
        # Auxiliary data of the call are results of the tape too; they have no cotangents.
        cts += [None] * (len(linear.out_nodes) - len(cts))
        given = backward(linear, cts, current_trace().process)
        flags = [a.tangent.dtype == a.dtype for a in self._in_avals]
        return self._in_tree.unflatten(
            [
                tangent_or_zeros(ct, a.tangent)
                for ct, a in zip(spread(given, flags), self._in_avals, strict=True)
            ]
        )

    def __repr__(self) -> str:
        return f"<pullback of {self._name}>"


@api_boundary
def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()
) -> Any:
    """The value of ``fun`` and the function that pulls cotangents back.

    ``fun`` runs once; the pullback can be called many times.

    Args:
        fun: function of arrays and trees of arrays; with ``has_aux`` it returns a pair
            ``(result, auxiliary data)``.
        *primals: the arguments.
        has_aux: see ``fun``.
        reduce_axes: accepted for compatibility; must be empty.

    Returns:
        ``(result, pullback)``, with ``has_aux`` also the auxiliary data. ``pullback(cotangent)``
        takes a tree of the structure, shapes and dtypes of the result and gives a tuple with one
        cotangent per argument; those of integers and booleans have dtype ``float0``.

    Raises:
        UnsupportedDtypeError: an argument is no array or number.

    >>> import tracebridge as tb
    >>> value, pullback = tb.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> x_bar, y_bar = pullback(1.0)
    >>> print(value, x_bar, y_bar)
    6.0 3.0 2.0
    """
    check_callable("vjp", fun)
    check_reduce_axes("vjp", reduce_axes)
    name = name_of(fun)
    leaves, tree = flatten(primals)
    values = values_of(f"vjp({name})", leaves, tree, "primals")
    flat = FlatCall(fun, tree, has_aux=has_aux)
    outs, linear = linearize_flat(flat.call, values, differentiable(values))
    n = flat.n_out
    result = flat.out_tree.unflatten([public(o) for o in outs[:n]])
    pullback = Pullback(
        name, linear, [v.aval for v in values], tree, [o.aval for o in outs[:n]], flat.out_tree
    )
    return (result, pullback, flat.aux(outs[n:])) if has_aux else (result, pullback)
