"""Runs torch functions with the arrays of a program, and takes their results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tracebridge.core.config.state import enter_scope, leave_scope, outside_of_traces
from tracebridge.core.dtypes.canonicalize import narrowed
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.placement import choose_placement, is_spread
from tracebridge.core.runtime.arrays.transfer import put_host
from tracebridge.core.runtime.effects.host_callback import raise_callback_error
from tracebridge.interop.torch_adapter import (
    DISGUISES,
    DTYPES,
    TORCH_DTYPES,
    pinned_view,
    torch_adapter,
)

Run = Callable[..., Sequence[torch.Tensor]]

_CARRIED = {DTYPES[theirs]: carrier for theirs, carrier in DISGUISES.items()}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The state of torch and of the engine that a call sees, whoever runs the program.

    Gradients are enabled, as they are by default; autocast, inference mode and dispatch modes of
    the place that runs the program are off.
    """
    scope = enter_scope(outside_of_traces)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(mode=False))
            stack.enter_context(torch.enable_grad())
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            stack.enter_context(_disable_current_modes())
            yield
    finally:
        leave_scope(scope)


def run_on_ndarrays(
    name: str, run: Run, avals: Sequence[ShapedArray], operands: Sequence[Any]
) -> list[Any]:
    """Call with ndarrays, which are not written to; gives dense ndarrays of types ``avals``."""
    with alone():
        outs = run(*[_from_ndarray(x) for x in operands])
        return [
            pinned_view(_checked(name, i, y, a).resolve_conj().resolve_neg().contiguous())
            for i, (y, a) in enumerate(zip(outs, avals, strict=True))
        ]


def run_on_arrays(
    name: str, run: Run, avals: Sequence[ShapedArray], arrays: Sequence[Any]
) -> list[Any]:
    """Call with Arrays where they are; gives Arrays there."""
    placement, _ = choose_placement([a._sig for a in arrays], name)
    try:
        if is_spread(placement):
            results = run_on_ndarrays(name, run, avals, [np.asarray(a) for a in arrays])
            return [put_host(r, placement.replicated) for r in results]
        with alone():
            outs = list(run(*[torch_adapter.export(a) for a in arrays]))
            for i, a in enumerate(avals):
                outs[i] = _checked(name, i, outs[i], a)
            owned = [sys.getrefcount(y) <= 3 and _is_sole(y) for y in outs]
            return [
                torch_adapter.import_(y, copy=None if own else True)
                for y, own in zip(outs, owned, strict=True)
            ]
    except Exception as error:  # noqa: BLE001 - a function of the user may fail in any way
        raise_callback_error(name, error)


def _from_ndarray(x: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor over the memory of an ndarray; read-only ones may not be written to."""
    carrier = _CARRIED.get(x.dtype)
    if carrier is None:
        return torch.from_dlpack(x)
    return torch.from_dlpack(x.view(DTYPES[carrier])).view(TORCH_DTYPES[x.dtype])


def _is_sole(y: torch.Tensor) -> bool:
    """Whether nobody else refers to the memory, so that it will never be written to."""
    storage = y.untyped_storage()
    # What is not resizable is seen by NumPy, or was made by others.
    shared = torch._C._storage_Use_Count(storage._cdata) > 2  # the tensor and ``storage``
    return storage.resizable() and not shared


def _checked(name: str, index: int, y: Any, aval: ShapedArray) -> torch.Tensor:
    """A result in the dtype that the program expects: without 64 bits it is narrowed."""
    if not isinstance(y, torch.Tensor):
        msg = f"{name}: result {index} is of type {type(y).__name__}, not a tensor as before"
        raise CallbackError(msg, expected=aval.str_short())
    ours = DTYPES.get(y.dtype)
    fits = ours is not None and narrowed(ours) == narrowed(aval.dtype)
    if not fits or tuple(y.shape) != aval.shape:
        got = f"{str(y.dtype).removeprefix('torch.')}{list(y.shape)}"
        msg = f"{name}: result {index} has another type than was found while tracing"
        hint = "shapes and dtypes may depend on those of the arguments, not on values"
        raise CallbackError(msg, got=got, expected=aval.str_short(), hint=hint)
    y = y.detach() if y.requires_grad else y
    return y if ours == aval.dtype else y.to(TORCH_DTYPES[aval.dtype])
