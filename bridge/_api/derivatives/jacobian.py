"""Whole Jacobians: jacfwd, jacrev, hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import tracebridge.core.lax as lax
from tracebridge._api.args.argnums import check_argument_count
from tracebridge._api.args.flat import FlatCall
from tracebridge._api.args.values import differentiable, name_of_leaf, public, spread, values_of
from tracebridge._api.args.wraps import named_like
from tracebridge._api.derivatives.grad import GradOptions, check_input, check_output
from tracebridge.core.dtypes.dtypes import complexes, float0, floats
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import GradientTypeError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.values import Value
from tracebridge.core.lax.ad_util import float0_of, full_of, zeros_of
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.tree.tree import PyTreeDef, flatten

P = ParamSpec("P")
# The first lines of the documentation of the functions that are made here.
_DOC = (
    "Jacobian of {{fun}} by its positional argument(s) {1}, in {0} mode.\n\n"
    "Takes the arguments of {{fun}}; the shape of an array of the result is that of the result of "
    "{{fun}} followed by that of the argument."
)


def jacfwd(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """A function that computes the Jacobian of ``fun`` column by column, in forward mode.

    Cheaper than ``jacrev`` where there are fewer inputs than outputs.

    Args:
        fun: function of real arrays and trees of them; with ``has_aux`` it returns a pair
            ``(result, auxiliary data)``.
        argnums: position, or positions, of the arguments to differentiate.
        has_aux: see ``fun``.
        holomorphic: ``fun`` is complex-differentiable: arguments and results are complex.

    Returns:
        A function with the arguments of ``fun``. Its result has the structure of the result of
        ``fun``, with a tree like the argument in place of each leaf (a tuple of trees if
        ``argnums`` is a sequence). Each array has the shape of the result's leaf followed by that
        of the argument's leaf. With ``has_aux`` a pair of that and the auxiliary data.

    Raises:
        GradientTypeError: an argument or result has a wrong dtype.
        ArgumentSpecError: the call gives too few positional arguments for ``argnums``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.jacfwd(lambda x: x * x)(tnp.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    options = GradOptions("jacfwd", fun, argnums, has_aux, holomorphic, False)

    @named_like(fun, _DOC.format("forward", argnums))
    def jacfwd_f(*args: Any, **kwargs: Any) -> Any:
        flat, values = _flat_call(options, args, kwargs, _check_forward_input)
        outs, columns = _pushed_forward(options, flat, values)
        n = flat.n_out
        for i, out in enumerate(outs[:n]):
            if holomorphic and out.aval.dtype not in complexes:
                check_output(options, out.aval, _result_name(options, flat, i))
        avals = [v.aval for v in values]
        rows = [
            flat.tree.unflatten(_columns_by_leaf(c, out.aval, avals))
            for out, c in zip(outs[:n], columns, strict=True)
        ]
        jacobian = _assembled(flat, rows, values)
        return (jacobian, flat.aux(outs[n:])) if has_aux else jacobian

    return api_boundary(jacfwd_f)


def jacrev(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """A function that computes the Jacobian of ``fun`` row by row, in reverse mode.

    Cheaper than ``jacfwd`` where there are fewer outputs than inputs.

    Args:
        fun: function of arrays and trees of them with real results; with ``has_aux`` it returns
            a pair ``(result, auxiliary data)``.
        argnums: position, or positions, of the arguments to differentiate.
        has_aux: see ``fun``.
        holomorphic: ``fun`` is complex-differentiable: arguments and results are complex.
        allow_int: integer and boolean arguments get derivatives of dtype ``float0``.

    Returns:
        A function with the arguments of ``fun``; its result is described at ``jacfwd``.

    Raises:
        GradientTypeError: an argument or result has a wrong dtype.
        ArgumentSpecError: the call gives too few positional arguments for ``argnums``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.jacrev(lambda x: x * x)(tnp.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    options = GradOptions("jacrev", fun, argnums, has_aux, holomorphic, allow_int)

    @named_like(fun, _DOC.format("reverse", argnums))
    def jacrev_f(*args: Any, **kwargs: Any) -> Any:
        flat, values = _flat_call(options, args, kwargs, check_input)
        outs, rows = _pulled_back(options, flat, values)
        n = flat.n_out
        trees: list[Any] = []
        start = 0
        for out in outs[:n]:
            stop = start + out.aval.size
            parts = [
                _rows(r, (start, stop), out.aval, v.aval) for r, v in zip(rows, values, strict=True)
            ]
            trees.append(flat.tree.unflatten(parts))
            start = stop
        jacobian = _assembled(flat, trees, values)
        return (jacobian, flat.aux(outs[n:])) if has_aux else jacobian

    return api_boundary(jacrev_f)


jacobian = jacrev


def hessian(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """A function that computes the matrix of second derivatives of ``fun``.

    Args:
        fun: as in ``jacfwd``; usually with one scalar result.
        argnums: as in ``jacfwd``.
        has_aux: as in ``jacfwd``.
        holomorphic: as in ``jacfwd``.

    Returns:
        A function with the arguments of ``fun``. Its result is that of ``jacfwd(jacrev(fun))``:
        each array has the shapes of the result's leaf and of two of the argument's leaves.

    Raises:
        GradientTypeError: an argument or result has a wrong dtype.
        ArgumentSpecError: the call gives too few positional arguments for ``argnums``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.hessian(lambda x: x[0] * x[1])(tnp.array([1.0, 2.0])))
    [[0. 1.]
     [1. 0.]]
    """
    first = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(first, argnums, has_aux=has_aux, holomorphic=holomorphic)


def _flat_call(
    options: GradOptions,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    check: Callable[[GradOptions, ShapedArray, PyTreeDef, int], None],
) -> tuple[FlatCall, list[Value]]:
    """The call as a flat function of the differentiated arguments, and their values."""
    if len(args) < options.highest or not options.single:
        check_argument_count(options.call, options.fun, options.argnums, options.highest, len(args))
    nums = options.nums
    chosen = args[nums[0]] if options.single else tuple([args[i] for i in nums])
    leaves, tree = flatten(chosen)
    values = values_of(options.label, leaves, tree, options.root)
    for i, value in enumerate(values):
        if value.aval.dtype not in floats or options.holomorphic:
            check(options, value.aval, tree, i)
    positions = nums[0] if options.single else nums
    flat = FlatCall(options.fun, tree, positions, args, kwargs, has_aux=options.has_aux)
    return flat, values


def _assembled(flat: FlatCall, trees: list[Any], values: Sequence[Value]) -> Any:
    """The tree of the result with derivatives for leaves; float0 leaves get some too."""
    template, full = flatten(flat.out_tree.unflatten([0] * len(trees)))
    if full.num_leaves == len(trees):
        return flat.out_tree.unflatten(trees)
    given = iter(trees)
    return full.unflatten(
        [
            next(given)
            if type(leaf) is int
            else flat.tree.unflatten([float0_of((*leaf.shape, *v.aval.shape)) for v in values])
            for leaf in template
        ]
    )


def _check_forward_input(
    options: GradOptions, aval: ShapedArray, tree: PyTreeDef, index: int
) -> None:
    """Forward mode needs real arguments, or complex ones if the function is holomorphic."""
    if options.holomorphic and aval.dtype in complexes:
        return
    expected, hint = "a real floating dtype", "convert it to a float dtype, or use jvp"
    if options.holomorphic:
        expected, hint = "a complex dtype, because holomorphic=True", "leave holomorphic out"
    elif aval.dtype in complexes:
        hint = "pass holomorphic=True if the function is holomorphic, else use jvp"
    raise GradientTypeError(
        f"{options.label}: {name_of_leaf(tree, index, options.root)} is {aval.str_short()}",
        expected=expected,
        hint=hint,
    )


def _result_name(options: GradOptions, flat: FlatCall, index: int) -> str:
    where = name_of_leaf(flat.out_tree, index, "")
    return f"{options.label}{' at ' + where if where else ''}"


def _basis(avals: Sequence[ShapedArray]) -> tuple[list[Value], int]:
    """All unit vectors of a list of arrays, stacked along a leading axis, and their number."""
    n = sum([a.size for a in avals])
    if n == 1 and len(avals) == 1:
        return [full_of(batched_aval(avals[0], 1), 1)], 1
    parts: list[Value] = []
    start = 0
    for a in avals:
        rows = lax.broadcasted_iota("int32", (n, a.size), 0)
        columns = lax.broadcasted_iota("int32", (n, a.size), 1)
        ones = lax.eq(rows, lax.add(columns, start) if start else columns)
        units = lax.convert_dtype(ones, a.dtype, a.weak_type)
        parts.append(lax.reshape(units, (n, *a.shape)))
        start += a.size
    return parts, n


def _pushed_forward(
    options: GradOptions, flat: FlatCall, values: Sequence[Value]
) -> tuple[list[Value], list[Value | None]]:
    """Results, and per leaf of the result its derivatives along all inputs, stacked at the end.

    The derivative is ``None`` where it is zero.
    """
    basis, n = _basis([v.aval for v in values])
    present: list[bool] = []
    n_outs: list[int] = []

    def push(*tangents: Any) -> list[Any]:
        outs, out_tangents = jvp_flat(flat.call, values, tangents)
        own_tangents = out_tangents[: flat.n_out]
        present.extend(t is not None for t in own_tangents)
        n_outs.append(len(outs))
        return [*outs, *[t for t in own_tangents if t is not None]]

    results, dims = batch_flat(push, basis, [0] * len(basis), n, label=options.label)
    outs = results[: n_outs[0]]
    stacked: list[Value] = []
    for t, d in zip(results[n_outs[0] :], dims[n_outs[0] :], strict=True):
        end = t.aval.ndim - (d is not None)
        stacked.append(broadcast_batch(t, n, end) if d is None else move_batch_axis(t, d, end))
    remaining_stacked = iter(stacked)
    return outs, [next(remaining_stacked) if here else None for here in present]


def _columns_by_leaf(
    columns: Value | None, out: ShapedArray, inputs: Sequence[ShapedArray]
) -> list[Any]:
    """The derivatives of one result by leaf of the inputs."""
    parts: list[Any] = []
    start = 0
    for a in inputs:
        shape = (*out.shape, *a.shape)
        stop = start + a.size
        if out.tangent.dtype == float0:
            parts.append(float0_of(shape))
        elif columns is None:
            parts.append(public(zeros_of(out.update(shape=shape, dtype=out.tangent.dtype))))
        else:
            part = columns
            if len(inputs) > 1:
                part = lax.slice_in_dim(columns, start, stop, axis=out.ndim)
            parts.append(lax.reshape(part, shape))
        start = stop
    return parts


def _pulled_back(
    options: GradOptions, flat: FlatCall, values: Sequence[Value]
) -> tuple[list[Value], Sequence[Value | None]]:
    """Results, and per leaf of the inputs the derivatives of all results, stacked in front."""
    flags = differentiable(values)
    outs, linear = linearize_flat(flat.call, values, flags, options.label)
    for i, out in enumerate(outs[: flat.n_out]):
        if out.aval.dtype not in floats or options.holomorphic:
            check_output(options, out.aval, _result_name(options, flat, i))
    basis, n = _basis([o.aval for o in outs[: flat.n_out]])
    no_gradients = [None] * (len(outs) - flat.n_out)
    present: list[bool] = []

    def pull(*cotangents: Any) -> list[Any]:
        grads = backward(linear, [*cotangents, *no_gradients], current_trace().process)
        present.extend(g is not None for g in grads)
        return [g for g in grads if g is not None]

    results, dims = batch_flat(pull, basis, [0] * len(basis), n)
    remaining_gradients = iter(
        [
            broadcast_batch(g, n, 0) if d is None else move_batch_axis(g, d, 0)
            for g, d in zip(results, dims, strict=True)
        ]
    )
    return outs, spread([next(remaining_gradients) if here else None for here in present], flags)


def _rows(rows: Value | None, part: tuple[int, int], out: ShapedArray, aval: ShapedArray) -> Any:
    """The derivatives of one result by one leaf of the inputs."""
    shape = (*out.shape, *aval.shape)
    if aval.tangent.dtype == float0:
        return float0_of(shape)
    if rows is None:
        return public(zeros_of(aval.update(shape=shape, dtype=aval.tangent.dtype)))
    if part != (0, rows.aval.shape[0]):
        rows = lax.slice_in_dim(rows, *part, axis=0)
    return lax.reshape(rows, shape)
