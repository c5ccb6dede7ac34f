"""What torch's profiler, its counter of operations and its modes for functions see of a call."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch


@wrap
def softmax_block(x, w):
    return tnp.exp(x @ w)


drawn = wrap(lambda x, key: x * tb.random.uniform(key, x.shape), rng_argnames="key")
x = torch.ones(8, 4)
w = torch.ones(4, 3, requires_grad=True)


def events(call):
    call()
    with profile() as seen:
        call()
    return [e.name for e in seen.events()]


def test_profiler_names_the_function():
    """A call is an event of its name, with gradients and without, and so is its backward pass."""
    name = "tracebridge::softmax_block"
    named = events(lambda: softmax_block(x, w).sum().backward())

    assert 1 == named.count(name)
    assert 1 == named.count(f"{name}Backward")
    assert 1 == events(lambda: softmax_block(x, w.detach())).count(name)
    assert 1 == events(lambda: softmax_block(x=x, w=w.detach())).count(name)
    assert 1 == events(lambda: softmax_block(x.T.contiguous().T, w.detach())).count(name)


def test_nodes_are_named_after_the_function():
    """``grad_fn``, in the levels of torch.func and in graphs, too."""
    seen = []

    def result(w):
        y = softmax_block(x, w)
        seen.append(y.grad_fn.name())
        return y.sum()

    torch.func.grad(result)(w.detach())
    result(w)
    with FlopCounterMode(display=False):
        result(w)

    assert ["tracebridge::softmax_blockBackward"] * 3 == seen


def test_flops_are_those_of_xla():
    """Products of matrices count twice their size, forward and backward; the rest once."""
    with FlopCounterMode(display=False) as forward:
        softmax_block(x, w)
    with FlopCounterMode(display=False) as both:
        softmax_block(x, w).sum().backward()

    product = 2 * 8 * 4 * 3
    assert product <= forward.get_total_flops() <= product + 2 * 8 * 3
    assert 2 * product <= both.get_total_flops() <= 3 * product + 10 * 8 * 3


def test_a_mode_for_functions_sees_one_call():
    """The function with its arguments, whatever is asked of tensors inside."""
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func, args, kwargs))
            return func(*args, **(kwargs or {}))

    with Mode():
        plain = softmax_block(x, w)
        softmax_block(x, w=w)
        drawn(x)
    assert [softmax_block, softmax_block] == [func for func, *_ in seen[:2]]
    assert drawn is seen[2][0]
    assert 3 == len(seen)
    assert torch.equal(plain, softmax_block(x, w))


def test_a_mode_decides_about_the_result():
    """It may answer instead of the function."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "other" if func is softmax_block else func(*args, **(kwargs or {}))

    with Mode():
        assert "other" == softmax_block(x, w)


def test_default_devices():
    """They are modes, too."""
    with torch.device("cpu"):
        assert torch.equal(softmax_block(x, w), softmax_block(x, w).detach())
