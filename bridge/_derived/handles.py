"""Handles of families that are derived from the one that ``handle`` names.

They may have a fingerprint at their end. Dynamo reads the lines of ``vjp_handle``.
"""

from __future__ import annotations

from collections.abc import Sequence

Mask = tuple[bool, ...]


def jvp_handle(handle: str, nonzero: Mask) -> str:
    """Results and tangents; tangents of the inputs ``nonzero`` follow the inputs."""
    return f"{handle}::jvp({_text(nonzero)})"


def vjp_handle(handle: str, active: Sequence[bool], cotangents: Sequence[bool]) -> str:
    """Gradients of the inputs ``active`` from inputs and cotangents, all in one program."""
    return f"{handle}::vjp({_text(active)}|{_text(cotangents)})"


def slopes_handle(handle: str, active: Mask) -> str:
    """Results, and gradients of the inputs ``active`` of the sum of those that have some."""
    return f"{handle}::slopes({_text(active)})"


def fwd_handle(handle: str, active: Mask) -> str:
    """Results and residuals."""
    return f"{handle}::fwd({_text(active)})"


def bwd_handle(handle: str, active: Mask, cotangents: Mask) -> str:
    """Gradients of the inputs ``active`` from inputs, residuals and cotangents."""
    return f"{handle}::bwd({_text(active)}|{_text(cotangents)})"


def ruled_handle(handle: str, active: Mask) -> str:
    """Results as they are made where gradients of the inputs ``active`` are wanted."""
    return f"{handle}::ruled({_text(active)})"


def vmap_handle(handle: str, dims: Sequence[int | None]) -> str:
    """The function mapped over an axis of some inputs; results have it in front."""
    return f"{handle}::vmap({','.join(['n' if d is None else str(d) for d in dims])})"


def _text(mask: Sequence[bool]) -> str:
    return "".join(["1" if m else "0" for m in mask])


def mask_of(text: str) -> Mask:
    """The mask that stands in a handle."""
    return tuple([c == "1" for c in text])
