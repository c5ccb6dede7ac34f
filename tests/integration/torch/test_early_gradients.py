"""Small losses compute their gradients in the forward pass; nobody can tell but by time."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ExchangeError
from tracebridge.torch import wrap
from tracebridge.torch._crossing import execute
from tracebridge.torch._eager.early import PATIENCE

pytestmark = pytest.mark.torch


def values(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    made = [torch.rand(5, generator=generator, dtype=dtype) + 0.5 for _ in range(2)]
    return [x.requires_grad_() for x in made]


def native(x, y):
    return (torch.sin(x) * y**2).sum()


def ours():
    return wrap(lambda x, y: tnp.sum(tnp.sin(x) * y**2))


def early_of(f):
    """What computes the gradients of the one call that a wrapped function knows."""
    (found,) = [
        node.early
        for family in f.families.values()
        for key in family.runs.keys()  # noqa: SIM118 - a cache is no dict
        for node in family.runs.get(key).nodes.values()
    ]
    return found


def backward(out, xs, **options):
    return torch.autograd.grad(out, xs, **options)


# what is made of a scalar function of two vectors
USES = {
    "once": lambda f, xs: backward(f(*xs), xs),
    "twice": lambda f, xs: sum_of([backward(f(*xs), xs) for _ in range(2)]),
    "one input": lambda f, xs: backward(f(*xs), xs[1:]),
    "one leaf": lambda f, xs: backward(f(xs[0], xs[1].detach()), xs[:1]),
    "the same": lambda f, xs: backward(f(xs[0], xs[0]), xs[:1]),
    "not a leaf": lambda f, xs: backward(f(xs[0] * 2, xs[1].exp()), xs),
    "half": lambda f, xs: backward(0.5 * f(*xs), xs),
    "given cotangent": lambda f, xs: backward(f(*xs), xs, grad_outputs=torch.tensor(3.0).double()),
    "not a number": lambda f, xs: backward(float("nan") * f(*xs), xs),
    "zero": lambda f, xs: backward(0 * f(*xs), xs),
    "expanded": lambda f, xs: backward(f(*xs).expand(3).sum(), xs),
    "sum": lambda f, xs: backward(f(*xs) + f(xs[1], xs[0]), xs),
    "second": lambda f, xs: second(f, xs),
    "retained, then second": lambda f, xs: (backward(f(*xs), xs), *second(f, xs)),
    "batched": lambda f, xs: backward(
        f(*xs), xs, grad_outputs=torch.ones(3).double(), is_grads_batched=True
    ),
    "hessian": lambda f, xs: torch.autograd.functional.hessian(f, tuple(xs))[0],
    "checkpoint": lambda f, xs: backward(checkpoint(f, *xs, use_reentrant=False), xs),
    "hook": lambda f, xs: hooked(f, xs),
    "graph retained": lambda f, xs: retained(f, xs),
    "accumulated": lambda f, xs: accumulated(f, xs),
    "per sample": lambda f, xs: torch.func.vmap(torch.func.grad(f))(xs[0][:, None], xs[1][:, None]),
}


def sum_of(pairs):
    return [sum(parts) for parts in zip(*pairs, strict=True)]


def second(f, xs):
    first = backward(f(*xs), xs, create_graph=True)
    return (*first, *backward(sum((g**2).sum() for g in first), xs))


def hooked(f, xs):
    out = f(*xs)
    out.grad_fn.register_prehook(lambda grads: tuple(5 * g for g in grads))
    return backward(out, xs)


def retained(f, xs):
    out = f(*xs)
    first = backward(out, xs, retain_graph=True)
    for g in first:
        g.zero_()
    return (*backward(out, xs, retain_graph=True), *backward(out, xs))


def accumulated(f, xs):
    leaves = [x.detach().clone().requires_grad_() for x in xs]
    out = f(*leaves)
    for _ in range(3):
        out.backward(retain_graph=True)
    f(*leaves).backward()
    return [x.grad for x in leaves]


@pytest.mark.parametrize("use", USES)
def test_gradients_are_those_of_torch(use):
    """Before the function has seen another cotangent, and afterwards."""
    f = ours()
    for _ in range(3):
        found, expected = USES[use](f, values()), USES[use](native, values())
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)


def test_they_come_from_the_forward_pass():
    """As long as they are taken; then values are computed alone again."""
    f, xs = ours(), values()
    for _ in range(2 * PATIENCE):
        f(*xs).backward()
    early = early_of(f)
    assert early is not None
    assert early.wanted

    for _ in range(PATIENCE):
        f(*xs)
    assert not early.wanted
    for x in xs:
        x.grad = None
    f(*xs).backward()
    torch.testing.assert_close([x.grad for x in xs], list(backward(native(*xs), xs)))


def test_scaled_losses():
    """Gradients of 16 bits that vanish without the scale of the loss."""
    x = torch.full((4,), 1e-3, dtype=torch.float16, requires_grad=True)
    f = wrap(lambda x: tnp.mean(x * tnp.float16(1e-6) * x))
    for _ in range(3):
        x.grad = None
        (f(x) * 4096).backward()
        assert (x.grad > 0).all()


def runs_of_pullbacks(f, monkeypatch):
    """A list that grows with each gradient that does not come from the forward pass."""
    early, found = early_of(f), []
    fits = type(early).fits

    def seen(self, cotangent, seed):
        good = fits(self, cotangent, seed)
        if not good:
            found.append(seed)
        return good

    monkeypatch.setattr(type(early), "fits", seen)
    return found


@pytest.mark.parametrize("scale", [0.25, -3.0, 2.0**20])
def test_the_last_cotangent_is_that_of_the_next_step(scale, monkeypatch):
    """A scale that stays is known after one step, and so is the 1 when it comes back."""
    f, xs = ours(), values()
    backward(f(*xs), xs)
    missed = runs_of_pullbacks(f, monkeypatch)
    for factor, n in ((scale, 1), (1, 2), (scale, 3)):
        expected = backward(factor * native(*xs), xs)
        for _ in range(5):
            torch.testing.assert_close(backward(factor * f(*xs), xs), expected)
        assert len(missed) == n
    assert early_of(f).wanted


def test_each_call_has_the_cotangent_of_its_own_forward_pass():
    """Graphs that wait while the cotangent changes."""
    f, xs = ours(), values()
    (expected, _) = backward(native(*xs), xs)
    outs = [f(*xs) for _ in range(2)]
    backward(0.5 * f(*xs), xs)
    outs += [f(*xs) for _ in range(2)]
    for out, scale in zip(outs, (1.0, 0.5, 0.5, 1.0), strict=True):
        torch.testing.assert_close(backward(scale * out, xs)[0], scale * expected)


def test_cotangents_that_never_come_again():
    """After some of them nothing is computed in advance any more."""
    f, xs = ours(), values()
    (expected, _) = backward(native(*xs), xs)
    for n in range(2, 10):
        torch.testing.assert_close(backward(n * f(*xs), xs)[0], n * expected)
    assert not early_of(f).wanted


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_signs_of_zeros(zero):
    """A gradient of a cotangent of zero has the sign that the pullback gives it."""
    x = torch.ones(3, requires_grad=True)
    f = wrap(lambda x: tnp.sum(2 * x))
    for seed in (zero, -zero, zero):
        (found,) = backward(f(x), x, grad_outputs=torch.tensor(seed))
        (expected,) = backward((2 * x).sum(), x, grad_outputs=torch.tensor(seed))
        assert torch.equal(torch.signbit(found), torch.signbit(expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_seeds_of_other_dtypes(dtype):
    """A cotangent has the dtype of the loss."""
    x, y = values(dtype)
    f = ours()
    for _ in range(3):
        found, expected = [backward(g(x, y) * 0.125, (x, y)) for g in (f, native)]
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=1e-3)
        assert found[0].dtype == dtype


def test_kinks_and_poles():
    """Values that are not numbers are where torch has them."""
    x = torch.tensor([0.0, float("nan"), float("inf"), -1.0, 4.0])
    for f, g in (
        (wrap(lambda x: tnp.sum(tnp.sqrt(x))), lambda x: x.sqrt().sum()),
        (wrap(lambda x: tnp.sum(tnp.maximum(x, 1))), lambda x: x.clamp(min=1).sum()),
    ):
        a, b = [x.clone().requires_grad_() for _ in range(2)]
        f(a).backward()
        g(b).backward()
        torch.testing.assert_close(a.grad, b.grad, equal_nan=True)


def test_rules_of_users():
    """Gradients are what the rule says."""

    @tb.custom_vjp
    def rule(x):
        return tnp.sum(x)

    rule.defvjp(lambda x: (2 * rule(x), x), lambda x, g: (g * 7 * x,))
    f = wrap(rule)
    x, _ = values()
    for _ in range(3):
        (g,) = backward(f(x), x)
        torch.testing.assert_close(g, 7 * x.detach())


@pytest.mark.parametrize("of_cotangent", [True, False])
def test_effects_of_rules(of_cotangent):
    """What a rule prints of the cotangent belongs to the backward pass; nothing is lost."""
    calls = []

    @tb.custom_vjp
    def rule(x):
        return tnp.sum(x)

    def pull(x, g):
        tb.debug.callback(lambda v: calls.append(float(v)), g if of_cotangent else x[0])
        return (g * x,)

    rule.defvjp(lambda x: (rule(x), x), pull)
    f = wrap(rule)
    x, _ = values()
    for _ in range(2):
        out = f(x)
        tb.effects_barrier()
        assert not (calls and of_cotangent)
        torch.testing.assert_close(backward(out, x)[0], x.detach())
        tb.effects_barrier()
        assert calls == [1.0 if of_cotangent else x[0].item()]
        calls.clear()


def test_complex_inputs():
    """A real loss of complex numbers has the gradients of torch's convention."""
    z = torch.tensor([1 + 2j, -0.5j], dtype=torch.complex128, requires_grad=True)
    f = wrap(lambda z: tnp.sum(tnp.abs(z) ** 2 + tnp.real(z) * tnp.imag(z)))
    for _ in range(2):
        (found,) = backward(f(z), z)
        (expected,) = backward((z.abs() ** 2 + z.real * z.imag).sum(), z)
        torch.testing.assert_close(found, expected)
    assert early_of(f).wanted


