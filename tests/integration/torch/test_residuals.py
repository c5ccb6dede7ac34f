"""What a forward pass keeps for its backward pass."""

from __future__ import annotations

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.op_table import TABLE
from tests.equations import primitives_in
from tracebridge._derived.residuals import cost
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch
BIG = 256


def parts(fun, *xs):
    """How a call with gradients of all arguments is split."""
    f = wrap(fun)
    f(*[x.requires_grad_() for x in xs])
    (family,) = f.families.values()
    (compiled,) = map(family.runs.get, family.runs.keys())
    (node,) = compiled.nodes.values()
    return node.parts


def test_cheap_chains_keep_only_inputs():
    """Elementwise arithmetic is done again."""
    split = parts(lambda x: tnp.maximum(x * 2 - 1, 0.5) * x, torch.randn(BIG, BIG))

    assert split.n_residuals == 0
    assert split.results == ()
    assert split.inputs == (0,)


def test_contractions_are_kept():
    """The product is not computed twice."""
    split = parts(lambda x, w: tnp.sum((x @ w) ** 2), torch.randn(BIG, BIG), torch.randn(BIG, BIG))

    assert split.n_residuals == 1
    assert primitives_in(split.backward).count("dot_general") == 2


def test_expensive_functions_are_kept():
    """tanh of a large array is read back from memory."""
    split = parts(lambda x: tnp.sum(tnp.tanh(x) * x), torch.randn(BIG, BIG))

    assert split.n_residuals == 1
    assert "tanh" not in primitives_in(split.backward)


def test_large_values_are_rather_computed_again():
    """From 4 MB on an exponential takes less than memory."""
    large, small = [
        parts(lambda x: tnp.sum(tnp.tanh(x) * x), torch.randn(n, 1000)) for n in (1100, 900)
    ]

    assert (large.n_residuals, small.n_residuals) == (0, 1)


def test_relu_keeps_its_result():
    """The next layer needs that in any case, so no mask is kept, nor the argument."""
    x, w = torch.randn(BIG, BIG), torch.randn(BIG, BIG)
    split = parts(lambda x, w: tb.nn.relu(x @ w) @ w, x, w)

    assert [a.str_short() for a in split.forward.out_avals[1:]] == ["f32[256,256]"]


def test_results_serve_as_residuals():
    """exp is its own derivative: nothing more is kept than the result."""
    split = parts(tnp.exp, torch.randn(BIG, BIG))

    assert split.n_residuals == 0
    assert split.results == (0,)


def test_small_programs_keep_only_inputs():
    """Passing a residual on costs more than computing it again."""
    split = parts(lambda x, w: tnp.sum(tnp.tanh(x @ w)), torch.randn(8, 8), torch.randn(8, 8))

    assert split.n_residuals == 0
    assert split.results == ()


def test_nothing_is_kept_that_torch_has_not():
    """Values of dtypes that cannot be tensors are computed again."""

    def fun(x):
        quantized = x.astype("int4").astype("float32")
        return tnp.sum(tnp.tanh(x) * quantized)

    x = torch.linspace(-3, 3, BIG * BIG)
    f = wrap(fun)
    (actual,) = torch.autograd.grad(f(x.requires_grad_()), x)

    expected = (1 - x.detach().tanh() ** 2) * x.detach().trunc()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("size", [4, BIG])
def test_gradients_do_not_depend_on_the_choice(size):
    """Kept or done again: the same numbers, for some cotangents and for all."""

    def fun(x, w):
        h = tnp.tanh(x @ w)
        return h, tnp.sum(tnp.exp(-h) * x), h.max()

    def native(x, w):
        h = torch.tanh(x @ w)
        return h, torch.sum(torch.exp(-h) * x), h.max()

    f = wrap(fun)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(size, size, dtype=torch.float64, generator=g).requires_grad_()
    w = torch.randn(size, size, dtype=torch.float64, generator=g).requires_grad_()
    for chosen in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        actual = torch.autograd.grad(sum(f(x, w)[i].sum() for i in chosen), (x, w))
        expected = torch.autograd.grad(sum(native(x, w)[i].sum() for i in chosen), (x, w))
        torch.testing.assert_close(actual, expected)


def test_cost_counts_loops_as_expensive():
    """Programs with equations of unknown cost always keep residuals."""
    small = tb.make_jaxpr(lambda x: tnp.tanh(x) + 1)(tnp.ones(3)).jaxpr
    loop = tb.make_jaxpr(lambda x: tnp.cumsum(x))(tnp.ones(3)).jaxpr

    assert cost(small) < 1000
    assert cost(loop) == float("inf")


@pytest.mark.parametrize("op", TABLE, ids=str)
def test_elementwise_operations_have_a_known_cost(op):
    """No elementwise operation makes a small program keep residuals."""
    args = op.args(op.dtypes[0])
    jaxpr = stage(lambda *xs: [op.fun(*xs)], [ShapedArray(a.shape, a.dtype) for a in args])

    assert cost(jaxpr) < 1000


@pytest.mark.parametrize(
    "fun",
    [tb.lax.erfc, tb.lax.asin, tb.lax.acos, tb.lax.atan, tb.lax.lgamma, tb.lax.cbrt],
    ids=lambda fun: fun.__name__,
)
def test_small_programs_of_any_function_keep_only_inputs(fun):
    """Functions whose derivative has a contraction, a sum and functions of other kinds."""
    split = parts(lambda x, w: tnp.sum(fun(x @ w)), torch.rand(8, 8) / 8, torch.rand(8, 8))

    assert split.n_residuals == 0


def test_remainders_keep_only_inputs():
    """rem, which has two operands."""
    split = parts(lambda x, y: tnp.sum(tb.lax.rem(x, y)), torch.rand(8, 8), torch.rand(8, 8) + 1)

    assert split.n_residuals == 0


@pytest.mark.parametrize("dtype", ["key", "int4", "float8_e4m3"])
def test_residuals_that_torch_has_no_dtype_for(dtype):
    """What a conditional gives and a checkpoint takes: keys, and numbers of few bits."""

    def made(x):
        if dtype == "key":
            return tb.random.key(3)
        return (x * 2).astype(dtype)

    def used(x, r):
        numbers = tb.random.normal(r, x.shape) if dtype == "key" else r.astype(x.dtype)
        return tnp.tanh(x) * numbers

    def f(x):
        r = tb.lax.cond(x[0, 0] > 0, made, made, tb.lax.stop_gradient(x))
        return tb.checkpoint(used)(x, r)

    x = torch.linspace(-1, 1, BIG * BIG).reshape(BIG, BIG).requires_grad_()
    (found,) = torch.autograd.grad(wrap(f)(x).sum(), x)
    expected = tb.grad(lambda x: f(x).sum())(x.detach().numpy())
    torch.testing.assert_close(found, tb.torch.to_torch(expected))
