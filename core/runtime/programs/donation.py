"""Donation: which arguments a call may consume, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.runtime_errors import DonationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.runtime.arrays.array import Array


def check_donation(arrays: Sequence[Array], donated: Sequence[int], name: str) -> None:
    """Raise if a donated array is passed twice."""
    buffers = [id(a._buf) for a in arrays]
    if len(set(buffers)) == len(buffers):
        return
    for i in donated:
        for k, other in enumerate(buffers):
            if k != i and other == buffers[i]:
                msg = f"{name}: argument {i} is donated and is also argument {k}"
                raise DonationError(msg, hint="pass a copy: x.copy()")


def owned(arrays: Sequence[Array], donated: Sequence[int]) -> tuple[int, ...]:
    """The donated arguments whose memory is ours; borrowed memory is never given away."""
    return tuple([i for i in donated if not arrays[i]._sig.borrowed])


def mark_donated(arrays: Sequence[Any], donated: Sequence[int], name: str) -> None:
    """After the call: donated arrays are gone, also those that XLA could not reuse."""
    for i in donated:
        array = arrays[i]
        array._donated_to = name
        array._host = None  # what was read of it would keep its memory
        if not array._buf.is_deleted():
            array._buf.delete()
