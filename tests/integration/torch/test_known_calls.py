"""Calls in graphs that are known go past torch's dispatcher, unless somebody wants to see them."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from tracebridge.torch._graphs import known
from tracebridge.torch._graphs.operator import CALL

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),  # by torch itself
]
func = torch.func


def known_call():
    """A function in a graph, its handle, an input, and which calls of it were dispatched."""
    f = wrap(lambda x: tnp.tanh(x) * 2)
    before = set(known.KNOWN.guarded)
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    x = torch.linspace(-1, 1, 5)
    for _ in range(3):
        compiled(x)
    (h,) = set(known.KNOWN.guarded) - before
    CALL([x], h)  # outside of the graph torch's keys are others
    CALL([x], h)
    return h, x


def want(x):
    return torch.tanh(x) * 2


def dispatched(call, monkeypatch):
    """How many calls reach a kernel of ours."""
    counted = []
    looked = known.guarded

    def count(xs, h):
        counted.append(h)
        return looked(xs, h)

    with monkeypatch.context() as patch:
        from tracebridge.torch._graphs import operator

        patch.setattr(operator, "guarded", count)
        call()
    return len(counted)


def test_a_known_call_is_not_dispatched(monkeypatch):
    """Plain tensors as before go to the program; others are dispatched, and right."""
    h, x = known_call()
    more = torch.linspace(-1, 1, 7)

    assert dispatched(lambda: CALL([x + 1], h), monkeypatch) == 0
    assert dispatched(lambda: CALL(xs=[x], h=h), monkeypatch) == 0
    assert dispatched(lambda: CALL([more], h), monkeypatch) > 0
    assert torch.allclose(CALL([x + 1], h)[0], want(x + 1))
    assert torch.allclose(CALL([torch.stack([x, x]).t()[:, 0]], h)[0], want(x))
    assert type(CALL([x], h)) is list


def test_what_is_recorded_is_dispatched():
    """Gradients, levels of torch.func, duals and inference see known calls as others."""
    h, x = known_call()
    leaf = x.clone().requires_grad_()
    slope = 2 * (1 - torch.tanh(x) ** 2)
    (y,) = CALL([leaf], h)
    (grad,) = torch.autograd.grad(y.sum(), leaf)
    with torch.no_grad():
        assert not CALL([leaf], h)[0].requires_grad
    mapped = func.vmap(lambda v: CALL([v], h)[0])(torch.stack([x, x + 1]))
    level = func.grad(lambda v: CALL([v], h)[0].sum())(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(CALL([dual], h)[0]).tangent
    with torch.inference_mode():
        kept = CALL([x], h)[0]

    assert torch.allclose(grad, slope, atol=1e-6)
    assert torch.allclose(mapped, want(torch.stack([x, x + 1])), atol=1e-6)
    assert torch.allclose(level, slope, atol=1e-6)
    assert torch.allclose(tangent, slope, atol=1e-6)
    assert kept.is_inference()
    assert not CALL([x], h)[0].is_inference()


def test_who_looks_sees_known_calls():
    """Modes for operators and functions, the counter and the profiler."""
    h, x = known_call()
    seen = []

    class Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            seen.append(f)
            return f(*args, **(kwargs or {}))

    class Function(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            seen.append(f)
            return f(*args, **(kwargs or {}))

    for mode in (Dispatch, Function):
        seen.clear()
        with mode():
            CALL([x], h)
        assert seen == [CALL]
    with FlopCounterMode(display=False) as counter:
        CALL([x], h)
    assert counter.get_total_flops() > 0
    with torch.profiler.profile(acc_events=True) as profile:
        CALL([x], h)
    assert any("tracebridge::" in event.key for event in profile.key_averages())
    with torch._subclasses.FakeTensorMode() as fake:
        assert CALL([fake.from_tensor(x)], h)[0].shape == x.shape


def test_graphs_do_not_guard_on_our_code():
    """What a graph guards on are tensors, the function, and the options of the process."""
    f = wrap(lambda x, y, k: tnp.tanh(x) * y["w"] + k)
    names: list[str] = []

    def look(entries):
        names.extend([entry.name for entry in entries])
        return [True] * len(entries)

    def call(x, y):
        return f(x, y, k=2.0)

    x = torch.ones(3)
    compiled = torch.compile(
        call, backend="aot_eager", fullgraph=True, options={"guard_filter_fn": look}
    )
    assert torch.allclose(compiled(x, {"w": x}), torch.tanh(x) + 2)

    ours = [name for name in names if "__import_tracebridge" in name]
    assert ours
    assert all(["_OPTIONS_OF_PROCESS" in name for name in ours])
    assert any(["'w'" in name for name in names])
