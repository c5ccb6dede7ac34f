"""Modules that call wrapped functions, translated: from_module, and what takes its models."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch.test_from_module import BATCH, same_as_torch
from tracebridge.errors import MissingRuleError
from tracebridge.torch import (
    Module,
    call_torch,
    from_module,
    from_torch,
    saving,
    to_graph_module,
    wrap,
)

pytestmark = pytest.mark.torch

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)


@wrap
def several(x: Any, y: Any, *, scale: Any = 2.0) -> Any:
    return {"a": tnp.sin(x) * y.sum() * scale, "b": ((x**3).sum(-1), tnp.argmax(x))}


@wrap
def powers(x: Any) -> Any:
    return x**3 * TABLE


def _noisy(x: Any, key: Any = None) -> Any:
    return x * tb.random.bernoulli(key, 0.5, x.shape)


noisy = wrap(_noisy, rng_argnames="key")
TABLE = np.array([1.0, 2.0, 3.0], np.float32)


class Net(nn.Module):
    """Wrapped functions between layers of torch."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 2, dtype=dtype)
        self.second = Module(
            lambda p, x: tnp.tanh(x @ p["w"]), {"w": torch.full((2, 2), 0.5, dtype=dtype)}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = several(self.first(x), x, scale=1.5)
        cubes, place = found["b"]
        with torch.no_grad():
            factor = several(x, x)["a"].sum(-1)
        mapped = torch.func.vmap(lambda row: several(row, row)["a"])(x)
        h = self.first(x)
        slope = torch.func.jvp(lambda h: several(h, x)["a"], (h,), (h * 2,))[1]
        return self.second(found["a"] + slope).sum(-1) + cubes * factor + mapped.sum(-1) + place


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_of_two_orders(dtype: torch.dtype) -> None:
    """Keywords, several outputs, integers, blocks without gradients and torch.func.

    What is translated at once is not saved in between, which takes long.
    """
    net, x = Net(dtype), X.to(dtype)
    tol = 2e-4 if dtype == torch.float32 else 1e-11
    model = same_as_torch(net, (x,), tol=tol)
    steps = [str(s.node.target) for s in model.program(train=False)._graph.steps]
    assert steps.count("tracebridge.call.default") > 3
    assert "tracebridge.call_saved.default" not in steps
    assert set(model.params) == set(dict(net.named_parameters()))

    def penalty(x: Any) -> Any:
        return (tb.grad(lambda x: (model(model.params, x) ** 2).sum())(x) ** 2).sum()

    y = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad((net(y) ** 2).sum(), y, create_graph=True)
    (wanted,) = torch.autograd.grad((slope**2).sum(), y)
    got = np.asarray(tb.jit(tb.grad(penalty))(from_torch(x)))
    assert got.dtype == wanted.numpy().dtype
    np.testing.assert_allclose(got, wanted, rtol=tol * 10, atol=tol * float(wanted.abs().max()))


def test_sizes_that_change_and_vmap() -> None:
    """One translation for all batch sizes, also none."""
    net = Net()
    model = same_as_torch(net, (X,), (X,), (X[:3],), dynamic=({0: BATCH},))
    two = tb.vmap(lambda x: model(model.params, x))(from_torch(torch.stack([X, 2 * X])))
    np.testing.assert_allclose(two[1], net(2 * X).detach(), rtol=1e-4, atol=1e-5)

    class Cubes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return powers(x)

    cubes = from_module(Cubes(), (X,), ({0: BATCH},))
    assert cubes({}, tnp.ones((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(cubes({}, from_torch(X[:1])), powers(X[:1]))


class Draws(nn.Module):
    """Keys of torch's generators: of the default one, and of one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: torch.Tensor) -> Any:
        return noisy(x), noisy(x, key=self.generator)


def test_random_numbers_come_from_the_key() -> None:
    """In the place of words that torch would draw."""
    model = from_module(Draws(), (X,))
    ones = tnp.ones((4, 3))

    def drawn(seed: int) -> Any:
        return np.asarray(model.apply({}, {}, ones, key=tb.random.key(seed))[0])

    both = np.stack([drawn(seed) for seed in range(40)])
    assert set(np.unique(both)) == {0.0, 1.0}
    assert abs(float(both.mean()) - 0.5) < 0.1
    assert (both[:, 0] != both[:, 1]).any()
    np.testing.assert_array_equal(both[3], drawn(3))


def test_state_of_modules() -> None:
    """The state, with keys, is among the buffers; graphs of ATen operators have it, too."""

    def fun(p: Any, s: Any, x: Any) -> Any:
        key, own = tb.random.split(s["key"])
        noise = tb.random.normal(own, x.shape)
        return x * p["w"] + noise + s["m"], {"m": s["m"] / 2 + x.mean(0), "key": key}

    state = {"m": tnp.zeros(3), "key": tb.random.key(0)}
    net = nn.Sequential(nn.Linear(3, 3), Module(fun, {"w": tnp.ones(3)}, state=state))
    model = from_module(net, (X,))
    buffers = {name: tnp.array(b) for name, b in model.buffers.items()}
    graph = to_graph_module(lambda b, x: model.apply(model.params, b, x), (dict(buffers), X))
    outs, _ = graph({name: b.clone() for name, b in net.named_buffers()}, X)
    found = []
    for _ in range(2):
        result, buffers = model.apply(model.params, buffers, from_torch(X))
        found.append(result)
        np.testing.assert_allclose(result, net(X).detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outs.detach(), found[0], rtol=1e-5, atol=1e-6)
    for name, b in net.named_buffers():
        np.testing.assert_allclose(buffers[name], b, rtol=1e-5)


class Cubed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return powers(self.layer(x))


@pytest.mark.parametrize("order", [1, 2])
def test_programs_of_files_whose_function_is_not_here(order: int) -> None:
    """The saved program runs; derivatives as many as it has."""
    net = Cubed()
    with saving(grad_order=order):
        program = torch.export.export(net, (X,), dynamic_shapes=({0: BATCH},))
    for node in program.graph.nodes:
        if node.target is torch.ops.tracebridge.call_saved.default:
            xs, handle, text = node.args
            node.args = (xs, handle.replace(__name__, f"of_order_{order}"), text)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    model = from_module(torch.export.load(file))

    def loss(bias: Any, x: Any) -> Any:
        return (model({**model.params, "layer.bias": bias}, x) ** 2).sum()

    bias, x = model.params["layer.bias"], from_torch(X)
    for y in (X, X[:2]):
        np.testing.assert_allclose(model(model.params, y), net(y).detach(), rtol=1e-5, atol=1e-6)
    (wanted,) = torch.autograd.grad((net(X) ** 2).sum(), net.layer.bias)
    np.testing.assert_allclose(tb.jit(tb.grad(loss))(bias, x), wanted, rtol=1e-4, atol=1e-5)
    of_sum = tb.grad(lambda b: tb.grad(loss)(b, x).sum())
    if order == 1:
        with pytest.raises(MissingRuleError, match="grad_order=1"):
            of_sum(bias)
        return
    own = from_module(net, (X,))
    right = tb.grad(
        lambda b: tb.grad(lambda b: (own({**own.params, "layer.bias": b}, x) ** 2).sum())(b).sum()
    )(own.params["layer.bias"])
    np.testing.assert_allclose(of_sum(bias), right, rtol=1e-4, atol=1e-5)


def test_branches_and_functions_that_only_this_process_has() -> None:
    """Calls inside torch.cond; a translation at once warns of no constants."""
    large = np.random.default_rng(0).normal(size=(1300, 1000)).astype(np.float32)
    sums = wrap(lambda x: call_torch(torch.sin, x) * tnp.sum(large + x[0, 0]))

    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: powers(x), lambda x: x * 2, (x,)) + sums(x)

    net = Branches()
    model = from_module(net, (X,))
    for x in (X.abs(), -X.abs()):
        np.testing.assert_allclose(model({}, from_torch(x)), net(x), rtol=1e-4)
