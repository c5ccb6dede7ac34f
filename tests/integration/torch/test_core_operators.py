"""Torch's own list of core operators against the translation: nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import default_decompositions

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch import aten_cases, aten_cases_linalg
from tests.quick_compiles import quick_jit
from tracebridge import random
from tracebridge.errors import ExportError
from tracebridge.torch import from_module, from_torch
from tracebridge.torch._translate.table import KEYED_TABLE, TABLE

ATEN = torch.ops.aten


def core_operators() -> dict[str, Any]:
    """The overloads that torch tags as core."""
    found: dict[str, Any] = {}
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::"):
            packet, _, kind = full.removeprefix("aten::").partition(".")
            op = getattr(getattr(ATEN, packet, None), kind or "default", None)
            if op is not None and torch.Tag.core in op.tags:
                found[f"{packet}.{kind or 'default'}"] = op
    return found


CORE = core_operators()
X = torch.arange(12.0).reshape(3, 4) / 7
MEANS = X[:, :2].clone()
FLAT, WEIGHT = torch.linspace(-1, 2, 4), torch.linspace(0.5, 2, 4)

# Those that torch takes apart, or that write to what they are given, inside a module.
INSIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "adaptive_avg_pool1d.default": lambda x: ATEN.adaptive_avg_pool1d(x, [3]),
    "atan2.out": lambda x: ATEN.atan2.out(x.detach(), X + 1, out=torch.empty(3, 4)) + 1,
    "col2im.default": lambda x: ATEN.col2im(
        x.reshape(4, 3), [2, 4], [2, 2], [1, 1], [0, 0], [1, 1]
    ),
    "embedding_dense_backward.default": lambda x: ATEN.embedding_dense_backward(
        x, torch.tensor([1, 3, 1]), 5, 3, False
    ),
    "native_group_norm_backward.default": lambda x: ATEN.native_group_norm_backward(
        *(X[:, :, None], x.detach()[:, :, None] ** 2, MEANS, MEANS + 1, WEIGHT, 3, 4, 1, 2),
        [True, True, True],
    ),
    "native_layer_norm_backward.default": lambda x: ATEN.native_layer_norm_backward(
        x.detach(),
        X**2,
        [4],
        MEANS[:, :1].clone(),
        MEANS[:, :1] + 1,
        WEIGHT,
        FLAT,
        [True, True, True],
    ),
    "_native_batch_norm_legit.default": lambda x: ATEN._native_batch_norm_legit(
        x, WEIGHT, FLAT, torch.zeros(4), torch.ones(4), False, 0.1, 1e-5
    )[0],
    "resize_.default": lambda x: (x.detach() * 2).resize_(4, 3),
    "sym_is_contiguous.default": lambda x: x * 2 if x.is_contiguous() else x,
}
# Sizes, which are numbers in a graph.
NUMBERS = frozenset(
    {"sym_numel.default", "sym_size.int", "sym_storage_offset.default", "sym_stride.int"}
)
# What torch says nothing about: values of fresh memory, and random numbers.
FREE = frozenset(
    {
        "empty.memory_format",
        "empty_strided.default",
        "native_dropout.default",
        "rand.default",
        "randn.default",
        "randperm.default",
    }
)
ITEM = "_local_scalar_dense.default"
# The number of results depends on values, and a compiled program has fixed shapes.
NOT_EXPRESSIBLE = {"nonzero.default": lambda x: torch.nonzero(x)}


def with_cases() -> set[str]:
    families = {**aten_cases.FAMILIES, **aten_cases_linalg.FAMILIES}
    return {c[0] for family in families.values() for c in family()}


def test_each_core_operator_is_translated_and_compared_or_named() -> None:
    """A new release of torch with another core operator fails here."""
    assert len(CORE) > 150
    known = with_cases() | set(INSIDE) | NUMBERS | FREE | set(NOT_EXPRESSIBLE) | {ITEM}
    assert set() == set(CORE) - known

    translated = {n for n, op in CORE.items() if op in TABLE or op in KEYED_TABLE}
    apart = default_decompositions()
    written = {n for n, op in CORE.items() if op._schema.is_mutable}
    taken_apart = {n for n, op in CORE.items() if op in apart} - translated
    assert set(INSIDE) == taken_apart | written
    assert set(NOT_EXPRESSIBLE) == set(CORE) - translated - taken_apart - written


def test_each_translated_operator_has_a_case() -> None:
    """Also those that are not core; recurrent layers and random numbers have tests of their own."""
    drawing = {str(op).removeprefix("aten.") for op in KEYED_TABLE}
    # Those of the package itself: see test_from_module_calls.py.
    names = {str(op).removeprefix("aten.") for op in TABLE if op.namespace == "aten"}
    names -= drawing | NUMBERS | FREE | {ITEM}
    of_fresh_memory = {"empty_like.default", "empty_permuted.default", "new_empty.default"}
    not_differentiable = {"resize.default", "embedding_renorm.default", "lift_fresh_copy.default"}
    # The same functions as their neighbours, of which LAPACK's signs differ.
    factors = {
        *("_linalg_eigh.default", "_linalg_eigvals.default", "_linalg_svd.default"),
        *("cholesky.default", "linalg_eig.default", "linalg_eigvals.default"),
        "contiguous.default",
    }
    assert set() == names - with_cases() - of_fresh_memory - not_differentiable - factors


class Everything(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return [fun(x) for fun in INSIDE.values()]


def test_core_operators_that_torch_takes_apart() -> None:
    """Values and gradients of what reaches the translation in parts."""
    x = X.clone().requires_grad_(True)
    wanted = torch.utils._pytree.tree_leaves(Everything()(x))
    (slope,) = torch.autograd.grad(sum([w.sin().sum() for w in wanted]), x)
    model = from_module(Everything(), (X,))

    def loss(x: Any) -> Any:
        outs = torch.utils._pytree.tree_leaves(model({}, x))
        return sum([tnp.sum(tnp.sin(o)) for o in outs]), outs

    (_, outs), got = quick_jit(tb.value_and_grad(loss, has_aux=True))(from_torch(X))
    for name, a, b in zip([*INSIDE, *"abcd"], outs, wanted, strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(got, slope, rtol=1e-4, atol=1e-4)


class Function(nn.Module):
    def __init__(self, fun: Any) -> None:
        super().__init__()
        self.fun = fun

    def forward(self, *args: Any) -> Any:
        return self.fun(*args)


def test_numbers_of_a_shape() -> None:
    """Sizes and steps of a dense array; fresh memory and random numbers have size and dtype."""
    x = from_torch(X)
    assert (12, 4, 0, 4) == (
        TABLE[ATEN.sym_numel.default](x),
        TABLE[ATEN.sym_size.int](x, 1),
        TABLE[ATEN.sym_storage_offset.default](x),
        TABLE[ATEN.sym_stride.int](x, 0),
    )
    for name, args in (
        ("empty.memory_format", ([2, 3],)),
        ("empty_strided.default", ([2, 3], [3, 1])),
    ):
        fresh = TABLE[CORE[name]](*args, dtype=torch.int32)
        assert ((2, 3), np.int32) == (fresh.shape, fresh.dtype)


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.rand(4000), torch.randn(4000), torch.randperm(50), torch.dropout(x, 0.25, True)


def test_random_numbers_have_their_distributions() -> None:
    """Moments, a permutation, and elements that are kept and scaled."""
    x = torch.ones(4000)
    model = from_module(Draws(), (x,))
    flat, normal, order, kept = model.apply({}, {}, from_torch(x), key=random.key(2))[0]

    assert abs(float(flat.mean()) - 0.5) < 0.03
    assert abs(float(flat.var()) - 1 / 12) < 0.01
    assert abs(float(normal.mean())) < 0.07
    assert abs(float(normal.var()) - 1) < 0.1
    assert list(range(50)) == sorted(np.asarray(order).tolist())
    assert order.dtype == np.int64
    assert {0.0, np.float32(4 / 3)} == set(np.unique(np.asarray(kept)).tolist())


class MoreDraws(nn.Module):
    """One column for each, with its mean and variance."""

    moments: ClassVar = {
        "poisson": (3, 3), "binomial": (4, 2.4), "gamma": (2.5, 2.5), "dirichlet": (0.25, 0.0375),
        "one": (1.5, 0.85), "two": (1.196, 0.04), "geometric": (2, 2), "log_normal": (1.02, 0.0424),
        "around": (1, 4), "numbers": (0.5, 4), "spread": (2, 8),
    }  # fmt: skip

    def forward(self, x: torch.Tensor) -> Any:
        fresh = torch.empty_like(x)
        weights = torch.tensor([0.2, 0.2, 0.5, 0.1]) * x[:, None]
        return {
            "poisson": torch.poisson(3 * x),
            "binomial": torch.binomial(10 * x, 0.4 * x),
            "gamma": torch._standard_gamma(2.5 * x),
            "dirichlet": torch._sample_dirichlet(torch.ones(4) * x[:, None])[:, 1],
            "one": torch.multinomial(weights, 1)[:, 0],
            "two": torch.multinomial(weights * torch.tensor([1, 2.5, 1, 0]), 2).float().mean(1),
            "geometric": fresh.clone().geometric_(0.5),
            "log_normal": fresh.clone().log_normal_(0, 0.2),
            "around": torch.normal(x, 2.0),
            "numbers": torch.normal(0.5, 2.0, x.shape),
            "spread": torch.normal(1.0, 2 * x) + torch.normal(x, 2 * x),
            "cauchy": fresh.clone().cauchy_(1, 2),
        }


def test_more_random_numbers_have_their_distributions() -> None:
    """Moments, quartiles where there are none, and derivatives by the parameters of a gamma."""
    x = torch.ones(4000)
    model = from_module(MoreDraws(), (x,))
    draw = quick_jit(lambda x: model.apply({}, {}, x, key=random.key(2))[0])
    outs = draw(from_torch(x))

    quartiles = np.quantile(outs.pop("cauchy"), [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quartiles, [-1, 1, 3], atol=0.4)
    for name, (mean, variance) in MoreDraws.moments.items():
        values = np.asarray(outs[name])
        assert abs(values.mean() - mean) < 0.1, name
        assert name == "two" or abs(values.var() - variance) < 0.1 * max(1, variance), name
    assert outs["one"].dtype == np.int64
    assert outs["poisson"].dtype == np.float32


@pytest.mark.parametrize("name", NOT_EXPRESSIBLE)
def test_operators_that_cannot_be_expressed_are_named(name: str) -> None:
    """The error has the operator and the way out."""
    with pytest.raises(ExportError, match=rf"aten.{name}(.|\n)*call_torch"):
        from_module(Function(NOT_EXPRESSIBLE[name]), (X,))


# Elements that are read as numbers, which torch does for an index that is a tensor without axes.
ITEMS: dict[str, Callable[..., Any]] = {
    "index": lambda x, n: x[n],
    "column": lambda x, n: x[:, n - 5],
    "factor": lambda x, n: x * x[0, 1].item() + n.item() / 2,
    "alpha": lambda x, n: torch.add(x, x, alpha=n.item()),
    "bounds": lambda x, n: x.clamp(max=n.item()) + torch.full_like(x, n.item()),
    "choice": lambda x, n: torch.where(torch.tensor((n > 1).item()), x, -x),
}

if torch.__version__ < (2, 12):  # torch 2.11 exports no such index
    del ITEMS["index"], ITEMS["column"]


def _rows(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    start = n.item()
    torch._check(start >= 0)
    torch._check(start + 2 <= x.shape[0])
    return x[start : start + 2]


class Items(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        return [fun(x, n) for fun in ITEMS.values()], _rows(x, n - 1)


def test_sizes_by_masks_are_named() -> None:
    """How many elements a mask names is known when the module runs, not when it is translated."""
    for fun in (lambda x: x[x > 0].sum(), lambda x: x[:, x[0] > 0], lambda x: x.unique(dim=0)):
        with pytest.raises(ExportError, match=r"aten.(index|unique_dim)(.|\n)*call_torch"):
            from_module(Function(fun), (X,))


def test_elements_that_are_read_as_numbers() -> None:
    """They are computed at each call; there are no derivatives by them, as in torch."""
    x, n = X.clone().requires_grad_(True), torch.tensor(2)
    model = from_module(Items(), (X, torch.tensor(1)))
    outs = model({}, from_torch(X), from_torch(n))
    wanted = Items()(x, n)
    for a, b in zip([*outs[0], outs[1]], [*wanted[0], wanted[1]], strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=1e-6)
    (slope,) = torch.autograd.grad(sum([w.sum() for w in [*wanted[0], wanted[1]]]), x)

    def loss(x: Any) -> Any:
        values, rows = model({}, x, from_torch(n))
        return sum([tnp.sum(v) for v in [*values, rows]])

    np.testing.assert_allclose(tb.grad(loss)(from_torch(X)), slope, rtol=1e-5)
    with pytest.raises(ExportError, match=r"repeat_interleave(.|\n)*call_torch"):
        from_module(Function(lambda n: torch.arange(2).repeat_interleave(n)), (torch.arange(2),))
    with pytest.raises(ExportError, match=r"_local_scalar_dense(.|\n)*call_torch"):
        from_module(Function(lambda n: torch.zeros(n.item())), (n,))


class Rows(nn.Module):
    """Embeddings whose rows are shortened, or trained by their frequency."""

    def __init__(self) -> None:
        super().__init__()
        self.short = nn.Embedding(5, 3, max_norm=1.0)
        self.bags = nn.EmbeddingBag(5, 3, max_norm=1.5)
        self.often = nn.Embedding(5, 3, padding_idx=0, scale_grad_by_freq=True)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.short(ids), self.bags(ids), self.often(ids)


def test_embeddings_with_largest_norms_and_by_frequency() -> None:
    """Values and gradients are torch's; torch writes the short rows, a function does not."""
    torch.manual_seed(0)
    module, ids = Rows(), torch.tensor([[0, 4, 4], [2, 4, 2]])
    model = from_module(module, (ids,))
    long = np.array(model.params["short.weight"])
    params = {name: tnp.array(p) for name, p in model.params.items()}

    def loss(params: Any) -> Any:
        outs = model(params, ids)
        return sum([tnp.sum(tnp.sin(o)) for o in outs]), outs

    (_, outs), grads = tb.value_and_grad(loss, has_aux=True)(params)
    np.testing.assert_array_equal(long, model.params["short.weight"])
    wanted = module(ids)
    sum([w.sin().sum() for w in wanted]).backward()
    for a, b in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=1e-5, atol=1e-6)
    for name, p in module.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(grads[name], p.grad, rtol=1e-5, atol=1e-6, err_msg=name)


class Forces(nn.Module):
    """The energy of a convolution, and its derivative by the input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(2, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            energy = self.layer(x).square().sum()
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, force


def test_modules_that_differentiate_inside() -> None:
    """Energies and forces, and the gradients by parameters of a loss of both."""
    torch.manual_seed(0)
    module, x = Forces(), torch.randn(2, 2, 5)
    energy, force = module(x)
    (energy + force.square().sum()).backward()
    model = from_module(module, (x,))

    def loss(params: Any, x: Any) -> Any:
        energy, force = model(params, x)
        return energy + tnp.sum(force**2), (energy, force)

    (_, outs), grads = quick_jit(tb.value_and_grad(loss, has_aux=True))(model.params, from_torch(x))
    np.testing.assert_allclose(outs[0], energy.detach(), rtol=1e-4)
    np.testing.assert_allclose(outs[1], force.detach(), rtol=1e-4, atol=1e-5)
    for name, p in module.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(grads[name], p.grad, rtol=1e-3, atol=1e-4, err_msg=name)
