"""The functions cond and switch: arguments, tracing of the branches, checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.control.branches.cond import cond_p
from tracebridge.core.control.calls.bodies import Body, flatten_values, leaf_values, trace_body
from tracebridge.core.control.calls.inline_rules import describe
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.control.calls.varied_calls import branches_alike
from tracebridge.core.control.refs.cells import note_custom
from tracebridge.core.control.refs.ref import (
    Ref,
    check_passed_once,
    has_refs,
    hide_refs,
    read_ref,
    write_ref,
)
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_extended, is_integer
from tracebridge.core.dtypes.promotion import result_type
from tracebridge.core.errors.dtype_errors import (
    DtypeMismatchError,
    TypePromotionError,
    UnsupportedDtypeError,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.tree.prefix import equality_errors_of_structures
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value
from tracebridge.core.ir.user_type import is_user_type

_NO_OPERAND: Any = object()


def cond(
    pred: object,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: object = _NO_OPERAND,
) -> Any:
    """Apply one of two functions; only that one runs.

    Both are traced once. Under ``vmap`` with a batched ``pred`` both run and the results are
    selected. Both modes of differentiation work.

    Args:
        pred: scalar bool, or a number, which is true unless it is zero.
        true_fun: called with the operands if ``pred`` holds.
        false_fun: called with them otherwise; its results have the structure, shapes and dtypes
            of those of ``true_fun``.
        *operands: trees of arrays and numbers.
        operand: one operand, given by name.

    Raises:
        ArgumentSpecError: ``pred`` is no scalar, or an argument is no function.
        TreeMismatchError, ShapeMismatchError, DtypeMismatchError: the results differ in type.

    >>> import tracebridge as tb
    >>> print(tb.lax.cond(3 > 2, lambda x: x + 1, lambda x: x - 1, 10))
    11
    """
    if not callable(true_fun) and len(operands) == 2 and callable(operands[1]):
        return _with_two_operands(pred, true_fun, false_fun, *operands)
    if operand is not _NO_OPERAND:
        if operands:
            msg = "cond: got operands by position and one by name"
            raise ArgumentSpecError(msg, hint="give all by position")
        operands = (operand,)
    for role, fun in (("true_fun", true_fun), ("false_fun", false_fun)):
        _check_function("cond", role, fun)
    value = _predicate(pred)
    if option("disable_jit") and not isinstance(value, Tracer):
        return (true_fun if pred else false_fun)(*operands)
    if not is_bool(value.aval.dtype):
        value = lax.ne(value, full_of(value.aval, 0))
    index = lax.convert_element_type(value, "int32")
    names = ("false_fun", "true_fun")
    return _call("cond", index, (false_fun, true_fun), names, operands)


def _with_two_operands(pred: Any, x: Value, true_fun: Any, y: Value, false_fun: Any) -> Any:
    """The form ``cond(pred, x, true_fun, y, false_fun)``: each function has its own operand."""
    return cond(pred, lambda ops: true_fun(ops[0]), lambda ops: false_fun(ops[1]), (x, y))


def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: object = _NO_OPERAND,
) -> Any:
    """Apply ``branches[index]``; only that one runs.

    Args:
        index: integer scalar; below 0 it means the first branch, above the last one that one.
        branches: functions whose results have one structure, and the same shapes and dtypes.
        *operands: trees of arrays and numbers, given to the branch.
        operand: one operand, given by name.

    Raises:
        ArgumentSpecError: no branch, or ``index`` is no integer scalar.
        TreeMismatchError, ShapeMismatchError, DtypeMismatchError: the results differ in type.

    >>> import tracebridge as tb
    >>> print(tb.lax.switch(2, [lambda x: x, lambda x: 2 * x, lambda x: 3 * x], 10))
    30
    """
    if operand is not _NO_OPERAND:
        if operands:
            msg = "switch: got operands by position and one by name"
            raise ArgumentSpecError(msg, hint="give all by position")
        operands = (operand,)
    functions = tuple(branches)
    if not functions:
        msg = "switch: got no branches, expected at least one"
        raise ArgumentSpecError(msg)
    for i, fun in enumerate(functions):
        _check_function("switch", f"branches[{i}]", fun)
    value = _as_scalar("switch", "index", index)
    if not is_integer(value.aval.dtype):
        msg = f"switch: index is {value.aval.str_short()}, expected an integer scalar"
        raise ArgumentSpecError(msg)
    if len(functions) == 1:
        return functions[0](*operands)
    last = len(functions) - 1
    if option("disable_jit") and not isinstance(value, Tracer):
        return functions[min(max(int(index), 0), last)](*operands)
    small = lax.clamp(full_of(value.aval, 0), value, full_of(value.aval, _fits(value, last)))
    names = [f"branches[{i}]" for i in range(len(functions))]
    return _call("switch", lax.convert_element_type(small, "int32"), functions, names, operands)


def _fits(value: Value, last: int) -> int:
    """The last index, as far as the dtype of the index can hold it."""
    bits = value.aval.dtype.itemsize * 8
    return min(last, 2 ** (bits - (value.aval.dtype.kind == "i")) - 1)


def _check_function(call: str, role: str, fun: object) -> None:
    if not callable(fun):
        msg = f"{call}: {role} is {fun!r} of type {type(fun).__name__}, expected a function"
        raise ArgumentSpecError(msg)


def _as_scalar(call: str, role: str, x: Operand) -> Any:
    try:
        value = as_value(x)
    except UnsupportedDtypeError as error:
        msg = f"{call}: {role} is {shown(x)} of type {type(x).__name__}, expected a scalar"
        raise ArgumentSpecError(msg) from error
    if value.aval.ndim:
        msg = f"{call}: {role} is {value.aval.str_short()}, expected a scalar"
        raise ArgumentSpecError(msg, hint="reduce it, or select elements with where")
    return value


def _predicate(pred: Any) -> Any:
    value = _as_scalar("cond", "pred", pred)
    if is_extended(value.aval.dtype) or is_complex(value.aval.dtype):
        msg = f"cond: pred is {value.aval.str_short()}, expected a bool or a real number"
        raise ArgumentSpecError(msg)
    return value


# branches ----------------------------------------------------------------------------------------


@final
class Branches:
    """Traced functions that take the same operands and give results of the same types.

    The last of both are the contents of the references that some branch writes.
    """

    __slots__ = ("_written", "jaxprs", "operands", "out_tree")

    def __init__(
        self,
        jaxprs: tuple[Jaxpr, ...],
        operands: Sequence[Value],
        out_tree: Any,
        written: Sequence[Ref],
    ) -> None:
        self.jaxprs = jaxprs
        self.operands = operands
        self.out_tree = out_tree
        self._written = written

    def finish(self, results: Sequence[Any]) -> Any:
        """The tree of the results; references get their last contents."""
        n = len(results) - len(self._written)
        for ref, value in zip(self._written, results[n:], strict=True):
            write_ref(ref, value)
        return self.out_tree.unflatten(results[:n])


def traced_branches(
    call: str,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: Sequence[Value],
) -> Branches:
    """Trace ``functions`` of the same operands; what they close over becomes operands too."""
    leaves, in_tree = flatten(tuple(operands))
    if has_refs(leaves):
        tree = flatten((tuple(operands), {}))[1]
        parameters = parameter_names(functions[0])
        check_passed_once(call, leaves, lambda: argument_names(tree, parameters))
        leaves, in_tree = hide_refs(leaves, in_tree)
        operands = in_tree.unflatten(leaves)
    values, in_tree = leaf_values(call, "operands", operands, leaves, in_tree)
    avals = tuple([v.aval for v in values])

    def take_apart(result: object) -> tuple[list[Any], Any]:
        return flatten_values(call, "the result", result)

    bodies = [trace_body(call, f, in_tree, avals, take_apart, call, writes=True) for f in functions]
    if any([b.custom for b in bodies]):
        note_custom(call)
    written = list({id(r): r for b in bodies for r in b.writes}.values())
    if written:
        bodies = [_writing(b, written) for b in bodies]
    labels = [f"{n} {name_of(f)}" for n, f in zip(names, functions, strict=True)]
    jaxprs = _same_results(call, bodies, labels)
    consts, jaxprs = _same_constants(jaxprs, bodies)
    contents = [read_ref(r) for r in written]
    return Branches(tuple(jaxprs), [*consts, *values, *contents], bodies[0].out, written)


def _writing(body: Body, written: Sequence[Ref]) -> Body:
    """The branch with the contents of all ``written`` as last inputs and results."""
    jaxpr = body.jaxpr
    n = len(body.writes)
    first, end = jaxpr.n_in - n, len(jaxpr.outs) - n
    own = {id(r): k for k, r in enumerate(body.writes)}
    inputs = [first + own[id(r)] if id(r) in own else r.inner_aval for r in written]
    wider = permute_jaxpr(jaxpr, [*range(first), *inputs])
    # A variable that is no input moves with the number of inputs.
    outs = [
        wider.outs[end + own[id(r)]] if id(r) in own else first + k for k, r in enumerate(written)
    ]
    whole = permute_jaxpr(wider, None, [*wider.outs[:end], *outs])
    return Body(whole, body.values, body.out, body.reads, written)


def _call(
    call: str,
    index: Any,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: Sequence[Any],
) -> Any:
    found = traced_branches(call, functions, names, operands)
    jaxprs, values = branches_alike(index.aval.vma, found.jaxprs, found.operands)
    return found.finish(cond_p.bind(index, *values, branches=jaxprs))


def _same_constants(
    jaxprs: Sequence[Jaxpr], bodies: Sequence[Body]
) -> tuple[list[Any], list[Jaxpr]]:
    """Closed-over values of all branches, each once, and branches that take them all."""
    position: dict[int, int] = {}
    consts: list[Any] = []
    for body in bodies:
        for value in body.hoisted:
            if id(value) not in position:
                position[id(value)] = len(consts)
                consts.append(value)
    if not consts:
        return consts, list(jaxprs)
    wired: list[Jaxpr] = []
    for jaxpr, body in zip(jaxprs, bodies, strict=True):
        n = len(body.hoisted)
        order: list[Any] = [c.aval for c in consts]
        for k, value in enumerate(body.hoisted):
            order[position[id(value)]] = k
        places = tuple([position[id(value)] for value in body.hoisted])
        key = ("cond_consts", places, tuple([c.aval for c in consts]))
        cached = jaxpr.cache.get(key)
        if cached is None:
            cached = jaxpr.cache[key] = permute_jaxpr(jaxpr, [*order, *range(n, jaxpr.n_in)])
        wired.append(cached)
    return consts, wired


def _same_results(call: str, bodies: Sequence[Body], labels: Sequence[str]) -> list[Jaxpr]:
    """Branches whose results have the same types; weakly typed ones are converted to others."""
    first = bodies[0]
    for body, label in zip(bodies, labels, strict=True):
        if body.out != first.out:
            differences = equality_errors_of_structures(first.out, body.out)
            where = f"; {differences[0].describe(labels[0], label)}" if differences else ""
            msg = f"{call} branch outputs must have the same pytree structure{where}"
            raise TreeMismatchError(_listed(msg, labels, [str(b.out) for b in bodies]))
    wanted = [_common(avals) for avals in zip(*[b.jaxpr.out_avals for b in bodies], strict=True)]
    if None in wanted:
        rows = zip(*[b.jaxpr.out_avals for b in bodies], strict=True)
        shapes = any([len({getattr(a, "shape", None) for a in avals}) > 1 for avals in rows])
        error = ShapeMismatchError if shapes else DtypeMismatchError
        msg = f"{call}: the branches return different {'shapes' if shapes else 'dtypes'}"
        types = [describe(b.out, b.jaxpr.out_avals[: b.out.num_leaves]) for b in bodies]
        hint = "convert or reshape what one of them returns"
        raise error(_listed(msg, labels, types), hint=hint)
    return [_converted(b.jaxpr, wanted) for b in bodies]


def _listed(message: str, labels: Sequence[str], texts: Sequence[str]) -> str:
    """``message``, and what each branch returns on a line of its own."""
    width = max([len(label) for label in labels])
    rows = [f"    {n:{width}} returns {t}" for n, t in zip(labels, texts, strict=True)]
    return "\n".join([message, *rows])


def _common(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """The type of a result in all branches; None if the branches disagree."""
    strong = [a for a in avals if not a.weak_type]
    model = strong[0] if strong else avals[0]
    if any([is_user_type(a) for a in avals]):
        return model if all([a == model for a in avals]) else None
    if any([a.shape != model.shape for a in avals]):
        return None
    if any([a.dtype != model.dtype for a in strong or avals]):
        return None
    for a in avals:
        if a.dtype != model.dtype:
            try:
                dtype = result_type((a.dtype, True), (model.dtype, False))
            except TypePromotionError:
                return None
            if dtype != model.dtype:
                return None
    return model


def _converted(jaxpr: Jaxpr, wanted: Sequence[Any]) -> Jaxpr:
    """``jaxpr`` with results of the dtypes ``wanted``."""
    dtypes = tuple([w.dtype for w in wanted])
    if dtypes == tuple([a.dtype for a in jaxpr.out_avals]):
        return jaxpr
    key = ("cond_converted", dtypes)
    found = jaxpr.cache.get(key)
    if found is None:

        def run(*args: Any) -> list[Any]:
            outs = eval_jaxpr(jaxpr, current_trace().process, args)
            return [
                o if d is None else lax.convert_element_type(o, d)
                for o, d in zip(outs, dtypes, strict=True)
            ]

        found = jaxpr.cache[key] = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False)
    return found
