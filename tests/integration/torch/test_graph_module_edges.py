"""Graph modules whose rules guard a place, and that are pickled."""

import math
import pickle

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch.graph_cases import X, normal
from tracebridge import lax
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.torch import to_graph_module, wrap

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@tb.custom_jvp
def sinc(x):
    return tnp.where(x == 0, 1.0, tnp.sin(x) / x)


@sinc.defjvp
def _sinc_jvp(primals, tangents):
    (x,), (d,) = primals, tangents
    slope = tnp.where(x == 0, 0.0, (tnp.cos(x) * x - tnp.sin(x)) / (x * x))
    return sinc(x), slope * d


def test_rules_that_guard_a_place_have_finite_derivatives():
    x = torch.tensor([0.0, 1.0, -2.0], requires_grad=True)
    module = to_graph_module(sinc, (x.detach(),))
    (first,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    slope = tb.grad(lambda v: sinc(v).sum())
    at = tnp.asarray(x.detach().numpy())
    wanted = torch.from_dlpack(tb.grad(lambda v: slope(v).sum())(at))

    torch.testing.assert_close(first.detach(), torch.from_dlpack(slope(at)))
    torch.testing.assert_close(second[1:], wanted[1:])


def test_modules_with_loops_and_branches_are_pickled():
    def fun(x):
        y = lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, x)
        y = lax.cond(x[0] > 0, lambda a: a, lambda a: -a, y)
        return lax.scan(lambda c, t: (c + t, lax.fori_loop(0, 2, lambda i, v: v + c, t)), 0.0, y)

    x = torch.arange(3.0) + 1
    module = to_graph_module(fun, (x,))
    again = pickle.loads(pickle.dumps(module))

    torch.testing.assert_close(again(x), module(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(again))(x), module(x))


def test_loops_with_one_result_are_written_with_two():
    """Inductor fails on loops of torch with a single one."""

    def fun(w, x):
        return lax.scan(lambda h, _: (tnp.tanh(h @ w), None), x, None, length=4)[0]

    w = (torch.arange(9.0).reshape(3, 3) / 9 - 0.4).requires_grad_()
    x = torch.ones(2, 3, requires_grad=True)
    module = to_graph_module(fun, (w.detach(), x.detach()))

    (step,) = [m for name, m in module.named_children() if name.startswith("step")]
    (returned,) = [node for node in step.graph.nodes if node.op == "output"]
    assert len(returned.args[0]) == 2
    wanted = tb.torch.wrap(fun)(w, x)
    torch.testing.assert_close(module(w, x), wanted)
    seed = torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(
        torch.autograd.grad(module(w, x), (w, x), seed), torch.autograd.grad(wanted, (w, x), seed)
    )


def test_other_shapes_are_refused():
    """A mean over 18 elements divides by 18: of other shapes it would be another number."""
    module = to_graph_module(lambda p, x: tnp.mean(x) * p["a"], ({"a": X[0]}, X), (None, "b, _"))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)

    for call in (module, compiled):
        torch.testing.assert_close(call({"a": X[1]}, X[:2]), X[:2].mean() * X[1])
        for first, second in ((X[0, :1], X), (X[0], X[:, :1]), (X[0], X[0])):
            with pytest.raises(Exception, match=r"x[01].*shape"):
                call({"a": first}, second)
    both = to_graph_module(lambda x, y: (x.sum(), y.sum()), (X, X), ("b, _", "b, _"))
    with pytest.raises(AssertionError, match=r"x1 .*\(b, 6\)"):
        both(X, X[:2])
    torch.testing.assert_close(
        torch.func.vmap(to_graph_module(tnp.sum, (X[0],)))(X), X.sum(1), rtol=1e-5, atol=1e-5
    )


def test_results_have_memory_of_their_own():
    table = tnp.arange(6.0)

    def fun(p, x):
        y = x * 2
        rows = tnp.broadcast_to(x[0] + 1, (3, 6))
        return p["x"], x.reshape(-1), x.T[:2], y, y.reshape(-1), rows, table, 1.0 * table

    module = to_graph_module(fun, ({"x": X}, X))
    x, other = X.clone(), X.clone()
    wanted = [out.clone() for out in module({"x": other}, x)]
    for out in module({"x": other}, x):
        out.mul_(0)

    assert torch.equal(x, X)
    assert torch.equal(other, X)
    for again, first in zip(module({"x": other}, x), wanted, strict=True):
        assert torch.equal(again, first)
    outs = module({"x": other}, x)
    assert len({out.untyped_storage().data_ptr() for out in outs}) == len(outs)


