"""PyTorch: functions of arrays as torch functions and modules, exchange of tensors."""

from __future__ import annotations

from tracebridge.torch.convert import from_torch as from_torch
from tracebridge.torch.convert import to_torch as to_torch
from tracebridge.torch.module import Module as Module
from tracebridge.torch.wrap import wrap as wrap

__all__ = ["Module", "from_torch", "to_torch", "wrap"]