def test_results_beside_the_loss():
    """Integers and flags beside the loss; two losses have two cotangents."""
    f = wrap(lambda x: (tnp.argmax(x), tnp.sum(x**2), tnp.any(x > 1)))
    x, _ = values()
    for _ in range(3):
        place, loss, flag = f(x)
        assert not place.requires_grad
        assert not flag.requires_grad
        torch.testing.assert_close(backward(loss, x)[0], 2 * x.detach())
    assert early_of(f).wanted

    g = wrap(lambda x: (tnp.sum(x**2), tnp.sum(x)))
    a, b = g(x)
    torch.testing.assert_close(backward(a, x, retain_graph=True)[0], 2 * x.detach())
    torch.testing.assert_close(backward(b, x)[0], torch.ones_like(x))
    assert early_of(g) is None


def test_loops_without_gradients():
    """A function that has values only says so in the backward pass."""
    f = wrap(lambda x: tb.lax.while_loop(lambda v: v < 10, lambda v: v * v, tnp.sum(x)))
    x, _ = values()
    out = f(x)
    with pytest.raises(tb.errors.TracebridgeError):
        out.backward()


def test_errors_are_those_of_torch():
    """A second backward pass, and inputs that were changed in place."""
    f, (x, y) = ours(), values()
    out = f(x, y)
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()
    z = y.detach().clone()
    out = f(x, z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_options_and_caches():
    """Debugging options have programs of their own; programs that are dropped are made again."""
    f, xs = ours(), values()
    expected = backward(native(*xs), xs)
    torch.testing.assert_close(backward(f(*xs), xs), expected)
    out = f(*xs)
    tb.clear_caches()
    torch.testing.assert_close(backward(out, xs), expected)
    torch.testing.assert_close(backward(f(*xs), xs), expected)
    bad = torch.tensor([-1.0], requires_grad=True)
    root = wrap(lambda x: tnp.sum(tnp.sqrt(x)))
    root(bad).backward()
    with tb.debug_nans(True), pytest.raises(FloatingPointError):
        root(bad)


def test_threads():
    """Each call has gradients of its own."""
    f = ours()
    wrong = []

    def work(scale):
        for _ in range(100):
            xs = [(x.detach() * scale).requires_grad_() for x in values()]
            found = backward(f(*xs), xs)
            if not all(map(torch.allclose, found, backward(native(*xs), xs))):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("change", [lambda x: x[:1].clone(), lambda x: x.float(), lambda x: x[:1]])
@pytest.mark.parametrize("again", [False, True])
def test_hooks_that_change_what_was_saved(change, again):
    """Programs would read beyond the memory of a smaller tensor."""
    f = wrap(lambda x, y: tnp.sin(x) * y)
    x, y = values()
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: change(x.detach())):
            out = f(x, y)
        with pytest.raises(ExchangeError, match="saved tensor"):
            backward(out.sum(), (x, y), create_graph=again)
        torch.testing.assert_close(backward(f(x, y).sum(), y)[0], torch.sin(x).detach())


