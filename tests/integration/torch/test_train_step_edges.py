"""Steps see what changes between them, and everybody sees the values that they write."""

import copy
import functools
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.random import normal
from tracebridge.torch import Module, from_module, train_step, wrap

MSE = nn.MSELoss()
STATM = Path("/proc/self/statm")
BIG = 20_000  # elements: tensors that take over the memory of their new values


class Scaled(nn.Module):
    """A layer with an argument that is no tensor."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3, bias=False)
        self.b = nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x, k=1.0, way="on"):
        return self.b(self.a(x)) * k if way == "on" else x


class Wide(nn.Module):
    """One large parameter and one large buffer."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(BIG))
        self.register_buffer("last", torch.zeros(BIG))

    def forward(self, x):
        y = x * self.w
        self.last.copy_(x)
        return y


def test_the_state_of_each_module_counts():
    """Parts in another mode, other settings, layers that are replaced, hooks."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    other = copy.deepcopy(net)
    pairs = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (net, other)]
    step = train_step(net, MSE, pairs[0][1])
    x, y = torch.randn(5, 3), torch.randn(5, 1)

    def plain():
        module, optimizer = pairs[1]
        optimizer.zero_grad()
        loss = MSE(module(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def freeze(module):
        module[1].eval()

    def replace(module):
        torch.manual_seed(1)
        module[2] = nn.Linear(4, 1)

    def hook(module):
        module[0].register_forward_hook(lambda m, args, out: out * 2)

    def slow(module):
        module.train()
        module[1].momentum = 0.5

    for change in (len, freeze, replace, hook, slow):
        for module, optimizer in pairs:
            change(module)
            optimizer.param_groups[0]["params"] = list(module.parameters())
        torch.testing.assert_close(step(x, y), plain(), msg=change.__name__)
        torch.testing.assert_close(step(x, y), plain(), msg=change.__name__)
    torch.testing.assert_close(net.state_dict(), other.state_dict())


def test_tied_weights_that_come_apart():
    net = Scaled()
    x = torch.ones(2, 3)
    step = train_step(net, MSE, torch.optim.SGD(net.parameters(), lr=0.1))
    model = from_module(net, (x,))
    given = train_step(model, MSE, torch.optim.SGD(net.parameters(), lr=0.1))
    step(x, x)
    given(x, x)
    net.b.weight = nn.Parameter(torch.zeros(3, 3))

    assert step(x, x) == 1.0
    with pytest.raises(ArgumentSpecError, match="other modules or names"):
        given(x, x)


def test_numbers_and_strings_choose_the_program():
    net = Scaled()
    x = torch.ones(2, 3)
    step = train_step(net, MSE, torch.optim.SGD(net.parameters(), lr=0.0))
    for kwargs in ({}, {"k": 2.0}, {"way": "off"}):
        torch.testing.assert_close(step(x, x, **kwargs), MSE(net(x, **kwargs), x).detach())


def test_autocast_is_that_of_the_step():
    net = nn.Linear(3, 1, bias=False)
    nn.init.constant_(net.weight, 1.001)
    x, y = torch.full((4, 3), 1.003), torch.zeros(4, 1)
    step = train_step(net, MSE, torch.optim.SGD(net.parameters(), lr=0.0))
    for enabled in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            torch.testing.assert_close(step(x, y), MSE(net(x), y).detach())


def test_memory_that_others_see_is_written_to():
    """Arrays of NumPy over parameters, buffers and states follow, with and without copies."""
    net = Wide()
    host = np.ones(BIG, np.float32)
    net.w = nn.Parameter(torch.from_numpy(host))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    step = train_step(net, lambda out, y: (tnp.mean((out - y) ** 2), out), optimizer, has_aux=True)
    x = torch.ones(BIG)
    _, first = step(x, 0 * x)
    kept = first.clone()
    state = optimizer.state[net.w]
    views = [net.last.numpy(), np.from_dlpack(state["exp_avg"]), state["exp_avg_sq"].numpy()]
    step(3 * x, 0 * x)
    step(5 * x, 0 * x)

    np.testing.assert_array_equal(host, net.w.detach())
    for view, now in zip(views, (net.last, state["exp_avg"], state["exp_avg_sq"]), strict=True):
        np.testing.assert_array_equal(view, now)
    assert net.last[0] == 5
    torch.testing.assert_close(first, kept)


@pytest.fixture(params=["frames", "watched frames"])
def frames(request):
    """Calls of Python as they are, and with Dynamo's hook, which keeps them from being inlined."""
    if request.param == "frames":
        yield
        return
    from torch._C._dynamo.eval_frame import set_eval_frame

    before = set_eval_frame(False)  # run what was compiled, compile nothing
    yield
    set_eval_frame(before)


@pytest.mark.usefixtures("frames")
def test_large_tensors_that_nobody_sees_are_not_copied():
    net = Wide()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    step = train_step(net, MSE, optimizer)
    x = torch.ones(BIG)
    for _ in range(3):
        step(x, x)

    def places():
        state = optimizer.state[net.w]
        return [t.data_ptr() for t in (net.w, net.last, state["exp_avg"], state["exp_avg_sq"])]

    before = places()
    step(x, x)

    # New values are made while the old ones are there: none can be at its own place.
    assert all([old != new for old, new in zip(before, places(), strict=True)])


