"""The XlaCallModule operation: the one place that uses what TensorFlow does not document.

The operation is not in ``tf.raw_ops``, trusts the result dtypes that it is given (a wrong one
reads foreign memory), and takes modules up to the StableHLO version of TensorFlow's own copy of
XLA. So arguments are checked here, and versions are asked from TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from tracebridge.core._jaxlib.mlir import current_stablehlo_version
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.export.portable import smaller_version
from tracebridge.interop.tf_adapter import ROWS

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray

# Version 9 takes effects from the types of main; 4 to 8 need attributes that we do not write.
_OLDEST, _NEWEST = 9, 10
# One program for all: main takes the number of the platform in this list.
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
# What changes an operation that stands in a graph already.
_OF_OPERATIONS = ("_set_attr", "_set_type_list_attr", "_set_shape_list_attr", "_add_outputs")
CAN_REPLACE = all([hasattr(tf.Operation, name) for name in _OF_OPERATIONS])
"""Whether this TensorFlow has them."""
_OPS = "tensorflow.compiler.tf2xla.ops.gen_xla_ops"
_XLA = "tensorflow.compiler.tf2xla.python.xla"
_STABLEHLO = "tensorflow.compiler.mlir.stablehlo.stablehlo"
_EXECUTE = "tensorflow.python.eager.execute"
_CONTEXT = "tensorflow.python.eager.context"


@functools.cache
def _operation() -> tuple[Any, int]:
    """The operation and the version to ask for.

    Raises:
        ExportError: this TensorFlow has none that we can use.
    """
    try:
        call = importlib.import_module(_OPS).xla_call_module
        newest = importlib.import_module(_XLA).call_module_maximum_supported_version()
    except (ImportError, AttributeError) as error:
        msg = f"TensorFlow {tf.__version__} has no XlaCallModule operation that we know"
        raise ExportError(msg, expected="TensorFlow 2.16 or later, with XLA") from error
    if newest < _OLDEST:
        raise ExportError(
            f"TensorFlow {tf.__version__} takes XlaCallModule up to version {newest}",
            expected=f"at least {_OLDEST}",
            hint="install a newer TensorFlow",
        )
    return call, min(newest, _NEWEST)


@functools.cache
def _executor() -> tuple[Any, Callable[[], Any]] | None:
    """The module that runs operations whose attributes are prepared, and the context for it.

    None where this TensorFlow has moved them: then the operation prepares its attributes in each
    call, for a third of the time that it takes.
    """
    try:
        execute = importlib.import_module(_EXECUTE)
        context = importlib.import_module(_CONTEXT).context
    except (ImportError, AttributeError):
        return None
    return (execute, context) if callable(getattr(execute, "execute", None)) else None


@functools.cache
def stablehlo_target() -> str:
    """The newest StableHLO version that jaxlib writes and TensorFlow reads."""
    try:
        theirs = importlib.import_module(_STABLEHLO).get_current_version()
    except (ImportError, AttributeError) as error:
        msg = f"TensorFlow {tf.__version__} does not say which StableHLO it reads"
        raise ExportError(msg, expected="TensorFlow 2.16 or later") from error
    return smaller_version(current_stablehlo_version(), str(theirs))


@functools.cache
def tf_dtype(dtype: np.dtype[Any]) -> tf.DType:
    """TensorFlow's dtype of one of ours.

    Raises:
        UnsupportedExchangeDtypeError: it has none.
    """
    return tf.as_dtype(ROWS.name(dtype))


def tf_shape(shape: Sequence[object]) -> tuple[int | None, ...]:
    """A shape with None for symbolic dimensions."""
    return tuple([d if type(d) is int else None for d in shape])


_CONSTANTS: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()


def _constant(array: np.ndarray[Any, Any]) -> Any:
    """A tensor with the elements of ``array``, one for all programs that use them.

    The program of a derivative has the constants of the function, and a NumPy array becomes a
    constant at each use: a SavedModel would hold all of them.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    key = (array.dtype.name, array.shape, hashlib.blake2b(data.data).digest())
    found = _CONSTANTS.get(key)
    if found is None:
        found = _CONSTANTS[key] = tf.constant(array)
    return found


def input_types(avals: Sequence[ShapedArray]) -> list[tuple[tf.DType, tf.TensorShape]]:
    """What ``checked`` compares tensors with."""
    return [(tf_dtype(a.dtype), tf.TensorShape(tf_shape(a.shape))) for a in avals]


def _is_known(shape: Any, wanted: Any) -> bool:
    """Whether a tensor has a rank, and the sizes of the program; else they are checked later."""
    known = cast("int | None", shape.rank) is not None
    return known and all([w is None or s is not None for s, w in zip(shape, wanted, strict=True)])


def checked(
    call: str,
    names: Sequence[str],
    tensors: Sequence[Any],
    types: Sequence[tuple[tf.DType, Any]],
) -> list[Any]:
    """The tensors, if they have the dtypes and shapes of a program.

    Raises:
        ShapeMismatchError: one has not.
    """
    for i, (tensor, (dtype, shape)) in enumerate(zip(tensors, types, strict=True)):
        # Most are the same objects, or the same sizes; what else fits takes ten times as long.
        same = tensor.dtype is dtype or tensor.dtype == dtype
        if not same or not (tensor.shape == shape or tensor.shape.is_compatible_with(shape)):
            name = names[i] if i < len(names) else f"argument {i}"
            raise ShapeMismatchError(
                f"{call}: {name} is {tensor.dtype.name} of shape {tensor.shape}",
                expected=f"{dtype.name} of shape {shape}",
            )
    if tf.executing_eagerly():
        return list(tensors)
    return [
        t if _is_known(t.shape, shape) else tf.ensure_shape(t, shape)
        for t, (_, shape) in zip(tensors, types, strict=True)
    ]