@pytest.mark.parametrize("largest", [True, False])
def test_extremes_of_complex_numbers(largest):
    """By real part, then by imaginary part; NaN wins; -inf or inf of nothing."""
    z = torch.complex(torch.tensor([[1.0, 1, -2, 0], [2, 0, 2, 2]]), normal(2, 4)).requires_grad_()
    extreme, running, pair = (
        (tnp.max, lax.cummax, tnp.maximum) if largest else (tnp.min, lax.cummin, tnp.minimum)
    )

    def fun(z):
        return (
            extreme(z, axis=1),
            extreme(z),
            running(z, axis=1, reverse=True),
            pair(z, z[:, ::-1]),
            lax.reduce_max(z[:, :0], (1,)),
        )

    module, wrapped = to_graph_module(fun, (z.detach(),)), wrap(fun)
    holes = z.detach().clone()
    holes[0, 1] = complex(0, float("nan"))
    for at in (z, holes):
        for actual, wanted in zip(module(at), wrapped(at), strict=True):
            nan = torch.isnan(wanted)
            assert torch.equal(torch.isnan(actual), nan)
            assert torch.equal(actual[~nan], wanted[~nan])
    for i in range(3):
        weight = torch.complex(normal(*module(z)[i].shape), normal(*module(z)[i].shape) + 1)
        grads = [torch.autograd.grad((f(z)[i] * weight).sum().abs(), z) for f in (module, wrapped)]
        torch.testing.assert_close(*grads)


