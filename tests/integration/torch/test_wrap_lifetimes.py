"""What wrapped functions keep: programs, arguments, gradients; caches that are cleared."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch


def test_clear_caches():
    """After clear_caches a call traces and compiles anew."""
    f = wrap(lambda x: x - 1)
    f(torch.ones(2))

    tb.clear_caches()

    assert f(torch.ones(2)).tolist() == [0.0, 0.0]


def test_programs_die_with_the_function():
    """Nothing in the process keeps a wrapped function that was never captured in a graph."""
    f = wrap(lambda x: tnp.sin(x))
    x = torch.randn(3, requires_grad=True)
    f(x).sum().backward()
    torch.func.vmap(f)(torch.randn(2, 3))
    fun, family = weakref.ref(f.fun), weakref.ref(next(iter(f.families.values())))

    del f
    gc.collect()

    assert fun() is None
    assert family() is None


def test_arguments_die_after_the_call():
    """XLA keeps no reference to memory of arguments once the call is over."""
    f = wrap(lambda x: tnp.sum(x))
    f(torch.randn(2000))
    x = torch.randn(2000)
    before = torch._C._storage_Use_Count(x.untyped_storage()._cdata)

    f(x)

    assert before == torch._C._storage_Use_Count(x.untyped_storage()._cdata)


def test_held_arguments_die_with_their_tensor():
    """A tensor that comes again has a buffer, which does not keep its memory when it dies."""
    f = wrap(lambda x: tnp.sum(x))
    x = torch.randn(2000)
    for _ in range(3):
        f(x)
    storage = StorageWeakRef(x.untyped_storage())

    del x

    assert storage.expired()


def test_clear_caches_lets_go_of_tensors():
    """Nothing refers to an argument then; nothing ever does where torch swaps parameters."""
    f = wrap(lambda x: x * 2)
    p = torch.nn.Parameter(torch.ones(2000))
    f(p)
    assert weakref.getweakrefs(p)

    tb.clear_caches()
    assert not weakref.getweakrefs(p)

    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer = torch.nn.Linear(50, 50)
        f(layer.weight)
        layer.double()
        assert torch.float64 == f(layer.weight).dtype
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("size", [3, 2000])
def test_arguments_that_change_between_calls(size):
    """New values in place, other memory, and views of one memory are seen, small or large."""
    f = wrap(lambda p, x, k: p * x + k)
    p, x = torch.nn.Parameter(torch.ones(size)), torch.ones(size)

    with torch.no_grad():
        for k in range(4):
            torch.testing.assert_close(f(p, x, float(k)), p * x + k)
            p.add_(1)
            x.mul_(2)
        p.data = torch.full((size,), 7.0)
        x.set_(torch.arange(float(size)))
        torch.testing.assert_close(f(p, x, 1), p * x + 1)
        both = torch.arange(size + 4.0)
        for start in range(4):
            view = both[start : start + size]
            torch.testing.assert_close(f(p, view, True), p * view + 1)


def test_a_function_that_calls_itself_from_a_callback():
    """A call inside a call of the same program has small arguments of its own."""

    def host(x):
        n = float(x)
        inner = f(torch.tensor(n - 1.0), torch.tensor(1.0)) if n > 0 else torch.tensor(0.0)
        return np.float32(inner)

    def fun(x, y):
        below = tb.pure_callback(host, tb.ShapeDtypeStruct((), np.float32), x)
        return below + x * y

    f = wrap(fun)

    assert 10.0 == float(f(torch.tensor(4.0), torch.tensor(1.0)))
