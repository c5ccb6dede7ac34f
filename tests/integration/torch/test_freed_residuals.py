"""What a call has kept is freed while its backward pass runs, and only then and only that."""

from __future__ import annotations

import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tracebridge.numpy as tnp
from tracebridge._derived import pieces
from tracebridge.torch import wrap
from tracebridge.torch._crossing import memory
from tracebridge.torch._eager.stages import Stages

pytestmark = pytest.mark.torch

ROWS, WIDTH = 8192, 128  # such an array of float64 has 8 MB


@pytest.fixture(autouse=True)
def cut_often(monkeypatch):
    """Programs are cut for less than what pays its time."""
    monkeypatch.setattr(pieces, "_LEAST_PART", 0.01)
    monkeypatch.setattr(pieces, "_LEAST_GAIN", 1 << 18)


def network(x, ws, scale=1.0):
    for w in ws:
        x = tnp.maximum(x @ w, 0.0) * scale
    return x


def native(x, ws, scale=1.0):
    for w in ws:
        x = torch.relu(x @ w) * scale
    return x


def matrices(n=4):
    torch.manual_seed(0)
    made = [torch.randn(WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5 for _ in range(n)]
    return [w.requires_grad_() for w in made]


def batch(seed=1):
    torch.manual_seed(seed)
    return torch.randn(ROWS, WIDTH, dtype=torch.float64).requires_grad_()


def same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.fixture
def alive(monkeypatch):
    """Of the large results of programs, how many have memory when each piece begins."""
    counts: list[int] = []
    buffers: list[weakref.ref] = []
    way_out = memory.way_out

    def watched(aval):
        leave = way_out(aval)

        def leaving(buf):
            if aval.size == ROWS * WIDTH:
                buffers.append(weakref.ref(buf))
            return leave(buf)

        return leaving

    def spend(self, leaves):
        for run, places, last in self.steps:
            counts.append(len([b for b in buffers if b() is not None]))
            leaves += run([leaves[p] for p in places])
            for p in last:
                leaves[p] = None
        return [leaves[p] for p in self.results]

    monkeypatch.setattr(memory, "way_out", watched)
    monkeypatch.setattr(Stages, "spend", spend)
    return counts


def test_memory_is_free_before_the_last_piece(alive):
    """Fewer arrays are there when the last piece begins than at the first one, by two or more."""
    x, ws = batch(), matrices()
    found = torch.autograd.grad(wrap(network)(x, ws).sum(), [x, *ws])

    assert len(alive) > 1
    assert alive[-1] <= alive[0] - 2
    same(found, torch.autograd.grad(native(x, ws).sum(), [x, *ws]))


def test_retained_graphs_keep_it(alive):
    """With retain_graph nothing is freed, a second pass gives the same, a third one raises."""
    x, ws = batch(), matrices()
    loss = wrap(network)(x, ws).sum()
    expected = torch.autograd.grad(native(x, ws).sum(), [x, *ws])
    same(torch.autograd.grad(loss, [x, *ws], retain_graph=True), expected)
    first = list(alive)
    same(torch.autograd.grad(loss, [x, *ws]), expected)

    assert first[-1] >= first[0]
    assert alive[-1] < first[-1]
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, [x, *ws])


def test_second_derivatives():
    """create_graph keeps what the derivative of the backward pass needs."""
    x, ws = batch(), matrices(2)

    def twice(f):
        (g,) = torch.autograd.grad(f(x, ws).square().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, *ws])

    same(twice(wrap(network)), twice(native))


def test_results_and_inputs_stay():
    """Results, inputs and cotangents that a caller has are not touched."""
    x, ws = batch(), matrices()
    y = wrap(network)(x, ws)
    ct = torch.ones_like(y)
    before = [t.detach().clone() for t in (x, y, ct, *ws)]
    y.backward(ct)
    filler = [torch.full((ROWS, WIDTH), 7.0, dtype=torch.float64) for _ in range(8)]

    same([t.detach() for t in (x, y, ct, *ws)], before)
    assert filler[0][0, 0] == 7.0


def test_who_holds_what_was_saved():
    """Saved tensors that somebody has asked for live on, with their values."""
    x, ws = batch(), matrices()
    y = wrap(network)(x, ws)
    saved = y.grad_fn.saved_tensors
    before = [t.detach().clone() for t in saved]
    y.sum().backward()
    filler = [torch.full((ROWS, WIDTH), 7.0, dtype=torch.float64) for _ in range(8)]

    same([t.detach() for t in saved], before)
    assert len(filler) == 8


