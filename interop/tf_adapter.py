"""Exchange with TensorFlow: eager tensors and variables, with the guards that TensorFlow lacks.

Some misuse of its DLPack functions ends the process instead of raising: operations on memory that
is not aligned to 64 bytes, strings. So dtypes are checked against a table and addresses before
memory is handed over.
"""

from __future__ import annotations

from typing import Any, cast, final

import numpy as np
import tensorflow as tf

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core.errors.exchange_errors import ExchangeError, UnsupportedExchangeDtypeError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.interop.adapter import TensorAdapter, refuse_to_freeze
from tracebridge.interop.devices import CPU, placement_of
from tracebridge.interop.dlpack import import_capsule
from tracebridge.interop.dtypes import DISGUISED, PLAIN, DtypeRows, is_plain
from tracebridge.interop.layout import is_aligned
from tracebridge.interop.ownership import copied, export_buffer, exportable, placed, take_host

ROWS = DtypeRows(
    "TensorFlow",
    {**PLAIN, **{n: DISGUISED[n] for n in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}},
)
# TensorFlow's DLPack importer knows none of these; they cross as NumPy arrays, by a copy.
_NOT_BY_CAPSULE = frozenset({"float8_e4m3fn", "float8_e5m2"})
# What Keras derives its variables from: also tensors of TensorFlow itself are such.
_OfOthers: Any = tf.__internal__.types.Tensor


@final
class TensorFlowAdapter(TensorAdapter):
    """Eager tensors and variables, also of Keras. Variables give their present value."""

    name = "TensorFlow"

    def accepts(self, cls: type) -> bool:
        return issubclass(
            cls, tf.Tensor | tf.Variable | tf.SparseTensor | tf.RaggedTensor | _OfOthers
        )

    def import_(self, x: object, *, device: object = None, copy: bool | None = None) -> Array:
        if getattr(x, "trainable", False):
            known: Any = x
            own = isinstance(x, tf.Variable)
            name = known.name if own else known.path
            refuse_to_freeze(
                f"the trainable variable {name!r}", "x.value()" if own else "x.numpy()"
            )
        tensor = _eager(x)
        ours = ROWS.ours(tensor.dtype.name)
        if "GPU" in tensor.device:
            return placed(_import_device(tensor, copy), device, copy)
        view = _host_view(tensor, plain=is_plain(ours))
        where = placement_of(CPU, 0)
        return placed(take_host(view, where, copy=copy, what="the TensorFlow tensor"), device, copy)

    def export(self, array: Array, *, copy: bool | None = None) -> Any:
        dtype = ROWS.name(array.dtype)
        if dtype in _NOT_BY_CAPSULE:
            return tf.constant(exportable(array, copy, "TensorFlow")._to_numpy())
        source = exportable(array, copy, "TensorFlow")
        if not array.size:
            return tf.zeros(array.shape, dtype)
        if source.device.platform == "cpu" and not is_aligned(source.unsafe_buffer_pointer()):
            source = copied(source)
        return tf.experimental.dlpack.from_dlpack(door.to_capsule(export_buffer(source)))


def _eager(x: object) -> Any:
    """An eager, dense tensor with values."""
    if isinstance(x, tf.Variable):
        x = x.value()
    elif isinstance(x, _OfOthers) and not isinstance(x, tf.Tensor):
        x = tf.convert_to_tensor(cast("Any", x))
    if isinstance(x, tf.Tensor) and not tf.is_symbolic_tensor(x):
        return x
    if isinstance(x, tf.SparseTensor | tf.RaggedTensor):
        what, hint = f"a {type(x).__name__}", "make it dense: tf.sparse.to_dense, x.to_tensor()"
    else:
        what = "a symbolic TensorFlow tensor, which has no values"
        hint = "call the function eagerly, or convert it with tracebridge.tf"
    raise ExchangeError(f"{what} cannot become an array", hint=hint)


def _host_view(tensor: Any, *, plain: bool) -> np.ndarray[Any, Any]:
    """An ndarray over the memory of a tensor on the CPU."""
    if plain:
        return np.asarray(memoryview(tensor))
    # memoryview does not know bfloat16 and float8; _numpy gives an ndarray unless ndim is 0.
    if tensor.shape.rank == 0:
        return tf.reshape(tensor, [1])._numpy().reshape(())
    return tensor._numpy()


def _import_device(tensor: Any, copy: bool | None) -> Array:
    kind, ordinal = tensor.__dlpack_device__()
    where = placement_of(int(kind), int(ordinal))
    try:
        capsule = tf.experimental.dlpack.to_dlpack(tensor)
    except (tf.errors.InvalidArgumentError, TypeError) as error:
        msg = f"a TensorFlow tensor of dtype {tensor.dtype.name} cannot become an array: {error}"
        raise UnsupportedExchangeDtypeError(msg) from error
    return import_capsule(capsule, where, stream=None, copy=copy, what="TensorFlow tensor")


tf_adapter = TensorFlowAdapter()
