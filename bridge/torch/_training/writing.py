"""New values for tensors that exist, where everybody sees them, and by copying only if needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from tracebridge.core.util.caching import WeakIdCache

SMALL_BYTES = 1 << 16  # copying these takes no longer than anything else
# glibc does not find its way back to memory of just this size and alignment: a heap in which blocks
# take turns grows to three times of what is in use. Beyond so many bytes in a step that is more
# than copying costs; blocks beyond the largest that it keeps in the heap are mapped alone.
_MOST_IN_TURN = 1 << 26
_MAPPED_BYTES = 1 << 25
_adopted: WeakIdCache[int] = WeakIdCache("memory of new values", 2, register=False)
# How many refer to a tensor in Python while it is replaced. Variables do not: a function whose
# calls are not inlined (where a compiler or debugger watches frames) has one reference more.
OF_STATES = 3  # the optimizer's table, the arguments of the step, the pair
OF_BUFFERS = 6  # these, and lists of the structure of the module


def adopt(tensor: torch.Tensor) -> None:
    """Note that the memory of a tensor was made by a program, for this tensor alone."""
    _adopted.set(tensor, "memory", tensor.data_ptr())


def write(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], holders: int) -> None:
    """Give each first tensor the values of the second one, which nobody else has.

    Large tensors whose memory nobody shares take over the memory of their new values, as long as
    there are not too many; others are written to. Both count as changes in place, so that autograd
    refuses graphs that saved them.
    ``holders``: how many refer to a tensor without gradients if nobody else does. Called where
    gradients are disabled.
    """
    olds: list[torch.Tensor] = []
    news: list[torch.Tensor] = []
    moved: list[torch.Tensor] = []
    sizes = [old.nbytes for old, _ in pairs]
    n_in_turn = sum([n for n in sizes if SMALL_BYTES < n < _MAPPED_BYTES])
    least = SMALL_BYTES if n_in_turn <= _MOST_IN_TURN else _MAPPED_BYTES
    for pair, size in zip(pairs, sizes, strict=True):
        n_held = sys.getrefcount(pair[0]) - 1
        old, new = pair
        if size > least and _may_move(old, new, n_held <= holders):
            old.data = new
            adopt(old)
            moved.append(old)
        else:
            olds.append(old)
            news.append(new)
    if olds:
        torch._foreach_copy_(olds, news)  # pyright: ignore[reportPrivateImportUsage] - the stubs lack it
    if moved:
        torch.autograd.graph.increment_version(moved)


def _may_move(old: torch.Tensor, new: torch.Tensor, nobody_holds: bool) -> bool:
    """Whether nobody sees where the values of ``old`` are."""
    if old._is_view() or old.dtype != new.dtype or old.device != new.device:
        return False
    if not old.is_contiguous() or not new.is_contiguous() or old.is_shared():
        return False
    # Arrays of NumPy and of other libraries over a tensor without gradients hold the tensor itself.
    in_c = torch.Tensor._use_count(old)  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
    if not old.requires_grad and (in_c > 1 or not nobody_holds):
        return False
    storage = old.untyped_storage()
    if torch._C._storage_Use_Count(storage._cdata) > 2:  # the tensor and ``storage``
        return False
    # NumPy may see memory that is not resizable, unless it came from here.
    return storage.resizable() or _adopted.get(old, "memory") == storage.data_ptr()
