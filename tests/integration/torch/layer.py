"""One function of three arguments, in float64: wrapped, and written in torch."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves

import tracebridge.numpy as tnp
from tracebridge.torch import wrap

OURS = wrap(lambda x, w, b: tnp.tanh(x @ w) + b)


def native(x, w, b):
    return torch.tanh(x @ w) + b


def inputs(*, grad=False):
    g = torch.Generator().manual_seed(0)
    shapes = ((4, 3), (3, 5), (5,))
    made = [torch.randn(s, dtype=torch.float64, generator=g) for s in shapes]
    return [t.requires_grad_(grad) for t in made]


X, W, B = inputs()


def squares(f):
    return lambda *a: (f(*a) ** 2).sum()


def check(use):
    """``use(f)`` gives the same tensors for our function and for torch's."""
    expected, actual = tree_leaves(use(native)), tree_leaves(use(OURS))

    assert len(expected) == len(actual) > 0
    for e, a in zip(expected, actual, strict=True):
        torch.testing.assert_close(a, e)