def test_programs_that_are_compiled(monkeypatch):
    """Training compiles no program of the results alone; calls without gradients do, once."""
    names = []
    compile_jaxpr = execute.compile_jaxpr

    def counted(jaxpr, name, *args, **options):
        names.append(name)
        return compile_jaxpr(jaxpr, name, *args, **options)

    monkeypatch.setattr(execute, "compile_jaxpr", counted)
    x = torch.ones(64, 64, dtype=torch.float64, requires_grad=True)
    for f in (
        wrap(lambda x: tnp.sum(tnp.sin(x))),
        wrap(lambda x: tnp.tanh(x @ tnp.exp(tnp.tanh(x) @ x))),
    ):
        names.clear()
        for _ in range(2):
            f(x).sum().backward()
        n = 1 if f(x).ndim == 0 else 2
        assert len(names) == n
        for _ in range(2):
            with torch.no_grad():
                f(x)
        assert len(names) == n + 1


def test_callbacks_of_rules_run_in_the_backward_pass():
    """A rule that calls Python, which may raise or count, is run when gradients are asked for."""
    given = []

    def slope(x, g):
        given.append(float(g))
        return 2 * x * g

    @tb.custom_vjp
    def square(x):
        return tnp.sum(x * x)

    def pullback(x, g):
        return (tb.pure_callback(slope, tb.ShapeDtypeStruct(x.shape, x.dtype), x, g),)

    square.defvjp(lambda x: (square(x), x), pullback)
    x, _ = values()
    for n in range(1, 3):
        out = wrap(square)(x)
        assert given == [1.0] * (n - 1)
        (found,) = backward(out, x)
        assert given == [1.0] * n
        torch.testing.assert_close(found, 2 * x.detach())
