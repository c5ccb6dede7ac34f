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
from tracebridge import monitoring
from tracebridge.core.runtime.backends.monitoring import COMPILE, LOWER
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


def test_functions_that_are_wrapped_anew_share_executables():
    """Wrapping a function again compiles nothing, nor does taking its derivatives or mapping it."""

    def fun(x):
        return tnp.tanh(x) * 3.25

    def use():
        f = wrap(fun)
        x = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        torch.autograd.grad(g.sum(), x)
        torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(torch.ones(2, 3))

    use()
    compiled = []
    listen = lambda event, duration, **kwargs: compiled.append(event)
    monitoring.register_event_duration_secs_listener(listen)
    try:
        use()
    finally:
        monitoring.unregister_event_duration_listener(listen)

    assert COMPILE not in compiled
    assert LOWER in compiled, "programs are lowered, and found to be known"


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


def users_of(storage):
    """How many tensors and others have this storage."""
    return torch._C._storage_Use_Count(storage._cdata)


def many_calls(x):
    """All kinds of calls that could keep something of an argument."""
    f, several = wrap(lambda x: x * 2), wrap(lambda xs: sum(x[0] for x in xs))
    for _ in range(3):
        f(x)
        f(x).sum().backward()
        torch.func.grad(lambda x: f(x).sum())(x.detach())
        several([x, *[torch.ones(2) for _ in range(210)]])


def test_nothing_of_a_tensor_is_kept():
    """No weak reference, which torch counts before swaps, and no user of the storage remains."""
    for make in (torch.Tensor.requires_grad_, torch.nn.Parameter):
        x = make(torch.ones(2000))
        before = users_of(x.untyped_storage())

        many_calls(x)

        x.grad = None
        assert [] == weakref.getweakrefs(x)
        assert before == users_of(x.untyped_storage())


def test_memory_of_parameters_goes_when_it_is_replaced():
    """By ``.data``, ``half``, ``resize_`` and ``swap_tensors``, also under the flag for swaps."""

    def assign(layer):
        layer.weight.data = layer.weight.data.clone()

    def swap(layer):
        torch.utils.swap_tensors(layer.weight, torch.nn.Parameter(torch.ones(50, 50)))

    def cast_by_swap(layer):
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            layer.double()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)

    f = wrap(lambda x: x * 2)
    for change in (assign, swap, cast_by_swap, torch.nn.Module.half, torch.nn.Module.bfloat16):
        layer = torch.nn.Linear(50, 50)
        many_calls(layer.weight)
        layer.weight.grad = None
        storage = StorageWeakRef(layer.weight.untyped_storage())

        change(layer)

        assert storage.expired(), change
        torch.testing.assert_close(f(layer.weight), layer.weight * 2)


LARGE_DTYPES = [torch.float32, torch.float64, torch.int8, torch.bool, torch.complex64]
LARGE_DTYPES += [torch.float16, torch.bfloat16, torch.float8_e5m2]


def living_results(size):
    """How many buffers of XLA there are with that many elements, but for those over tensors."""
    tb.clear_caches()
    client = tb.devices()[0].client
    avals = [a.aval for a in client.live_arrays()]
    return sum(aval is not None and aval.size == size for aval in avals)


@pytest.mark.parametrize("dtype", LARGE_DTYPES, ids=str)
def test_results_are_freed_when_they_die(dtype):
    """XLA has their memory back when the last tensor of it dies, not at the next call."""
    f = wrap(lambda x: (x.reshape(-1), x.reshape(10, -1)))
    x = torch.ones(2, 9_990).to(dtype)
    results = f(x)
    assert 2 == living_results(x.numel())

    row = results[1][0]
    wide = torch.complex128
    torch.testing.assert_close(x.reshape(10, -1)[0].to(wide), row.to(wide))
    assert results[0].dtype == dtype
    assert results[0]._base is None
    del results
    assert 1 == living_results(x.numel())

    del row
    assert 0 == living_results(x.numel())


def fail(_):
    raise KeyboardInterrupt


def test_residuals_are_freed_with_their_graph():
    """After a backward pass, where there never is one, and where it ends in an exception."""
    size = 200_011  # so large that results of tanh are not computed again
    f = wrap(lambda x: tnp.tanh(tnp.exp(tnp.tanh(x))))
    x = torch.ones(size, requires_grad=True)

    out = f(x)
    assert 1 < living_results(size)
    del out
    assert 0 == living_results(size)

    out = f(x)
    out.register_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        out.sum().backward()
    del out
    assert 0 == living_results(size)

    out = f(x)
    out.sum().backward()
    assert 2 == living_results(size), "the result and the gradient"
    del out
    x.grad = None
    assert 0 == living_results(size)


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


@pytest.mark.parametrize("order", [1, 2])
def test_a_pullback_outlives_the_function(order: int):
    """What torch.func keeps for later derivatives keeps the programs that these need."""
    f = wrap(lambda x: tnp.sin(x) * 3)
    program = weakref.ref(f)
    x = torch.tensor([0.5, 1.0])
    function = f if order == 1 else lambda x, f=f: torch.func.grad(lambda x: f(x).sum())(x)
    _, pullback = torch.func.vjp(function, x)

    del f, function
    gc.collect()
    (gradient,) = pullback(torch.ones(2))

    expected = 3 * torch.cos(x) if order == 1 else -3 * torch.sin(x)
    assert torch.allclose(expected, gradient)
    del pullback
    gc.collect()
    assert program() is None