def test_hooks_before_a_step_change_its_hyperparameters():
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    step = train_step(net, MSE, optimizer)
    before = net.weight.detach().clone()
    optimizer.register_step_pre_hook(lambda o, *_: o.param_groups[0].update(lr=0.5))
    step(torch.ones(3, 2), torch.full((3, 1), 9.0))

    assert not torch.equal(before, net.weight)


def test_copies_train_copies():
    net = nn.Linear(2, 1)
    step = train_step(net, MSE, torch.optim.Adam(net.parameters(), lr=0.1))
    x, y = torch.ones(3, 2), torch.zeros(3, 1)
    step(x, y)
    again = copy.deepcopy(step)
    before = net.weight.detach().clone()
    second = again(x, y)

    torch.testing.assert_close(before, net.weight.detach(), rtol=0, atol=0)
    torch.testing.assert_close(second, step(x, y))


def test_partial_losses_and_weights_in_bfloat16():
    net = nn.Linear(2, 3)
    x, y = torch.ones(4, 2), torch.tensor([0, 1, 2, 0])
    weights = torch.tensor([1.0, 2, 3])
    smoothed = functools.partial(nn.functional.cross_entropy, label_smoothing=0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    torch.testing.assert_close(
        train_step(net, smoothed, optimizer)(x, y), smoothed(net(x), y).detach()
    )
    weighted = train_step(net, nn.NLLLoss(weight=weights.bfloat16()), optimizer)(x, y)
    torch.testing.assert_close(weighted, nn.NLLLoss(weight=weights)(net(x), y).detach())


def test_counters_are_torch_s_own():
    """Counts are one tensor, and yet each parameter's own: in subsets, after loading, in torch."""
    nets = [torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.1) for net in nets]
    mse = torch.nn.functional.mse_loss

    def plain_step(net, optimizer):
        loss = mse(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    whole = train_step(nets[0], mse, optimizers[0])
    for i in range(7):
        if i == 3:  # a step of torch in between
            plain_step(nets[0], optimizers[0])
        elif i == 4:  # a counter that somebody else has set
            for optimizer, net in zip(optimizers, nets, strict=True):
                optimizer.state[net[0].weight]["step"].fill_(2.0)
            whole(x, y)
        elif i == 5:
            saved = copy.deepcopy(optimizers[0].state_dict())
            optimizers[0].load_state_dict(saved)
            whole(x, y)
        elif i == 6:  # one parameter is frozen
            for net in nets:
                net[1].bias.requires_grad_(False)
                net[1].bias.grad = None
            whole(x, y)
        else:
            whole(x, y)
        plain_step(nets[1], optimizers[1])

    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)
        counts = [o.state[r]["step"].item() for o, r in zip(optimizers, (p, q), strict=True)]
        assert counts[0] == counts[1]


@pytest.mark.skipif(not STATM.exists(), reason="resident memory is in a file that only Linux has")
def test_memory_of_a_large_net_does_not_grow():
    """Parameters and states of 192 MB: the heap would grow to 1400 in 16 steps, and on."""

    def megabytes():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    before = megabytes()
    net = nn.Sequential(*[nn.Linear(2000, 2000, bias=False) for _ in range(4)])
    step = train_step(net, MSE, torch.optim.AdamW(net.parameters()))
    x = torch.ones(2, 2000)
    step(x, x)
    places = [p.data_ptr() for p in net.parameters()]
    for _ in range(15):
        step(x, x)
    assert [p.data_ptr() for p in net.parameters()] == places
    # It goes up and down between 500 and 700: gradients and new values are there as well.
    assert megabytes() < before + 950


def test_steps_in_threads_and_in_inference_mode():
    """Threads export at the same time; states made under inference_mode serve outside of it."""
    failed = []

    def train(mode):
        net = nn.Linear(3, 3)
        step = train_step(net, MSE, torch.optim.AdamW(net.parameters()))
        x = torch.ones(2, 3)
        try:
            with torch.inference_mode(mode):
                step(x, x)
            step(x, x)
            step.backward(x, x)
        except Exception as error:  # noqa: BLE001 (whatever a thread meets)
            failed.append(error)

    threads = [threading.Thread(target=train, args=(i == 0,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


class Calls(nn.Module):
    """Wrapped functions, state and keys of this package between layers of torch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.mean = Module(
            lambda p, s, x: (x * p["w"] - s, s * 0.9 + x.mean(0) * 0.1),
            {"w": tnp.ones(3)},
            state=tnp.zeros(3),
        )
        self.drop = wrap(lambda x, key=None: x + 0 * normal(key, x.shape), rng_argnames="key")

    def forward(self, x):
        return self.drop(wrapped_tanh(self.mean(self.layer(x)), scale=2.0))


wrapped_tanh = wrap(lambda x, scale: tnp.tanh(x) * scale)


@pytest.mark.parametrize("way", ["module", "from_module"])
def test_nets_that_call_wrapped_functions(way):
    """Equal to the plain loop, with state, at several batch sizes."""
    torch.manual_seed(0)
    net = Calls()
    plain = copy.deepcopy(net)
    x = torch.randn(4, 3)
    given = net if way == "module" else from_module(net, (x,))
    step = train_step(given, MSE, torch.optim.Adam(net.parameters(), 0.01))
    optimizer = torch.optim.Adam(plain.parameters(), 0.01)
    for i in range(6):
        x = torch.randn(4 + (i % 2 if way == "module" else 0), 3)
        loss = step(x, x)
        optimizer.zero_grad()
        wanted = MSE(plain(x), x)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss.detach(), wanted.detach(), rtol=1e-5, atol=1e-5)
    for a, b in zip(net.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
