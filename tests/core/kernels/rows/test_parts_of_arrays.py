"""Kernels read parts of arrays where they are: gated units, and other slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn
from tracebridge.torch import wrap

pytestmark = needs_kernels


def _slices_in(f: Any, *args: Any) -> int:
    """How many slices the compiled program makes."""
    text = tb.jit(f).lower(*args).compile().as_text()
    return sum(" slice(" in line for line in text.splitlines())


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300, 1024), -1), ((300, 514), -1), ((4, 32, 40, 50), 1), ((600, 300), 0), ((6, 8, 5000), 1)],
)
def test_gated_units(shape: tuple[int, ...], axis: int) -> None:
    """Both halves are read from the array; values and gradients are those of torch."""
    x = array(*shape)
    f = lambda x: nn.glu(x, axis)

    assert kernels_in(f, x) == 1
    assert _slices_in(f, x) == 0
    is_as_plain(f, x)
    tensor = torch.from_numpy(x).requires_grad_()
    ours, theirs = wrap(f)(tensor), torch.nn.functional.glu(tensor, axis)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    ct = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, tensor, ct)
    torch.testing.assert_close(
        torch.autograd.grad(ours, tensor, ct), expected, rtol=1e-5, atol=1e-5
    )


def test_slices_of_arguments_and_of_kernels() -> None:
    """The softmax of a part, of what another kernel has made, along and across rows."""
    x = array(200, 800)

    def program(x: Any) -> Any:
        y = nn.softmax(x) * 2
        return nn.softmax(y[3:150, 40:700]) + nn.softmax(x[50:197, :660], axis=0)

    is_as_plain(program, x, tolerance=1e-5)
    is_as_plain(tb.grad(lambda x: tnp.sum(program(x) ** 2)), x, tolerance=1e-4)


def test_parts_with_gaps_and_short_ones_are_copied() -> None:
    x = array(400, 900)
    for f in (
        lambda x: nn.softmax(x[:, ::2]),
        lambda x: nn.softmax(lax.rev(x, (1,))[:, :450]),
        lambda x: nn.softmax(x.reshape(4000, 90)[:, :20]),
    ):
        is_as_plain(f, x, tolerance=1e-5)


def test_part_and_whole() -> None:
    """A part that others read too, flags, integers, and numbers of rows."""
    x, flags = array(300, 1000), np.arange(300_000).reshape(300, 1000) % 3 == 0

    def program(x: Any, flags: Any) -> Any:
        part = x[:, 100:900]
        shares = nn.softmax(tnp.where(flags[:, 200:], part, -tnp.inf))
        return shares, part + 1, (part - part.max(1, keepdims=True)).sum(1)

    is_as_plain(program, x, flags, tolerance=1e-5)
    is_as_plain(tb.vmap(lambda x: nn.glu(x)), array(5, 40, 600))
