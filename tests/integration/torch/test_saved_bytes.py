"""A forward pass never keeps more bytes than eager torch keeps for the same function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import tracebridge.numpy as tnp
from tracebridge import lax, nn
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch
N = 128


def chain(xp: Any) -> Any:
    return lambda x: xp.sin(x) * xp.cos(x) + xp.exp(-x * x)


def tanhs(xp: Any) -> Any:
    return lambda x: xp.tanh(xp.tanh(xp.tanh(x)))


def polynomial(x: Any) -> Any:
    return ((x * 2 + 1) * x - 3) * x


def variance(x: Any) -> Any:
    return ((x - x.mean()) ** 2).mean()


def mlp(xp: Any) -> Any:
    return lambda x, w: xp.tanh(x @ w) @ w


def layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def cross_entropy(x: Any) -> Any:
    return -tnp.diagonal(nn.log_softmax(x)).mean()


def attention(x: Any, w: Any) -> Any:
    return nn.softmax(x @ w.T / N**0.5) @ w


def torch_attention(x: Any, w: Any) -> Any:
    return functional.softmax(x @ w.T / N**0.5, -1) @ w


def rnn(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = tnp.tanh(h @ w + row)
        return h, h

    return lax.scan(step, x[0], x)[1]


def lstm(x: Any, w: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        h, c = state
        a, b, g, o = tnp.split(h @ w + row, 4, axis=-1)
        c = nn.sigmoid(a) * c + nn.sigmoid(b) * tnp.tanh(g)
        h = tnp.tile(nn.sigmoid(o) * tnp.tanh(c), (1, 4))
        return (h, c), h

    return lax.scan(step, (x[0], x[0, :, : N // 4]), x)[1]


def gru(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        gate = nn.sigmoid(h @ w + row)
        h = gate * h + (1 - gate) * tnp.tanh(gate * h + row)
        return h, h

    return lax.scan(step, x[0], x)[1]


def looped(step: Any, state: Any, x: Any) -> torch.Tensor:
    """A scan by a loop in Python."""
    results = []
    for row in x:
        state, y = step(state, row)
        results.append(y)
    return torch.stack(results)


def torch_rnn(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = torch.tanh(h @ w + row)
        return h, h

    return looped(step, x[0], x)


def torch_lstm(x: Any, w: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        h, c = state
        a, b, g, o = (h @ w + row).chunk(4, -1)
        c = a.sigmoid() * c + b.sigmoid() * g.tanh()
        h = (o.sigmoid() * c.tanh()).repeat(1, 4)
        return (h, c), h

    return looped(step, (x[0], x[0, :, : N // 4]), x)


def torch_gru(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        gate = (h @ w + row).sigmoid()
        h = gate * h + (1 - gate) * (gate * h + row).tanh()
        return h, h

    return looped(step, x[0], x)


TABLE: dict[str, tuple[Any, Any]] = {
    "chain of sines": (chain(tnp), chain(torch)),
    "chain of tanh": (tanhs(tnp), tanhs(torch)),
    "polynomial": (polynomial, polynomial),
    "softmax": (nn.softmax, lambda x: x.softmax(-1)),
    "log_softmax": (nn.log_softmax, lambda x: x.log_softmax(-1)),
    "cross entropy": (
        cross_entropy,
        lambda x: functional.cross_entropy(x, torch.arange(N)),
    ),
    "gelu": (nn.gelu, lambda x: functional.gelu(x, approximate="tanh")),
    "silu": (nn.silu, functional.silu),
    "layer norm": (layer_norm, lambda x: functional.layer_norm(x, (N,))),
    "variance": (variance, variance),
    "network": (mlp(tnp), mlp(torch)),
    "attention": (attention, torch_attention),
    "RNN": (rnn, torch_rnn),
    "LSTM": (lstm, torch_lstm),
    "GRU": (gru, torch_gru),
}


def kept_by_torch(f: Any, inputs: list[torch.Tensor]) -> int:
    """Bytes of storages that autograd keeps, without those of inputs and of the result."""
    found: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = f(*inputs)
    for known in (*inputs, result):
        found.pop(known.untyped_storage().data_ptr(), None)
    return sum(found.values())


@pytest.mark.parametrize("name", TABLE)
def test_not_more_than_eager_torch(name: str) -> None:
    """Values and gradients agree as well."""
    ours, theirs = TABLE[name]
    torch.manual_seed(0)
    shape = (16, 4, N) if name in ("RNN", "LSTM", "GRU") else (N, N)
    inputs = [torch.randn(shape).requires_grad_()]
    if ours.__code__.co_argcount == 2:
        inputs.append((0.1 * torch.randn(N, N)).requires_grad_())

    f = wrap(ours)
    result, expected = f(*inputs), theirs(*inputs)
    cotangent = torch.randn_like(expected)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    for a, b in zip(
        torch.autograd.grad(result, inputs, cotangent),
        torch.autograd.grad(expected, inputs, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)

    (family,) = f.families.values()
    (compiled,) = map(family.runs.get, family.runs.keys())
    (node,) = compiled.nodes.values()
    split = node.parts
    n_out = len(split.forward.outs) - split.n_residuals
    kept = sum([a.size * a.dtype.itemsize for a in split.forward.out_avals[n_out:]])
    assert kept <= kept_by_torch(theirs, inputs)
