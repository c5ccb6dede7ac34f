"""Policies of ``checkpoint``: what a differentiated function may keep for the backward pass."""

from __future__ import annotations

from tracebridge.core.control.remat.policies import (
    checkpoint_dots,
    checkpoint_dots_with_no_batch_dims,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    everything_saveable,
    nothing_saveable,
    offload_dot_with_no_batch_dims,
    save_and_offload_only_these_names,
    save_any_names_but_these,
    save_anything_except_these_names,
    save_by_cost,
    save_from_both_policies,
    save_only_these_names,
)
from tracebridge.core.util.listing import listing as _listing

__all__ = [
    "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "nothing_saveable",
    "offload_dot_with_no_batch_dims",
    "save_and_offload_only_these_names",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_by_cost",
    "save_from_both_policies",
    "save_only_these_names",
]

__dir__ = _listing(globals())
