"""Known calls are found by one look at their tensors, and only those that are the same."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.torch import wrap
from tracebridge.torch._eager import guards
from tracebridge.torch._eager.nodes import Node

pytestmark = pytest.mark.torch


def layer(x, w):
    """tanh(x @ w), and a result that no gradient comes from."""
    return tnp.tanh(x @ w), x > 0


def own(x, w):
    """The same in torch."""
    return torch.tanh(x @ w), x > 0


def tensors(n=3, dtype=torch.float32, seed=0):
    """Two square matrices."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, n, dtype=dtype, generator=generator) for _ in range(2)]


def gradients(f, leaves, seed=None):
    """The first result and the gradients of all leaves."""
    out, _ = f(*leaves)
    found = torch.autograd.grad(out, leaves, torch.ones_like(out) if seed is None else seed)
    return [out, *found]


def test_a_known_call_is_guarded():
    """The second call finds the first one's check, with and without gradients."""
    f = wrap(layer)
    x, w = tensors()
    for _ in range(3):
        torch.testing.assert_close(f(x, w), own(x, w))
    leaves = [x.requires_grad_(), w.requires_grad_()]
    for _ in range(3):
        torch.testing.assert_close(gradients(f, leaves), gradients(own, leaves))

    assert [wanted for _, wanted, _, _ in f.calls.guarded[2]] == [None, (True, True)]
    tb.clear_caches()
    assert not f.calls.guarded[2]
    torch.testing.assert_close(gradients(f, leaves), gradients(own, leaves))


def test_backward_passes_that_read_results_are_guarded_too(monkeypatch):
    """An input that only a second derivative needs is saved, but not looked at."""
    seen = []
    guard = Node.guard

    def recording(node, leaves):
        seen.append((node, len(leaves)))
        guard(node, leaves)

    monkeypatch.setattr(Node, "guard", recording)
    f = wrap(tnp.exp)
    x = tensors(300)[0].requires_grad_()
    for _ in range(3):
        out = f(x)
        (found,) = torch.autograd.grad(out, x, torch.ones_like(out))
        torch.testing.assert_close(found, torch.exp(x.detach()))
    out = f(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(second, torch.exp(x.detach()))

    ((node, n_leaves),) = seen  # the second and the third pass had a check
    assert (node.n_extra, n_leaves, len(node.guarded)) == (1, 2, 1)


@pytest.mark.parametrize("known", [True, False])
def test_more_kinds_of_calls_than_guards(monkeypatch, known):
    """Sizes, dtypes, layouts and wishes in turns; also where torch has no such check."""
    if not known:
        monkeypatch.setattr(guards, "_TENSOR_GUARDS", None)
    f = wrap(layer)
    for seed in range(3):
        for n in (0, 1, 2, 3):
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                x, w = tensors(n, dtype, seed)
                exact = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
                torch.testing.assert_close(f(x, w), own(x, w), **exact)
                torch.testing.assert_close(f(x.t(), w), own(x.t(), w), **exact)
                leaves = [x.requires_grad_(), w]
                torch.testing.assert_close(f(*leaves)[0], own(*leaves)[0], **exact)
                torch.testing.assert_close(
                    gradients(lambda x, w=w: f(x, w), leaves[:1]),
                    gradients(lambda x, w=w: own(x, w), leaves[:1]),
                    **exact,
                )
                with torch.no_grad():
                    assert not f(*leaves)[0].requires_grad


# torch's own rules of forward mode and its tracer are written with these.
@pytest.mark.filterwarnings("ignore:.*torch.jit.(script|trace):DeprecationWarning")
def test_what_tensors_do_not_show():
    """Modes, transformations, forward mode and options are seen after a call is known."""
    f = wrap(layer)
    x, w = tensors()
    for _ in range(2):
        f(x, w)
    batched = torch.func.vmap(f, (0, None))(torch.stack([x, w]), w)[0]
    torch.testing.assert_close(batched[1], own(w, w)[0])
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, w), w)[0]).tangent
    expected = torch.func.jvp(lambda x: own(x, w)[0], (x,), (w,))[1]
    torch.testing.assert_close(tangent, expected)
    graph = make_fx(f)(x, w)
    assert any(["tracebridge.call" in str(node.target) for node in graph.graph.nodes])
    traced = torch.jit.trace(f, (x, w), check_trace=False)
    torch.testing.assert_close(traced(w, x), own(w, x))
    with torch.inference_mode():
        assert f(x, w)[0].is_inference()
    with enable_x64():
        wide = wrap(lambda x: x.astype(float))
        assert wide(x).dtype == wide(x).dtype == torch.float64
    narrow = wrap(lambda x: x.astype(float))
    assert narrow(x).dtype == narrow(x).dtype == torch.float32
    x.untyped_storage().resize_(0)
    with pytest.raises(tb.errors.ExchangeError, match="storage"):
        f(x, w)


