"""Large gradients that are added to earlier ones: computed one after the other, and the same."""

from __future__ import annotations

import functools
import gc
import threading
from copy import deepcopy

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.utils.checkpoint import checkpoint

import tracebridge.numpy as tnp
from tracebridge.torch import Module, wrap

pytestmark = pytest.mark.torch

N = 384  # a matrix of that width has more than 1 MB


def network(weights, x):
    for w in weights:
        x = tnp.tanh(x @ w)
    return x


def native(weights, x):
    for w in weights:
        x = torch.tanh(x @ w)
    return x


def matrices(n=3):
    torch.manual_seed(0)
    return [(torch.randn(N, N, dtype=torch.float64) / N**0.5).requires_grad_() for _ in range(n)]


def batch(seed=1):
    torch.manual_seed(seed)
    return torch.randn(4, N, dtype=torch.float64)


def kinds(result):
    """The nodes that the one of a result leads to."""
    return [type(node).__name__ for node, _ in result.grad_fn.next_functions if node]


def accumulated(f, weights):
    """Gradients are there: the next call has something to be beside."""
    f(weights, batch(7)).square().sum().backward()


# Each is done with our function and with torch's, on equal leaves; what it gives is compared.


def adding(f, ws):
    for seed in range(3):
        f(ws, batch(seed)).square().sum().backward()


def twice(f, ws):
    y = f(ws, batch()).square().sum()
    y.backward(retain_graph=True)
    y.backward()


def some(f, ws):
    y = f(ws, batch()).square().sum()
    first = torch.autograd.grad(y, [ws[1]], retain_graph=True)
    return [*first, *torch.autograd.grad(y, ws[::-1])]


def of_some(f, ws):
    f(ws, batch()).square().sum().backward(inputs=[ws[2], ws[0]])


def sums(f, ws):
    f(ws, batch()).sum().backward()


def two_calls(f, ws):
    (f(ws, batch()).square().sum() + f(ws[::-1], batch(2)).sum()).backward()


def same_leaf(f, ws):
    f([ws[0], ws[1], ws[0]], batch()).square().sum().backward()


def chained(f, ws):
    f(ws[1:], f(ws[:2], batch())).square().sum().backward()


def through_torch(f, ws):
    f([ws[0], ws[1].T, 2 * ws[2]], batch()).square().sum().backward()


def zeroed(f, ws):
    for w in ws:
        w.grad.zero_()
    f(ws, batch()).square().sum().backward()


def forgotten(f, ws):
    y = f(ws, batch())
    for w in ws:
        w.grad = None
    y.square().sum().backward()


def hooks(f, ws):
    seen = []
    for w in ws:
        w.register_hook(lambda g: seen.append(g.clone()) or g * 3)
    f(ws, batch()).square().sum().backward()
    assert {torch.Tensor} == {type(g) for g in seen}
    return sorted(seen, key=lambda g: float(g.sum()))


def hooks_of_the_node(f, ws):
    y = f(ws, batch())
    if f is not native:
        y.grad_fn.register_hook(lambda grads, _: tuple([g if g is None else g * 3 for g in grads]))
        y.square().sum().backward()
    else:
        (3 * y.square().sum()).backward()


def update_in_backward(f, ws):
    def step(w):
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None

    for w in ws:
        w.grad = None
        w.register_post_accumulate_grad_hook(step)
    for seed in range(3):
        f(ws, batch(seed)).square().sum().backward()
    return [w.detach().clone() for w in ws]


def second_order(f, ws):
    y = f(ws, batch()).square().sum()
    gs = torch.autograd.grad(y, ws, create_graph=True)
    (y + sum([g.square().sum() for g in gs])).backward()


def create_graph(f, ws):
    for w in ws:
        w.grad = None
    f(ws, batch()).sum().backward(create_graph=True)
    total = sum([w.grad.square().sum() for w in ws])
    found = torch.autograd.grad(total, ws)
    for w in ws:
        w.grad = w.grad.detach()  # a cycle otherwise
    return found


def batched(f, ws):
    y = f(ws, batch())
    return torch.autograd.grad(
        y, ws[:2], torch.stack([batch(3), batch(4)]), is_grads_batched=True, retain_graph=True
    )


def anomaly(f, ws):
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        f(ws, batch()).square().sum().backward()


def checkpointed(f, ws):
    for reentrant in (False, True):
        x = batch().requires_grad_()
        checkpoint(f, ws, x, use_reentrant=reentrant).square().sum().backward()
        f(ws, checkpoint(f, ws, x, use_reentrant=reentrant)).square().sum().backward()


def offloaded(f, ws):
    with torch.autograd.graph.save_on_cpu():
        y = f(ws, batch()).square().sum()
    y.backward()


