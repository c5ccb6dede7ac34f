"""The threefry generator: counters encrypted by a key."""

from __future__ import annotations

from typing import Any

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import uint32
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value


def threefry_2x32(keypair: object, count: object) -> Any:
    """Random words for the counters ``count``: Threefry-2x32 with 20 rounds.

    The counters are encrypted in pairs: the first half of the elements, in row-major order, with
    the second half. A counter without partner is paired with zero.

    Args:
        keypair: the key: two scalars, or an array of shape ``(2,)``, of uint32.
        count: uint32 array.

    Returns:
        uint32 array of the shape of ``count``.

    Raises:
        DtypeMismatchError: another dtype.
        ShapeMismatchError: the key has not two words.

    >>> import numpy as np
    >>> import tracebridge as tb
    >>> words = tb.extend.random.threefry_2x32(np.zeros(2, np.uint32), np.zeros(2, np.uint32))
    >>> [hex(word) for word in words.tolist()]
    ['0x6b200159', '0x99ba4efe']
    """
    words = _key_words(keypair)
    counters = as_value(count)
    if counters.aval.dtype != uint32 or any([w.aval.dtype != uint32 for w in words]):
        got = ", ".join([v.aval.str_short() for v in (*words, counters)])
        msg = f"threefry_2x32: got key and counters {got}, expected uint32"
        raise DtypeMismatchError(msg)
    shape, size = counters.aval.shape, counters.aval.size
    flat = lax.reshape(counters, (size,))
    if size % 2:
        flat = lax.pad(flat, lax.full((), 0, uint32), [(0, 1, 0)])
    half = (size + 1) // 2
    first, second = lax.slice(flat, (0,), (half,)), lax.slice(flat, (half,), (2 * half,))
    bits = lax.concatenate(lax.threefry2x32_p.bind(*words, first, second), 0)
    if size % 2:
        bits = lax.slice(bits, (0,), (size,))
    return lax.reshape(bits, shape)


def _key_words(keypair: object) -> list[Any]:
    if isinstance(keypair, tuple | list):
        words = [as_value(word) for word in keypair]
    else:
        key = as_value(keypair)
        if key.aval.shape != (2,):
            msg = f"threefry_2x32: got a key {key.aval.str_short()}, expected uint32[2]"
            raise ShapeMismatchError(msg)
        words = [lax.reshape(lax.slice(key, (i,), (i + 1,)), ()) for i in range(2)]
    if len(words) != 2 or any([w.aval.ndim for w in words]):
        got = ", ".join([w.aval.str_short() for w in words])
        msg = f"threefry_2x32: got the key words {got}, expected two scalars"
        raise ShapeMismatchError(msg)
    return words
