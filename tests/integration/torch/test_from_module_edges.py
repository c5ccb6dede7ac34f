"""``from_module`` at masks without a key, bounds that are NaN, and related sizes."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import tracebridge as tb
from tracebridge.errors import ArgumentSpecError, ExportError, UnsupportedExchangeDtypeError
from tracebridge.torch import from_module, from_torch


class _Edges(torch.nn.Module):
    def forward(self, x: Any, mask: Any, low: Any, image: Any) -> Any:
        return (
            functional.scaled_dot_product_attention(x, x, x, mask),
            functional.scaled_dot_product_attention(x[0], x[0], x[0], mask),
            torch.clamp(x, min=low),
            functional.pad(image, (1, 2, 3, -1), mode="reflect"),
            functional.interpolate(image.double(), size=(7, 3), mode="bilinear"),
            torch.max(x, -2, keepdim=True)[0],
        )


def test_edges_equal_torch_with_derivatives() -> None:
    torch.manual_seed(0)
    mask = torch.zeros(4, 4)
    mask[1] = -math.inf
    args = (
        torch.randn(2, 1, 4, 3),
        mask,
        torch.tensor([math.nan, 0.0, 0.5]),
        torch.randn(1, 2, 4, 4),
    )
    model = from_module(_Edges(), args)
    for got, want in zip(model({}, *args), _Edges()(*args), strict=True):
        tolerance = 1e-12 if want.dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(np.asarray(got), want.numpy(), rtol=tolerance, atol=tolerance)

    def loss(run: Any, x: Any) -> Any:
        outs = run(x, *args[1:])
        return outs[0].sum() + outs[1].sum() + outs[5].sum()

    x = args[0].clone().requires_grad_(True)
    (want,) = torch.autograd.grad(loss(_Edges(), x), x)
    got = tb.grad(lambda x: loss(lambda *a: model({}, *a), x))(tb.numpy.asarray(args[0].numpy()))
    np.testing.assert_allclose(np.asarray(got), want.numpy(), rtol=1e-5, atol=1e-5)


class _Related(torch.nn.Module):
    def forward(self, x: Any, y: Any, z: Any) -> Any:
        return y.sum() - z.sum() + x.sum()


class _Sums(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum() + y.reshape(-1, 2).sum()


def test_related_sizes_are_checked() -> None:
    size = torch.export.Dim("size", max=64)
    ones = torch.ones(6)
    model = from_module(_Sums(), (ones[:3].clone(), ones), ({0: size}, {0: 2 * size}))
    four, eight = np.ones(4, np.float32), np.ones(8, np.float32)
    assert float(model({}, four, eight)) == 12
    with pytest.raises(ArgumentSpecError, match="has size 6"):
        model({}, four, eight[:6])


def test_arguments_by_name_come_in_any_order() -> None:
    one, two = torch.ones(3), torch.ones(2)
    model = from_module(_Related(), (one,), example_kwargs={"y": two, "z": two})
    assert float(model({}, one, z=2 * two, y=two)) == 1


class Inner(torch.nn.Module):
    """Differentiates inside, which torch exports and cannot take apart."""

    def forward(self, x: Any) -> Any:
        return torch.func.grad(lambda t: t.sin().sum())(x)


def test_programs_that_torch_cannot_take_apart() -> None:
    with pytest.raises(ExportError, match="from_module"):
        from_module(Inner(), (torch.ones(3),))


class _Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(3, 3)
        self.b = torch.nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        return self.norm(self.b(self.a(x)))


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("is_exported", [False, True])
def test_copies_and_pickles(how: Any, is_exported: bool) -> None:
    """A model of a copy of the module, over its memory; arrays put in by the user stay."""
    sizes = ({0: torch.export.Dim("batch")},)
    net, x = _Tied().eval(), (torch.ones(2, 3),)
    source = torch.export.export(net, x, dynamic_shapes=sizes) if is_exported else net
    model = from_module(source, x, None if is_exported else sizes)
    model.params["a.bias"] = tb.numpy.full(3, 7.0)
    twin = how(model)
    got, want = [m(m.params, tb.numpy.ones((5, 3))) for m in (twin, model)]
    assert got.tolist() == want.tolist()
    assert list(twin.params) == list(model.params)
    with torch.no_grad():
        dict(twin.source.named_parameters())["a.weight"].zero_()
    assert not np.any(np.asarray(twin.params["a.weight"]))
    assert np.any(np.asarray(model.params["a.weight"]))
    assert twin.apply(twin.params, twin.buffers, tb.numpy.ones((1, 3)))[0].shape == (1, 3)


class _Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {"top": torch.max(x, 0), "rest": [torch.linalg.slogdet(x), x]}


def test_results_with_names_are_named_tuples() -> None:
    """Those of ``torch.max`` keep their fields, and can be results of compiled functions."""
    x = torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    model = from_module(_Named(), (x,))

    out = tb.jit(lambda x: model({}, x))(from_torch(x))

    assert [3.0, 4.0] == out["top"].values.tolist()
    assert [1, 0] == out["top"].indices.tolist()
    assert -1.0 == float(out["rest"][0].sign)
    assert isinstance(out["top"], tuple)


class _Inverse(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.pinv(x)


def test_pseudoinverses_of_nothing_keep_64_bits() -> None:
    """A rule that is traced after the translation has the dtype of its argument."""
    x = torch.zeros(2, 0, dtype=torch.float64)
    model = from_module(_Inverse(), (x,))
    _, pullback = tb.vjp(lambda x: model({}, x), from_torch(x))
    (back,) = pullback(from_torch(x.mT.contiguous()))
    assert (2, 0) == back.shape
    assert np.float64 == back.dtype


def test_complex_numbers_of_two_halves_are_refused() -> None:
    """By name: arrays have no such dtype."""

    class Halves(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.chalf().real

    model = from_module(Halves(), (torch.ones(2),))
    with pytest.raises(UnsupportedExchangeDtypeError, match="complex32"):
        model({}, from_torch(torch.ones(2)))
