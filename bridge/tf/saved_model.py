"""save: a function with its parameters as a SavedModel that needs nothing but TensorFlow."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

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
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.interop.tf_adapter import tf_adapter
from tracebridge.tf import shapes as shape_rules
from tracebridge.tf._xla_call_module import tf_dtype, tf_shape
from tracebridge.tf.artifacts import writer
from tracebridge.tf.convert import our_dtype, unwrap
from tracebridge.tf.gradient import run_differentiable, without_gradient
from tracebridge.tf.keeping import Write
from tracebridge.tf.polymorphic import spec_of
from tracebridge.tf.program import Program
from tracebridge.tf.signature import input_parameters, unique
from tracebridge.tf.tracing import Request, Traced


@api_boundary
def save(
    fun: Callable[..., object],
    path: str | os.PathLike[str],
    signature: Any,
    params: Any = None,
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] = (),
    grad_order: int = 2,
    native_ops: bool = False,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[str] = (),
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

    Args:
        fun: function of ``(params, *inputs)``, or of ``inputs`` alone without ``params``.
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
        disabled_checks: what TensorFlow does not check, as in ``to_tf``.

    Raises:
        ExportError: the program calls something that only this process has.
        InconclusiveDimensionError: the program depends on relations of unknown sizes.
        ArgumentSpecError: ``signature`` contains something else than specs, ``grad_order`` is no
            number of derivatives, or an option has a value that it does not take.
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
    call = f"save({name_of(fun)})"
    check_callable("save", fun)
    order: Any = grad_order
    if not isinstance(order, int | np.integer) or order < 0:
        raise ArgumentSpecError(
            f"{call}: grad_order is {short_repr(grad_order)}",
            expected="how often the loaded function can be differentiated: 0, 1, 2, ...",
        )
    inputs = _specs(call, signature)
    first = () if params is None else (tree_map(_variable_like, unwrap(params)),)
    write = writer(call, native_ops, platforms, disabled_checks)
    traced, names = _traced(
        call, fun, (*first, *inputs), len(first), polymorphic_shapes, polymorphic_constraints, write
    )
    parameters = input_parameters(fun, len(first), len(inputs))
    root = _module(first, (inputs, parameters), traced, grad_order)
    flat = flatten(inputs)[0]
    default = _flat_signature(root.serve, inputs, flat, names[len(names) - len(flat) :])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(
        root,
        os.fspath(path),
        signatures={"serving_default": default.get_concrete_function()},
        options=options,
    )


class _Owner(tf.Module):
    """What has variables; those who load a model ask it for them."""

    # Attributes in place of the properties, which a loaded object has not.
    variables: Any = ()
    trainable_variables: Any = ()

    def __init__(self, name: str, variables: Sequence[Any]) -> None:
        super().__init__(name=name)
        # What stands in two places of the tree is one variable, and trained once.
        self.variables = list({id(v): v for v in variables}.values())
        self.trainable_variables = [v for v in self.variables if v.trainable]


def _module(
    first: tuple[object, ...],
    inputs: tuple[tuple[object, ...], list[inspect.Parameter]],
    traced: Traced,
    order: int,
) -> Any:
    """The object to save: ``serve``, ``params``, and the functions of the derivatives.

    ``inputs`` are the specs, and parameters with their names.
    """
    leaves, tree = flatten(first)
    paths = unique([keystr(path[1:], simple=True, separator="/") for path in leaf_paths(tree)])
    variables = [
        _variable(leaf, path or "params") for leaf, path in zip(leaves, paths, strict=True)
    ]
    program = traced.program
    pulls = _pulls(program, order)
    _check_results(traced)

    class Served(_Owner):
        """What ``serve`` is: callable, and the owner of all that a call needs.

        A plain function would not keep the variables alive: ``load(path).serve(x)`` would drop
        them together with the loaded object before the call.
        """

        def __init__(self) -> None:
            super().__init__("serve", variables)
            # The loaded model finds derivatives of the second and higher orders only in
            # functions that are saved, with a trace, as attributes.
            self.gradients = pulls

    def call(self: Any, *args: object) -> Any:
        del self
        tensors = [*[tf.convert_to_tensor(v) for v in variables], *flatten(args)[0]]
        outs = (
            run_differentiable(program, tensors, _by_functions(pulls, 0))
            if pulls
            else _last(program, tensors, order)
        )
        return traced.result(outs)

    owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = inspect.Signature([owner, *inputs[1]])
    Served.__call__ = tf.function(call, input_signature=inputs[0], autograph=False)
    root: Any = _Owner("model", variables)
    serve: Any = Served()
    root.serve = serve
    root.__call__ = serve.__call__
    serve.__call__.get_concrete_function()
    if first:
        params = tree.unflatten(variables)[0]
        # TensorFlow saves dicts, lists and tuples; other trees become a dict by path.
        root.params = params if _is_plain(params) else dict(zip(paths, variables, strict=True))
    return root


def _pulls(program: Program, order: int) -> list[Any]:
    """The pullbacks of all orders as traced functions of flat tensors."""
    programs: list[Program] = []
    for _ in range(order):
        if not program.diff_in or not program.diff_out:
            break
        program = program.pullback
        programs.append(program)
    pulls: list[Any] = []

    def traced(k: int) -> Any:
        specs = [
            tf.TensorSpec(tf_shape(a.shape), tf_dtype(a.dtype)) for a in programs[k].jaxpr.in_avals
        ]

        @tf.function(input_signature=specs, autograph=False)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
        def pull(*tensors: Any) -> list[Any]:
            if k + 1 < len(programs):
                return run_differentiable(programs[k], tensors, _by_functions(pulls, k + 1))
            return _last(programs[k], tensors, order)

        return pull

    pulls.extend([traced(k) for k in range(len(programs))])
    for pull in reversed(pulls):
        pull.get_concrete_function()
    return pulls


def _last(program: Program, tensors: Sequence[object], order: int) -> list[Any]:
    """The results of a program whose derivative is not saved."""
    outs = program.module(tensors)
    if not program.diff_in:
        return outs
    message = f"{program.name}: the model was saved with grad_order={order}; save it with more"
    return without_gradient(program, outs, message)


def _check_results(traced: Traced) -> None:
    """Raise where TensorFlow cannot write the structure of the results.

    Raises:
        ArgumentSpecError: a dict has other keys than strings.
    """
    tree = traced.out_tree
    for path in leaf_paths(tree):
        for entry in path:
            key = getattr(entry, "key", "")
            if not isinstance(key, str):
                raise ArgumentSpecError(
                    f"{traced.program.name}: the result has a dict with the key {key!r} of type "
                    f"{type(key).__name__}",
                    expected="strings as keys of dicts: a SavedModel has no others",
                )


def _by_functions(pulls: list[Any], k: int) -> Any:
    """The pullback of order ``k`` as a call of its function."""

    def pull(program: Program, tensors: list[Any]) -> list[Any]:
        del program  # its function was made from it
        return list(pulls[k](*tensors))

    return pull


def _flat_signature(
    serve: Any, inputs: tuple[object, ...], specs: list[Any], names: Sequence[str]
) -> Any:
    """``serve`` with one named tensor for each leaf, and a dict of named results."""
    tree = flatten(inputs)[1]
    flat: list[Any] = []
    wanted = [_identifier(spec.name or name) for spec, name in zip(specs, names, strict=True)]
    _, *free = unique(["self", *wanted])  # TensorFlow's own methods take the names as keywords
    for spec, name in zip(specs, free, strict=True):
        flat.append(tf.TensorSpec(spec.shape, spec.dtype, name=name))

    @tf.function(input_signature=flat, autograph=False)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def signature(*tensors: Any) -> dict[str, Any]:
        out = serve(*tree.unflatten(tensors))
        leaves, out_tree = flatten(out)
        if isinstance(out, dict):
            paths = [keystr(p, simple=True, separator="_") for p in leaf_paths(out_tree)]
            return dict(zip(unique([_identifier(p) for p in paths]), leaves, strict=True))
        return {f"output_{i}": leaf for i, leaf in enumerate(leaves)}

    return signature


def _shape(x: Any) -> tuple[Any, ...] | None:
    """The shape; None for a specification of any rank."""
    if isinstance(x, tf.TensorSpec) and cast("int | None", x.shape.rank) is None:
        return None
    return tuple(x.shape)


def _traced(
    call: str,
    fun: Callable[..., object],
    args: tuple[object, ...],
    n_params: int,
    polymorphic_shapes: Any,
    constraints: Sequence[str],
    write: Write,
) -> tuple[Traced, tuple[str, ...]]:
    """The program of ``fun``, and names of its inputs."""
    leaves, tree = flatten((args, {}))
    names = argument_names(tree, parameter_names(fun))
    shapes = [_shape(x) for x in leaves]
    call_args = args[n_params:]
    inputs = flatten(call_args)[1]
    if polymorphic_shapes is None:
        specs = shape_rules.batch_specs(shapes[-inputs.num_leaves :], names[-inputs.num_leaves :])
    else:
        specs = shape_rules.spread_specs(call, polymorphic_shapes, inputs)
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
    request = Request(call, fun, tree, names, dtypes, shapes, specs, constraints, write)
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
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ArgumentSpecError(
                f"{call}: signature contains {short_repr(leaf)} of type {type(leaf).__name__}",
                expected="tf.TensorSpec, with None for sizes that may change; or ShapeDtypeStruct, "
                "or examples",
            )
    return tuple(tree_map(spec_of, list(signature)))


def _variable_like(leaf: Any) -> Any:
    """A parameter as a variable's value: a tensor, or a variable as it is."""
    if isinstance(leaf, tf.Variable):
        return leaf
    if hasattr(type(leaf), "__tf_tensor__") and isinstance(leaf.value, tf.Variable):
        return leaf.value  # Keras wraps variables in its own
    if isinstance(leaf, Array):
        return tf_adapter.export(leaf)
    if isinstance(leaf, np.ndarray | np.generic | tf.Tensor | bool | int | float | complex):
        return tf.convert_to_tensor(cast("Any", leaf))
    raise UnsupportedDtypeError(
        f"save: params contains {short_repr(leaf)} of type {type(leaf).__name__}",
        expected="arrays, tensors, variables, numbers, and trees of them",
    )


def _variable(value: Any, name: str) -> Any:
    if isinstance(value, tf.Variable):
        return value
    inexact = value.dtype.is_floating or value.dtype.is_complex
    return tf.Variable(value, trainable=inexact, name=_variable_name(name))


def _variable_name(path: str) -> str:
    """A path such as ``kernel/qkv`` in the characters that graphs allow."""
    return re.sub(r"[^A-Za-z0-9_./-]", "_", path).lstrip("_/-") or "params"


def _is_plain(tree: Any) -> bool:
    if isinstance(tree, tf.Variable):
        return True
    if type(tree) is dict:
        return all(isinstance(k, str) and _is_plain(v) for k, v in tree.items())
    return type(tree) in (list, tuple) and all(map(_is_plain, tree))


def _identifier(name: str) -> str:
    """A name that graphs and signatures take."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return text if text and not text[0].isdigit() else f"x_{text}".rstrip("_")