class _PureOperation(tf.Operation):
    """The operation in a graph, which TensorFlow takes for one with effects: ours have none.

    A ``tf.function`` runs those one after the other, whether or not anything needs their results:
    also in the trace of a body that it vectorizes.
    """

    _is_stateful = False


class CallModule:
    """One artifact as a function of flat tensors."""

    __slots__ = ("_attributes", "_constants", "_data", "_disabled", "_functions", "_in", "_name",
                 "_names", "_platforms", "_shapes", "_types")  # fmt: skip

    def __init__(
        self, program: Any, names: Sequence[str], disabled_checks: Sequence[str] = ()
    ) -> None:
        self._name = program.name
        self._disabled = list(disabled_checks)
        self._names = tuple(names)
        self._data = program.data
        self._functions = list(program.functions)
        self._platforms = [p.upper() for p in program.platforms]
        self._in = input_types(program.in_avals)
        # Programs hold float0, which stands for no tangent, as booleans.
        self._types = [
            tf.bool if a.dtype == float0 else tf_dtype(a.dtype) for a in program.out_avals
        ]
        self._shapes = [tf_shape(a.shape) for a in program.out_avals]
        with tf.init_scope():
            self._constants = [_constant(c._to_numpy()) for c in program.constants]
        self._attributes = self._prepared()

    def _prepared(self) -> tuple[Any, ...] | None:
        """Names and values of the attributes; None for the operation to prepare them.

        Functions that the program calls have to be known to whoever runs it.
        """
        if self._functions or not self._types or _executor() is None:
            return None
        inputs = [*[c.dtype for c in self._constants], *[dtype for dtype, _ in self._in]]
        values = {
            "version": _operation()[1],
            "module": self._data,
            "Sout": [list(shape) for shape in self._shapes],
            "Tout": [dtype.as_datatype_enum for dtype in self._types],
            "Tin": [dtype.as_datatype_enum for dtype in inputs],
            "dim_args_spec": [],
            "platforms": [p.encode() for p in self._platforms],
            "function_list": [],
            "has_token_input_output": False,
            "disabled_checks": [c.encode() for c in self._disabled],
            "use_shardy_partitioner": False,
        }
        return tuple([part for pair in values.items() for part in pair])

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """The results at ``tensors``.

        Raises:
            ShapeMismatchError: a tensor does not have the shape or dtype of the program.
        """
        return self.run(checked(self._name, self._names, tensors, self._in))

    @property
    def results(self) -> list[Any]:
        """What TensorFlow knows of the results."""
        pairs = zip(self._shapes, self._types, strict=True)
        return [tf.TensorSpec(shape, dtype) for shape, dtype in pairs]

    def replaced(self, outs: Sequence[Any], wider: CallModule) -> list[Any] | None:
        """``outs`` and further results: ``wider`` takes the place of this program in their graph.

        None where it cannot. So TensorFlow's own loops and functions get results for derivatives.
        """
        operation, n = outs[0].op, len(self._types)
        same = len(self._constants) == len(wider._constants) and all(
            map(operator.is_, self._constants, wider._constants)
        )
        fits = same and self._functions == wider._functions and self._types == wider._types[:n]
        if not fits or not CAN_REPLACE:
            return None
        shapes = [tf.TensorShape(shape) for shape in wider._shapes]
        operation._set_attr("module", tf.compat.v1.AttrValue(s=wider._data))
        operation._set_type_list_attr("Tout", wider._types)
        operation._set_shape_list_attr("Sout", shapes)
        operation._add_outputs(wider._types[n:], shapes[n:])
        return list(operation.outputs)

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """The results at ``tensors``, which fit."""
        if tf.executing_eagerly():
            return self.run_now(tensors)
        for function in self._functions:
            function.add_to_graph(tf.compat.v1.get_default_graph())
        outs = self._operation(tensors)
        if outs:
            # Where TensorFlow does not allow it, the operation runs as it says of itself.
            with contextlib.suppress(TypeError):
                outs[0].op.__class__ = _PureOperation
        return outs

    def run_now(self, tensors: Sequence[Any]) -> list[Any]:
        """The results at eager ``tensors``, which fit."""
        executor = None if self._attributes is None else _executor()
        if executor is None:
            for function in self._functions:
                function.add_to_graph(None)
            return self._operation(tensors)
        execute, context = executor
        return execute.execute(
            b"XlaCallModule",
            len(self._types),
            inputs=[*self._constants, *tensors],
            attrs=self._attributes,
            ctx=context(),
        )

    def _operation(self, tensors: Sequence[Any]) -> list[Any]:
        if not self._types:
            return []
        call, version = _operation()
        return list(
            call(
                [*self._constants, *tensors],
                version=version,
                module=self._data,
                Sout=self._shapes,
                Tout=self._types,
                platforms=self._platforms,
                dim_args_spec=[],
                function_list=self._functions,
                has_token_input_output=False,
                disabled_checks=self._disabled,
                use_shardy_partitioner=False,
            )
        )
