"""Modules with control flow of torch, linear algebra and bags by from_module, against torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ExportError
from tracebridge.torch import from_module
from tracebridge.torch._translate.table import KEYED_TABLE, TABLE


class Layer(torch.nn.Module):
    """A function of weights and an input as a module."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.fun = fun

    def forward(self, x: torch.Tensor) -> Any:
        return self.fun(self.inner, x)


def branch(inner: Any, x: torch.Tensor) -> Any:
    return torch.cond(
        x.sum() > 0,
        lambda x: (inner(x).sin(),),
        lambda x: (torch.nn.functional.gelu(x) * 2,),
        (x,),
    )[0]


def nested(inner: Any, x: torch.Tensor) -> Any:
    def outer(x: torch.Tensor) -> Any:
        small = torch.cond(x[0, 0] > 0, lambda x: (x.cos(),), lambda x: (x + 1,), (x,))[0]
        return (inner(small),)

    return torch.cond(x.sum() > 0, outer, lambda x: (x.clone(),), (x,))[0]


def recurrence(inner: Any, x: torch.Tensor) -> Any:
    def step(c: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.tanh(inner(c) + x), torch.nn.functional.silu(c)

    return scan(step, x[0], x)


def mapped(inner: Any, x: torch.Tensor) -> Any:
    return torch_map(lambda row, w: torch.nn.functional.silu(row) * w, x, inner.bias)


def branch_plainly(inner: Any, x: torch.Tensor) -> Any:
    return inner(x).sin() if x.sum() > 0 else torch.nn.functional.gelu(x) * 2


def nested_plainly(inner: Any, x: torch.Tensor) -> Any:
    if x.sum() > 0:
        return inner(x.cos() if x[0, 0] > 0 else x + 1)
    return x.clone()


def recurrence_plainly(inner: Any, x: torch.Tensor) -> Any:
    c, ys = x[0], []
    for row in x:
        ys.append(torch.nn.functional.silu(c))
        c = torch.tanh(inner(c) + row)
    return c, torch.stack(ys)


def mapped_plainly(inner: Any, x: torch.Tensor) -> Any:
    return torch.nn.functional.silu(x) * inner.bias


def algebra(inner: Any, x: torch.Tensor) -> Any:
    a = x.mT @ x + torch.eye(3)
    factor = torch.linalg.cholesky(a)
    values, vectors = torch.linalg.eigh(a, UPLO="U")
    u, sizes, vh = torch.linalg.svd(x, full_matrices=False)
    return (
        u**2 @ sizes
        + (sizes @ vh**2).sum()
        + (vectors**2 @ values).sin().sum(),  # whatever the signs are
        torch.linalg.eig(a @ inner.weight)[0].abs().sum(),
        torch.linalg.solve(a, inner.weight).sum() + torch.logdet(a) + torch.linalg.inv(a).sum(),
        torch.linalg.matrix_norm(a, 2) + torch.linalg.eigvalsh(a).prod(),
        torch.cholesky_solve(inner.weight, factor),
        torch.linalg.pinv(x),
    )


# Torch compiles eager control flow; the same in Python is faster to compare with.
@pytest.mark.parametrize(
    ("fun", "plain"),
    [
        (branch, branch_plainly),
        (nested, nested_plainly),
        (recurrence, recurrence_plainly),
        (mapped, mapped_plainly),
        (algebra, algebra),
    ],
    ids=["branch", "nested", "recurrence", "mapped", "algebra"],
)
def test_values_and_gradients(fun: Any, plain: Any) -> None:
    """On both sides of branches, eagerly and compiled."""
    torch.manual_seed(0)
    layer = Layer(fun)
    x = torch.randn(5, 3)
    model = from_module(layer, (x,))
    layer.fun = plain
    for value in (x, -x):
        ours = model(model.params, value.numpy())
        theirs = layer(value)
        for a, b in zip(tb.tree.leaves(ours), tb.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)

        def total(params: Any, x: Any) -> Any:
            return sum([tnp.sum(tnp.sin(y)) for y in tb.tree.leaves(model(params, x))])

        found, by_x = tb.jit(tb.grad(total, argnums=(0, 1)))(model.params, value.numpy())
        leaf = value.clone().requires_grad_()
        layer.zero_grad()
        sum([y.sin().sum() for y in tb.tree.leaves(layer(leaf))]).backward()
        assert leaf.grad is not None
        np.testing.assert_allclose(by_x, leaf.grad.numpy(), rtol=2e-3, atol=2e-3)
        for name, p in layer.named_parameters():
            expected = torch.zeros_like(p) if p.grad is None else p.grad
            np.testing.assert_allclose(found[name], expected.numpy(), rtol=2e-3, atol=2e-3)


def test_loops_end_by_their_values() -> None:
    """A loop whose number of steps depends on the input; torch has no derivative of it either."""

    def halved(inner: Any, x: torch.Tensor) -> Any:
        del inner
        return while_loop(
            lambda i, y: y.abs().max() > 1, lambda i, y: (i + 1, y / 2), (torch.tensor(0), x)
        )

    layer = Layer(halved)
    model = from_module(layer, (torch.ones(2, 3),))
    for scale in (0.5, 30.0):
        x = torch.full((2, 3), scale)
        count, y = model(model.params, x.numpy())
        steps, expected = layer(x)
        assert int(steps) == int(count)
        np.testing.assert_array_equal(expected.numpy(), y)

    batch = tb.vmap(functools.partial(model, model.params))(np.full((2, 2, 3), [[[3.0]], [[0.5]]]))
    assert [2, 0] == batch[0].tolist()


def test_bodies_may_draw() -> None:
    """Random numbers in branches and loops come from the key, others in each step."""

    def noisy(inner: Any, x: torch.Tensor) -> Any:
        def step(c: torch.Tensor, x: torch.Tensor) -> Any:
            drawn = torch.rand_like(x)
            return c + 0 * x, inner(x) * 0 + drawn

        return scan(step, x[0], x)[1]

    model = from_module(Layer(noisy), (torch.ones(4, 3),))
    y, _ = model.apply(model.params, model.buffers, np.ones((4, 3), "f4"), key=tb.random.key(0))
    assert len(np.unique(np.asarray(y))) == y.size
    again, _ = model.apply(model.params, model.buffers, np.ones((4, 3), "f4"), key=tb.random.key(0))
    np.testing.assert_array_equal(y, again)


def test_singular_matrices_raise_nothing() -> None:
    """Torch raises on the host; a compiled program gives numbers that are none."""

    def inverse(inner: Any, x: torch.Tensor) -> Any:
        del inner
        return torch.linalg.inv(x), torch.linalg.cholesky(x)

    model = from_module(Layer(inverse), (torch.eye(3),))
    inverted, factor = model(model.params, -np.eye(3, dtype="f4") * [1, 1, 0])
    assert not np.isfinite(inverted).all()
    assert np.isnan(factor).any()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    """An EmbeddingBag with gradients, an empty bag among its bags."""
    torch.manual_seed(0)
    bag = torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2)
    rows, starts = torch.tensor([1, 2, 4, 6, 6, 0]), torch.tensor([0, 3, 3])
    model = from_module(bag, (rows, starts))
    ours = model(model.params, rows.numpy(), starts.numpy())
    np.testing.assert_allclose(ours, bag(rows, starts).detach().numpy(), rtol=1e-5)

    bag(rows, starts).sin().sum().backward()
    found = tb.grad(
        lambda p: tnp.sum(tnp.sin(model(p, rows.numpy(), starts.numpy())))
    )(model.params)  # fmt: skip
    assert bag.weight.grad is not None
    np.testing.assert_allclose(found["weight"], bag.weight.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_shapes_by_values_say_so() -> None:
    """bincount has as many results as its largest element says."""

    def counted(inner: Any, x: torch.Tensor) -> Any:
        del inner
        return torch.bincount(x.long().flatten())

    with pytest.raises(ExportError, match="depends on values"):
        from_module(Layer(counted), (torch.ones(2, 3),))


def test_parts_cut_at_values_say_so() -> None:
    """The sizes of the parts are values; they used to fail when the program ran."""

    def parts(inner: Any, ends: torch.Tensor) -> Any:
        del inner
        return torch.tensor_split(torch.arange(4), ends)

    with pytest.raises(ExportError, match="depends on values"):
        from_module(Layer(parts), (torch.tensor([1, 3]),))


# Core operators without a row, and why none is needed.
_WITHOUT = {
    "_adaptive_avg_pool2d_backward": "derivatives come from the engine",
    "_local_scalar_dense": "a number of the host: an error says so",
    "_native_batch_norm_legit": "export makes it functional",
    "adaptive_avg_pool1d": "taken apart by torch",
    "atan2": "the form that writes to an argument",
    "avg_pool2d_backward": "derivatives come from the engine",
    "col2im": "taken apart by torch",
    "convolution_backward": "derivatives come from the engine",
    "embedding_dense_backward": "taken apart by torch",
    "max_pool2d_with_indices_backward": "derivatives come from the engine",
    "native_group_norm_backward": "taken apart by torch",
    "native_layer_norm_backward": "taken apart by torch",
    "nonzero": "a shape that depends on values: an error says so",
    "resize_": "export makes it functional",
    "sym_is_contiguous": "no operator of graphs",
}


def test_core_operators_have_translations() -> None:
    """All operators that torch calls core, but those above."""
    missing: set[str] = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        found = getattr(torch.ops.aten, packet, None) if space == "aten" else None
        op = getattr(found, overload or "default", None)
        if op is not None and torch.Tag.core in op.tags and op not in {*TABLE, *KEYED_TABLE}:
            missing.add(packet)
    assert missing <= set(_WITHOUT)
