"""Exchange with TensorFlow: shared memory, and guards against what aborts the process."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.dlpack import from_dlpack
from tracebridge.errors import ExchangeError, UnsupportedExchangeDtypeError
from tracebridge.interop.registry import import_tensor
from tracebridge.interop.tf_adapter import ROWS, tf_adapter

pytestmark = pytest.mark.tf

NAMES = list(ROWS.rows)


def tensor(shape, name):
    return tf.constant(np.ones(shape, dtype=tf.as_dtype(name).as_numpy_dtype))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0, 2), (5,), (3, 4)], ids=str)
def test_round_trip(name, shape):
    """Every dtype that both have; memory is shared on the way in."""
    x = tensor(shape, name)

    array = import_tensor(x)
    back = tf_adapter.export(array)

    assert (name, shape) == (array.dtype.name, array.shape)
    assert x.dtype == back.dtype
    assert np.array_equal(np.asarray(x.numpy()), np.asarray(back.numpy()))
    if np.prod(shape) and shape:
        assert x._numpy().__array_interface__["data"][0] == array.unsafe_buffer_pointer()


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "complex128"])
def test_export_shares_memory(name):
    """On the way out too."""
    array = put_numpy(np.ones(16, name))

    back = tf_adapter.export(array)

    assert back._numpy().__array_interface__["data"][0] == array.unsafe_buffer_pointer()


def test_operations_on_exported_memory():
    """TensorFlow's kernels abort on misaligned memory: whatever the Array is, they can run."""
    raw = np.zeros(4096, np.uint8)
    start = -raw.ctypes.data % 64
    for offset in (0, 4, 16, 32):
        host = raw[start + offset : start + offset + 64].view(np.float32)
        host[:] = 1.0
        exported = tf_adapter.export(from_dlpack(host))
        assert 32.0 == float(tf.reduce_sum(tf.identity(exported) + exported))


def test_numpy_asarray_takes_tensors():
    """numpy.asarray shares the memory and keeps 64-bit dtypes."""
    x = tf.range(4, dtype=tf.int64)

    array = tnp.asarray(x)

    assert array.dtype == np.int64
    assert x._numpy().__array_interface__["data"][0] == array.unsafe_buffer_pointer()


def test_variables_give_their_present_value():
    """A later assignment is not seen."""
    v = tf.Variable([1.0, 2.0])
    array = import_tensor(v)

    v.assign_add([10.0, 10.0])

    assert [1.0, 2.0] == array.tolist()


@pytest.mark.parametrize(
    "make",
    [lambda: tf.constant("text"), lambda: tf.constant(["a", "b"])],
    ids=["scalar", "vector"],
)
def test_strings_are_refused(make):
    """to_dlpack of a string tensor would abort."""
    with pytest.raises(UnsupportedExchangeDtypeError, match="string"):
        import_tensor(make())


@pytest.mark.parametrize("name", ["int4", "float8_e4m3fnuz"])
def test_dtypes_that_tensorflow_does_not_exchange(name):
    """A clear error."""
    import ml_dtypes

    with pytest.raises(UnsupportedExchangeDtypeError, match=name):
        tf_adapter.export(put_numpy(np.zeros(4, getattr(ml_dtypes, name))))


def test_other_kinds_of_tensors_are_refused():
    """Sparse, ragged and symbolic tensors."""
    with pytest.raises(ExchangeError, match="SparseTensor"):
        import_tensor(tf.sparse.from_dense([1, 0]))
    with pytest.raises(ExchangeError, match="RaggedTensor"):
        import_tensor(tf.ragged.constant([[1], [1, 2]]))

    @tf.function
    def traced(x):
        with pytest.raises(ExchangeError, match="symbolic"):
            import_tensor(x)
        return x

    traced(tf.ones(2))


def test_deleting_an_exported_array():
    """The tensor keeps its values; the process lives (see test_ownership for the capsule)."""
    array = put_numpy(np.arange(16.0))
    x = tf_adapter.export(array)

    array.delete()

    assert 120.0 == float(tf.reduce_sum(x))


def test_trainable_variables_are_not_frozen():
    """Inside a transformed function they would get no gradient: an error says to pass them."""
    v = tf.Variable([1.0, 2.0])
    fixed = tf.Variable([1.0, 2.0], trainable=False)
    x = tnp.ones(2)

    for convert in (tnp.asarray, tnp.array, from_dlpack):
        for transform in (tb.jit, tb.vmap, lambda f: tb.grad(lambda x: tnp.sum(f(x)))):
            with pytest.raises(ExchangeError, match="pass it as an argument"):
                transform(lambda x, c=convert: x * c(v))(x)
            transform(lambda x, c=convert: x * c(v.value()))(x)
        assert [1.0, 2.0] == convert(v).tolist() == convert(fixed).tolist()


def test_weights_of_keras_are_not_frozen():
    """They are variables too, and Arrays outside of traces."""
    keras = pytest.importorskip("keras")
    weight = keras.Variable([1.0, 2.0], name="kernel")
    fixed = keras.Variable([1, 2], trainable=False, dtype="int32")

    for convert in (tnp.asarray, tnp.array):
        for transform in (tb.jit, tb.vmap, lambda f: tb.grad(lambda x: tnp.sum(f(x)))):
            with pytest.raises(ExchangeError, match="variable 'kernel', which a function closes"):
                transform(lambda x, c=convert: x * c(weight))(tnp.ones(2))
            transform(lambda x, c=convert: x * c(weight.numpy()) * c(fixed))(tnp.ones(2))
        assert [1.0, 2.0] == convert(weight).tolist()
        assert ("int32", [1, 2]) == (convert(fixed).dtype.name, convert(fixed).tolist())