def test_cotangents_that_are_not_plain():
    """None, expanded, transposed, recorded and batched cotangents after a plain one is known."""
    f = wrap(lambda x, w: (tnp.tanh(x @ w), x * w))
    g = lambda x, w: (torch.tanh(x @ w), x * w)
    leaves = [t.requires_grad_() for t in tensors()]
    seeds = [tensors(seed=5)[0], torch.ones(()).expand(3, 3), tensors(seed=6)[1].t()]
    for seed in (seeds[0], *seeds):
        for chosen in ([0], [1], [0, 1]):
            found = [
                torch.autograd.grad([h(*leaves)[i] for i in chosen], leaves, [seed] * len(chosen))
                for h in (f, g)
            ]
            torch.testing.assert_close(*found)
    second = []
    for h in (f, g):
        for _ in range(2):
            first = torch.autograd.grad(h(*leaves)[0].sum(), leaves, create_graph=True)
            second.append(torch.autograd.grad(first[0].square().sum(), leaves))
    torch.testing.assert_close(second[1], second[3], rtol=1e-4, atol=1e-5)
    rows = torch.stack([seeds[0], seeds[2]])
    batches = [
        torch.autograd.grad(h(*leaves)[0], leaves, rows, is_grads_batched=True) for h in (f, g)
    ]
    torch.testing.assert_close(*batches)


def test_saved_tensors_that_changed():
    """Versions are compared, and hooks may give back other tensors than they got."""
    f = wrap(lambda x: tnp.sin(x) * x)
    x = torch.linspace(0.1, 1, 5).requires_grad_()
    for _ in range(3):
        (f(x) * 1.0).sum().backward()
    y = f(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    expected = torch.autograd.grad((torch.sin(x) * x), x, torch.ones(5))[0]
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.to(torch.float64), lambda t: t.float()
    ):
        y = f(x)
    torch.testing.assert_close(torch.autograd.grad(y, x, torch.ones(5))[0], expected)
    wide = torch.zeros(5, 2)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t, lambda t: wide[:, 0].copy_(t) if t.shape == (5,) else t
    ):
        y = f(x)
    torch.testing.assert_close(torch.autograd.grad(y, x, torch.ones(5))[0], expected)


def test_threads_share_guards():
    """Calls of one function with different sizes from several threads."""
    f = wrap(layer)
    wrong = []

    def work(n):
        leaves = [t.requires_grad_() for t in tensors(n, seed=n)]
        expected = gradients(own, leaves)
        for _ in range(40):
            for found, there in zip(gradients(f, leaves), expected, strict=True):
                if not torch.allclose(found, there, atol=1e-5):
                    wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_is_kept():
    """Neither the tensors of a guarded call nor its function outlive it."""
    f = wrap(lambda x: tnp.cos(x) * 2)
    x = torch.ones(7, requires_grad=True)
    for _ in range(3):
        f(x).sum().backward()
    kept = weakref.ref(x), weakref.ref(f)
    del x
    gc.collect()
    assert kept[0]() is None
    del f
    gc.collect()
    assert kept[1]() is None
