"""Reverse-mode derivatives with any cotangent: vjp and linear_transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from tracebridge._api.args.argnums import check_argument_count, check_callable, derivative_argnums
from tracebridge._api.args.flat import FlatCall
from tracebridge._api.args.values import differentiable, public, values_of
from tracebridge._api.args.wraps import named_like
from tracebridge._api.derivatives.jvp import tangent_values
from tracebridge._api.derivatives.pullback import Pullback
from tracebridge._api.derivatives.reduced import with_reduced_axes
from tracebridge._api.programs.jit import jit
from tracebridge._api.programs.make_jaxpr import trace_to_jaxpr
from tracebridge.core.collectives.shared import psum_shared, reduced_axes
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.dtypes.dtypes import is_inexact, is_integer
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import LinearityError, MissingRuleError
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.staged_rules import cotangent_aval
from tracebridge.core.interpreters.staging import close_jaxpr
from tracebridge.core.interpreters.transpose import backward, linear_tape
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Value, literal
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.tree.prefix import check_same_structure
from tracebridge.core.tree.registry import register_pytree_node_class
from tracebridge.core.tree.tree import PyTreeDef, flatten


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
        reduce_axes: names of axes of surrounding ``vmap`` calls. The cotangent of an argument that
            all elements of such an axis share is summed over the axis.

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
    name = name_of(fun)
    leaves, tree = flatten(primals)
    values = values_of(f"vjp({name})", leaves, tree, "primals")
    flat = FlatCall(fun, tree, has_aux=has_aux)
    function = flat.call
    if reduce_axes != ():
        function = with_reduced_axes(f"vjp({name})", function, values, reduce_axes)
    outs, linear = linearize_flat(function, values, differentiable(values), f"vjp({name})")
    n = flat.n_out
    result = flat.out_tree.unflatten([public(o) for o in outs[:n]])
    avals = (tuple([v.aval for v in values]), tuple([o.aval for o in outs[:n]]))
    pullback = Pullback(name, linear, avals, (tree, flat.out_tree), values)
    return (result, pullback, flat.aux(outs[n:])) if has_aux else (result, pullback)


@api_boundary
def linear_transpose(
    fun: Callable[..., Any], *primals: Any, reduce_axes: Sequence[Any] = ()
) -> Callable[[Any], tuple[Any, ...]]:
    """The transpose of a function that is linear in its arguments.

    Like the pullback of ``vjp``, without running ``fun`` on numbers.

    Args:
        fun: linear function of arrays and trees of arrays: floating and complex ones, or integers
            throughout.
        *primals: arguments, or objects with ``shape`` and ``dtype`` in their place.
        reduce_axes: as in ``vjp``; stand-ins for arguments count as shared by all elements.

    Returns:
        A function that takes a tree of the structure, shapes and dtypes of the result of ``fun``
        and gives a tuple with one tree per argument. It is a pytree, like the pullback of ``vjp``.

    Raises:
        LinearityError: dtypes are mixed or boolean, or ``fun`` is not linear; the latter is found
            when the transposed function is called.

    >>> import tracebridge as tb
    >>> transposed = tb.linear_transpose(lambda x, y: 2 * x - 3 * y, 0.0, 0.0)
    >>> x_bar, y_bar = transposed(1.0)
    >>> print(x_bar, y_bar)
    2.0 -3.0
    """
    check_callable("linear_transpose", fun)
    call = f"linear_transpose({name_of(fun)})"
    leaves, tree = flatten((primals, {}))
    args = Arguments(fun, leaves, tree, parameters=parameter_names(fun))
    jaxpr, out_tree = trace_to_jaxpr("linear_transpose", fun, args)
    _check_transposable(call, jaxpr)
    axes = reduced_axes(call, reduce_axes)
    # A stand-in has no elements that could differ: any constant will do.
    likes = [
        leaf if issubclass(type(leaf), EngineValue) else literal(0, "int32") for leaf in leaves
    ]
    closed, hoisted = close_jaxpr(jaxpr)
    return Transposed(call, closed, (tree, out_tree), axes, [*hoisted, *(likes if axes else ())])


@final
class Transposed:
    """What ``linear_transpose`` gives; see there. A pytree: its leaves are closed-over values."""

    __slots__ = ("__weakref__", "_axes", "_call", "_jaxpr", "_trees", "_values")

    def __init__(
        self,
        call: str,
        jaxpr: Jaxpr,
        trees: tuple[PyTreeDef, PyTreeDef],
        axes: tuple[Any, ...],
        values: Sequence[Any],
    ) -> None:
        self._call = call
        # Its first inputs are closed-over values, the others are those that it is linear in.
        self._jaxpr = jaxpr
        self._trees = trees
        self._axes = axes
        # With axes they end with one value per argument, which tells whether it is shared.
        self._values = values

    @api_boundary
    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments for a cotangent of the result."""
        call, jaxpr, (tree, out_tree) = self._call, self._jaxpr, self._trees
        flat, ct_tree = flatten(cotangent)
        if ct_tree != out_tree:
            check_same_structure(call, ct_tree, out_tree, "cotangent", "result")
        cts = tangent_values(
            call, flat, jaxpr.out_avals, ct_tree, ("cotangent", "result"), integers=True
        )
        n = tree.num_leaves
        n_hoisted = jaxpr.n_in - n
        hoisted, likes = self._values[:n_hoisted], self._values[n_hoisted:] or [None] * n
        results = [
            r if r is None or not self._axes else psum_shared(r, like, self._axes)
            for r, like in zip(transpose_linear(call, jaxpr, cts, hoisted), likes, strict=True)
        ]
        (cotangents_of_args, _) = tree.unflatten(
            [
                public(zeros_of(cotangent_aval(a)) if r is None else r)
                for r, a in zip(results, jaxpr.in_avals[n_hoisted:], strict=True)
            ]
        )
        return cotangents_of_args

    def __repr__(self) -> str:
        return f"<transpose of {self._call}>"

    def tree_flatten(self) -> tuple[list[Any], tuple[Any, ...]]:
        """Closed-over values and structure."""
        return list(self._values), (self._call, self._jaxpr, self._trees, self._axes)

    @classmethod
    def tree_unflatten(cls, structure: tuple[Any, ...], values: Sequence[Any]) -> Transposed:
        """The transpose of a structure and values."""
        call, jaxpr, trees, axes = structure
        return cls(call, jaxpr, trees, axes, list(values))


