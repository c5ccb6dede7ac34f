"""New values for tensors that exist, where everybody sees them, and by copying only if needed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

SMALL_BYTES = 1 << 16  # copying these takes no longer than anything else


def write(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Give each first tensor the values of the second one, which nobody else has.

    Large tensors whose memory nobody shares take over the memory of their new values; others are
    written to. Both count as changes in place, so that autograd refuses graphs that saved them.
    Called where gradients are disabled.
    """
    olds: list[torch.Tensor] = []
    news: list[torch.Tensor] = []
    moved: list[torch.Tensor] = []
    for old, new in pairs:
        if old.nbytes > SMALL_BYTES and _may_move(old, new):
            old.data = new
            moved.append(old)
        else:
            olds.append(old)
            news.append(new)
    if olds:
        torch._foreach_copy_(olds, news)  # pyright: ignore[reportPrivateImportUsage] - the stubs lack it
    if moved:
        torch.autograd.graph.increment_version(moved)


def _may_move(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether nobody sees where the values of ``old`` are."""
    if old._is_view() or old.dtype != new.dtype or old.device != new.device:
        return False
    if not old.is_contiguous() or old.is_shared():
        return False
    storage = old.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) <= 2  # the tensor and ``storage``
