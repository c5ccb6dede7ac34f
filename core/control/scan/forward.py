"""The function scan: arguments, tracing of the body, checks."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.control.calls.bodies import Body, flatten_values, leaf_paths, trace_body
from tracebridge.core.control.calls.carry import check_structure, check_types, promoted, unchanged
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.refs.cells import is_differentiated, note_custom
from tracebridge.core.control.refs.ref import has_refs, read_ref, write_ref
from tracebridge.core.control.scan.primitive import scan_p
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    ShardingTypeError,
)
from tracebridge.core.ir.aval import ShapedArray, element_aval
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.user_type import element_of_users, is_user_type
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.treedefs import treedef_tuple


def scan(
    f: Callable[..., object],
    init: object,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Loop over the leading axis of arrays, carrying a value from step to step.

    The body is traced once, whatever the length, and the loop can be differentiated in both modes.

    Args:
        f: the body, ``(carry, x) -> (carry, y)``. ``x`` has the structure of ``xs`` without the
            leading axis; ``y`` is a tree of arrays, or None.
        init: the first carry, a tree of arrays and numbers. The body returns a carry of the same
            structure, shapes and dtypes; Python numbers take the dtype that the body returns.
        xs: tree of arrays whose leading axes have one size, the number of steps; or None.
        length: number of steps; needed if ``xs`` has no arrays.
        reverse: start with the last slice; the ys stay in the order of the xs.
        unroll: how many steps stand in one round of the compiled loop; True for all of them.

    Returns:
        The last carry, and the ys with a new leading axis of size ``length``: a pair of the kind
        that the body returns, a tuple, a list or a named tuple.

    Raises:
        AxisSizeError: the leading axes and ``length`` disagree, or there is none.
        TreeMismatchError: the body returns a carry of another structure.
        ShapeMismatchError, DtypeMismatchError: it returns a carry of other shapes or dtypes.
        ArgumentSpecError: ``f`` is no function or does not return a pair, or ``unroll`` is wrong.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> total, partial = tb.lax.scan(lambda c, x: (c + x, c + x), 0.0, tnp.arange(4.0))
    >>> float(total), partial.tolist()
    (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    return run_scan(
        "scan", f, None, init, xs, length, reverse, unroll=unroll, split_transpose=_split_transpose
    )


def run_scan(
    call: str,
    f: Callable[..., Any],
    apply: Callable[..., Any] | None,
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool = False,
    *,
    unroll: int | bool = 1,
    split_transpose: bool = False,
) -> Any:
    """``scan`` under the name ``call``; the body is ``apply(f, carry, x)`` if that is given."""
    if not callable(f):
        msg = f"{call}: f is {f!r} of type {type(f).__name__}, expected a function"
        raise ArgumentSpecError(msg)
    leaves, tree = flatten(xs)
    if has_refs(leaves):
        f, xs = _over_refs(call, f, apply, leaves, tree)
        apply = None
    init_values, init_tree = flatten_values(call, "init", init)
    xs_values, xs_tree = flatten_values(call, "xs", xs)
    steps = number_of_steps(call, xs, xs_values, length)
    rounds = checked_unroll(call, unroll, steps)
    if option("disable_jit"):
        body = f if apply is None else functools.partial(apply, f)
        if type(steps) is int and steps == 0:
            msg = f"{call}: no step to take, so that the types of the ys are unknown: "
            msg += "option disable_jit leaves the body untraced"
            raise ArgumentSpecError(msg, hint="run it without disable_jit")
        first = init_tree.unflatten(unchanged(init_values))
        return _python_loop(call, body, first, xs_values, xs_tree, steps, reverse)
    slices = [_slice(call, v.aval, steps) for v in xs_values]
    traced, init_values = _traced(call, f, apply, init_values, init_tree, slices, xs_tree)
    if traced.custom:
        if is_differentiated() and type(steps) is int and steps:
            # Each step for itself, so that the custom rules run and find the references.
            body = f if apply is None else functools.partial(apply, f)
            return _python_loop(call, body, init, xs_values, xs_tree, steps, reverse)
        note_custom(call)
    n_carry = len(init_values)
    jaxpr, hoisted = traced.jaxpr, traced.hoisted
    if traced.writes:
        # The contents of references that the body writes are carries too.
        jaxpr = carried_refs(jaxpr, len(hoisted), n_carry, len(traced.writes))
        init_values = [*init_values, *[read_ref(r) for r in traced.writes]]
    results = bind_scan(
        jaxpr,
        hoisted,
        init_values,
        xs_values,
        length=steps,
        reverse=bool(reverse),
        unroll=rounds,
        split_transpose=bool(split_transpose),
    )
    carry_tree, ys_tree, pair = traced.out
    for ref, value in zip(traced.writes, results[n_carry:], strict=False):
        write_ref(ref, value)
    ys = results[len(init_values) :]
    return pair((carry_tree.unflatten(results[:n_carry]), ys_tree.unflatten(ys)))


def _slice(call: str, aval: Any, steps: Any) -> Any:
    """The type of what one step gets of the xs."""
    if is_user_type(aval):
        return element_of_users(aval, steps, 0)
    return element_aval(_whole(call, aval))


def _whole(call: str, aval: ShapedArray) -> ShapedArray:
    """``aval``, the axis along which steps go is not split: they are on the same devices.

    Raises:
        ShardingTypeError: it is.
    """
    if aval.split is not None and aval.split.spec[0] is not None:
        raise ShardingTypeError(
            f"{call}: the first axis of xs, along which steps go, is split: {aval.str_short()}",
            hint="reshard it first: tracebridge.sharding.reshard",
        )
    return aval


def carried_refs(jaxpr: Jaxpr, n_consts: int, n_carry: int, n_refs: int) -> Jaxpr:
    """A body (consts, carry, xs, contents) -> (carry, ys, contents) with contents as carries."""
    key = ("scan_refs", n_consts, n_carry, n_refs)
    found = jaxpr.cache.get(key)
    if found is None:
        first, last = n_consts + n_carry, jaxpr.n_in - n_refs
        order = [*range(first), *range(last, jaxpr.n_in), *range(first, last)]
        outs, end = jaxpr.outs, len(jaxpr.outs) - n_refs
        variables = [*outs[:n_carry], *outs[end:], *outs[n_carry:end]]
        found = jaxpr.cache[key] = permute_jaxpr(jaxpr, order, variables)
    return found


def _over_refs(
    call: str, f: Callable[..., Any], apply: Callable[..., Any] | None, leaves: list[Any], tree: Any
) -> tuple[Callable[..., Any], Any]:
    """A body and xs without references: the body gets the part of each at the number of a step."""
    refs = [(i, leaf) for i, leaf in enumerate(leaves) if has_refs([leaf])]
    shapes = {f"xs leaf {i}": ref.shape for i, ref in refs}
    sizes = {shape[0] for shape in shapes.values() if shape}
    if len(sizes) != 1 or not all(shapes.values()):
        msg = f"{call}: references to loop over have shapes {shapes}, expected equal leading axes"
        raise AxisSizeError(msg)
    (size,) = sizes

    def body(carry: Any, x: Any) -> Any:
        step, slices = x
        shapes = list(slices)
        for i, ref in refs:
            shapes.insert(i, ref.at[step])
        args = carry, tree.unflatten(shapes)
        return f(*args) if apply is None else apply(f, *args)

    arrays = [leaf for leaf in leaves if not has_refs([leaf])]
    return body, (lax.iota("int32", size), arrays)


def bind_scan(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    init: Sequence[Any],
    xs: Sequence[Any],
    *,
    length: object,
    reverse: bool = False,
    unroll: int = 1,
    split_transpose: bool = False,
) -> list[Any]:
    """Bind scan; carries that no step changes become constants of the loop."""
    n_consts, n_carry = len(consts), len(init)
    fixed = [k for k in range(n_carry) if jaxpr.outs[k] == n_consts + k]
    if fixed:
        loose = [k for k in range(n_carry) if k not in fixed]
        key = ("scan_fixed", n_consts, n_carry)
        smaller = jaxpr.cache.get(key)
        if smaller is None:
            order = [
                *range(n_consts),
                *[n_consts + k for k in (*fixed, *loose)],
                *range(n_consts + n_carry, jaxpr.n_in),
            ]
            outs = [jaxpr.outs[k] for k in loose]
            smaller = permute_jaxpr(jaxpr, order, [*outs, *jaxpr.outs[n_carry:]])
            jaxpr.cache[key] = smaller
        jaxpr, consts = smaller, [*consts, *[init[k] for k in fixed]]
    else:
        loose = list(range(n_carry))
    results = scan_p.bind(
        *consts, *[init[k] for k in loose], *xs,
        jaxpr=jaxpr, length=length, reverse=reverse, unroll=unroll,
        num_consts=len(consts), num_carry=len(loose), split_transpose=split_transpose,
    )  # fmt: skip
    carry = unchanged(init)
    for k, value in zip(loose, results, strict=False):
        carry[k] = value
    return [*carry, *results[len(loose) :]]


def _traced(
    call: str,
    f: Callable[..., object],
    apply: Callable[..., Any] | None,
    init: list[Any],
    init_tree: Any,
    slices: list[ShapedArray],
    xs_tree: Any,
) -> tuple[Body, list[Any]]:
    """The body, and the initial carry with Python numbers in the dtype of the loop."""
    in_tree = treedef_tuple((init_tree, xs_tree))

    def take_apart(result: object) -> tuple[list[Any], Any]:
        return _pair(call, f, result, init_tree)

    def trace() -> Body:
        avals = (*[v.aval for v in init], *slices)
        return trace_body(call, f, in_tree, avals, take_apart, call, apply, writes=True)

    n_carry = len(init)
    body = trace()
    while fitted := promoted(init, [v.aval for v in init], body.jaxpr.out_avals[:n_carry]):
        init = fitted
        body = trace()
    check_types(call, init_tree, [v.aval for v in init], body.jaxpr.out_avals[:n_carry])
    return body, init


def _pair(
    call: str, f: Callable[..., object], result: object, init_tree: object
) -> tuple[list[Any], Any]:
    """Flat carry and ys of what the body returned; their trees, and what made them a pair."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        msg = (
            f"{call}: the body {name_of(f)} returned {kind_of(result)}, expected a pair (carry, y)"
        )
        raise ArgumentSpecError(msg, hint="return (carry, None) if there are no ys to stack")
    carry, carry_tree = flatten_values(call, "the returned carry", result[0])
    check_structure(call, init_tree, carry_tree)
    ys, ys_tree = flatten_values(call, "the returned y", result[1])
    pair = list if isinstance(result, list) else getattr(type(result), "_make", tuple)
    return [*carry, *ys], (carry_tree, ys_tree, pair)


