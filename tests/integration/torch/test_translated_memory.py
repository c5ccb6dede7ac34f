"""What translated modules need beside arguments and results: no more than ours written by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import tracebridge as tb
from tests.core.kernels.plain_form import needs_kernels
from tracebridge.torch import from_module

pytestmark = pytest.mark.torch
ROWS, CLASSES = 128, 500


class Loss(torch.nn.Module):
    """Cross entropy of logits."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x, labels)


@needs_kernels
def test_losses_put_picked_elements_back_without_an_array() -> None:
    """Beside the probabilities there is no array; the gradient of the logits is that of torch."""
    x, labels = torch.randn(ROWS, CLASSES, requires_grad=True), torch.arange(ROWS) * 3
    labels[3] = -100
    module = Loss()
    translated = from_module(module, (x, labels))
    arguments = x.detach().numpy(), labels.numpy()
    lowered = tb.jit(tb.grad(lambda x, labels: translated({}, x, labels))).lower(*arguments)
    gradient = lowered.compile()
    temporary = gradient.memory_analysis().temp_size_in_bytes
    (expected,) = torch.autograd.grad(module(x, labels), x)

    assert temporary < 1.1 * 4 * ROWS * CLASSES
    np.testing.assert_allclose(expected, gradient(*arguments), rtol=1e-4, atol=1e-7)


class Picks(torch.nn.Module):
    """Elements of rows, one or several, and of fewer rows than there are."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        parts = [
            torch.gather(x, 1, index),
            torch.gather(x, 1, index[:3]),
            x.gather(-1, index[:, :1]),
        ]
        return torch.stack([p.sin().sum() for p in parts]).sum()


@pytest.mark.parametrize("n", [1, 4])
def test_picks_are_those_of_torch(n: int) -> None:
    """Values and gradients, with indices that come twice."""
    x, index = torch.randn(5, 6, requires_grad=True), torch.randint(0, 6, (5, n))
    module = Picks()
    translated = from_module(module, (x, index))
    value, gradient = tb.value_and_grad(lambda x: translated({}, x, index.numpy()))(
        x.detach().numpy()
    )
    expected = module(x, index)
    (expected_gradient,) = torch.autograd.grad(expected, x)

    np.testing.assert_allclose(expected.detach(), value, rtol=1e-5)
    np.testing.assert_allclose(expected_gradient, gradient, rtol=1e-5)
