"""Functions of mutable array references: making, reading, writing and ending them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.refs.ref import Ref, RefView, end_ref, make_ref
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import UserType, high_values, low_avals
from tracebridge.core.runtime.calls.dispatch import to_array


def new_ref(init_val: object, *, memory_space: object = None, kind: str | None = None) -> Ref:
    """Make a mutable array reference: ``ref[...]`` reads it, ``ref[i] = x`` writes to it.

    Transformed functions may use references that they make, that are passed to them and that
    they close over; writes are visible outside when the function has run. A function that is
    differentiated or mapped by ``vmap`` can write only values without derivative, or without
    mapped axis, to references that were made outside of it; ``vmap`` can map over a reference.

    Args:
        init_val: array or number, the first content. The shape and dtype of the reference are
            those of it; writes do not change the array.
        memory_space: ``None``; a reference is kept where its content is.
        kind: a note that is kept in the type of the reference.

    Raises:
        ArgumentSpecError: a memory space was given.
        UnsupportedDtypeError: ``init_val`` is no array or number.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> ref = tb.new_ref(tnp.zeros(3))
    >>> ref[1] = 5.0
    >>> ref[...] += 1
    >>> ref
    Ref([1., 6., 1.], dtype=float32)
    """
    if memory_space is not None:
        msg = f"new_ref: memory_space is {memory_space!r}, expected None"
        raise ArgumentSpecError(msg, hint="put the initial value where it is to be with device_put")
    return make_ref(as_value(init_val, "new_ref"), kind)


def empty_ref(ty: Any, memory_space: object = None) -> Ref:
    """Make a reference of a shape and dtype whose content is not meant to be read before a write.

    Args:
        ty: anything with ``shape`` and ``dtype``, or a ``HiType``. The content is zero, or consists
            of zeros.
        memory_space: ``None``, as for ``new_ref``.

    Raises:
        ArgumentSpecError: ``ty`` has no shape and dtype, or a memory space was given.

    >>> import tracebridge as tb
    >>> ref = tb.empty_ref(tb.ShapeDtypeStruct((2,), "float32"))
    >>> ref.shape
    (2,)
    """
    if isinstance(ty, UserType):
        # Arrays: traced values in an object would be none that the trace knows of.
        zeros = [
            to_array(as_value(np.zeros(aval.shape, aval.dtype))) for aval in low_avals(ty.lo_ty())
        ]
        return new_ref(high_values(zeros, [ty])[0], memory_space=memory_space)
    if not (hasattr(ty, "shape") and hasattr(ty, "dtype")):
        msg = f"empty_ref: ty is {ty!r}, expected a type with shape and dtype"
        raise ArgumentSpecError(msg, hint="pass tracebridge.ShapeDtypeStruct(shape, dtype)")
    aval = ShapedArray(ty.shape, canonicalize(ty.dtype))
    return new_ref(lax.full(aval.shape, 0, aval.dtype), memory_space=memory_space)


def freeze(ref: Ref) -> Any:
    """End a reference; gives its last content.

    Raises:
        RefError: the reference has ended before, or was made outside the current function.

    >>> import tracebridge as tb
    >>> ref = tb.new_ref(1.0)
    >>> ref[...] *= 4
    >>> print(tb.freeze(ref))
    4.0
    """
    return end_ref("freeze", ref, "was frozen")


def free_ref(ref: Ref) -> None:
    """End a reference whose content is not needed any more.

    Raises:
        RefError: the reference has ended before, or was made outside the current function.

    >>> import tracebridge as tb
    >>> ref = tb.new_ref(1.0)
    >>> tb.free_ref(ref)
    >>> ref
    Ref{float32[]} that was freed
    """
    end_ref("free_ref", ref, "was freed")


def _checked(call: str, ref: object) -> Ref | RefView:
    if isinstance(ref, Ref | RefView):
        return ref
    raise RefError(
        call=call,
        got=f"an object of type {type(ref).__name__}",
        expected="a reference",
        hint="make one with tracebridge.new_ref(array)",
    )


def get(ref: Ref | RefView, idx: object = None) -> Any:
    """The content of a reference, or its elements at an index: ``ref[idx]``.

    Args:
        ref: the reference, or a part ``ref.at[index]`` of one.
        idx: as for arrays: integers, slices, integer arrays, ``...``; ``None`` for everything.

    Raises:
        RefError: it is no reference, or one that has ended.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.ref.get(tb.new_ref(tnp.arange(4)), slice(1, 3)))
    [1 2]
    """
    return _checked("ref.get", ref).get(idx)


def set(ref: Ref | RefView, idx: object, value: object) -> None:
    """Replace the elements at an index: ``ref[idx] = value``.

    Args:
        ref: the reference, or a part ``ref.at[index]`` of one.
        idx: as for ``get``.
        value: array or number of the dtype of the reference; it is broadcast to the elements.

    Raises:
        RefError: it is no reference, one that has ended, or one that can't take the value.
        DtypeMismatchError: the value has another dtype.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> ref = tb.new_ref(tnp.zeros(3))
    >>> tb.ref.set(ref, 0, 7.0)
    >>> print(ref[...])
    [7. 0. 0.]
    """
    _checked("ref.set", ref).set(value, idx)


def swap(ref: Ref | RefView, idx: object, value: object) -> Any:
    """Replace the elements at an index; gives those that were there.

    Args:
        ref: the reference, or a part ``ref.at[index]`` of one.
        idx: as for ``get``.
        value: as for ``set``.

    Raises:
        RefError, DtypeMismatchError: as for ``set``.

    >>> import tracebridge as tb
    >>> ref = tb.new_ref(1.0)
    >>> print(tb.ref.swap(ref, None, 2.0), ref[...])
    1.0 2.0
    """
    return _checked("ref.swap", ref).swap(value, idx)


def addupdate(ref: Ref | RefView, idx: object, x: object) -> None:
    """Add to the elements at an index; one that occurs several times gets every term.

    Args:
        ref: the reference, or a part ``ref.at[index]`` of one.
        idx: as for ``get``.
        x: as ``value`` for ``set``.

    Raises:
        RefError, DtypeMismatchError: as for ``set``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> ref = tb.new_ref(tnp.zeros(3))
    >>> tb.ref.addupdate(ref, tnp.array([0, 0, 2]), tnp.ones(3))
    >>> print(ref[...])
    [2. 0. 1.]
    """
    _checked("ref.addupdate", ref).addupdate(x, idx)
