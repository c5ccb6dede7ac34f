"""Whole steps of training against the plain loop of torch: values, state, and what others see."""

from __future__ import annotations

import copy

import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentSpecError, GradientTypeError
from tracebridge.torch import Module, from_module, train_step

BATCH = 16


def mlp(p, x):
    """A network with a parameter that nothing depends on."""
    return tnp.tanh(x @ p["a"]["w"] + p["a"]["b"]) @ p["z"]


def squares(outputs, target):
    """The loss."""
    return tnp.mean((outputs - target) ** 2)


def initial(dtype=torch.float64):
    """Parameters that are the same each time."""
    g = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=dtype) * 0.4
    return {"a": {"b": draw(6), "w": draw(3, 6)}, "unused": draw(2), "z": draw(6, 1)}


def data(dtype=torch.float64):
    """Inputs and targets."""
    x = torch.randn(BATCH, 3, generator=torch.Generator().manual_seed(2), dtype=dtype)
    return x, torch.sin(x.sum(1, keepdim=True))


def loss_of(parameters, x, y):
    """The same network and loss in torch, of the parameters in the order of the module."""
    _, z, b, w = parameters
    return ((torch.tanh(x @ w + b) @ z - y) ** 2).mean()


def plain_step(optimizer, parameters, x, y):
    """A step as torch users write it."""
    optimizer.zero_grad()
    loss = loss_of(parameters, x, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def both(make, dtype=torch.float64):
    """(module, its optimizer, its step), (parameters of torch, their optimizer)."""
    module = Module(mlp, initial(dtype))
    copies = [torch.nn.Parameter(p.detach().clone()) for p in module.parameters()]
    optimizer, other = make(list(module.parameters())), make(copies)
    return (module, optimizer, train_step(module, squares, optimizer)), (copies, other)


def assert_same_state(a, b, **tolerance):
    """The states of two optimizers are equal, up to rounding."""
    mine, theirs = a.state_dict(), b.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    assert mine["state"].keys() == theirs["state"].keys()
    for k, expected in theirs["state"].items():
        assert mine["state"][k].keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(mine["state"][k][name], value, **tolerance)


OPTIM = torch.optim
MAKERS = {
    "sgd": lambda p: OPTIM.SGD(p, lr=0.1),
    "sgd decay": lambda p: OPTIM.SGD(p, lr=0.1, weight_decay=0.01, maximize=False),
    "sgd maximize": lambda p: OPTIM.SGD(p, lr=1e-3, maximize=True),
    "momentum": lambda p: OPTIM.SGD(p, lr=0.05, momentum=0.9),
    "dampening": lambda p: OPTIM.SGD(p, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "nesterov": lambda p: OPTIM.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: OPTIM.Adam(p, lr=0.01),
    "adam l2": lambda p: OPTIM.Adam(p, lr=0.01, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6),
    "amsgrad": lambda p: OPTIM.Adam(p, lr=0.01, amsgrad=True, maximize=False),
    "adam fused": lambda p: OPTIM.Adam(p, lr=0.01, fused=True),
    "adamw": lambda p: OPTIM.AdamW(p, lr=0.01, weight_decay=0.1),
    "groups": lambda p: OPTIM.AdamW(
        [{"params": p[:1], "lr": 0.1}, {"params": p[1:], "weight_decay": 0.0}], lr=0.01
    ),
    "rmsprop": lambda p: OPTIM.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: OPTIM.Adagrad(p, lr=0.1),
    "adamax": lambda p: OPTIM.Adamax(p, lr=0.01),
}


@pytest.mark.parametrize("name", MAKERS)
def test_equals_the_plain_loop(name):
    (module, optimizer, step), (copies, other) = both(MAKERS[name])
    x, y = data()
    schedulers = [OPTIM.lr_scheduler.StepLR(o, 5, 0.7) for o in (optimizer, other)]
    for i in range(20):
        mine, theirs = step(x, y), plain_step(other, copies, x, y)
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)
        for scheduler in schedulers:
            scheduler.step()
        if i == 9:  # both ways of stepping can be mixed
            plain_step(optimizer, list(module.parameters()), x, y)
            optimizer.zero_grad()
            plain_step(other, copies, x, y)
        if i == 14:
            for o in (optimizer, other):
                o.load_state_dict(copy.deepcopy(o.state_dict()))
    for p, q in zip(module.parameters(), copies, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-8, atol=1e-10)
        assert p.grad is None
    assert_same_state(optimizer, other, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", ["nesterov", "adamw"])
def test_a_thousand_steps_in_single_precision(name):
    (_, _, step), (copies, other) = both(MAKERS[name], torch.float32)
    x, y = data(torch.float32)
    first = float(step(x, y))
    plain_step(other, copies, x, y)
    for _ in range(999):
        mine, theirs = step(x, y), plain_step(other, copies, x, y)
    assert float(mine) < 0.1 * first
    torch.testing.assert_close(mine, theirs, rtol=5e-3, atol=1e-6)


def test_one_program_for_all_steps():
    (_, optimizer, step), _ = both(MAKERS["adamw"])
    x, y = data()
    for lr in (0.1, 0.2, 0.3):
        optimizer.param_groups[0]["lr"] = lr
        step(x, y)
    # The first step, at which there is no state, and all others.
    assert sum([program.traces for program in step._programs.values()]) <= 2


def test_views_of_parameters_see_the_changes():
    for size in (4, 300):  # written to, and large enough to take over other memory
        for share in (lambda p: p.view(-1), lambda p: p.detach(), lambda p: p.detach().numpy()):
            module = Module(lambda p, x: x @ p, torch.zeros(size, size))
            optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
            step = train_step(module, lambda out, y: tnp.sum((out - y) ** 2), optimizer)
            view = share(module.param)
            step(torch.eye(size), torch.ones(size, size))
            assert float(module.param.detach()[0, 0]) == 2.0
            assert float(view.reshape(-1)[0].item()) == 2.0


def test_parameters_stay_the_same_objects():
    module = Module(lambda p, x: x @ p, torch.zeros(300, 300))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1.0)
    step = train_step(module, lambda out, y: tnp.sum((out - y) ** 2), optimizer)
    before, (param,) = module.param, optimizer.param_groups[0]["params"]
    step(torch.eye(300), torch.ones(300, 300))
    state = optimizer.state[before]["exp_avg"]
    step(torch.eye(300), torch.ones(300, 300))
    assert module.param is before
    assert param is before
    assert optimizer.state[before]["exp_avg"] is state
    assert before.requires_grad
    assert before.is_leaf
    torch.save(module.state_dict(), "/dev/null")
    copy.deepcopy(module)


@pytest.mark.parametrize("size", [3, 300])
def test_graphs_that_saved_old_values_are_refused(size):
    module = Module(lambda p, x: x @ p, torch.ones(size, size))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = train_step(module, squares, optimizer)
    total = (module.param**2).sum()
    step(torch.eye(size), torch.zeros(size, size))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_frozen_and_shared_parameters():
    shared = torch.nn.Parameter(torch.full((2,), 2.0))
    frozen = torch.nn.Parameter(torch.full((2,), 3.0), requires_grad=False)
    module = Module(lambda p, x: x * p[0] * p[1] * p[2], [shared, shared, frozen])
    optimizer = torch.optim.SGD([shared, frozen], lr=0.01)
    step = train_step(module, lambda out, y: tnp.sum(out - y), optimizer)
    step(torch.ones(2), torch.zeros(2))
    torch.testing.assert_close(shared.detach(), torch.full((2,), 2.0 - 0.01 * 12.0))
    assert torch.equal(frozen, torch.full((2,), 3.0))
    frozen.requires_grad_()
    step(torch.ones(2), torch.zeros(2))
    assert not torch.equal(frozen.detach(), torch.full((2,), 3.0))


def test_only_parameters_of_the_optimizer_change():
    module = Module(mlp, initial())
    optimizer = torch.optim.SGD([module.a.w], lr=0.1)
    step = train_step(module, squares, optimizer)
    z, w = module.z.detach().clone(), module.a.w.detach().clone()
    step(*data())
    assert torch.equal(module.z.detach(), z)
    assert not torch.equal(module.a.w.detach(), w)
    optimizer.add_param_group({"params": [module.z], "lr": 0.2})
    step(*data())
    assert not torch.equal(module.z.detach(), z)


def test_auxiliary_results_keywords_and_numbers():
    module = Module(lambda p, x, *, scale: {"out": x * p * scale, "p": p}, torch.ones(2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)

    def loss(outputs, target):
        error = outputs["out"] - target
        return tnp.sum(error**2), {"worst": tnp.max(tnp.abs(error))}

    step = train_step(module, loss, optimizer, has_aux=True)
    value, aux = step(torch.ones(2), 0.0, scale=2.0)
    assert float(value) == 8.0
    assert float(aux["worst"]) == 2.0
    assert not value.requires_grad
    torch.testing.assert_close(module.param.detach(), torch.full((2,), 1.0 - 0.5 * 8.0))


def test_narrow_parameters():
    module = Module(lambda p, x: x * p, torch.ones(4, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    step = train_step(module, squares, optimizer)
    for _ in range(3):
        loss = step(torch.ones(4, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bfloat16))
    assert loss.dtype == torch.bfloat16
    assert module.param.dtype == torch.bfloat16
    copied = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    other = torch.optim.AdamW([copied], lr=0.1)
    for _ in range(3):
        other.zero_grad()
        ((copied) ** 2).mean().backward()
        other.step()
    torch.testing.assert_close(module.param.detach(), copied.detach(), rtol=0.02, atol=0.02)


def test_hooks_of_the_optimizer():
    (_, optimizer, step), _ = both(MAKERS["adam"])
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("post"))
    step(*data())
    assert seen == ["pre", "post"]


def test_a_step_that_fails_changes_nothing():
    (module, optimizer, step), _ = both(MAKERS["adamw"])
    x, y = data()
    step(x, y)
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict()["state"]))
    with pytest.raises(Exception, match="shape"):
        step(x, torch.ones(5, 7, 9, dtype=torch.float64))
    after = (module.state_dict(), optimizer.state_dict()["state"])
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_gradients_of_the_user_stay():
    module = Module(lambda p, x: x * p, torch.ones(2))
    for make in (torch.optim.SGD, torch.optim.RMSprop):
        module.param.grad = torch.full((2,), 7.0)
        step = train_step(module, squares, make(module.parameters(), lr=0.1))
        step(torch.ones(2), torch.zeros(2))
        assert torch.equal(module.param.grad, torch.full((2,), 7.0))


def test_what_is_refused():
    module = Module(mlp, initial())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(ArgumentSpecError, match="module is of type"):
        train_step(squares, squares, optimizer)
    with pytest.raises(ArgumentSpecError, match="optimizer is of type"):
        train_step(module, squares, 0.1)
    with pytest.raises(ArgumentSpecError, match="loss is"):
        train_step(module, 3, optimizer)
    strange = torch.optim.SGD([torch.nn.Parameter(torch.ones(9))], lr=0.1)
    with pytest.raises(ArgumentSpecError, match=r"shape \(9,\)"):
        train_step(module, squares, strange)
    with pytest.raises(GradientTypeError, match=r"f64\[16,1\]"):
        train_step(module, lambda out, y: out - y, optimizer)(*data())
    with pytest.raises(ArgumentSpecError, match="no target"):
        train_step(module, squares, optimizer)()
    mixed = lambda out, y: torch.nn.functional.mse_loss(out, y)
    with pytest.raises(TypeError, match="call_torch"):
        train_step(module, mixed, optimizer)(*data())


def small_net():
    """A net with buffers that training changes."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 4)
    )


@pytest.mark.parametrize("way", ["module", "model"])
def test_modules_of_torch(way):
    net, other = small_net(), small_net()
    x, target = torch.randn(10, 3), torch.arange(10) % 4
    make = lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9)
    optimizer, plain = make(net), make(other)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.rand(4))
    step = train_step(net if way == "module" else from_module(net, (x,)), criterion, optimizer)
    for _ in range(5):
        mine = step(x, target)
        plain.zero_grad()
        theirs = criterion(other(x), target)
        theirs.backward()
        plain.step()
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-5, atol=1e-6)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    net.eval()
    statistics = net[1].running_mean.clone()
    step(x, target)
    assert torch.equal(net[1].running_mean, statistics)


def test_other_sizes_and_losses_that_are_functions():
    net = torch.nn.Linear(3, 1)
    step = train_step(net, torch.nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.0))
    for n in (2, 5):
        x, y = torch.randn(n, 3), torch.randn(n, 1)
        torch.testing.assert_close(step(x, y), torch.nn.functional.mse_loss(net(x), y).detach())


def test_dropout_depends_on_the_seed_of_torch():
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    step = train_step(net, squares, torch.optim.SGD(net.parameters(), lr=0.0))
    x, y = torch.randn(4, 3), torch.zeros(4, 1)
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        runs.append([float(step(x, y)) for _ in range(3)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


def test_tied_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 3, bias=False)
            self.second = torch.nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    net = Tied()
    other = copy.deepcopy(net)
    x, y = torch.randn(4, 3), torch.zeros(4, 3)
    step = train_step(net, torch.nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=0.1))
    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(3):
        step(x, y)
        plain.zero_grad()
        torch.nn.functional.mse_loss(other(x), y).backward()
        plain.step()
    assert net.second.weight is net.first.weight
    torch.testing.assert_close(net.first.weight.detach(), other.first.weight.detach())


def test_parameters_that_take_the_place_of_others():
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(net.parameters())
    step = train_step(net, torch.nn.MSELoss(), optimizer)
    x, y = torch.randn(4, 3), torch.ones(4, 1)
    step(x, y)
    net.weight = torch.nn.Parameter(torch.zeros(1, 3))
    optimizer.param_groups[0]["params"][0] = net.weight
    step(x, y)
    assert net.weight.detach().abs().sum() > 0


def test_losses_that_depend_on_no_parameter():
    module = Module(lambda p, x: x * 1.0, torch.ones(3))
    optimizer = torch.optim.AdamW(module.parameters(), weight_decay=0.5)
    step = train_step(module, lambda out, y: tnp.mean(out - y), optimizer)
    assert float(step(torch.ones(3), torch.zeros(3))) == 1.0
    assert torch.equal(module.param.detach(), torch.ones(3))
    assert not optimizer.state_dict()["state"]


def test_hyperparameters_that_change():
    a, b = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    module = Module(lambda p, x: tnp.sum(x * p * p), a)
    mine, theirs = [torch.optim.SGD([p], lr=0.1) for p in (a, b)]
    step = train_step(module, lambda out, y: out - y, mine)
    for i in range(6):
        if i == 3:
            for optimizer in (mine, theirs):
                optimizer.param_groups[0].update(momentum=0.9, dampening=0.5)
        step(torch.arange(3.0), 0.0)
        theirs.zero_grad()
        (torch.arange(3.0) * b * b).sum().backward()
        theirs.step()
    torch.testing.assert_close(a.detach(), b.detach())
    assert_same_state(mine, theirs)


def test_backward_adds_gradients():
    """Batches of several sizes are accumulated and clipped, beside passes of torch and steps."""
    (module, optimizer, step), (copies, other) = both(lambda p: torch.optim.AdamW(p, lr=0.05))
    x, y = data()
    for _ in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        for n in (BATCH, BATCH, 5):
            loss = loss_of(copies, x[:n], y[:n])
            loss.backward()
            torch.testing.assert_close(step.backward(x[:n], y[:n]), loss.detach())
        ((module(x[:2]) - y[:2]) ** 2).mean().backward()
        loss_of(copies, x[:2], y[:2]).backward()
        norms = [torch.nn.utils.clip_grad_norm_(p, 0.5) for p in (module.parameters(), copies)]
        torch.testing.assert_close(*norms)
        optimizer.step()
        other.step()
        torch.testing.assert_close(step(x, y), plain_step(other, copies, x, y))
    for p, q in zip(module.parameters(), copies, strict=True):
        torch.testing.assert_close(p, q)
    assert next(iter(p for n, p in module.named_parameters() if n == "unused")).grad is None


def test_optimizers_that_ask_for_the_loss_again():
    """LBFGS makes the steps that it makes with a closure; gradients of the user stay."""
    make = lambda p: torch.optim.LBFGS(p, max_iter=6, line_search_fn="strong_wolfe")
    (module, _, step), (copies, other) = both(make)
    x, y = data()
    module.z.grad = grad = torch.ones_like(module.z)

    def closure():
        other.zero_grad()
        loss = loss_of(copies, x, y)
        loss.backward()
        return loss

    for _ in range(3):
        torch.testing.assert_close(step(x, y), other.step(closure).detach())
    assert module.z.grad is grad
    for p, q in zip(module.parameters(), copies, strict=True):
        torch.testing.assert_close(p, q)
