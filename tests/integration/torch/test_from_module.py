"""Modules of torch as functions of arrays: values, gradients, modes, sizes and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as torch_trees

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch import small_nets
from tracebridge import random
from tracebridge.errors import (
    ArgumentSpecError,
    ExportError,
    MissingRuleError,
    TreeMismatchError,
)
from tracebridge.torch import from_module, from_torch

BATCH = torch.export.Dim("batch")


def same_as_torch(
    module: nn.Module, *calls: tuple[torch.Tensor, ...], dynamic: Any = None, tol: float = 2e-4
) -> Any:
    """Values and gradients by all parameters equal torch's.

    The module is exported at the first call, and called like the others if there are others.
    """
    model = from_module(module, calls[0], dynamic)
    module.eval()
    named = dict(module.named_parameters())
    for args in calls[1:] or calls:
        leaves = torch_trees.tree_leaves(module(*args))
        weights = [torch.randn_like(x) for x in leaves]
        total = sum([(x * w).sum() for x, w in zip(leaves, weights, strict=True)])
        wanted = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        scales = [from_torch(w) for w in weights]

        def loss(params: Any, scales: Any, *inputs: Any) -> Any:
            outs = torch_trees.tree_leaves(model(params, *inputs))
            return sum([tnp.sum(x * w) for x, w in zip(outs, scales, strict=True)]), outs

        both = tb.jit(tb.value_and_grad(loss, has_aux=True))
        (_, outs), grads = both(model.params, scales, *[from_torch(x) for x in args])
        for got, x in zip(outs, leaves, strict=True):
            np.testing.assert_allclose(np.asarray(got), x.detach().numpy(), rtol=tol, atol=tol)
        assert set(grads) == set(named)
        for (name, p), g in zip(named.items(), wanted, strict=True):
            right = torch.zeros_like(p) if g is None else g
            bound = tol * max(1.0, float(right.abs().max()))
            np.testing.assert_allclose(
                np.asarray(grads[name]), right.numpy(), rtol=tol, atol=bound, err_msg=name
            )
    return model


def test_multilayer_perceptron_at_other_batch_sizes() -> None:
    """A size that dynamic_shapes names may change; other transformations apply."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Dropout(), nn.Linear(4, 2))
    x, y = torch.randn(4, 3), torch.randn(7, 3)
    model = same_as_torch(net, (x,), (x,), (y,), dynamic=({0: BATCH},))

    one = model(model.params, from_torch(x[:1]))
    np.testing.assert_allclose(one, net(x[:1]).detach().numpy(), rtol=1e-5, atol=1e-5)
    stacked = tb.vmap(lambda x: model(model.params, x))(from_torch(torch.stack([x, 2 * x])))
    np.testing.assert_allclose(stacked[1], net(2 * x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_hessian_equals_that_of_torch() -> None:
    """The second derivative by the input is torch's."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(2)
    model = from_module(net, (x,))

    got = tb.hessian(lambda x: model(model.params, x)[0])(from_torch(x))
    wanted = torch.autograd.functional.hessian(lambda x: net(x)[0], x)
    np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_training_mode_moves_the_statistics_of_batch_norm() -> None:
    """apply with train gives the outputs and the buffers that torch has after the call."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    x = torch.randn(5, 3)
    model = from_module(net, (x,))
    before = {k: np.array(v) for k, v in model.buffers.items()}

    out, buffers = model.apply(model.params, model.buffers, from_torch(x), train=True)
    assert not net.training
    for name, value in before.items():
        np.testing.assert_array_equal(model.buffers[name], value)
    wanted = net.train()(x)
    np.testing.assert_allclose(out, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert int(buffers["1.num_batches_tracked"]) == 1
    for name, b in net.named_buffers():
        np.testing.assert_allclose(buffers[name], b.numpy(), rtol=1e-4, atol=1e-5)


def test_dropout_draws_by_the_key() -> None:
    """Equal keys give equal numbers; the kept elements are scaled; without a key it is an error."""
    model = from_module(nn.Dropout(0.25), (torch.ones(4000),))
    x = tnp.ones(4000)
    first, _ = model.apply({}, {}, x, train=True, key=random.key(0))
    again, _ = model.apply({}, {}, x, train=True, key=random.key(0))
    other, _ = model.apply({}, {}, x, train=True, key=random.key(1))

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(np.unique(np.asarray(first)).round(5)) == {np.float32(0), np.float32(1.33333)}
    assert abs(float(tnp.mean(first)) - 1) < 0.05
    with pytest.raises(ArgumentSpecError, match=r"Dropout: .*native_dropout.*\n.*key="):
        model.apply({}, {}, x, train=True)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4, padding_idx=0)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.arange(4.0), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) * self.mask
        with torch.no_grad():
            shift = self.head.bias * 2
        return self.head(x + x.detach().cos()) + shift


def test_tied_weights_are_one_parameter_and_blocks_without_grad_have_no_gradient() -> None:
    """Ties, padding rows, detach, no_grad and integer inputs have torch's gradients."""
    torch.manual_seed(0)
    ids = torch.tensor([[1, 0, 6], [2, 2, 3]])
    module = Tied()
    model = from_module(module, (ids,))
    assert list(model.params) == ["embed.weight", "head.bias"]
    assert list(model.buffers) == ["mask"]
    module(ids).square().sum().backward()

    grads = tb.grad(lambda p: tnp.sum(model(p, from_torch(ids)) ** 2))(model.params)
    for name, p in module.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(grads[name], p.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_an_exported_program_is_translated_in_its_mode() -> None:
    """A program of torch.export is taken as it is, and left as it was."""
    net = Tied().eval()
    ids = torch.tensor([[1, 0]])
    program = torch.export.export(net, (ids,))
    before = str(program.graph)
    model = from_module(program)

    np.testing.assert_allclose(
        model(model.params, from_torch(ids)), net(ids).detach().numpy(), rtol=1e-5, atol=1e-5
    )
    assert str(program.graph) == before
    with pytest.raises(ArgumentSpecError, match="leave train out"):
        model.apply(model.params, model.buffers, from_torch(ids), train=True)


def test_parameters_share_the_memory_of_the_module() -> None:
    """Aligned parameters are not copied."""
    net = nn.Linear(64, 64)
    model = from_module(net, (torch.ones(1, 64),))
    with torch.no_grad():
        net.weight.zero_()

    assert float(tnp.max(model.params["weight"])) == 0


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


def test_errors_name_what_is_wrong() -> None:
    """Wrong modules, arguments, control flow and operators are told, with the way out."""
    with pytest.raises(ArgumentSpecError, match=r"from_module: module is 3"):
        from_module(3, ())  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ArgumentSpecError, match="example_args is of type Tensor"):
        from_module(nn.Tanh(), torch.ones(2))  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ExportError, match=r"Branch.*data-dependent(.|\n)*call_torch"):
        from_module(Branch(), (torch.ones(2),))
    with pytest.raises(ExportError, match=r"Linear\): torch.export failed"):
        from_module(nn.Linear(3, 2), (torch.ones(2),))
    model = from_module(nn.Linear(3, 2), (torch.ones(1, 3),))
    with pytest.raises(ArgumentSpecError, match=r"argument 0.*shape \(2, 3\)(.|\n)*dynamic_shapes"):
        model(model.params, tnp.ones((2, 3)))
    with pytest.raises(ArgumentSpecError, match="dtype complex64"):
        model(model.params, tnp.ones((1, 3), "complex64"))
    with pytest.raises(TreeMismatchError, match="not like example_args"):
        model(model.params)
    with pytest.raises(ArgumentSpecError, match="params has no 'weight'"):
        model({}, tnp.ones((1, 3)))


