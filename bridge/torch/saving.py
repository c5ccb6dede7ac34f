"""``saving``: what graphs that torch.export makes hold besides the values of functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracebridge._api.args.values import short_repr
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.torch._graphs.saved import GRAD_ORDER


@contextmanager
def saving(*, grad_order: int) -> Iterator[None]:
    """A block in which ``torch.export.export`` saves derivatives of wrapped functions so far.

    Args:
        grad_order: how often what is loaded can be differentiated where the functions are not;
            outside of such blocks once. 0 leaves gradients out, which makes the graph smaller.
            From 2 on, backward passes compute again what they need instead of keeping it, and
            there is forward mode, which takes an order more than the gradient.

    Raises:
        ArgumentSpecError: ``grad_order`` is no number of derivatives.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.torch import saving, wrap
    >>> class Wave(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.sin = wrap(tnp.sin)
    ...     def forward(self, x):
    ...         return self.sin(x)
    >>> with saving(grad_order=2):
    ...     program = torch.export.export(Wave(), (torch.zeros(3),))
    >>> program.module()(torch.zeros(3))
    tensor([0., 0., 0.])
    """
    order: Any = grad_order
    if type(order) is not int or order < 0:
        raise ArgumentSpecError(
            f"saving: grad_order is {short_repr(grad_order)}",
            expected="how often a loaded graph can be differentiated: 0, 1, 2, ...",
        )
    token = GRAD_ORDER.set(order)
    try:
        yield
    finally:
        GRAD_ORDER.reset(token)