def test_one_gradient_of_two_inputs():
    """Who changes the gradient of one input does not change that of another one."""
    x, y, ws = batch(), batch(2), matrices()

    loss = wrap(lambda x, y, ws: network(x + y, ws))(x, y, ws).sum()
    first, second = torch.autograd.grad(loss, [x, y])
    first.mul_(2.0)

    torch.testing.assert_close(first, 2.0 * second)
    same([second], torch.autograd.grad(native(x + y, ws).sum(), [y]))


def test_numbers_and_some_results():
    """Python numbers among the arguments, and results without a cotangent."""
    x, ws = batch(), matrices()

    def both(f, scale):
        a, b = f(x, ws, 0.5), scale * 2.0
        return torch.autograd.grad(a.sum() * b, [x, *ws])

    same(both(wrap(network), 1.5), both(native, 1.5))
    two = wrap(lambda x, ws: (network(x, ws), network(x, ws[:2])))
    found = torch.autograd.grad(two(x, ws)[0].sum(), [x, *ws])
    same(found, torch.autograd.grad(native(x, ws).sum(), [x, *ws]))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    """Calls that torch makes again in the backward pass."""
    x, ws = batch(), matrices()

    def loss(f):
        y = checkpoint(lambda x: f(x, ws), x, use_reentrant=reentrant)
        y.sum().backward()
        grads = [t.grad for t in (x, *ws)]
        for t in (x, *ws):
            t.grad = None
        return grads

    same(loss(wrap(network)), loss(native))


def test_saved_tensors_elsewhere():
    """Hooks that keep copies of what is saved."""
    x, ws = batch(), matrices()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = wrap(network)(x, ws)
    found = torch.autograd.grad(y.sum(), [x, *ws])

    same(found, torch.autograd.grad(native(x, ws).sum(), [x, *ws]))


def test_errors_end_the_pass(monkeypatch):
    """An error in the middle comes out as it is; the next call is as the first one."""
    x, ws = batch(), matrices()
    f = wrap(network)
    expected = torch.autograd.grad(f(x, ws).sum(), [x, *ws])
    loss = f(x, ws).sum()
    spend = Stages.spend

    def broken(self, leaves):
        raise MemoryError("no memory")

    monkeypatch.setattr(Stages, "spend", broken)
    with pytest.raises(MemoryError, match="no memory"):
        torch.autograd.grad(loss, [x, *ws])
    monkeypatch.setattr(Stages, "spend", spend)

    same(torch.autograd.grad(f(x, ws).sum(), [x, *ws]), expected)


def test_hooks_of_leaves_and_results():
    """Gradients that hooks change go on changed."""
    x, ws = batch(), matrices()

    def changed(f):
        y = f(x, ws)
        y.register_hook(lambda g: g * 3.0)
        handle = ws[0].register_hook(lambda g: g + 1.0)
        found = torch.autograd.grad(y.sum(), [x, *ws])
        handle.remove()
        return found

    same(changed(wrap(network)), changed(native))


def test_threads():
    """Backward passes of several threads share programs, not memory."""
    f, ws = wrap(network), [w.detach() for w in matrices()]
    batches = [batch(seed) for seed in range(3)]
    found: dict[int, torch.Tensor] = {}

    def work(seed):
        x = batches[seed]
        for _ in range(3):
            (found[seed],) = torch.autograd.grad(f(x, ws).sum(), x)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for seed, x in enumerate(batches):
        same([found[seed]], torch.autograd.grad(native(x, ws).sum(), x))


def test_functions_of_torch_func():
    """torch.func gives the same, with programs of its own."""
    x, ws = batch(), [w.detach() for w in matrices()]
    f = wrap(network)

    same(
        [torch.func.grad(lambda x: f(x, ws).sum())(x.detach())],
        torch.autograd.grad(native(x, ws).sum(), x),
    )


def test_errors_within_a_backward_pass(monkeypatch):
    """They say that the graph has lost what was freed; another backward pass is refused."""
    x, ws = batch(), matrices()
    y = wrap(network)(x, ws)

    def fails(self, leaves):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Stages, "spend", fails)
        with pytest.raises(MemoryError) as caught:
            torch.autograd.grad(y.sum(), [x, *ws])
    assert "run the forward pass again" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y.sum(), [x, *ws])

    same(
        torch.autograd.grad(wrap(network)(x, ws).sum(), [x]),
        torch.autograd.grad(native(x, ws).sum(), [x]),
    )
