"""Arrays: attributes, conversions, life and death."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.runtime_errors import DeletedArrayError


def test_attributes_say_what_the_array_is():
    """Shape, dtype, size and bytes are those of the elements."""
    x = tnp.zeros((2, 3), "int16")

    assert x.shape == (2, 3)
    assert np.dtype("int16") == x.dtype
    assert x.ndim == 2
    assert x.size == 6
    assert x.itemsize == 2
    assert x.nbytes == 12
    assert len(x) == 2


def test_array_cannot_be_made_by_its_class():
    """The class says how arrays are made."""
    with pytest.raises(TypeError, match="asarray"):
        tb.Array(np.zeros(3))


def test_conversion_to_numpy_aliases_and_is_read_only():
    """A read of a CPU array copies nothing and cannot change it."""
    x = tnp.arange(1000.0)
    host = np.asarray(x)

    assert host.ctypes.data == x.unsafe_buffer_pointer()
    assert not host.flags.writeable
    assert np.asarray(x, copy=True).flags.writeable


def test_conversion_to_another_dtype_without_a_copy_is_refused():
    """copy=False never copies."""
    # NumPy 2.5 says it itself.
    with pytest.raises(ValueError, match=r"without a copy|avoid copy"):
        np.asarray(tnp.arange(3.0), dtype=np.int32, copy=False)


def test_python_scalars_come_out():
    """Arrays of one element convert to Python numbers."""
    assert float(tnp.asarray(2.5)) == 2.5
    assert int(tnp.asarray(3)) == 3
    assert complex(tnp.asarray(1 + 2j)) == 1 + 2j
    assert [0, 1, 2][tnp.asarray(1)] == 1
    assert bool(tnp.asarray(1))
    assert tnp.arange(4).reshape(2, 2).tolist() == [[0, 1], [2, 3]]
    assert tnp.arange(4).item(3) == 3


def test_formats_are_those_of_ndarrays():
    """A specification is for arrays without axes: it would cut the text of others."""
    x = tnp.arange(3.0)

    assert str(x) == f"{x}"
    for spec in ".2", ">20":
        with pytest.raises(TypeError, match="without axes"):
            format(x, spec)


def test_repr_shows_elements_dtype_and_weak_type():
    """The printed form is that of NumPy with the dtype always there."""
    assert repr(tnp.arange(2.0).astype("float32")) == "Array([0., 1.], dtype=float32)"
    assert repr(tnp.asarray(1.0)) == "Array(1., dtype=float32, weak_type=True)"


def test_assignment_to_elements_names_the_way_out():
    """Arrays are immutable; the message says what to write."""
    x = tnp.zeros(3)
    with pytest.raises(TypeError, match=r"x\.at\[index\]\.set"):
        x[0] = 1.0


def test_arrays_are_not_hashable():
    """== is elementwise, so arrays are no dict keys."""
    with pytest.raises(TypeError):
        hash(tnp.zeros(3))


def test_copies_and_pickles_have_equal_elements():
    """copy, deepcopy and pickle give arrays of equal elements, dtype and weak type."""
    x = tnp.asarray([1.5, 2.5], tnp.bfloat16) if hasattr(tnp, "bfloat16") else tnp.ones(2)

    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    assert pickle.loads(pickle.dumps(tnp.asarray(1.0))).weak_type


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_outlive_donation(duplicate):
    """A copy has memory of its own: donating or deleting the array leaves the copy alone."""
    x = tnp.arange(3.0) + 1
    y = duplicate({"x": x})["x"] if duplicate is copy.deepcopy else duplicate(x)
    tb.jit(lambda a: a * 2, donate_argnums=0)(x)

    assert x.is_deleted()
    assert [1.0, 2.0, 3.0] == y.tolist()
    assert 6.0 == tb.grad(lambda v: duplicate(v) ** 2)(3.0)
    assert duplicate(tnp.asarray(1.0)).weak_type
    with pytest.raises(DeletedArrayError):
        duplicate(x)


def test_use_after_delete_is_a_clear_error():
    """A deleted array says so wherever it is used."""
    x = tnp.arange(3.0) + 1
    x.delete()

    assert x.is_deleted()
    for use in (lambda: x + 1, lambda: np.asarray(x), x.block_until_ready, lambda: tb.jit(abs)(x)):
        with pytest.raises(DeletedArrayError, match="deleted"):
            use()
    for ask in (x.on_device_size_in_bytes, x.unsafe_buffer_pointer, x.is_ready):
        with pytest.raises(DeletedArrayError, match="deleted"):
            ask()
    assert "deleted" in repr(x)


def test_views_outlive_their_array():
    """Host memory read from an array stays valid when the array is gone."""
    x = tnp.arange(10_000.0) * 2
    host = np.asarray(x)
    x.delete()
    del x
    gc.collect()

    np.testing.assert_array_equal(np.arange(10_000, dtype=np.float32) * 2, host)


def test_numpy_input_is_copied():
    """A later change of the NumPy array does not show in the array."""
    host = np.arange(100_000, dtype=np.float32)
    x = tnp.asarray(host)
    host[:] = -1

    assert float(x[1]) == 1.0


def test_big_endian_input_has_right_values():
    """Foreign byte order is converted, not reinterpreted."""
    host = np.arange(4, dtype=">f4")

    np.testing.assert_array_equal(np.arange(4, dtype=np.float32), np.asarray(tnp.asarray(host)))


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.array(["2020"], "M8[Y]")])
def test_elements_that_no_device_has_are_refused(bad):
    """Strings, objects and dates get an error that names the dtype."""
    with pytest.raises(TypeError, match="dtype"):
        tnp.asarray(bad)


METHODS_OF_THE_CLASS = """
import tracebridge as tb

