"""Batching rules: tables by primitive, and the usual ways to make rules."""

from __future__ import annotations

from tracebridge._api.vectorize.vmappable import register_vmappable, unregister_vmappable
from tracebridge.core.compat.batching import (
    AxisData,
    axis_primitive_batchers,
    bdim_at_front,
    broadcast,
    defbroadcasting,
    defreducer,
    defvectorized,
    fancy_primitive_batchers,
    moveaxis,
    not_mapped,
    primitive_batchers,
)
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "AxisData",
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defreducer",
    "defvectorized",
    "fancy_primitive_batchers",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
    "register_vmappable",
    "unregister_vmappable",
]

_shield(globals(), __name__)
