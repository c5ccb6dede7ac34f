"""sparsify: functions of dense arrays, applied to sparse ones.

The function is traced for dense arrays of these shapes. Its program then runs equation by
equation; an operation of which an argument is sparse has a rule in a table by primitive. This
transformation is out of tree: primitives do not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import public, values_of
from tracebridge._api.args.wraps import named_like
from tracebridge.core.compat.traces import is_concrete
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
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import stop_gradient_p
from tracebridge.core.lax.annotations import name_p
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.lax.elementwise import (
    arithmetic,
    complex,
    convert,
    exp_log,
    hyperbolic,
    power,
    rounding,
    trig,
)
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_slice_p
from tracebridge.core.lax.indexing.gather import gather_p
from tracebridge.core.lax.indexing.slice import slice_p
from tracebridge.core.lax.reduce.reductions import reduce_sum_p
from tracebridge.core.lax.shape.broadcast import broadcast_in_dim_p
from tracebridge.core.lax.shape.concatenate import concatenate_p
from tracebridge.core.lax.shape.reshape import reshape_p, squeeze_p
from tracebridge.core.lax.shape.rev import rev_p
from tracebridge.core.lax.shape.split import split_p
from tracebridge.core.lax.shape.transpose import transpose_p
from tracebridge.core.lax.special import erf
from tracebridge.core.tree.prefix import flatten_asking
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.experimental.sparse import _operators as operators
from tracebridge.experimental.sparse._base import JAXSparse, with_elements
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.dots import bcoo_dot_general
from tracebridge.experimental.sparse._bcoo.indices import widened
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcoo.moves import (
    bcoo_broadcast_in_dim,
    bcoo_reshape,
    bcoo_rev,
    bcoo_squeeze,
    bcoo_transpose,
)
from tracebridge.experimental.sparse._bcoo.slices import (
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_slice,
)
from tracebridge.experimental.sparse._bcoo.sums import bcoo_reduce_sum

Rule = Callable[[Application, Sequence[Any]], Any]


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """A function of sparse arrays, made of one that is written for dense arrays.

    Args:
        f: function of arrays and trees of arrays, which ``jit`` can trace.
        use_tracer: accepted without effect: there is one way, by the traced program.

    Returns:
        A function with the arguments of ``f``, of which any may be sparse. What stays sparse is
        returned as BCOO arrays.

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

    @named_like(f)
    def sparse_f(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten_asking((args, kwargs), _is_sparse)
        inputs: list[Any] = []
        avals: list[ShapedArray] = []
        dense = [lax.full((), 0, "int32") if _is_sparse(x) else x for x in leaves]
        values = values_of(f"sparsify({name_of(f)})", dense, tree, ("args", "kwargs"))
        for leaf, value in zip(leaves, values, strict=True):
            if _is_sparse(leaf):
                inputs.append(operators.as_bcoo(leaf))
                avals.append(ShapedArray(leaf.shape, leaf.dtype))
            else:
                inputs.append(value)
                avals.append(value.aval)
        out_tree: list[PyTreeDef] = []

        def flat(*xs: Any) -> Sequence[Any]:
            a, k = tree.unflatten(xs)
            outs, structure = flatten(f(*a, **k))
            out_tree[:] = [structure]
            return values_of(f"sparsify({name_of(f)})", outs, structure, "the result")

        jaxpr = stage(flat, avals)
        outs = [x if _is_sparse(x) else public(x) for x in _run(jaxpr, inputs)]
        return out_tree[0].unflatten(outs)

    return api_boundary(sparse_f)


def _is_sparse(x: object) -> bool:
    return isinstance(x, JAXSparse)


def _run(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """The results of a program whose arguments are values and BCOO arrays."""
    env: list[Any] = [*args, *jaxpr.consts]
    for app, variables in jaxpr.equations:
        env.extend(_step(app, [env[i] for i in variables]))
    return [env[i] for i in jaxpr.outs]


def _step(app: Application, args: list[Any]) -> list[Any]:
    """The results of one equation."""
    if not any([_is_sparse(x) for x in args]):
        result = current_trace().process(app, [as_value(x) for x in args])
        return list(result) if app.multiple else [result]
    primitive = app.primitive
    rule = _RULES.get(primitive)
    if rule is not None:
        result = rule(app, args)
        return list(result) if app.multiple else [result]
    if isinstance(primitive, CallPrimitive):
        return _run(app.params["jaxpr"], args)
    if isinstance(primitive, CustomRuleCall):
        return _run(app.params["call_jaxpr"], args)
    if isinstance(primitive, Choice) and primitive.n_lead == 1:
        return _choice(app, args)
    msg = f"sparsify: the operation {primitive.name} of {_shown(args)}"
    raise UnsupportedArgumentError(
        msg, expected="operations that keep zeros", hint="convert the array with todense before"
    )


def _shown(args: Sequence[Any]) -> str:
    return ", ".join([repr(x) if _is_sparse(x) else f"{x.dtype.name}{list(x.shape)}" for x in args])


def _linear(app: Application, args: Sequence[Any]) -> Any:
    """An operation of each element that is linear."""
    (x,) = args
    return with_elements(x, tnp.asarray(_applied(app, x.data)))


def _zero_preserving(app: Application, args: Sequence[Any]) -> Any:
    """An operation of each element that maps zero to zero; equal coordinates are merged before."""
    x = operators.merged(args[0])
    return with_elements(x, tnp.asarray(_applied(app, x.data)))


def _applied(app: Application, data: Any) -> Any:
    return app.primitive.bind(as_value(data), **app.params)


def _integer_pow(app: Application, args: Sequence[Any]) -> Any:
    return operators.power(args[0], app.params["y"])


def _of_two(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(app: Application, args: Sequence[Any]) -> Any:
        return function(*[x if _is_sparse(x) else public(x) for x in args])

    return rule


def _extremum(app: Application, args: Sequence[Any]) -> Any:
    """The larger, or smaller, of elements and a number, where zeros stay what they are."""
    mat, other = args if _is_sparse(args[0]) else args[::-1]
    largest = app.primitive is arithmetic.max_p
    keeps = not _is_sparse(other) and is_concrete(other) and other.aval.ndim == 0
    if keeps:
        number = float(tnp.asarray(public(other)))
        keeps = number <= 0 if largest else number >= 0
    if not keeps:
        msg = f"sparsify: {'max' if largest else 'min'} of {_shown(args)}"
        raise UnsupportedArgumentError(
            msg, expected="a number with which zeros stay zeros", hint="use todense before"
        )
    function = tnp.maximum if largest else tnp.minimum
    return operators.mapped(operators.merged(mat), lambda x: function(x, public(other)))


def _dot(app: Application, args: Sequence[Any]) -> Any:
    return bcoo_dot_general(
        *[x if _is_sparse(x) else public(x) for x in args],
        dimension_numbers=app.params["dimension_numbers"],
        preferred_element_type=app.params.get("preferred_element_type"),
    )


def _reduce_sum(app: Application, args: Sequence[Any]) -> Any:
    out = bcoo_reduce_sum(args[0], axes=app.params["axes"])
    return as_value(operators.todense(out)) if out.ndim == 0 else out


def _slice(app: Application, args: Sequence[Any]) -> Any:
    return bcoo_slice(
        args[0],
        start_indices=app.params["start_indices"],
        limit_indices=app.params["limit_indices"],
        strides=app.params["strides"],
    )


def _dynamic_slice(app: Application, args: Sequence[Any]) -> Any:
    mat, *starts = args
    return bcoo_dynamic_slice(mat, [public(s) for s in starts], app.params["slice_sizes"])


def _gather(app: Application, args: Sequence[Any]) -> Any:
    if not _is_sparse(args[0]) or _is_sparse(args[1]):
        msg = f"sparsify: gather of {_shown(args)}"
        raise UnsupportedArgumentError(msg, expected="dense indices")
    names = ("dimension_numbers", "slice_sizes")
    return bcoo_gather(
        args[0],
        public(args[1]),
        *[app.params[n] for n in names],
        mode=app.params["mode"],
        fill_value=app.params.get("fill_value"),
    )


def _concatenate(app: Application, args: Sequence[Any]) -> Any:
    if not all([_is_sparse(x) for x in args]):
        msg = f"sparsify: concatenate of {_shown(args)}"
        raise UnsupportedArgumentError(msg, expected="only sparse arrays")
    least = min([x.n_batch for x in args]), min([x.n_dense for x in args])
    args = [bcoo_update_layout(x, n_batch=least[0], n_dense=least[1]) for x in args]
    return bcoo_concatenate(args, dimension=app.params["dimension"])


def _split(app: Application, args: Sequence[Any]) -> list[Any]:
    (mat,) = args
    axis, begin = app.params["axis"], 0
    out: list[Any] = []
    for size in app.params["sizes"]:
        starts, limits = [0] * mat.ndim, list(mat.shape)
        starts[axis], limits[axis] = begin, begin + size
        out.append(bcoo_slice(mat, start_indices=starts, limit_indices=limits))
        begin += size
    return out


# control flow ------------------------------------------------------------------------------------


def _plain(x: Any) -> Any:
    """A BCOO array of whose coordinates nothing is known: what a loop carries keeps its type."""
    if not isinstance(x, BCOO):
        return x
    x = widened(x)
    return BCOO.tree_unflatten((x.shape, False, False), (x.data, x.indices))


def _public(xs: Sequence[Any]) -> list[Any]:
    return [_plain(x) if _is_sparse(x) else public(x) for x in xs]


def _values(xs: Sequence[Any]) -> list[Any]:
    return [x if _is_sparse(x) else as_value(x) for x in xs]


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
        ys = [_plain(y) for y in outs[n_carry:]]
        layouts[:] = [y.shape if _is_sparse(y) else None for y in ys]
        rows = [(y.data, y.indices) if _is_sparse(y) else public(y) for y in ys]
        return _public(outs[:n_carry]), rows

    xs, shapes = list[Any](), list[Any]()
    for x in args[n_consts + n_carry :]:
        if _is_sparse(x):
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


_LINEAR: tuple[Primitive, ...] = (
    arithmetic.neg_p, complex.real_p, complex.imag_p, complex.conj_p, convert.copy_p,
    convert.convert_element_type_p, name_p, stop_gradient_p,
)  # fmt: skip
_KEEPS_ZERO: tuple[Primitive, ...] = (
    arithmetic.abs_p, arithmetic.sign_p, arithmetic.square_p, convert.reduce_precision_p,
    exp_log.expm1_p, exp_log.log1p_p, hyperbolic.sinh_p, hyperbolic.tanh_p, hyperbolic.asinh_p,
    hyperbolic.atanh_p, power.sqrt_p, power.cbrt_p, rounding.floor_p, rounding.ceil_p,
    rounding.round_p, trig.sin_p, trig.tan_p, trig.asin_p, trig.atan_p, erf.erf_p, erf.erf_inv_p,
)  # fmt: skip
_RULES: dict[Primitive, Rule] = {
    **dict.fromkeys(_LINEAR, _linear),
    **dict.fromkeys(_KEEPS_ZERO, _zero_preserving),
    arithmetic.add_p: _of_two(operators.add),
    arithmetic.sub_p: _of_two(operators.subtract),
    arithmetic.mul_p: _of_two(operators.multiply),
    arithmetic.div_p: _of_two(operators.divide),
    arithmetic.max_p: _extremum,
    arithmetic.min_p: _extremum,
    power.integer_pow_p: _integer_pow,
    power.pow_p: _of_two(operators.power),
    dot_general_p: _dot,
    reduce_sum_p: _reduce_sum,
    slice_p: _slice,
    dynamic_slice_p: _dynamic_slice,
    gather_p: _gather,
    concatenate_p: _concatenate,
    split_p: _split,
    transpose_p: lambda app, args: bcoo_transpose(args[0], **app.params),
    reshape_p: lambda app, args: bcoo_reshape(args[0], new_sizes=app.params["new_sizes"]),
    squeeze_p: lambda app, args: bcoo_squeeze(args[0], **app.params),
    rev_p: lambda app, args: bcoo_rev(args[0], app.params["dimensions"]),
    broadcast_in_dim_p: lambda app, args: bcoo_broadcast_in_dim(
        args[0],
        shape=app.params["shape"],
        broadcast_dimensions=app.params["broadcast_dimensions"],
    ),
    while_p: _while,
    scan_p: _scan,
}
"""What becomes of operations of which an argument is sparse."""
