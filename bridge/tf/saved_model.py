"""save: a function with its parameters as a SavedModel that needs nothing but TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import short_repr
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import check_unmasked
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.interop.tf_adapter import tf_adapter
from tracebridge.tf import shapes as shape_rules
from tracebridge.tf.artifacts import writer
from tracebridge.tf.convert import our_dtype, unwrap
from tracebridge.tf.endpoints import Endpoint, identifier, saved_object
from tracebridge.tf.keeping import Write
from tracebridge.tf.polymorphic import is_dense, spec_of
from tracebridge.tf.signature import input_parameters
from tracebridge.tf.tracing import Request, Traced


@api_boundary
def save(
    fun: Callable[..., object] | Mapping[str, Callable[..., object]],
    path: str | os.PathLike[str],
    signature: Any,
    params: Any = None,
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] | Mapping[str, Sequence[str]] = (),
    grad_order: int | Mapping[str, int] = 2,
    native_ops: bool = False,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[object] = (),
) -> None:
    """Write ``fun`` as a SavedModel that runs where this package is not installed.

    The loaded object has ``serve(*inputs)``, a callable that returns what ``fun`` returns and
    takes its inputs also by keyword, the signature ``serving_default``, and ``params``, the
    parameters as variables. It is a reusable SavedModel too: it can be called like ``serve``, and
    has ``variables`` and ``trainable_variables``. Tapes differentiate ``serve`` to order
    ``grad_order``, also by the variables. ``keras.layers.TFSMLayer`` takes the folder as it is.

    ``serving_default`` has one input for each leaf of ``signature``, and one result for each leaf:
    ``output_0``, ..., or in a dict by its path. Where two would have one name, underscores follow
    the second.

    A dict of functions becomes one model with a callable and a signature for each name, all of the
    same parameters. The first is also ``serving_default``, unless one has that name, and what the
    loaded object does when it is called.

    Args:
        fun: function of ``(params, *inputs)``, or of ``inputs`` alone without ``params``; or a
            dict of such functions by name. ``signature`` is then a dict with the same names, and
            ``polymorphic_shapes``, ``polymorphic_constraints`` and ``grad_order`` may be dicts
            with some of them.
        path: folder to write.
        signature: a list with a ``tf.TensorSpec``, or a tree of them, for each input; also
            ``ShapeDtypeStruct`` and examples, arrays or tensors. A size of None may change from
            call to call: those of axis 0 are one size, ``batch``, of all inputs together; each
            other one is a size of its own. They are at least 0, or at least 1 where the trace
            depends on that.
        params: tree of arrays or variables, those of Keras too; saved as variables, named by their
            paths.
        polymorphic_shapes: other names of sizes for the inputs, as in ``to_tf``.
        polymorphic_constraints: what is known of the sizes, such as ``"batch >= 2"``.
        grad_order: how often the loaded function can be differentiated; 0 for not at all.
        native_ops: whether the model consists of operations that TensorFlow has itself, for
            converters that do not know its operation for XLA.
        platforms: what the model is for, as in ``to_tf``.
        disabled_checks: what is not checked, as in ``to_tf``.

    Raises:
        ExportError: the program calls something that only this process has.
        InconclusiveDimensionError: the program depends on relations of unknown sizes.
        ArgumentSpecError: ``signature`` contains something else than specs, ``grad_order`` is no
            number of derivatives, or an option has a value that it does not take; names of several
            functions are none of attributes, or an option has others.
        MissingRuleError: with ``native_ops``, for what TensorFlow has no operations; the message
            names all of it.
        JaxprTypeError: with ``native_ops``, the function has effects.

    >>> import tempfile
    >>> import numpy as np
    >>> import tensorflow as tf
    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> def model(params, x):
    ...     return tnp.tanh(x @ params["w"])
    >>> folder = tempfile.mkdtemp()
    >>> spec = tf.TensorSpec((None, 3), tf.float32, name="x")
    >>> tb.tf.save(model, folder, [spec], params={"w": np.ones((3, 2), np.float32)})
    >>> tf.saved_model.load(folder).serve(tf.ones((5, 3))).shape
    TensorShape([5, 2])
    """
    wanted = (
        _by_name(fun, signature, polymorphic_shapes, polymorphic_constraints, grad_order)
        if isinstance(fun, Mapping)
        else [
            _Wanted(_ONE, fun, signature, polymorphic_shapes, polymorphic_constraints, grad_order)
        ]
    )
    for one in wanted:
        check_callable("save", one.fun)
        _check_order(one)
    first = () if params is None else (tree_map(_variable_like, unwrap(params)),)
    endpoints: list[Endpoint] = []
    for one in wanted:
        write = writer(one.call, native_ops, platforms, disabled_checks)
        endpoints.append(_endpoint(one, first, write))
    root, flat = saved_object(first, endpoints)
    if isinstance(fun, Mapping):
        signatures = {e.name: s for e, s in zip(endpoints, flat, strict=True)}
        signatures.setdefault(_DEFAULT, flat[0])
    else:
        signatures = {_DEFAULT: flat[0]}
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(root, os.fspath(path), signatures=signatures, options=options)


_ONE = "serve"
"""The name of a function that is alone in its model."""
_DEFAULT = "serving_default"


class _Wanted(NamedTuple):
    """What was asked for: a function with the options that are its own."""

    name: str
    fun: Callable[..., object]
    signature: Any
    shapes: Any
    constraints: Any
    order: Any

    @property
    def call(self) -> str:
        """For messages."""
        return f"save({name_of(self.fun)})"


def _by_name(
    funs: Mapping[str, Callable[..., object]],
    signature: object,
    shapes: object,
    constraints: object,
    order: object,
) -> list[_Wanted]:
    """What was asked for by name.

    Raises:
        ArgumentSpecError: a name that a loaded object has not, or an option that does not fit.
    """
    if not funs:
        raise ArgumentSpecError("save: fun is an empty dict", expected="a function for each name")
    name: Any
    for name in funs:
        if not isinstance(name, str) or identifier(name) != name or name in _TAKEN:
            raise ArgumentSpecError(
                f"save: fun has the name {short_repr(name)}",
                expected="names of attributes that loaded models do not have: no "
                + ", ".join(sorted(_TAKEN)),
            )
    if not isinstance(signature, Mapping) or set(signature) != set(funs):
        raise ArgumentSpecError(
            f"save: signature is {short_repr(signature)}",
            expected=f"a dict with the names of the functions: {', '.join(funs)}",
        )
    given = {
        "polymorphic_shapes": (shapes, None),
        "polymorphic_constraints": (constraints, ()),
        "grad_order": (order, 2),
    }
    for option, (value, _) in given.items():
        strange = set(value) - set(funs) if isinstance(value, Mapping) else ()
        if strange:
            raise ArgumentSpecError(
                f"save: {option} has the name {short_repr(min(map(str, strange)))}",
                expected=f"names of functions: {', '.join(funs)}",
            )
    return [
        _Wanted(
            name,
            fun,
            signature[name],
            *[v.get(name, d) if isinstance(v, Mapping) else v for v, d in given.values()],
        )
        for name, fun in funs.items()
    ]


_TAKEN = frozenset(
    [*[n for n in dir(tf.Module) if not n.startswith("_")], "params", "signatures", "self",
     "graph_debug_info", "tensorflow_version", "tensorflow_git_version"]
)  # fmt: skip
"""Names of attributes that loaded models have."""


def _check_order(wanted: _Wanted) -> None:
    order = wanted.order
    if not isinstance(order, int | np.integer) or order < 0:
        raise ArgumentSpecError(
            f"{wanted.call}: grad_order is {short_repr(order)}",
            expected="how often the loaded function can be differentiated: 0, 1, 2, ...",
        )


def _endpoint(wanted: _Wanted, first: tuple[object, ...], write: Write) -> Endpoint:
    """The traced program of a function, with the names of its inputs."""
    inputs = _specs(wanted.call, wanted.signature)
    traced, names = _traced(wanted, (*first, *inputs), len(first), write)
    parameters = input_parameters(wanted.fun, len(first), len(inputs))
    n = len(flatten(inputs)[0])
    return Endpoint(
        wanted.name, inputs, parameters, names[len(names) - n :], traced, int(wanted.order)
    )


def _shape(x: Any) -> tuple[Any, ...] | None:
    """The shape; None for a specification of any rank."""
    if isinstance(x, tf.TensorSpec) and cast("int | None", x.shape.rank) is None:
        return None
    return tuple(x.shape)


def _traced(
    wanted: _Wanted, args: tuple[object, ...], n_params: int, write: Write
) -> tuple[Traced, tuple[str, ...]]:
    """The program of a function, and names of its inputs."""
    call, fun = wanted.call, wanted.fun
    leaves, tree = flatten((args, {}))
    names = argument_names(tree, parameter_names(fun))
    shapes = [_shape(x) for x in leaves]
    call_args = args[n_params:]
    inputs = flatten(call_args)[1]
    if wanted.shapes is None:
        specs = shape_rules.batch_specs(shapes[-inputs.num_leaves :], names[-inputs.num_leaves :])
    else:
        specs = shape_rules.spread_specs(call, wanted.shapes, inputs)
    specs = [None] * (len(leaves) - len(specs)) + specs
    dtypes = [
        (
            our_dtype(x.dtype, f"{call}: {name}")
            if isinstance(x.dtype, tf.DType)
            else np.dtype(x.dtype),
            False,
        )
        for x, name in zip(leaves, names, strict=True)
    ]
    request = Request(call, fun, tree, names, dtypes, shapes, specs, wanted.constraints, write)
    shape_rules.check_sizes(call, request.symbolic(0), shapes, names)
    return request.trace(), names


def _specs(call: str, signature: Any) -> tuple[Any, ...]:
    """One tree of specs for each input."""
    if isinstance(signature, tf.TensorSpec):
        signature = [signature]
    if not isinstance(signature, list | tuple):
        raise ArgumentSpecError(
            f"{call}: signature is {short_repr(signature)}",
            expected="a list with one tf.TensorSpec (or a tree of them) for each input",
        )
    for leaf in flatten(signature)[0]:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype") or not is_dense(leaf):
            raise ArgumentSpecError(
                f"{call}: signature contains {short_repr(leaf)} of type {type(leaf).__name__}",
                expected="tf.TensorSpec, with None for sizes that may change; or ShapeDtypeStruct, "
                "or examples",
            )
    return tuple(tree_map(spec_of, list(signature)))


def _variable_like(leaf: Any) -> Any:
    """A parameter as a variable's value: a tensor, or a variable as it is."""
    check_unmasked(leaf)
    if isinstance(leaf, tf.Variable):
        return leaf
    if isinstance(getattr(leaf, "value", None), tf.Variable):
        return leaf.value  # Keras wraps variables in its own
    if isinstance(leaf, Array):
        return tf_adapter.export(leaf)
    if isinstance(leaf, np.ndarray | np.generic | tf.Tensor | bool | int | float | complex):
        return tf.convert_to_tensor(cast("Any", leaf))
    raise UnsupportedDtypeError(
        f"save: params contains {short_repr(leaf)} of type {type(leaf).__name__}",
        expected="arrays, tensors, variables, numbers, and trees of them",
    )
