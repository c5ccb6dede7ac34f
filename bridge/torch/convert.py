"""Exchange of tensors: ``from_torch`` and ``to_torch``."""

from __future__ import annotations

from typing import Any

from tracebridge.core.errors.filtering import api_boundary
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.interop.trees import export_tree, import_tree


@api_boundary
def from_torch(x: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """Arrays of torch tensors, sharing memory where that is possible.

    The history of autograd stays behind: use ``wrap`` for gradients across the border. Whoever
    writes to a tensor in place changes the Array that shares its memory.

    Args:
        x: torch tensor, or a tree with tensors; other leaves stay as they are. Dtypes are kept,
            64-bit ones too.
        device: device or sharding for the Arrays (default: where the tensor is).
        copy: None shares memory of dense tensors and copies others; False raises where a copy
            would be needed; True always copies.

    Raises:
        ExchangeError: a tensor has no values (fake, meta, under torch.func), or is sparse.
        UnsupportedExchangeDtypeError: quantized dtypes, and others that the engine has not.
        LayoutError: ``copy=False`` and the memory cannot be shared.

    >>> import torch
    >>> import tracebridge.torch
    >>> tracebridge.torch.from_torch(torch.ones(2))
    Array([1., 1.], dtype=float32)
    """
    return import_tree(x, torch_adapter, device=device, copy=copy)


@api_boundary
def to_torch(x: Any, *, copy: bool | None = None) -> Any:
    """Torch tensors of Arrays, sharing memory where that is possible.

    Writing in place to a tensor that shares memory changes the Array, which should never change:
    pass ``copy=True`` for a tensor to be written to.

    Args:
        x: Array, or a tree with Arrays; other leaves stay as they are.
        copy: True gives each tensor memory of its own.

    Raises:
        UnsupportedExchangeDtypeError: torch has no such dtype (int4 and narrower, float4).
        ExchangeError: an array is spread over several devices.

    >>> import tracebridge.numpy as tnp
    >>> import tracebridge.torch
    >>> tracebridge.torch.to_torch(tnp.ones(2))
    tensor([1., 1.])
    """
    return export_tree(x, torch_adapter, copy=copy)