assert "sum" not in vars(tb.Array)
assert {"sum", "at", "shape", "tolist"} <= set(dir(tb.Array))
assert isinstance(tb.Array.T, property)
assert not hasattr(tb.Array, "missing")
x = tb.numpy.arange(6.0).reshape(2, 3)
assert tb.vmap(tb.Array.sum)(x).tolist() == [3.0, 12.0]
assert tb.jit(tb.Array.sum, static_argnums=1)(x, 1).tolist() == [3.0, 12.0]
assert tb.Array.__add__(x, 1).shape == (2, 3)
"""


def test_methods_of_the_class():
    """The class has what its arrays have, before any array was asked for it."""
    subprocess.run([sys.executable, "-W", "error", "-c", METHODS_OF_THE_CLASS], check=True)


def test_missing_names_of_the_class():
    """The message is Python's own."""
    with pytest.raises(AttributeError, match="type object 'Array' has no attribute 'missing'"):
        _ = tb.Array.missing


@pytest.mark.parametrize(
    "values",
    [np.arange(3), np.float32(2.5), np.array([[True, False]]), np.zeros((0, 2)), np.ones(2) + 1j],
    ids=str,
)
def test_bytes_are_those_of_the_elements(values):
    """``bytes(x)`` takes the memory: neither that many zeros nor an element for each byte."""
    x = tnp.asarray(values)

    assert bytes(np.asarray(x).tobytes()) == bytes(x)


def _buffer(x):
    """The memory of ``x``: Python asks for it since version 3.12."""
    return memoryview(x) if sys.version_info >= (3, 12) else x.__buffer__(0)


def test_the_buffer_of_an_array_is_its_memory():
    """Read-only, with its shape and its type, and for longer than the array lives."""
    x = tnp.arange(6.0).reshape(2, 3)
    expected = np.asarray(x).copy()

    view = _buffer(x)
    del x
    gc.collect()

    assert ((2, 3), "f", True) == (view.shape, view.format, view.readonly)
    assert expected.tolist() == view.tolist()


def test_types_without_a_letter_have_no_buffer():
    """bfloat16 is none of the types of the protocol: NumPy takes another way."""
    x = tnp.ones(2, tnp.bfloat16)

    with pytest.raises(BufferError, match="bfloat16"):
        _buffer(x)
    assert [1, 1] == np.asarray(x).tolist()
    assert bytes(x) == np.asarray(x).tobytes()
