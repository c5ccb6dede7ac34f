"""One look of torch at all tensors of a call: the check that torch.compile made for its graphs.

It compares class, dispatch keys as this thread's state changes them, dtype, device, sizes, strides
and ``requires_grad``, in a tenth of the time that it takes to ask each tensor for these. What holds
for a thread and not for tensors (modes, forward mode, whether gradients are recorded) it does not
see. Nested tensors, which ``any_nested`` finds, must not be shown to it: asking for their strides
ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tracebridge.interop.torch_adapter import EXACT

Check = Callable[..., bool]
MAX_GUARDS = 4  # that are tried one after the other; then a table is faster


def _find_guards() -> Any:
    # No part of torch's interface: without it calls take the way that asks for everything.
    try:
        from torch._C._dynamo.guards import TensorGuards  # noqa: PLC0415 - it may not be there
    except ImportError:
        return None
    return TensorGuards


_TENSOR_GUARDS: Any = _find_guards()


def any_nested(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether one of the tensors is nested; those of a class of their own a look tells apart."""
    return any([type(x) in EXACT and x.is_nested for x in tensors])


def guard_of(tensors: Sequence[torch.Tensor]) -> Check | None:
    """``check(*tensors)``: whether these are as the given ones are, which are not kept.

    None where torch has no such check.
    """
    if _TENSOR_GUARDS is None:
        return None
    return _TENSOR_GUARDS(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
