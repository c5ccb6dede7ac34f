"""sparsify: functions of dense arrays, applied to sparse ones.

The function is traced for dense arrays of these shapes. Its program then runs equation by
equation; an operation of which an argument is sparse has a rule in a table by primitive. This
transformation is out of tree: primitives do not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import public, values_of
from tracebridge._api.args.wraps import named_like
from tracebridge.core.control.branches.cond import Choice
from tracebridge.core.control.branches.switch import switch
from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.control.custom.custom_rule_call import CustomRuleCall
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.loops.while_primitive import groups, while_p
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.control.scan.primitive import scan_p
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import Trace, current_trace, scoped, use_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.prefix import flatten_asking
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.public_path import public_path
from tracebridge.experimental.sparse import _operators as operators
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import widened
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcsr import BCSR
from tracebridge.experimental.sparse._regions import Region, dense_type, elementwise, settled
from tracebridge.experimental.sparse._sparse_rules import FORMATS, RULES, is_sparse, shown


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """A function of sparse arrays, made of one that is written for dense arrays.

    Args:
        f: function of arrays and trees of arrays, which ``jit`` can trace.
        use_tracer: call ``f`` with ``SparseTracer`` objects, which apply each operation at once,
            instead of running the program that tracing gives.

    Returns:
        A function with the arguments of ``f``, of which any may be sparse. What stays sparse is
        returned as BCOO arrays, and as BCSR arrays where an operation keeps that format.

    Raises:
        UnsupportedArgumentError: at a call: an operation on a sparse array would give a dense one
            or has no sparse form.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> f = sparse.sparsify(lambda m, x: tnp.sin(m).T @ x + 1.0)
    >>> print(f(sparse.eye(2), tnp.array([1.0, 2.0])))
    [1.841471 2.682942]
    """
    check_callable("sparsify", f)
    call = f"sparsify({name_of(f)})"

    @named_like(f)
    def sparse_f(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten_asking((args, kwargs), is_sparse)
        dense = [lax.full((), 0, "int32") if is_sparse(x) else x for x in leaves]
        values = values_of(call, dense, tree, ("args", "kwargs"))
        inputs = [
            _of_known_format(leaf) if is_sparse(leaf) else value
            for leaf, value in zip(leaves, values, strict=True)
        ]
        out_tree: list[PyTreeDef] = []

        def flat(*xs: Any) -> Sequence[Any]:
            a, k = tree.unflatten(xs)
            outs, structure = flatten(f(*a, **k))
            out_tree[:] = [structure]
            return values_of(call, outs, structure, "the result")

        if use_tracer:
            outs = _traced(flat, inputs)
        else:
            outs = _run(stage(flat, [_aval(x) for x in inputs]), inputs)
        outs = [settled(x) for x in outs]
        return out_tree[0].unflatten([x if is_sparse(x) else public(x) for x in outs])

    return api_boundary(sparse_f)


def _of_known_format(mat: Any) -> Any:
    """A sparse array in a format that rules know."""
    return mat if isinstance(mat, BCSR) else operators.as_bcoo(mat)


def _aval(x: Any) -> ShapedArray:
    """The type of the dense array that a value or a sparse array stands for."""
    return dense_type(x) if is_sparse(x) else x.aval


@public_path("tracebridge.experimental.sparse")
@final
class SparseTracer(Tracer):
    """What ``sparsify`` with ``use_tracer`` calls a function with, in place of all its arrays.

    Attributes:
        value: the sparse array, the dense value, or what an operation made of a sparse array
            whose zeros it does not keep.

    >>> from tracebridge.experimental import sparse
    >>> f = sparse.sparsify(lambda x: isinstance(x, sparse.SparseTracer), use_tracer=True)
    >>> bool(f(sparse.eye(2)))
    True
    """

    __slots__ = ("value",)

    def __init__(self, trace: Trace, *, value: Any) -> None:
        super().__init__(_aval(value), trace)
        self.value = value

    def details(self) -> str:
        """What ``repr`` says besides the type."""
        return f" of {self.value!r}"


@final
class _SparseTrace(Trace):
    """Applies operations to what its tracers stand for, under the trace around it."""

    __slots__ = ("parent",)
    label = "sparsify"

    def __init__(self, parent: Trace) -> None:
        super().__init__()
        self.parent = parent

    def unwrapped(self, x: Any) -> Any:
        """What a value stands for."""
        return x.value if type(x) is SparseTracer and x._trace is self else x

    def process(self, app: Application, args: Sequence[Any]) -> Any:
        with use_trace(scoped(self.parent)):
            outs = _step(app, [self.unwrapped(x) for x in args])
        tracers = [SparseTracer(self, value=x) for x in outs]
        return tracers if app.multiple else tracers[0]


def _traced(flat: Callable[..., Sequence[Any]], inputs: Sequence[Any]) -> list[Any]:
    """The results of ``flat``, called with a tracer for each input."""
    trace = _SparseTrace(current_trace())
    try:
        with use_trace(trace):
            outs = flat(*[SparseTracer(trace, value=x) for x in inputs])
        return [trace.unwrapped(x) for x in outs]
    finally:
        trace.done = True


def _run(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """The results of a program whose arguments are values and BCOO arrays."""
    env: list[Any] = [*args, *jaxpr.consts]
    for app, variables in jaxpr.equations:
        env.extend(_step(app, [env[i] for i in variables]))
    return [env[i] for i in jaxpr.outs]


def _step(app: Application, args: list[Any]) -> list[Any]:
    """The results of one equation."""
    if not any([is_sparse(x) or type(x) is Region for x in args]):
        result = current_trace().process(app, [as_value(x) for x in args])
        return list(result) if app.multiple else [result]
    primitive = app.primitive
    if isinstance(primitive, CallPrimitive):
        return _run(app.params["jaxpr"], args)
    if isinstance(primitive, CustomRuleCall):
        return _run(app.params["call_jaxpr"], args)
    result = _by_rules(app, args)
    return list(result) if app.multiple else [result]


def _by_rules(app: Application, args: list[Any]) -> Any:
    """The result of an equation with a sparse operand that calls no program."""
    primitive: Any = app.primitive
    why = f"sparsify: the operation {primitive.name} of {shown(args)}"
    whole = not any([type(x) is Region for x in args])
    rule = FORMATS.get(primitive) if whole else None
    result = NotImplemented if rule is None else rule(app, args)
    if result is NotImplemented:
        result = elementwise(app, args, why)
    if result is not NotImplemented:
        return result
    args = [operators.as_bcoo(x) if is_sparse(x) else settled(x) for x in args]
    if isinstance(primitive, Choice) and primitive.n_lead == 1:
        return _choice(app, args)
    rule = _CONTROL.get(primitive) or RULES.get(primitive)
    if rule is not None:
        return rule(app, args)
    raise UnsupportedArgumentError(
        why, expected="operations that keep zeros", hint="convert the array with todense before"
    )


# control flow ------------------------------------------------------------------------------------


def _plain(x: Any) -> Any:
    """A BCOO array of whose coordinates nothing is known: what a loop carries keeps its type."""
    if not isinstance(x, BCOO):
        return x
    x = widened(x)
    return BCOO.tree_unflatten((x.shape, False, False), (x.data, x.indices))


def _public(xs: Sequence[Any]) -> list[Any]:
    xs = [settled(x) for x in xs]
    return [_plain(x) if is_sparse(x) else public(x) for x in xs]


def _values(xs: Sequence[Any]) -> list[Any]:
    return [x if is_sparse(x) else as_value(x) for x in xs]


def _choice(app: Application, args: Sequence[Any]) -> list[Any]:
    index, *operands = args

    def branch(jaxpr: Jaxpr) -> Callable[..., Any]:
        return lambda *xs: _public(_run(jaxpr, _values(xs)))

    chosen = lax.convert_element_type(index, "int32")
    branches = [branch(jaxpr) for jaxpr in app.params["branches"]]
    return _values(switch(chosen, branches, *_public(operands)))


def _while(app: Application, args: Sequence[Any]) -> list[Any]:
    cond_consts, body_consts, init = groups(app.params, args)
    test, body = app.params["cond_jaxpr"], app.params["body_jaxpr"]
    return _values(
        while_loop(
            lambda carry: public(_run(test, [*cond_consts, *_values(carry)])[0]),
            lambda carry: _public(_run(body, [*body_consts, *_values(carry)])),
            _public(init),
        )
    )


def _scan(app: Application, args: Sequence[Any]) -> list[Any]:
    params = app.params
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    consts, init = args[:n_consts], args[n_consts : n_consts + n_carry]
    layouts: list[Any] = []

    def step(carry: Any, xs: Any) -> Any:
        # The elements of sparse arrays along their first axis, which is one of batches.
        parts = [
            BCOO(x, shape=s[1:]) if s else as_value(x) for x, s in zip(xs, shapes, strict=True)
        ]
        outs = _run(params["jaxpr"], [*consts, *_values(carry), *parts])
        ys = [_plain(settled(y)) for y in outs[n_carry:]]
        layouts[:] = [y.shape if is_sparse(y) else None for y in ys]
        rows = [(y.data, y.indices) if is_sparse(y) else public(y) for y in ys]
        return _public(outs[:n_carry]), rows

    xs, shapes = list[Any](), list[Any]()
    for x in args[n_consts + n_carry :]:
        if is_sparse(x):
            batched = widened(bcoo_update_layout(x, n_batch=max(x.n_batch, 1), on_inefficient=None))
            xs.append((batched.data, batched.indices))
            shapes.append(x.shape)
        else:
            xs.append(public(x))
            shapes.append(None)
    carry, rows = scan(
        step, _public(init), xs, params["length"], params["reverse"], params["unroll"]
    )
    ys = [
        BCOO(y, shape=(params["length"], *shape)) if shape is not None else y
        for y, shape in zip(rows, layouts, strict=True)
    ]
    return _values([*carry, *ys])


_CONTROL: dict[Any, Callable[..., Any]] = {while_p: _while, scan_p: _scan}
"""Loops of which an operand is sparse."""