def after_an_exception(f, ws):
    def fail(g):
        del g
        raise KeyboardInterrupt

    handle = ws[1].register_hook(fail)
    before = [w.grad.clone() for w in ws]
    with pytest.raises(KeyboardInterrupt):
        f(ws, batch()).square().sum().backward()
    handle.remove()
    for w, g in zip(ws, before, strict=True):
        w.grad = g
    f(ws, batch()).square().sum().backward()


def given_cotangents(f, ws):
    f(ws, batch()).backward(torch.ones((), dtype=torch.float64).expand(4, N))
    f(ws, batch()).backward(torch.ones(4, 1, dtype=torch.float64).expand(4, N))
    f(ws, batch()).backward(batch(3).T.contiguous().T)


def threads(f, ws):
    y = f(ws, batch()).square().sum()
    runs = [
        threading.Thread(target=lambda: torch.autograd.grad(y, ws, retain_graph=True))
        for _ in range(3)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    y.backward()


def in_compiled_autograd(f, ws):
    y = f(ws, batch()).square().sum()
    torch._dynamo.reset()
    with compiled_autograd._enable(torch.compile(backend="eager")):
        y.backward()


SITUATIONS = [
    adding, twice, some, of_some, sums, two_calls, same_leaf, chained, through_torch, zeroed,
    forgotten, hooks, hooks_of_the_node, update_in_backward, second_order, create_graph, batched,
    anomaly, checkpointed, offloaded, after_an_exception, given_cotangents, threads,
    in_compiled_autograd,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph:UserWarning")
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.__name__)
def test_gradients_are_those_of_torch(situation):
    """Whatever is done with the graph and the leaves."""
    found = []
    for f in (wrap(network), native):
        weights = matrices()
        accumulated(f, weights)
        given = situation(f, weights)
        found.append([*(given or ()), *[w.grad for w in weights]])

    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def is_late(result):
    return "LateBackward" in kinds(result)


def test_when_gradients_are_late():
    """Where several large leaves have a gradient, or a hook that takes it, or are very large."""
    f = wrap(network)
    x = batch()
    small = [w.detach()[:99, :99].clone().requires_grad_() for w in matrices()]
    weights = matrices()

    assert not is_late(f(weights, x))
    weights[0].register_post_accumulate_grad_hook(lambda w: None)
    assert is_late(f(weights, x))
    for ws, y in ((matrices(), x), (small, x[:, :99]), (matrices(1), x)):
        f(ws, y).sum().backward()
        assert (ws[0] is not small[0] and len(ws) > 1) == is_late(f(ws, y))
    huge = [torch.zeros(1450, 1450, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert is_late(f(huge, torch.zeros(2, 1450, dtype=torch.float64)))


def test_large_batches_are_not_split():
    """Where values for later would take as much memory as the gradients, calls stay as they are."""
    f = wrap(network)
    weights = matrices()
    x = torch.ones(N, N, dtype=torch.float64)
    expected = torch.autograd.grad(native(weights, x).sum(), weights)

    f(weights, x).sum().backward()
    assert is_late(f(weights, x))
    f(weights, x).sum().backward()

    assert not is_late(f(weights, x))
    for w, g in zip(weights, expected, strict=True):
        torch.testing.assert_close(w.grad, 2 * g)


def test_shells():
    """What stands for a gradient that is not computed yet can be used as that gradient."""
    f = wrap(network)
    weights = matrices()
    accumulated(f, weights)
    y = f(weights, batch())
    seen = []
    y.grad_fn.register_hook(lambda grads, _: seen.extend([g for g in grads if g is not None]))
    y.sum().backward()

    assert 3 == len(seen)
    for w, g in zip(weights, seen, strict=True):
        assert (w.shape, w.dtype, w.device) == (g.shape, g.dtype, g.device)
        assert g.is_contiguous()
        assert "tensor(" in repr(g)
        torch.testing.assert_close(torch.autograd.grad(f(weights, batch()).sum(), w)[0], g + 0)
        assert (g.numpy() == (g * 1).tolist()).all()


@pytest.mark.parametrize("number", [False, True], ids=["", "number"])
def test_unused_leaves_and_results(number):
    """Who has no path to the results that are used keeps its gradient; integers do not disturb."""

    def ours(a, b, c, x, n):
        return x @ a * n, tnp.argmax(x), x @ a @ b, (x @ c).sum()

    def theirs(a, b, c, x, n):
        return x @ a * n, torch.argmax(x), x @ a @ b, (x @ c).sum()

    n = 3.0 if number else torch.tensor(3.0, dtype=torch.float64)
    found = []
    for f in (wrap(ours), theirs):
        ws = matrices(4)
        for w in ws:
            w.grad = torch.ones_like(w)
        out = f(*ws[:3], batch(), n)
        out[0].sum().backward(retain_graph=True)
        (out[2].square().sum() + out[0].sum()).backward()
        found.append([w.grad for w in ws])

    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_none_stays_none():
    """Leaves that a result does not depend on get no gradient, also where others are late."""
    f = wrap(lambda ws, x: (x @ ws[0], x @ ws[1], x @ ws[2]))
    ws = matrices()
    for w in ws[:2]:
        w.grad = torch.zeros_like(w)
    out = f(ws, batch())
    assert is_late(out[0])

    (out[0].sum() + out[1].sum()).backward(retain_graph=True)

    assert ws[2].grad is None
    grads = torch.autograd.grad(out[1].sum(), ws, allow_unused=True)
    assert [True, False, True] == [g is None for g in grads]


def test_results_changed_in_backward():
    """A hook that changes in place what a late gradient depends on is told, as torch tells."""
    f = wrap(network)
    weights = matrices()
    accumulated(f, weights)
    x = batch()

    def change(w):
        del w
        x.add_(1)

    for w in weights:
        w.register_post_accumulate_grad_hook(change)

    with pytest.raises(RuntimeError, match="changed by an inplace operation"):
        f(weights, x).sum().backward()


def test_leaves_changed_in_backward():
    """Gradients are of the values before, whatever hooks do to leaves meanwhile."""
    ours = wrap(lambda a, b, s, x: (x @ a @ b * s).sum())
    found = []
    for f in (ours, lambda a, b, s, x: (x @ a @ b * s).sum()):
        a, b = matrices(2)
        s = batch(5)[0].requires_grad_()
        for leaf in (a, b, s):
            leaf.grad = torch.zeros_like(leaf)
        for _ in range(2):
            handles = [leaf.register_post_accumulate_grad_hook(clear) for leaf in (a, b, s)]
            f(a, b, s, batch()).backward()
            for handle in handles:
                handle.remove()
        found.append([a, b, s, a.grad, b.grad, s.grad])

    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(x, y)


def clear(leaf):
    """An optimizer that leaves nothing of the values."""
    with torch.no_grad():
        leaf.mul_(0.5).add_(leaf.grad, alpha=0.1)


def of_tree(f, tree, x):
    return f([tree["a"], *tree["b"]], x)


def test_module_with_shared_weights():
    """A parameter at several places of a tree, in micro-batches with an optimizer."""
    found = []
    for ours in (True, False):
        f = network if ours else native
        p, q = (torch.nn.Parameter(w.detach()) for w in matrices(2))
        model = functools.partial(of_tree, f)
        tree = {"a": p, "b": [q, p]}
        module = Module(model, tree) if ours else functools.partial(model, tree)
        optimizer = torch.optim.Adam([p, q])
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            for seed in range(3):
                module(batch(seed)).square().mean().backward()
            optimizer.step()
        found.append([p, q])

    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_nothing_stays():
    """Graphs whose backward pass is over, or has failed, or never came, are freed."""
    f = wrap(network)
    weights = matrices()
    accumulated(f, weights)
    accumulated(f, weights)
    gc.collect()
    # Of our own types: those of torch come and go with its caches.
    before = alive()
    after_an_exception(f, weights)
    f(weights, batch())
    torch.autograd.grad(f(weights, batch()).sum(), weights[1])
    gc.collect()

    assert before == alive()


def alive():
    names = ("LateGradient", "LateBackward", "tracebridge::networkBackward")
    return [sum([type(o).__name__ == name for o in gc.get_objects()]) for name in names]


# gloo warns when it cannot find out the host's name, and about its own deprecations.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", [False, True], ids=["", "views"])
def test_distributed_data_parallel(process_group, view):
    """Batches without synchronisation, then one with it."""
    del process_group
    module = Module(network, [w.detach() for w in matrices()])
    reference = deepcopy(module)
    parallel = torch.nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=view)
    for _ in range(2):
        with parallel.no_sync():
            parallel(batch(1)).square().sum().backward()
        parallel(batch(2)).square().sum().backward()

    weights = list(reference.parameters())
    for seed in (1, 2, 1, 2):
        native(weights, batch(seed)).square().sum().backward()
    for p, q in zip(module.parameters(), weights, strict=True):
        torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.filterwarnings("ignore")  # as above
def test_fully_sharded(process_group):
    """The memory of parameters is given back while gradients are made."""
    del process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    huge = [torch.linspace(-1e-3, 1e-3, 1450**2, dtype=torch.float64) for _ in range(2)]
    module = Module(network, [w.reshape(1450, 1450) for w in huge])
    x = torch.linspace(-1, 1, 2900, dtype=torch.float64).reshape(2, 1450)
    weights = [p.detach().clone().requires_grad_() for p in module.parameters()]
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    for _ in range(2):
        native(weights, x).square().sum().backward()
        y = module(x)
        y.square().sum().backward()

    for p, q in zip(module.parameters(), weights, strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad)