register_pytree_node_class(Transposed)


def _check_transposable(call: str, jaxpr: Jaxpr) -> None:
    """Raise LinearityError unless all arguments and results are inexact, or all are integers."""
    avals = [*jaxpr.in_avals, *jaxpr.out_avals]
    if all([is_inexact(a.dtype) for a in avals]) or all([is_integer(a.dtype) for a in avals]):
        return
    ins, outs = (
        ", ".join([a.str_short() for a in group]) for group in (jaxpr.in_avals, jaxpr.out_avals)
    )
    raise LinearityError(
        f"{call}: the function maps ({ins}) to ({outs})",
        expected="floating or complex arguments and results, or integers throughout",
    )


def transpose_linear(
    call: str, jaxpr: Jaxpr, cotangents: Sequence[Value | None], primals: Sequence[Value] = ()
) -> list[Value | None]:
    """Cotangents of the inputs of a Jaxpr behind the ``primals`` ones; it is linear in them."""
    process = current_trace().process
    n = jaxpr.n_in - len(primals)
    flags = [*[False] * len(primals), *[True] * n]
    linear, results = linear_tape(jaxpr, flags, [*primals, *[None] * n], process)
    if any([r is not None and _is_nonzero(r) for r in results]):
        raise LinearityError(
            f"{call}: a result does not depend on the arguments, and is not zero",
            hint="a linear function maps zeros to zeros",
        )
    try:
        return backward(linear, cotangents, process)
    except (MissingRuleError, LinearityError) as error:
        raise LinearityError(
            f"{call}: the function is not linear in its arguments, because of {error.primitive}",
            hint="use vjp, which linearizes the function first",
        ) from error


def _is_nonzero(x: Value) -> bool:
    """Whether a constant is known, and is not zero."""
    return not isinstance(x, Tracer) and bool(np.any(np.asarray(x) != 0))


def fwd_and_bwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The forward and the backward pass of ``fun`` as two functions.

    Other than with ``vjp`` the backward function is the same object for all calls, so that it is
    compiled once.

    Args:
        fun: function of arrays and trees of arrays; with ``has_aux`` it returns a pair
            ``(result, auxiliary data)``.
        argnums: position, or positions, of the arguments to differentiate.
        has_aux: see ``fun``.
        jitted: compile both.

    Returns:
        ``(fwd, bwd)``. ``fwd`` takes the arguments of ``fun`` and gives ``(result, residuals)``,
        with ``has_aux`` also the auxiliary data. ``bwd(residuals, cotangent)`` gives the cotangent
        of the differentiated argument, or a tuple of them if ``argnums`` is a sequence.

    >>> import tracebridge as tb
    >>> fwd, bwd = tb.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> value, residuals = fwd(2.0, 3.0)
    >>> x_bar, y_bar = bwd(residuals, 1.0)
    >>> print(value, x_bar, y_bar)
    6.0 3.0 2.0
    """
    check_callable("fwd_and_bwd", fun)
    nums = derivative_argnums("fwd_and_bwd", argnums)
    highest = max([i + 1 if i >= 0 else -i for i in nums], default=0)

    @named_like(fun)
    def fwd(*args: Any, **kwargs: Any) -> Any:
        check_argument_count("fwd_and_bwd", fun, argnums, highest, len(args))

        def of_chosen(*chosen: Any) -> Any:
            arguments = list(args)
            for i, x in zip(nums, chosen, strict=True):
                arguments[i] = x
            return fun(*arguments, **kwargs)

        return vjp(named_like(fun)(of_chosen), *[args[i] for i in nums], has_aux=has_aux)

    single = hasattr(argnums, "__index__")

    def bwd(residuals: Pullback, cotangent: Any) -> Any:
        gradients = residuals(cotangent)
        return gradients[0] if single else gradients

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