def test_complex_constants_without_a_spelling():
    """Python code spells neither ``inf + nan j`` nor ``-0.0 + 1j``."""
    z = torch.complex(normal(4), normal(4))
    odd = [complex(math.inf, 1), complex(1, math.nan), complex(-0.0, 1), complex(0, -0.0)]

    def fun(z):
        return [(tnp.where(z == 0, z, c), tnp.full(2, c)) for c in odd]

    found, wanted = to_graph_module(fun, (z,))(z), wrap(fun)(z)
    for actual, expected in zip(sum(found, ()), sum(wanted, ()), strict=True):
        a, e = torch.view_as_real(actual), torch.view_as_real(expected)
        torch.testing.assert_close(a, e, equal_nan=True)
        assert torch.equal(torch.signbit(a[a == 0]), torch.signbit(e[e == 0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_any_precision_is_rounded_to(dtype):
    few = [0.0, -0.0, 1.3, -1.3, 1e-8, 6e-5, 449.0, 65504.0, 1.0625, 1.1875, 248.0, 240.0]
    x = torch.tensor([*few, float("inf"), -float("inf"), float("nan")], dtype=dtype)
    formats = ((5, 2), (4, 3), (8, 3), (5, 0), (2, 9))

    def fun(x):
        return [lax.reduce_precision(x, *bits) for bits in formats]

    x.requires_grad_()
    for actual, wanted in zip(to_graph_module(fun, (x,))(x), wrap(fun)(x.detach()), strict=True):
        assert torch.equal(torch.isnan(actual), torch.isnan(x))
        assert torch.equal(actual[:-1], wanted[:-1])
        assert torch.equal(torch.signbit(actual[:-1]), torch.signbit(wanted[:-1]))
        (slope,) = torch.autograd.grad(actual.sum(), x)
        assert torch.equal(slope[: len(few)], torch.ones(len(few), dtype=dtype))


def test_edges_of_functions():
    """Cube roots in half precision, digamma at its first pole, transforms of nothing."""
    big = torch.tensor([1e30, -1e-30, 8.0], dtype=torch.bfloat16)
    poles = torch.tensor([0.0, -0.0, -1.0, 1.0])
    nothing = torch.zeros(0, 8)
    for fun, x in (
        (tnp.cbrt, big),
        (lax.digamma, poles),
        (tnp.fft.fft, nothing),
        (tnp.fft.rfft, nothing),
        (lambda x: tnp.fft.irfft(x + 0j), nothing),
    ):
        torch.testing.assert_close(to_graph_module(fun, (x,))(x), wrap(fun)(x), equal_nan=True)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({5: "b"}, "axis 5"),
        ({0: 3.5}, "3.5"),
        ({0: torch.export.Dim.AUTO}, "name"),
        ({0: None, 1: 7}, "size 6"),
    ],
)
def test_dynamic_shapes_that_do_not_fit(spec, text):
    with pytest.raises(ArgumentValueError, match=text):
        to_graph_module(tnp.sin, (X,), (spec,))


def test_axes_that_are_given_as_fixed():
    module = to_graph_module(tnp.sin, (X,), ({0: torch.export.Dim.STATIC, -1: "n"},))

    assert module(X[:, :2]).shape == (3, 2)


def test_what_has_no_counterpart_is_named():
    z = X.to(torch.complex64)
    with pytest.raises(MissingRuleError, match="'scatter_mul' of c64"):
        to_graph_module(lambda z: z.at[tnp.array([0, 0])].multiply(z[:2]), (z,))


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_gradients_of_loops_that_decide_themselves(steps):
    """From every step, also where what goes along came from constants, and of no step at all."""

    def fun(n, x):
        def step(c):
            return c[0] + 1, c[1] + x * c[2], c[2] * x

        return lax.while_loop(lambda c: c[0] < n, step, (0, tnp.zeros_like(x), x))[1:]

    x = torch.tensor([1.5, -2.0], requires_grad=True)
    n = torch.tensor(steps, dtype=torch.int32)
    total, power = to_graph_module(fun, (n, x.detach()))(n, x)
    (slope,) = torch.autograd.grad(total.sum() + power.sum(), x)
    at = x.detach()

    torch.testing.assert_close(total, sum([at ** (k + 2) for k in range(steps)], 0 * at))
    wanted = sum([(k + 2) * at ** (k + 1) for k in range(steps)], (steps + 1) * at**steps)
    torch.testing.assert_close(slope, wanted)


def test_gradients_of_ragged_products():
    """Of all groups, not of the last one alone: torch adds them up in a loop."""
    x = torch.randn(3, 2, requires_grad=True)
    y = torch.randn(2, 2, 3, requires_grad=True)
    sizes = torch.tensor([1, 2], dtype=torch.int32)
    module = to_graph_module(lax.ragged_dot, (x.detach(), y.detach(), sizes))
    expected = torch.cat([x[:1] @ y[0], x[1:] @ y[1]])

    torch.testing.assert_close(module(x, y, sizes), expected)
    for got, wanted in zip(
        torch.autograd.grad(module(x, y, sizes).square().sum(), (x, y)),
        torch.autograd.grad(expected.square().sum(), (x, y)),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)


def test_an_accuracy_is_torchs_own():
    """``accuracy`` asks XLA for it; torch's functions have one."""
    x = torch.tensor([0.5, 2.0])
    f = lambda x: [
        op(x, accuracy=lax.AccuracyMode.HIGHEST) for op in (lax.exp, lax.exp2, lax.cbrt, lax.tanh)
    ]
    torch.testing.assert_close(to_graph_module(f, (x,))(x), wrap(f)(x))


NESTED = {
    "steps": lambda x: lax.scan(
        lambda c, r: (lax.fori_loop(0, 2, lambda i, v: v * r + i, c), c), 1.0, x
    ),
    "rows of integers": lambda x: lax.scan(
        lambda c, r: (lax.scan(lambda v, k: (v * r + k, k), c, tnp.arange(3))[0], c), 1.0, x
    ),
    "an array of integers": lambda x, n=(3, 1): lax.scan(
        lambda c, r: (lax.fori_loop(0, 2, lambda i, v: v * r + tnp.array(n)[i], c), c), 1.0, x
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_gradients_of_loops_in_loops(name):
    """torch differentiates the backward pass of the inner loop, where all must have gradients."""
    x = torch.tensor([0.5, -1.2, 2.0], requires_grad=True)
    got, expected = [
        torch.autograd.grad([y.sum() for y in f(x)], x)
        for f in (to_graph_module(NESTED[name], (x.detach(),)), wrap(NESTED[name]))
    ]
    torch.testing.assert_close(got, expected)
