"""What ``tracebridge.experimental.jax2tf`` has: ``to_tf`` and ``call_tf`` by other rules."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import tensorflow as tf

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.symbolic import symbolic_args_specs
from tracebridge._api.args.values import short_repr
from tracebridge._api.exports.checks import DisabledSafetyCheck
from tracebridge._api.programs.eval_shape import eval_shape
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.util.public_path import public_path
from tracebridge.tf._xla_call_module import PLATFORMS
from tracebridge.tf.argument_rules import narrow
from tracebridge.tf.artifacts import writer
from tracebridge.tf.calling import called
from tracebridge.tf.convert import Options, converted, row_dtype
from tracebridge.tf.shapes import PolyShape

_NUMBERS = (bool, int, float, complex)
_SHARDING = "tensorflow.python.compiler.xla.experimental.xla_sharding"


@public_path("tracebridge.experimental.jax2tf")
@final
class UnspecifiedOutputShapeDtype:
    """Stands for types of results that ``call_tf`` is to find out."""


_UNSPECIFIED = UnspecifiedOutputShapeDtype()


@api_boundary
@tf.autograph.experimental.do_not_convert  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
def convert(
    fun_jax: Callable[..., object],
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] = (),
    with_gradient: bool = True,
    enable_xla: bool = True,
    native_serialization: bool = True,
    native_serialization_platforms: Sequence[str] | None = None,
    native_serialization_disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Any]:
    """``fun_jax`` as a function of TensorFlow tensors, eager and in ``tf.function``.

    ``tracebridge.tf.to_tf`` with the rules of ``jit`` for arguments: those of 64 bits become 32,
    unless the option ``enable_x64`` is on, and Python numbers are as wide as arrays are by default.
    The gradient of an input that no result depends on is zero. In graphs arguments are named
    ``jax2tf_arg_0``, ... and results ``jax2tf_out``.

    Args:
        fun_jax: function of arrays and trees of arrays.
        polymorphic_shapes: names of sizes that may change, such as ``"b, _, ..."``, as in
            ``to_tf``.
        polymorphic_constraints: what is known of the sizes, such as ``"b >= 2"``.
        with_gradient: whether tapes differentiate the result; otherwise that is an error.
        enable_xla: False writes the program in TensorFlow's own operations, as ``native_ops`` of
            ``to_tf``, for converters that do not know its operation for XLA.
        native_serialization: False does the same.
        native_serialization_platforms: what the program is for: some of ``"cpu"``, ``"cuda"``,
            ``"rocm"`` and ``"tpu"``; by default all of them.
        native_serialization_disabled_checks: ``DisabledSafetyCheck.platform()`` lets TensorFlow run
            the program elsewhere, ``DisabledSafetyCheck.custom_call(target)`` lets it call what
            each process that runs it has to register.

    Returns:
        A function that takes tensors, variables, NumPy arrays and numbers where ``fun_jax`` takes
        arrays, and returns tensors.

    Raises:
        ArgumentSpecError: an option has a value that it does not take, or two exclude each other.
        InconclusiveDimensionError: when called: the program depends on relations of unknown
            sizes; the message says what to pass.
        ShapeMismatchError: when called: sizes do not fit ``polymorphic_shapes``.

    >>> import tensorflow as tf
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import jax2tf
    >>> f = tf.function(jax2tf.convert(tnp.sin, polymorphic_shapes="(b, _)"), autograph=False)
    >>> f(tf.ones((2, 3))).shape
    TensorShape([2, 3])
    """
    check_callable("convert", fun_jax)
    label = f"convert({name_of(fun_jax)})"
    native_ops = not (enable_xla and native_serialization)
    platforms = native_serialization_platforms or None
    checks = native_serialization_disabled_checks
    _check_options(label, native_ops, platforms, checks)
    write = writer(label, native_ops, platforms, checks)
    constraints = tuple(polymorphic_constraints)
    options = Options(label, polymorphic_shapes, constraints, with_gradient, write, as_jit=True)
    return converted(fun_jax, options)


def _check_options(
    label: str,
    native_ops: bool,
    platforms: Sequence[str] | None,
    checks: Sequence[DisabledSafetyCheck],
) -> None:
    """Raise for what ``writer`` would refuse by other names."""
    option = "native_serialization_platforms"
    for platform in platforms or ():
        if platform not in PLATFORMS:
            expected = f"a sequence of some of {', '.join(PLATFORMS)}"
            msg = f"{label}: {option} contains {short_repr(platform)}"
            raise ArgumentSpecError(msg, expected=expected)
    if native_ops and (platforms is not None or checks):
        raise ArgumentSpecError(
            f"{label}: enable_xla=False or native_serialization=False with {option} or "
            "native_serialization_disabled_checks",
            expected="one of both: TensorFlow's own operations run wherever it has kernels",
        )


@api_boundary
def eval_polymorphic_shape(
    fun_jax: Callable[..., object], *, polymorphic_shapes: Any = None
) -> Callable[..., Any]:
    """The types of the results of ``fun_jax`` where sizes may change, without running it.

    Args:
        fun_jax: function of arrays and trees of arrays.
        polymorphic_shapes: names of sizes, as in ``convert``.

    Returns:
        A function of arguments that have a shape and a dtype. It gives the tree of results with a
        ``ShapeDtypeStruct`` for each, and the same tree with strings that ``polymorphic_shapes``
        takes.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import jax2tf
    >>> x = tb.ShapeDtypeStruct((2, 3), "float32")
    >>> jax2tf.eval_polymorphic_shape(lambda x: x.T, polymorphic_shapes=["b, _"])(x)
    (ShapeDtypeStruct(shape=(3, b), dtype=float32), '(3, b)')
    """
    check_callable("eval_polymorphic_shape", fun_jax)
    texts = tree_map(
        lambda x: str(x) if isinstance(x, PolyShape) else x,
        polymorphic_shapes,
        is_leaf=lambda x: isinstance(x, PolyShape),
    )

    def shapes(*args: object) -> tuple[Any, Any]:
        found = eval_shape(fun_jax, *symbolic_args_specs(args, texts))
        return found, tree_map(lambda x: str(x.shape), found)

    return api_boundary(shapes)


@api_boundary
def call_tf(
    callable_tf: Callable[..., Any],
    has_side_effects: bool = True,
    ordered: bool = False,
    output_shape_dtype: Any = _UNSPECIFIED,
    call_tf_graph: bool = False,
) -> Callable[..., Any]:
    """``callable_tf``, a function of TensorFlow tensors, as a function of arrays in traced code.

    ``tracebridge.tf.call_tf`` for programs that do not name variables: their values are read when
    the program runs, and it cannot be differentiated by them. Numbers are arrays. A function that
    writes to variables or draws random numbers is called back each time the program gets there,
    and has no derivatives; all others have those of tapes.

    Args:
        callable_tf: function of dense tensors.
        has_side_effects: False makes it an error if the function has some.
        ordered: whether calls with side effects keep the order of the program.
        output_shape_dtype: tree of ``ShapeDtypeStruct``, the types of the results, where their
            shapes depend on values.
        call_tf_graph: accepted without effect: what TensorFlow compiles for XLA is a part of the
            program, and ``convert`` refuses programs with functions that it does not.

    Returns:
        A function of trees of arrays, which returns what ``callable_tf`` returns, with arrays in
        the place of tensors.

    Raises:
        CallbackError: when called: the function raised, or does not do what was said of it.

    >>> import tensorflow as tf
    >>> import tracebridge as tb
    >>> from tracebridge.experimental import jax2tf
    >>> print(tb.jit(jax2tf.call_tf(tf.math.lgamma))(3.0))
    0.6931472
    """
    check_callable("call_tf", callable_tf)
    del call_tf_graph
    kind = UnspecifiedOutputShapeDtype
    unknown = isinstance(output_shape_dtype, kind) or output_shape_dtype is kind
    declared = None if unknown else output_shape_dtype
    effects = None if has_side_effects else False
    call = called(callable_tf, [], declared, None, effects, ordered)

    @functools.wraps(callable_tf, updated=())
    def with_arrays(*args: object, **kwargs: object) -> Any:
        args, kwargs = tree_map(_array_of_number, (args, kwargs))
        return tree_map(_array_of_number, call(*args, **kwargs))

    return api_boundary(tf.autograph.experimental.do_not_convert(with_arrays))


def _array_of_number(x: object) -> Any:
    return as_value(np.asarray(x)) if type(x) in _NUMBERS else x


@api_boundary
def dtype_of_val(val: object) -> tf.DType:
    """The TensorFlow dtype that ``convert`` gives an argument.

    Args:
        val: tensor, variable, array or number.

    >>> from tracebridge.experimental import jax2tf
    >>> jax2tf.dtype_of_val(1.0)
    tf.float32
    """
    if isinstance(val, tf.Tensor | tf.Variable):
        return narrow(val.dtype)
    return row_dtype(as_value(val).aval.dtype)


@api_boundary
def split_to_logical_devices(tensor: Any, partition_dimensions: Sequence[int] | None) -> Any:
    """``tensor`` with a note for XLA of how it is divided among devices.

    Args:
        tensor: a tensor of TensorFlow.
        partition_dimensions: into how many parts each axis is divided; None for all of it on each
            device.

    Raises:
        ArgumentSpecError: there is not one number of parts for each axis.

    >>> import tensorflow as tf
    >>> from tracebridge.experimental import jax2tf
    >>> split = lambda x: jax2tf.split_to_logical_devices(x, [2, 1])
    >>> tf.function(split)(tf.ones((2, 3))).shape
    TensorShape([2, 3])
    """
    sharding: Any = importlib.import_module(_SHARDING)
    if partition_dimensions is None:
        return sharding.replicate(tensor, use_sharding_op=True)
    parts = tuple(partition_dimensions)
    rank = tensor.shape.rank
    if rank is not None and len(parts) != rank:
        raise ArgumentSpecError(
            f"split_to_logical_devices: partition_dimensions is {short_repr(parts)} for a tensor "
            f"of shape {tensor.shape}",
            expected="one number of parts for each axis",
        )
    devices = np.arange(math.prod(parts)).reshape(parts)
    return sharding.tile(tensor, devices, use_sharding_op=True)
