"""Tensors as what a program can read: plain dense memory, or the one value it is full of."""

from __future__ import annotations

from typing import Any

import torch

from tracebridge.interop.torch_adapter import (
    EXACT,
    PLAIN_KEYS,
    check_has_values,
    is_ready,
    keys_of,
)
from tracebridge.torch._crossing.memory import SMALL_BYTES

Places = tuple[int, ...]
BATCHED = torch._C._dispatch_key_parse("Batched")
_PYTHON = torch._C.DispatchKey.Python
_unwrap_if_dead = torch._C._functorch.unwrap_if_dead  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
_DEVICE_KEYS: dict[torch.device, int] = {}


def ready(x: torch.Tensor) -> torch.Tensor | None:
    """``x`` as a dense plain tensor, by differentiable operations; None if it cannot be one."""
    if type(x) not in EXACT or x.is_meta:
        return None
    if not _is_plain(x):
        if x.is_nested or x.layout is not torch.strided or x.is_quantized:
            check_has_values(x)
        living = alive(x)
        if living is not x:
            return ready(living)
        if keys_of(x).has(BATCHED) or keys_of(x).has(_PYTHON):
            return None
        if x._is_zerotensor():
            # Only backward formulas make these; their history is empty.
            return torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        check_has_values(x)
        x = x.resolve_conj().resolve_neg()
        if not _is_plain(x):
            return None
    if x.is_contiguous():
        return x
    check_has_values(x)  # its storage may be gone, which torch does not look at
    return x.contiguous()


def alive(x: torch.Tensor) -> torch.Tensor:
    """``x`` without the wrappers of levels of torch.func that are over."""
    while True:
        inner = _unwrap_if_dead(x)
        if inner is x:
            return x
        x = inner


def is_dense(x: torch.Tensor) -> bool:
    """Whether ``x`` is plain dense memory of its device."""
    return type(x) in EXACT and not x.is_meta and _is_plain(x) and x.is_contiguous()


def make_dense(leaves: list[Any], n_saved: int) -> Places | None:
    """Make ``leaves`` dense plain tensors, in place; None if some cannot be.

    Cotangents follow ``n_saved`` other leaves. A large one that torch has expanded from one value,
    as that of ``sum``, becomes that value. Returns the places of these among the cotangents.
    """
    values: Places = ()
    for i, x in enumerate(leaves):
        if not is_ready(x):
            dense = _one_value(x) if i >= n_saved else None
            if dense is not None:
                values += (i - n_saved,)
            else:
                # A missing cotangent is None, which cannot be made ready either.
                dense = ready(x)
                if dense is None:
                    return None
            leaves[i] = dense
    return values


def _one_value(x: Any) -> torch.Tensor | None:
    """The one value of all elements of a large plain tensor, if its strides say so."""
    if type(x) not in EXACT or x.is_meta or not _is_plain(x):
        return None
    if x.nbytes <= SMALL_BYTES:
        return None
    steps = [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]
    return None if any(steps) else x.as_strided((), ())


def _is_plain(x: torch.Tensor) -> bool:
    """Whether ``x`` has the dispatch keys of a dense tensor of its device."""
    keys = keys_of(x).raw_repr()
    if keys in PLAIN_KEYS:
        return True
    device = x.device
    if device.type == "cpu":
        return False
    plain = _DEVICE_KEYS.get(device)
    if plain is None:
        plain = _DEVICE_KEYS[device] = keys_of(torch.empty(0, device=device)).raw_repr()
    return keys == plain


def on_one_device(leaves: list[Any]) -> list[Any]:
    """The leaves; scalars of the CPU may stand beside tensors of a GPU, as in torch."""
    devices = {x.device for x in leaves if isinstance(x, torch.Tensor)}
    if len(devices) < 2:
        return leaves
    others = {x.device for x in leaves if isinstance(x, torch.Tensor) and x.ndim}
    if len(others) != 1:
        return leaves
    (device,) = others
    return [x.to(device) if isinstance(x, torch.Tensor) and not x.ndim else x for x in leaves]