def number_of_steps(call: str, xs: Any, values: Sequence[Any], length: Any) -> Any:
    """The common size of the leading axes, or ``length``."""
    sizes: dict[Any, Any] = {}
    for i, value in enumerate(values):
        if is_user_type(value.aval):
            continue  # only arrays say how many slices there are
        if not value.aval.ndim:
            name = f"xs{leaf_paths(xs)[i]}"
            what = f"{name} is a scalar {value.aval.str_short()}"
            msg = f"{call}: {what}, it has no leading axis to loop over"
            raise AxisSizeError(msg, hint="close over values that are the same in each step")
        sizes.setdefault(value.aval.shape[0], i)
    if isinstance(length, Tracer):
        hint = "loop with fori_loop or while_loop if the number of steps is computed"
        raise ConcretizationTypeError(length, f"{call} needs its length as a number", hint=hint)
    if length is not None:
        length = _as_length(call, length)
        sizes.setdefault(length, "length")
    if len(sizes) > 1:
        paths = leaf_paths(xs)
        shown_sizes = ", ".join(
            [
                f"length is {size}" if i == "length" else f"xs{paths[i]} has {size}"
                for size, i in sizes.items()
            ]
        )
        msg = f"{call}: the sizes of the leading axes disagree: {shown_sizes}"
        raise AxisSizeError(msg)
    if not sizes:
        msg = f"{call}: got neither arrays to loop over (xs) nor a length; must provide `length`"
        raise AxisSizeError(msg, hint="pass length")
    return next(iter(sizes))


