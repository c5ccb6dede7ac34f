"""Mutable references outside of traces: reading, writing, types, ending."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
import tracebridge.ref
from tracebridge.core.control.refs.cells import AbstractRef
from tracebridge.core.control.refs.ref import RefView
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.shape_errors import BroadcastError, IndexingError
from tracebridge.core.ir.aval import ShapedArray

INDICES = [
    ...,
    (),
    0,
    -1,
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    (slice(None), 1),
    (..., 0),
    (1, 2),
    (0, ..., 1),
    np.array([0, 2]),
    (np.array([0, 1]), np.array([2, 0])),
    (slice(0, 2), np.array([1])),
    np.array([True, False, True]),
]
by_index = pytest.mark.parametrize("index", INDICES, ids=repr)


def base() -> np.ndarray:
    """Three rows of four numbers."""
    return np.arange(12, dtype=np.float32).reshape(3, 4)


@by_index
def test_reads_are_those_of_numpy(index):
    """An index of a reference reads what it reads of an array."""
    np.testing.assert_array_equal(base()[index], tb.new_ref(base())[index])


@by_index
def test_writes_are_those_of_numpy(index):
    """An index of a reference writes what it writes in an array."""
    expected, ref = base(), tb.new_ref(base())
    value = np.full(expected[index].shape, 50, np.float32)
    expected[index] = value
    ref[index] = value
    np.testing.assert_array_equal(expected, ref[...])

    expected[index] += 2.0
    ref[index] += 2.0
    np.testing.assert_array_equal(expected, ref[...])


@by_index
def test_swap_gives_what_was_there(index):
    """swap is a read and a write."""
    expected, ref = base(), tb.new_ref(base())

    np.testing.assert_array_equal(expected[index], tb.ref.swap(ref, index, -1.0))
    expected[index] = -1.0
    np.testing.assert_array_equal(expected, ref[...])


def test_addupdate_adds_every_term():
    """An element that occurs several times gets every term, as np.add.at does."""
    expected, ref = base(), tb.new_ref(base())
    rows = np.array([0, 0, 2])
    np.add.at(expected, rows, 1.0)
    tb.ref.addupdate(ref, rows, 1.0)
    np.testing.assert_array_equal(expected, ref[...])

    tb.ref.addupdate(ref, None, base())
    np.testing.assert_array_equal(expected + base(), ref[...])


def test_writes_change_no_array():
    """Arrays that went into a reference or came out of it stay as they are."""
    before = tnp.ones(3)
    ref = tb.new_ref(before)
    ref[0] = 5.0
    seen = ref[...]
    ref[1] = 7.0

    assert [1.0, 1.0, 1.0] == before.tolist()
    assert [5.0, 1.0, 1.0] == seen.tolist()
    assert [5.0, 7.0, 1.0] == ref[...].tolist()


def test_a_part_reads_and_writes_the_whole():
    """ref.at[index] is a reference to a part, also of a part."""
    ref = tb.new_ref(base())
    row = ref.at[1]
    part = row.at[1:3]
    assert isinstance(part, RefView)
    assert ((4,), (2,), 2, 1) == (row.shape, part.shape, part.size, part.ndim)
    assert np.float32 == part.dtype
    assert not part.weak_type

    part[0] = 90.0
    part[...] += 1.0
    part.addupdate(3.0, 1)
    expected = base()
    expected[1, 1:3] = [91.0, 10.0]
    np.testing.assert_array_equal(expected, ref[...])
    np.testing.assert_array_equal([91.0, 10.0], tb.ref.get(part))
    assert 10.0 == float(tb.ref.swap(part, 1, 0.0))


def test_type():
    """A reference knows shape, dtype and place, and is equal to itself only."""
    ref = tb.new_ref(base(), kind="statistics")
    assert ((3, 4), 2, 12, 3) == (ref.shape, ref.ndim, ref.size, len(ref))
    assert np.float32 == ref.dtype
    assert ref[...].sharding == ref.sharding
    assert not ref.committed
    assert ref[...].unsafe_buffer_pointer() == ref.unsafe_buffer_pointer()
    assert AbstractRef(ShapedArray((3, 4), np.float32), None, "statistics") == tb.typeof(ref)
    assert "Ref{float32[3,4]}" == repr(tb.typeof(ref))
    assert ((3, 4), np.float32, 2, 12, False) == (
        tb.typeof(ref).shape, tb.typeof(ref).dtype, tb.typeof(ref).ndim, tb.typeof(ref).size,
        tb.typeof(ref).weak_type,
    )  # fmt: skip
    assert tb.typeof(ref) == ref.aval
    assert ShapedArray((3, 4), np.float32) == ref.aval.inner_aval
    seen: list[object] = []
    tb.jit(lambda r: seen.append(r.aval))(ref)
    assert [ShapedArray((3, 4), np.float32)] == [a.inner_aval for a in seen]
    with pytest.raises(AttributeError, match="'Ref' object has no attribute 'avals'"):
        _ = ref.avals
    assert 1 == len({ref, ref, copy.copy(ref)})
    assert ref != tb.new_ref(base())
    assert "Ref(1., dtype=float32, weak_type=True)" == repr(tb.new_ref(1.0))
    assert isinstance(ref, tb.Ref)
    assert not isinstance(ref, tb.Array)


def test_the_type_stays():
    """Writes keep dtype and weak type; numbers take the dtype, other dtypes are an error."""
    ref = tb.new_ref(tnp.zeros(2))
    ref[0] = 3
    ref[1] = np.float64(2.5)
    assert [3.0, 2.5] == ref[...].tolist()
    weak = tb.new_ref(0.0)
    weak[...] = tnp.float32(2.0)
    assert weak[...].weak_type

    whole = tb.new_ref(tnp.arange(2))
    for target, value in ((whole, 2.5), (whole, tnp.ones(2)), (ref, tnp.arange(2)), (ref, 1j)):
        with pytest.raises(DtypeMismatchError, match="that of the reference"):
            target[...] = value


def test_empty_ref():
    """A reference of a type; anything with shape and dtype is one."""
    ref = tb.empty_ref(tb.ShapeDtypeStruct((2, 3), np.int32))
    assert ((2, 3), np.int32) == (ref.shape, ref.dtype)
    with pytest.raises(ValueError, match="expected a type with shape and dtype"):
        tb.empty_ref(3)


@pytest.mark.parametrize("end", [tb.freeze, tb.free_ref])
def test_an_ended_reference_is_no_more(end):
    """freeze gives the content; afterwards every use is an error."""
    ref = tb.new_ref(tnp.ones(2))
    ref[0] = 4.0
    content = end(ref)
    if end is tb.freeze:
        assert [4.0, 1.0] == content.tolist()
    for use in (
        lambda: ref[...],
        lambda: ref.set(1.0, 0),
        lambda: tb.ref.addupdate(ref, 0, 1.0),
        lambda: end(ref),
        lambda: ref.sharding,
        lambda: tb.jit(lambda r: r[...])(ref),
        lambda: tb.jit(lambda: ref[...])(),
    ):
        with pytest.raises(RefError, match=r"was (frozen|freed)"):
            use()
    assert "that was" in repr(ref)


def test_a_reference_is_no_array():
    """Where arrays are expected the message says how to get one."""
    ref = tb.new_ref(tnp.ones(2))
    for use in (
        lambda: tnp.sin(ref),
        lambda: tb.lax.sin(ref),
        lambda: tnp.ones(2) + ref,
        lambda: np.asarray(ref),
        lambda: tnp.asarray(ref.at[0]),
        lambda: tb.new_ref(ref),
        lambda: pickle.dumps(ref),
    ):
        with pytest.raises(RefError, match=r"read its content with ref\[\.\.\.\]"):
            use()
    with pytest.raises(TypeError, match="not iterable"):
        list(ref)
    with pytest.raises(TypeError):
        ref + 1
    with pytest.raises(TypeError):
        len(tb.new_ref(1.0))


def test_bad_arguments():
    """No reference, no array, no memory space, indices out of bounds, shapes that do not fit."""
    ref = tb.new_ref(base())
    for index in (3, -4, (0, 4), (..., 4)):
        with pytest.raises(IndexingError, match="out of bounds"):
            ref[index]
    with pytest.raises(BroadcastError):
        ref[0] = tnp.ones(3)
    with pytest.raises(BroadcastError):
        ref[...] = tnp.ones(3)
    for use in (
        lambda: tb.ref.get(tnp.ones(2)),
        lambda: tb.ref.set(tnp.ones(2), 0, 1.0),
        lambda: tb.ref.swap(1.0, 0, 1.0),
        lambda: tb.ref.addupdate(None, 0, 1.0),
        lambda: tb.freeze(tnp.ones(2)),
    ):
        with pytest.raises(RefError, match="expected a reference"):
            use()
    with pytest.raises(RefError, match="new_ref"):
        tb.Ref(1.0)
    with pytest.raises(TypeError, match="new_ref: got"):
        tb.new_ref([1.0])
    with pytest.raises(ValueError, match="memory_space"):
        tb.new_ref(1.0, memory_space="host")


def test_methods_take_the_value_first() -> None:
    """Without an index they replace the whole content."""
    ref = tb.new_ref(tnp.zeros(3))
    ref.set(tnp.arange(3.0))
    ref.set(5.0, idx=0)

    assert 2.0 == float(ref.swap(7.0, 2))
    assert [5.0, 1.0, 7.0] == ref.swap(tnp.ones(3)).tolist()
    ref.at[1:].set(2.0)
    assert [2.0, 2.0] == ref.at[1:].swap(tnp.zeros(2)).tolist()
    assert [1.0, 0.0, 0.0] == ref[...].tolist()