class Factors(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.ldl_factor(x)[0]


def test_an_operator_without_translation_is_named() -> None:
    """The message names the operator and call_torch."""
    with pytest.raises(MissingRuleError, match=r"aten.linalg_ldl_\w+.default(.|\n)*call_torch"):
        from_module(Factors(), (torch.ones(2, 2),))


def small_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1, groups=2),
        nn.AvgPool2d(2, padding=1),
        nn.AdaptiveAvgPool2d((2, 3)),
        nn.Flatten(),
        nn.Linear(24, 2),
    )


def test_convolutions_and_pools() -> None:
    """Convolutions, pools and batch norm in evaluation mode, at two batch sizes."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 16, 16), torch.randn(3, 3, 16, 16)
    same_as_torch(small_convolutions(), (x,), (y,), dynamic=({0: BATCH},))


def test_transformer_encoder_and_decoder() -> None:
    """Attention, causal and of two lengths, layer norm and feed-forward blocks."""
    torch.manual_seed(0)
    same_as_torch(
        nn.TransformerEncoderLayer(8, 2, 8, batch_first=True),
        (torch.randn(2, 4, 8),),
        dynamic=({0: BATCH},),
    )
    same_as_torch(nn.TransformerDecoderLayer(8, 2, 8), (torch.randn(4, 2, 8), torch.randn(3, 2, 8)))


@pytest.mark.parametrize(
    "net",
    [nn.LSTM(3, 2, 2, bidirectional=True, batch_first=True), nn.GRU(3, 2, 2), nn.RNN(3, 2)],
    ids=["lstm", "gru", "rnn"],
)
def test_recurrent_networks(net: nn.Module) -> None:
    """Layers, directions and the last states."""
    torch.manual_seed(0)
    same_as_torch(net, (torch.randn(4, 2, 3),))


def images(channels: int, size: int) -> Any:
    return lambda n: (torch.randn(n, channels, size, size),)


def tokens(n: int) -> Any:
    return (torch.randint(0, 9, (n, 5)),)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: small_nets.resnet(bottleneck=False), images(3, 24)),
        (lambda: small_nets.resnet(bottleneck=True), images(3, 24)),
        (small_nets.UNet, images(2, 8)),
        (small_nets.ConvNeXt, images(3, 12)),
        (small_nets.ViT, images(3, 8)),
        (small_nets.GPT, tokens),
        (small_nets.Tagger, tokens),
    ],
    ids=["resnet18", "resnet50", "unet", "convnext", "vit", "gpt", "tagger"],
)
def test_networks_at_another_batch_size(make: Any, inputs: Any) -> None:
    """Values and gradients of common networks, exported at a batch of 3 and called with 2."""
    torch.manual_seed(0)
    same_as_torch(make(), inputs(3), inputs(2), dynamic=({0: BATCH},))