def _as_length(call: str, length: Any) -> Any:
    if getattr(length, "is_symbolic_dim", False):
        return length
    try:
        floating = isinstance(length, float | np.floating)
        number: Any = int(length) if floating and length.is_integer() else length
        steps = operator.index(number)
    except TypeError:
        msg = f"{call}: length is {length!r}, expected an integer"
        raise ArgumentSpecError(msg) from None
    if steps < 0:
        msg = f"{call}: length is {steps}, expected at least 0"
        raise AxisSizeError(msg)
    return steps


def checked_unroll(call: str, unroll: Any, steps: object) -> int:
    """The number of steps per round."""
    if isinstance(unroll, Tracer):
        raise ConcretizationTypeError(unroll, f"{call} needs unroll as a number or a bool")
    if isinstance(unroll, bool):
        if not unroll:
            return 1
        if type(steps) is not int:
            msg = f"{call}: unroll=True needs a length that is a number, got {steps}"
            raise ArgumentSpecError(msg)
        return max(steps, 1)
    try:
        rounds = operator.index(unroll)
    except TypeError:
        rounds = -1
    if rounds < 0 or (rounds > 1 and type(steps) is not int):
        msg = f"{call}: unroll is {unroll!r}, expected a bool or a positive integer"
        raise ArgumentSpecError(msg)
    return max(rounds, 1)


def _python_loop(
    call: str,
    f: Callable[..., object],
    carry: object,
    xs: Sequence[Any],
    xs_tree: Any,
    steps: Any,
    reverse: bool,
) -> Any:
    """The loop step by step, as option disable_jit asks for.

    The body gets arrays, as in the traced loop: a NumPy array would be changed by ``carry += x``.
    """
    rows: list[list[Any]] = []
    ys_tree: Any = None
    pair: Any = tuple
    order = range(steps - 1, -1, -1) if reverse else range(steps)
    for i in order:
        x = xs_tree.unflatten([lax.index_in_dim(v, i, keepdims=False) for v in xs])
        result = f(carry, x)
        init_tree = flatten_values(call, "the carry", carry)[1]
        flat, (carry_tree, ys_tree, pair) = _pair(call, f, result, init_tree)
        n_carry = carry_tree.num_leaves
        carry = carry_tree.unflatten(unchanged(flat[:n_carry]))
        rows.append(flat[n_carry:])
    if reverse:
        rows.reverse()
    columns = [
        lax.concatenate([lax.expand_dims(v, (0,)) for v in column], 0)
        for column in zip(*rows, strict=True)
    ]
    return pair((carry, ys_tree.unflatten(columns)))
