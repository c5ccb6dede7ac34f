"""Tensors that our operations do not take: what torch says of them does not name the way out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.interop.torch_adapter import EXACT, check_has_values

_REFUSED = "Multiple dispatch failed for 'torch._ops.tracebridge."
_WAYS_OUT = {
    "MaskedTensor": "pass x.to_tensor(0.0), or x.get_data() and x.get_mask() as two arguments",
}


@contextlib.contextmanager
def said_clearly(function: str, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """A call of an operation with ``tensors``.

    Raises:
        ExchangeError: a tensor is nested, or its class refuses operations that it does not know.
    """
    for x in tensors:
        if x.is_nested:
            check_has_values(x)  # words the error
    try:
        yield
    except TypeError as error:
        if not str(error).startswith(_REFUSED):
            raise
        raise _refused(function, tensors) from error


def _refused(function: str, tensors: Sequence[Any]) -> ExchangeError:
    names = sorted({type(x).__name__ for x in tensors if type(x) not in EXACT})
    hints = [_WAYS_OUT[name] for name in names if name in _WAYS_OUT]
    return ExchangeError(
        f"{function} got a {' and a '.join(names)}: such tensors refuse operations that they do "
        "not know",
        expected="dense tensors, or a subclass whose __torch_dispatch__ handles all operations",
        hint=hints[0] if hints else "pass the plain tensors that it consists of",
    )
