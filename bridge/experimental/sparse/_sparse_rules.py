"""Operations of which an argument is sparse, for sparsify: a rule for each primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.args.values import public
from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.conv.primitive import conv_general_dilated_p
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.primitive import Primitive
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
from tracebridge.core.lax.shape.stack import stack_p
from tracebridge.core.lax.shape.transpose import transpose_p
from tracebridge.core.lax.special import erf
from tracebridge.core.special.bessel import bessel_i1e_p
from tracebridge.experimental.sparse import _operators as operators
from tracebridge.experimental.sparse._base import JAXSparse, with_elements
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.convolutions import bcoo_conv_general_dilated
from tracebridge.experimental.sparse._bcoo.dots import bcoo_dot_general
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
from tracebridge.experimental.sparse._bcsr import BCSR, bcsr_dot_general
from tracebridge.experimental.sparse._bcsr_moves import bcsr_broadcast_in_dim, bcsr_concatenate

Rule = Callable[[Application, Sequence[Any]], Any]


def is_sparse(x: object) -> bool:
    """Whether it is a sparse array."""
    return isinstance(x, JAXSparse)


def shown(args: Sequence[Any]) -> str:
    """The arguments, for messages."""
    return ", ".join([repr(x) if is_sparse(x) else x.aval.str_short() for x in args])


def _linear(app: Application, args: Sequence[Any]) -> Any:
    """An operation of each element that is linear."""
    (x,) = args
    return with_elements(x, tnp.asarray(_applied(app, x.data)))


def _zero_preserving(app: Application, args: Sequence[Any]) -> Any:
    """An operation of each element that maps zero to zero; equal coordinates are merged before."""
    (x,) = args
    if isinstance(x, BCSR) and not x.unique_indices:
        x = x.sum_duplicates(x.nse, remove_zeros=False)
    x = operators.merged(x)
    return with_elements(x, tnp.asarray(_applied(app, x.data)))


def _applied(app: Application, data: Any) -> Any:
    return app.primitive.bind(as_value(data), **app.params)


def _integer_pow(app: Application, args: Sequence[Any]) -> Any:
    (x,), y = args, app.params["y"]
    return operators.power(x, y) if y <= 0 else _zero_preserving(app, args)


def _of_two(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(app: Application, args: Sequence[Any]) -> Any:
        return function(*[x if is_sparse(x) else public(x) for x in args])

    return rule


def _shared(args: Sequence[Any]) -> bool:
    """Whether two sparse arrays have the very same coordinates."""
    x, y = args
    return (
        isinstance(x, BCOO)
        and isinstance(y, BCOO)
        and x.indices is y.indices
        and (x.shape, x.data.shape) == (y.shape, y.data.shape)
    )


def _sum(function: Callable[[Any, Any], Any]) -> Rule:
    """Sums and differences, for which elements at shared coordinates are enough."""
    whole = _of_two(function)

    def rule(app: Application, args: Sequence[Any]) -> Any:
        if _shared(args):
            return with_elements(args[0], _of_elements(app, args))
        return whole(app, args)

    return rule


def _multiply(app: Application, args: Sequence[Any]) -> Any:
    if _shared(args) and args[0].unique_indices:
        return with_elements(args[0], _of_elements(app, args))
    return _of_two(operators.multiply)(app, args)


def _of_elements(app: Application, args: Sequence[Any]) -> Any:
    return app.primitive.bind(*[as_value(x.data) for x in args], **app.params)


def _extremum(app: Application, args: Sequence[Any]) -> Any:
    """The larger, or smaller, of elements and a number, where zeros stay what they are."""
    mat, other = args if is_sparse(args[0]) else args[::-1]
    largest = app.primitive is arithmetic.max_p
    keeps = not is_sparse(other) and is_concrete(other) and other.aval.ndim == 0
    if keeps:
        number = float(tnp.asarray(public(other)))
        keeps = number <= 0 if largest else number >= 0
    if not keeps:
        msg = f"sparsify: {'max' if largest else 'min'} of {shown(args)}"
        raise UnsupportedArgumentError(
            msg, expected="a number with which zeros stay zeros", hint="use todense before"
        )
    function = tnp.maximum if largest else tnp.minimum
    return operators.mapped(operators.merged(mat), lambda x: function(x, public(other)))


def _dot(app: Application, args: Sequence[Any]) -> Any:
    return bcoo_dot_general(
        *[x if is_sparse(x) else public(x) for x in args],
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
    if not is_sparse(args[0]) or is_sparse(args[1]):
        msg = f"sparsify: gather of {shown(args)}"
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
    if not all([is_sparse(x) for x in args]):
        msg = f"sparsify: concatenate of {shown(args)}"
        raise UnsupportedArgumentError(msg, expected="only sparse arrays")
    least = min([x.n_batch for x in args]), min([x.n_dense for x in args])
    args = [bcoo_update_layout(x, n_batch=least[0], n_dense=least[1]) for x in args]
    return bcoo_concatenate(args, dimension=app.params["dimension"])


def _stack(app: Application, args: Sequence[Any]) -> Any:
    if not all([is_sparse(x) for x in args]):
        msg = f"sparsify: stack of {shown(args)}"
        raise UnsupportedArgumentError(msg, expected="only sparse arrays")
    axis, shape = app.params["axis"], args[0].shape
    kept = [a + (a >= axis) for a in range(len(shape))]
    wide = (*shape[:axis], 1, *shape[axis:])
    compressed = all([isinstance(x, BCSR) for x in args])
    broadcast = bcsr_broadcast_in_dim if compressed else bcoo_broadcast_in_dim
    parts: list[Any] = [broadcast(x, shape=wide, broadcast_dimensions=kept) for x in args]
    if compressed:
        return bcsr_concatenate(parts, dimension=axis)
    least = min([x.n_batch for x in parts]), min([x.n_dense for x in parts])
    parts = [bcoo_update_layout(x, n_batch=least[0], n_dense=least[1]) for x in parts]
    return bcoo_concatenate(parts, dimension=axis)


def _convolution(app: Application, args: Sequence[Any]) -> Any:
    names = (
        "window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers",
        "feature_group_count", "batch_group_count", "preferred_element_type",
    )  # fmt: skip
    operands = [x if is_sparse(x) else public(x) for x in args]
    return bcoo_conv_general_dilated(*operands, **{n: app.params[n] for n in names})


def _todense(app: Application, args: Sequence[Any]) -> Any:
    return as_value(operators.dense_form(args[0]))


# compressed rows ---------------------------------------------------------------------------------


def _only_compressed(rule: Rule) -> Rule:
    """A rule for arrays in compressed rows alone."""

    def checked(app: Application, args: Sequence[Any]) -> Any:
        if not all([isinstance(x, BCSR) for x in args]):
            return NotImplemented
        return rule(app, args)

    return checked


def _compressed_dot(app: Application, args: Sequence[Any]) -> Any:
    if not isinstance(args[0], BCSR) or is_sparse(args[1]):
        return NotImplemented
    return as_value(
        bcsr_dot_general(
            args[0],
            public(args[1]),
            dimension_numbers=app.params["dimension_numbers"],
            preferred_element_type=app.params.get("preferred_element_type"),
        )
    )


def _compressed_broadcast(app: Application, args: Sequence[Any]) -> Any:
    (mat,), axes = args, app.params["broadcast_dimensions"]
    shape = app.params["shape"]
    b = mat.n_batch
    if axes[b + 1] != axes[b] + 1:  # an axis between rows and columns is one with coordinates
        return NotImplemented
    return bcsr_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=axes)


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


_LINEAR: tuple[Primitive, ...] = (
    arithmetic.neg_p, complex.real_p, complex.imag_p, complex.conj_p, convert.copy_p,
    convert.convert_element_type_p, name_p, stop_gradient_p,
)  # fmt: skip
_KEEPS_ZERO: tuple[Primitive, ...] = (
    arithmetic.abs_p, arithmetic.sign_p, arithmetic.square_p, convert.reduce_precision_p,
    exp_log.expm1_p, exp_log.log1p_p, hyperbolic.sinh_p, hyperbolic.tanh_p, hyperbolic.asinh_p,
    hyperbolic.atanh_p, power.sqrt_p, power.cbrt_p, rounding.floor_p, rounding.ceil_p,
    rounding.round_p, bessel_i1e_p, trig.sin_p, trig.tan_p, trig.asin_p, trig.atan_p, erf.erf_p,
    erf.erf_inv_p,
)  # fmt: skip
RULES: dict[Primitive, Rule] = {
    arithmetic.add_p: _sum(operators.add),
    arithmetic.sub_p: _sum(operators.subtract),
    arithmetic.mul_p: _multiply,
    arithmetic.div_p: _of_two(operators.divide),
    arithmetic.max_p: _extremum,
    arithmetic.min_p: _extremum,
    power.pow_p: _of_two(operators.power),
    dot_general_p: _dot,
    conv_general_dilated_p: _convolution,
    stack_p: _stack,
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
}
"""What becomes of operations of which an argument is sparse."""
FORMATS: dict[Primitive, Rule] = {
    operators.todense_p: _todense,
    **dict.fromkeys(_LINEAR, _linear),
    **dict.fromkeys(_KEEPS_ZERO, _zero_preserving),
    power.integer_pow_p: _integer_pow,
    dot_general_p: _compressed_dot,
    broadcast_in_dim_p: _only_compressed(_compressed_broadcast),
    concatenate_p: _only_compressed(
        lambda app, args: bcsr_concatenate(args, dimension=app.params["dimension"])
    ),
}
"""Those that keep the format, or have a rule for one; NotImplemented: as of BCOO arrays."""
