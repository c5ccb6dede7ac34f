"""while_loop: repeat a function as long as a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.config.values import option
from tracebridge.core.control.calls.bodies import Body, flatten_values, trace_body
from tracebridge.core.control.calls.carry import check_structure, check_types, promoted, unchanged
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.loops.while_primitive import while_p
from tracebridge.core.control.refs.cells import note_custom
from tracebridge.core.control.refs.ref import Ref, read_ref, write_ref
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
)
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import flatten, leaf_treedef
from tracebridge.core.tree.treedefs import treedef_tuple


def while_loop(
    cond_fun: Callable[..., object], body_fun: Callable[..., object], init_val: object
) -> Any:
    """Apply ``body_fun`` again and again, as long as ``cond_fun`` of the value holds.

    Both functions are traced once. The loop can be differentiated in forward mode and batched: a
    batch runs until all elements are done. Use ``scan``, or ``fori_loop`` between Python
    integers, where gradients are needed.

    Args:
        cond_fun: ``value -> bool``, a scalar.
        body_fun: ``value -> value``, of the same structure, shapes and dtypes.
        init_val: the first value, a tree of arrays and numbers; Python numbers take the dtype
            that the body returns.

    Returns:
        The first value for which the condition does not hold.

    Raises:
        ArgumentSpecError: the condition returns no scalar bool, or an argument is no function.
        TreeMismatchError: the body returns another structure.
        ShapeMismatchError, DtypeMismatchError: it returns other shapes or dtypes.

    >>> import tracebridge as tb
    >>> int(tb.lax.while_loop(lambda n: n < 100, lambda n: n * 2, 1))
    128
    """
    return run_while("while_loop", cond_fun, body_fun, None, init_val)


def run_while(
    call: str,
    cond_fun: Callable[..., object],
    body_fun: Callable[..., object],
    apply: Callable[..., Any] | None,
    init_val: object,
) -> Any:
    """``while_loop`` under the name ``call``; the body is ``apply(body_fun, value)`` if given."""
    for role, fun in (("cond_fun", cond_fun), ("body_fun", body_fun)):
        if not callable(fun):
            msg = f"{call}: {role} is {fun!r} of type {type(fun).__name__}, expected a function"
            raise ArgumentSpecError(msg)
    init, tree = flatten_values(call, "init_val", init_val)
    if option("disable_jit"):
        try:
            return _python_loop(call, cond_fun, body_fun, apply, tree.unflatten(unchanged(init)))
        except _UndecidedError:
            pass  # under vmap, say, there is no single answer: the loop is traced
    body, init = _traced_body(call, body_fun, apply, init, tree)
    in_tree = treedef_tuple((tree,))
    avals = tuple([v.aval for v in init])

    def test(result: object) -> tuple[list[Any], Any]:
        return [_checked_test(call, cond_fun, result)], leaf_treedef

    role = "while_cond" if call == "while_loop" else call
    cond = trace_body(call, cond_fun, in_tree, avals, test, f"{call} cond_fun", role=role)
    if not body.writes:
        return tree.unflatten(bind_while(cond.jaxpr, cond.hoisted, body.jaxpr, body.hoisted, init))
    # The contents of references that the body writes are carries too.
    test_jaxpr, test_consts = _seeing(cond, body.writes)
    state = [*init, *[read_ref(r) for r in body.writes]]
    results = bind_while(test_jaxpr, test_consts, body.jaxpr, body.hoisted, state)
    for ref, value in zip(body.writes, results[len(init) :], strict=True):
        write_ref(ref, value)
    return tree.unflatten(results[: len(init)])


def _seeing(cond: Body, writes: Sequence[Ref]) -> tuple[Jaxpr, list[Any]]:
    """The condition with the contents of ``writes`` as last carries, and its constants."""
    consts = cond.hoisted
    n_values = len(consts) - len(cond.reads)
    order: list[Any] = list(range(n_values))
    kept = list(consts[:n_values])
    carried: list[Any] = [r.inner_aval for r in writes]
    for i, ref in enumerate(cond.reads):
        at = next((k for k, written in enumerate(writes) if written is ref), None)
        if at is None:
            order.append(n_values + i)
            kept.append(consts[n_values + i])
        else:
            carried[at] = n_values + i
    order = [*order, *range(len(consts), cond.jaxpr.n_in), *carried]
    return permute_jaxpr(cond.jaxpr, order), kept


def bind_while(
    cond: Jaxpr,
    cond_consts: Sequence[Any],
    body: Jaxpr,
    body_consts: Sequence[Any],
    init: Sequence[Any],
) -> list[Any]:
    """Bind while; carries that no step changes become constants."""
    n_cond, n_body = len(cond_consts), len(body_consts)
    fixed = [k for k in range(len(init)) if body.outs[k] == n_body + k]
    loose = [k for k in range(len(init)) if k not in fixed]
    if fixed:
        order = [*fixed, *loose]
        body = _remembered(
            body,
            ("while_fixed_body", n_body, len(init)),
            lambda: permute_jaxpr(
                body,
                [*range(n_body), *[n_body + k for k in order]],
                [body.outs[k] for k in loose],
            ),
        )
        cond = _remembered(
            cond,
            ("while_fixed_cond", n_cond, tuple(order)),
            lambda: permute_jaxpr(cond, [*range(n_cond), *[n_cond + k for k in order]]),
        )
        values = [init[k] for k in fixed]
        cond_consts, body_consts = [*cond_consts, *values], [*body_consts, *values]
    results = while_p.bind(
        *cond_consts,
        *body_consts,
        *[init[k] for k in loose],
        body_jaxpr=body,
        cond_jaxpr=cond,
        cond_nconsts=len(cond_consts),
        body_nconsts=len(body_consts),
    )
    carry = unchanged(init)
    for k, value in zip(loose, results, strict=True):
        carry[k] = value
    return carry


def _remembered(jaxpr: Jaxpr, key: object, make: Callable[[], Jaxpr]) -> Jaxpr:
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = make()
    return found


def _traced_body(
    call: str,
    body_fun: Callable[..., object],
    apply: Callable[..., Any] | None,
    init: list[Any],
    tree: Any,
) -> tuple[Body, list[Any]]:
    in_tree = treedef_tuple((tree,))

    def take_apart(result: object) -> tuple[list[Any], Any]:
        values, returned = flatten_values(call, "the returned value", result)
        check_structure(call, tree, returned)
        return values, returned

    role = "while_body" if call == "while_loop" else call

    def trace() -> Body:
        avals = tuple([v.aval for v in init])
        return trace_body(
            call, body_fun, in_tree, avals, take_apart, call, apply, writes=True, role=role
        )

    body = trace()
    n = len(init)
    while fitted := promoted(init, [v.aval for v in init], body.jaxpr.out_avals[:n]):
        init = fitted
        body = trace()
    if body.custom:
        note_custom(call)
    check_types(call, tree, [v.aval for v in init], body.jaxpr.out_avals[:n])
    return body, init


def _checked_test(call: str, cond_fun: Callable[..., object], result: object) -> Any:
    """The result of the condition: one scalar bool."""
    leaves, tree = flatten(result)
    if tree != leaf_treedef:
        got = f"a tree {tree}"
    else:
        value = as_value(leaves[0])
        if not value.aval.ndim and value.aval.dtype == bool:
            return value
        got = value.aval.str_short()
    msg = f"{call}: cond_fun {name_of(cond_fun)} returned {got}, expected a scalar bool"
    raise ArgumentSpecError(msg, hint="compare, or reduce with tracebridge.numpy.any or all")


class _UndecidedError(Exception):
    """The condition of a loop that runs step by step is a traced value."""


def _python_loop(
    call: str,
    cond_fun: Callable[..., object],
    body_fun: Callable[..., object],
    apply: Callable[..., Any] | None,
    value: object,
) -> Any:
    """The loop step by step, as option disable_jit asks for.

    The functions get arrays, as in the traced loop: a NumPy array would be changed by ``x += 1``.
    """
    while True:
        test = cond_fun(value)
        if isinstance(_checked_test(call, cond_fun, test), Tracer):
            raise _UndecidedError
        if not test:
            return value
        value = body_fun(value) if apply is None else apply(body_fun, value)
        values, tree = flatten_values(call, "the returned value", value)
        value = tree.unflatten(unchanged(values))
