"""Shapes of the results of functions whose arguments have sizes that may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import short_repr
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import flatten
from tracebridge.tf import shapes as shape_rules
from tracebridge.tf.convert import our_dtype
from tracebridge.tf.tracing import Request


@api_boundary
def eval_polymorphic_shape(
    fun: Callable[..., object],
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] = (),
) -> Callable[..., Any]:
    """The shapes of the results of ``fun`` where sizes may change, without running it.

    Args:
        fun: function of arrays and trees of arrays.
        polymorphic_shapes: names of sizes, as in ``to_tf``.
        polymorphic_constraints: what is known of the sizes, as in ``to_tf``.

    Returns:
        A function of the arguments of ``fun``: arrays, tensors, or what has a shape and a dtype
        (``ShapeDtypeStruct``, ``tf.TensorSpec``). It gives the tree of results with a string in the
        place of each, which ``polymorphic_shapes`` takes.

    Raises:
        InconclusiveDimensionError: when called: the program depends on relations of unknown sizes.
        ArgumentSpecError: when called: an argument is sparse or ragged.

    >>> import numpy as np
    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> f = lambda x: (tnp.concatenate([x, x]), x.T)
    >>> tb.tf.eval_polymorphic_shape(f, polymorphic_shapes="b, _")(np.ones((2, 3)))
    ('2*b, 3', '3, b')
    """
    check_callable("eval_polymorphic_shape", fun)
    call = f"eval_polymorphic_shape({name_of(fun)})"

    def shapes(*args: object, **kwargs: object) -> Any:
        leaves, tree = flatten((args, kwargs))
        names = argument_names(tree, parameter_names(fun))
        specs = shape_rules.spread_specs(call, polymorphic_shapes, flatten(args)[1])
        specs += [None] * (len(leaves) - len(specs))
        for leaf, name in zip(leaves, names, strict=True):
            if not is_dense(leaf):
                raise ArgumentSpecError(
                    f"{call}: {name} is {short_repr(leaf)} of type {type(leaf).__name__}",
                    expected="what has a shape and a dtype, and is dense",
                )
        types = [spec_of(leaf) for leaf in leaves]
        ranks = [cast("int | None", t.shape.rank) for t in types]
        sizes = [None if n is None else tuple(t.shape) for t, n in zip(types, ranks, strict=True)]
        dtypes = [
            (our_dtype(t.dtype, f"{call}: {name}"), False)
            for t, name in zip(types, names, strict=True)
        ]
        constraints = tuple(polymorphic_constraints)
        request = Request(call, fun, tree, names, dtypes, sizes, specs, constraints)
        traced = request.trace()
        texts = [", ".join(map(str, a.shape)) for a in traced.program.jaxpr.out_avals]
        # A comma, as one size alone would be no sequence.
        return traced.out_tree.unflatten([t if "," in t or not t else f"{t}," for t in texts])

    return api_boundary(shapes)


def is_dense(x: Any) -> bool:
    """Whether a shape and a dtype say what ``x`` is: not of sparse and ragged tensors."""
    if isinstance(x, tf.TypeSpec):
        return isinstance(x, tf.TensorSpec)
    return not isinstance(x, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices)


def spec_of(x: Any) -> tf.TensorSpec:
    """The shape and dtype of an array, a tensor, or of something that says both."""
    if isinstance(x, tf.TensorSpec):
        return x
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        x = as_value(x).aval
    dtype = x.dtype if isinstance(x.dtype, tf.DType) else tf.as_dtype(np.dtype(x.dtype).name)
    shape = x.shape if isinstance(x.shape, tf.TensorShape) else tuple(x.shape)
    return tf.TensorSpec(shape, dtype, name=getattr(x, "name", None))
