"""Programs that are nothing but kernels are called without XLA, with the numbers that XLA gives."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import lax, nn
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.kernels.own_threads import IS_X86
from tracebridge.core.lowering.direct import direct_program
from tracebridge.errors import ExchangeError
from tracebridge.torch import wrap
from tracebridge.torch._crossing import execute
from tracebridge.torch._crossing.direct import direct_run

pytestmark = [
    pytest.mark.torch,
    needs_kernels,
    pytest.mark.skipif(not IS_X86, reason="on other processors kernels are called by XLA alone"),
]


def normed(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + bias


def grouped(x, scale, bias):
    groups = x.reshape(x.shape[0], 4, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    normal = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


# function, its arguments, and how many of its two programs are direct ones
CASES = {
    "softmax": (nn.softmax, (randn(2100, 256),), 2),
    "small softmax": (nn.softmax, (randn(512, 65),), 2),
    "rows of an odd length": (nn.log_softmax, (randn(1000, 333),), 2),
    "layer norm": (normed, (randn(2048, 256), randn(256), randn(256)), 2),
    "group norm": (grouped, (randn(4, 32, 16, 16), randn(32), randn(32)), 2),
    "cumulative sum": (lambda x: tnp.cumsum(x, -1), (randn(1024, 300),), 2),
    "over channels": (lambda x: nn.softmax(x, axis=1), (randn(4, 32, 64, 8),), 2),
    "two kernels": (lambda x: tnp.cumsum(nn.softmax(x), -1), (randn(1024, 256),), 2),
    "elements": (lambda x: tnp.where(x > 0, 3 * x, 0.1 * x), (randn(200, 300),), 2),
    "a number for all": (lambda x, s: x * (s + 1), (randn(200, 300), randn(1)[0]), 2),
    "a mean": (lambda x: tnp.mean((x - 1) ** 2), (randn(300, 200),), 2),
    "a mean of float64": (lambda x: tnp.mean((x - 1) ** 2), (randn(300, 200).double(),), 2),
    "a large array": (nn.softmax, (randn(8200, 256),), 0),
    "a product": (lambda x: nn.softmax(x) @ tnp.ones((256, 2)), (randn(1024, 256),), 0),
}


@pytest.fixture
def seen(monkeypatch):
    """How often a program was called both ways, each of which gave the same bits."""
    calls = []

    def both_ways(jaxpr, make):
        run = direct_run(jaxpr, make)
        if run is None:
            return None

        def compared(xs):
            found, expected = run(xs), make()(xs)
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
                assert torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
            calls.append(jaxpr)
            return found

        return compared

    monkeypatch.setattr(execute, "direct_run", both_ways)
    return calls


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_by_xla(case, seen):
    """Forward and backward."""
    function, arguments, n = CASES[case]
    xs = [x.clone().requires_grad_() for x in arguments]
    outs = wrap(function)(*xs)
    outs = outs if isinstance(outs, tuple) else (outs,)
    torch.autograd.grad(outs, xs, [torch.sin(o.detach()) for o in outs])
    assert len({id(jaxpr) for jaxpr in seen}) == n


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-41, -3e-39])
def test_values_that_are_unusual(value, seen):
    """Numbers below the least normal one are zero, as in XLA's threads."""
    x = randn(2100, 256)
    x[::7, ::5] = value
    x[3] = value
    for f in (nn.softmax, lambda x: tnp.cumsum(x, -1), lambda x: x - x.mean(-1, keepdims=True) * 2):
        wrap(f)(x)
    assert len(seen) == 3


def test_flags_of_the_processor_stay_as_they_were():
    """Behind a call tiny numbers are there again."""
    wrap(nn.softmax)(randn(2100, 256))
    tiny = torch.full((4,), 1e-39)
    assert ((tiny * 0.5) > 0).all()


def test_memory_that_begins_anywhere(seen):
    """Kernels read elements where they are, XLA copies memory that is not aligned."""
    long = randn(2100 * 256 + 3)
    for k in range(3):
        wrap(nn.softmax)(long[k : k + 2100 * 256].view(2100, 256))
    assert len(seen) == 3


def test_results_are_ordinary_tensors():
    """They own their memory: it can be resized, changed in place, and is not of a graph."""
    f = wrap(nn.softmax)
    x = randn(2100, 256)
    a, b = f(x), f(x)
    assert a.data_ptr() != b.data_ptr()
    assert not a.data_ptr() % 64
    a.zero_()
    torch.testing.assert_close(b, x.softmax(-1))
    a.untyped_storage().resize_(0)
    with torch.inference_mode():
        assert f(x).is_inference()
    with torch.device("meta"):
        assert f(x).device.type == "cpu"
    assert not f(x.requires_grad_()).is_leaf


def test_storages_that_are_too_small():
    """The memory of a sharded parameter comes and goes."""
    f = wrap(nn.softmax)
    x = randn(2100, 256)
    f(x)
    x.untyped_storage().resize_(64)
    with pytest.raises(ExchangeError, match="resized"):
        f(x)


def test_where_torch_sees_more_than_memory():
    """Transformations, modes and profilers get what they get of other programs."""
    f = wrap(nn.softmax)
    x = randn(2100, 256)
    expected = f(x)
    many = torch.stack([x, 2 * x])
    torch.testing.assert_close(torch.func.vmap(f)(many)[0], expected)
    slope = torch.func.grad(lambda x: (f(x) ** 2).sum())(x)
    torch.testing.assert_close(slope, torch.func.grad(lambda x: (x.softmax(-1) ** 2).sum())(x))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        f(x)
    assert not [e.name for e in seen.events() if e.name.startswith("aten::")]


def test_calls_of_several_threads():
    """Each has its own arguments, results and help."""
    f = wrap(nn.softmax)
    inputs = [randn(2100, 256) * k for k in range(1, 5)]
    expected = [f(x).clone() for x in inputs]
    wrong = []

    def work(k):
        for _ in range(30):
            if not torch.equal(f(inputs[k]), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


_ENDS = """
import torch, tracebridge as tb
from tracebridge.torch import wrap
f = wrap(tb.nn.softmax)
x = torch.randn(4096, 256)
for _ in range(20):
    f(x)
"""


def test_a_process_that_ends_at_once():
    """A thread that has helped may still wait for more."""
    subprocess.run([sys.executable, "-c", _ENDS], check=True, timeout=120)


@pytest.mark.parametrize("told", ["1", "3", "0", "many"])
def test_as_many_threads_as_xla_starts(told, subprocess_environment):
    """Who keeps XLA to one thread by ``NPROC`` has one here, too."""
    program = """
import os
import tracebridge.numpy as tnp
from tracebridge.core.kernels.machine import n_threads
tnp.ones(3).block_until_ready()
names = [open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task")]
pool = [name for name in names if name.startswith("tf_XLAEigen")]
assert len(pool) == n_threads(), (pool, n_threads())
"""
    # Of one device: XLA starts a thread for each of several.
    told_too = {"TRACEBRIDGE_NUM_CPU_DEVICES": "1", "NPROC": told}
    environment = subprocess_environment | told_too
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment)


def test_programs_of_other_equations():
    """A program without kernels is none."""
    small = stage(lambda x: [lax.sin(x)], [ShapedArray((8,), np.dtype("float32"))], locate=False)
    assert direct_program(small) is None
