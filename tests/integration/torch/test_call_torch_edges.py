"""``call_torch`` in threads, inside itself, over modules that change and memory of others."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.torch import call_torch, wrap


class Factor(nn.Module):
    """Takes long enough for other threads to come between."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, x):
        for _ in range(5):
            x = torch.mm(x, x) * 0 + x
        return x * self.w


def in_threads(count, work):
    """The results of ``work(i)``, all at the same time."""
    found = {}

    def run(i):
        found[i] = work(i)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=60)
    return [found[i] for i in range(count)]


def test_threads_share_a_module_and_the_generator():
    module, x = Factor(), tnp.ones((100, 100))
    keys = tb.random.split(tb.random.key(0), 3)

    def noisy(x):
        return module(x) * torch.bernoulli(torch.full((100, 100), 0.5))

    def scaled(i):
        return {
            float(call_torch(module, x, params={"w": tnp.full((), float(i))})[0, 0])
            for _ in range(10)
        }

    def drawn(i):
        return {float(call_torch(noisy, x, key=keys[i]).sum()) for _ in range(10)}

    alone = [drawn(i) for i in range(3)]

    assert in_threads(3, scaled) == [{0.0}, {1.0}, {2.0}]
    assert in_threads(3, drawn) == alone


class Recursive(nn.Module):
    """Runs a program that calls the module itself."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, x, depth=1):
        if depth == 0:
            return x * self.w
        inner = tb.jit(lambda z: call_torch(self, z, 0, params={"w": tnp.full((), 5.0)}))
        return wrap(inner)(x) + self.w


def test_calls_inside_calls_do_not_wait_for_themselves():
    inner = tb.jit(lambda z, k: call_torch(lambda a: a + torch.rand(()), z, key=k))
    wrapped = wrap(lambda z: inner(z, tb.random.key(3)))
    outer = tb.jit(lambda z, k: call_torch(lambda a: wrapped(a) + torch.rand(()), z, key=k))
    module = Recursive()

    def run(i):
        noise = [float(outer(tnp.zeros(()), tb.random.key(i))) for _ in range(2)]
        call = tb.jit(lambda z: call_torch(module, z, params={"w": tnp.full((), 7.0)}))
        return noise[0] == noise[1], float(call(tnp.ones(())))

    assert in_threads(1, run) == [(True, 12.0)]


def test_results_in_the_memory_of_numpy_are_copied():
    host = np.zeros(3, np.float32)
    result = call_torch(lambda x: torch.from_numpy(host), tnp.ones(2))
    host[:] = 7

    np.testing.assert_array_equal(result, np.zeros(3))


def test_a_rate_that_changes_needs_a_key():
    drop, x = nn.Dropout(0.0), tnp.ones(3)
    np.testing.assert_array_equal(call_torch(drop, x), x)
    drop.p = 0.5

    with pytest.raises(CallbackError, match="draws random numbers"):
        call_torch(drop, x)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # it still works
def test_scripted_modules_without_params():
    linear = nn.Linear(2, 2).requires_grad_(False)
    scripted, x = torch.jit.script(linear), tnp.ones((3, 2))
    grads = tb.vmap(tb.grad(lambda v: call_torch(scripted, v).sum()))(x)

    np.testing.assert_allclose(grads, np.tile(linear.weight.sum(0), (3, 1)), rtol=1e-6)
    with pytest.raises(ArgumentSpecError, match="scripted"):
        call_torch(scripted, x, params={"bias": tnp.ones(2)})
