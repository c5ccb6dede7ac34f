"""PyTorch: functions of arrays as torch functions and modules, exchange of tensors."""

from __future__ import annotations

from tracebridge.torch.wrap import wrap as wrap
