"""Small scalar functions under torch.func.grad: value and gradients come from one program."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
import tracebridge.torch as tbt
from tracebridge.torch._eager import as_operations
from tracebridge.torch._eager.slopes import Slopes

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
func = torch.func


@pytest.fixture(autouse=True)
def only_programs(monkeypatch):
    """Functions as small as these would be torch's own operations: see test_as_operations.py."""
    monkeypatch.setattr(as_operations, "MAX_OPERATIONS", 0)


def wave(x, y):
    return (torch.sin(x) * y).sum()


@tbt.wrap
def ours(x, y):
    return tnp.sum(tnp.sin(x) * y)


def values(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(5, generator=generator, dtype=dtype) for _ in range(2)]


# what is made of a function of two vectors -> the result at the vectors
MAKERS = {
    "grad": lambda f: func.grad(f),
    "both": lambda f: func.grad(f, (0, 1)),
    "second": lambda f: func.grad(f, 1),
    "with value": lambda f: func.grad_and_value(f),
    "aux": lambda f: func.grad(lambda x, y: (f(x, y), x * 2), has_aux=True),
    "times a number": lambda f: func.grad(lambda x, y: 3 * f(x, y)),
    "twice": lambda f: func.grad(lambda x, y: f(x, y) + f(x * y, y) ** 2),
    "into itself": lambda f: func.grad(lambda x, y: f(x * f(x, y), y)),
    "same tensor": lambda f: func.grad(lambda x, y: f(x, x)),
    "of grad": lambda f: func.grad(lambda x, y: (func.grad(f)(x, y) * y).sum()),
    "of grad of grad": lambda f: func.grad(
        lambda x, y: (func.grad(lambda x, y: (func.grad(f)(x, y) ** 2).sum())(x, y) * y).sum()
    ),
    "hessian": lambda f: func.hessian(f),
    "jacrev": lambda f: func.jacrev(f),
    "jacrev of grad": lambda f: func.jacrev(func.grad(f)),
    "jacfwd of grad": lambda f: func.jacfwd(func.grad(f)),
    "jvp of grad": lambda f: lambda x, y: func.jvp(lambda x: func.grad(f)(x, y), (x,), (y,)),
    "vjp of grad": lambda f: lambda x, y: func.vjp(lambda x: func.grad(f)(x, y), x)[1](y),
    "vmap of grad": lambda f: lambda x, y: func.vmap(func.grad(f))(x[:, None], y[:, None]),
    "grad of vmap": lambda f: func.grad(lambda x, y: func.vmap(f)(x[:, None], y[:, None]).sum()),
    "same level": lambda f: func.grad(
        lambda x, y: torch.autograd.grad(f(x, y), x, create_graph=True)[0].pow(2).sum()
    ),
    "same level, no graph": lambda f: func.grad(
        lambda x, y: (f(x, y) * torch.autograd.grad(f(x, y), x, retain_graph=True)[0]).sum()
    ),
    "hook": lambda f: func.grad(lambda x, y: hooked(f(x, y))),
    "gradients of a cotangent": lambda f: func.grad(lambda x, y: penalised(f, x, y)),
    "hook at the input": lambda f: func.grad(lambda x, y: at_the_input(f, x, y)),
    "vmap of gradients of a cotangent": lambda f: (
        lambda x, y: func.vmap(func.grad(lambda x, y: penalised(f, x, y)))(x[:, None], y[:, None])
    ),
    "no_grad inside": lambda f: func.grad(lambda x, y: (f(x, y) * x).sum() + no_grad(f, x, y)),
}


def penalised(f, x, y):
    """A hook between two nodes differentiates the cotangent that comes by."""
    z = torch.sin(x)
    u = z * 1
    z.register_hook(lambda g: g + torch.autograd.grad((g * g).sum(), u, retain_graph=True)[0])
    return f(u, y) + (u**2).sum()


def at_the_input(f, x, y):
    """A hook at the input sees that its gradient can be differentiated."""
    x.register_hook(lambda g: g * (2 if g.requires_grad else 3))
    return f(x, y)


def hooked(result):
    result.register_hook(lambda c: 2 * c)
    return result


def no_grad(f, x, y):
    with torch.no_grad():
        return f(x, y)


@pytest.mark.parametrize("maker", MAKERS)
def test_results_are_those_of_torch(maker) -> None:
    """At the first call, and at the next ones, which are known; in both orders of makers."""
    x, y = values()
    expected = MAKERS[maker](wave)(x, y)

    for f in (ours, tbt.wrap(lambda x, y: tnp.sum(tnp.sin(x) * y))):
        made = MAKERS[maker](f)
        for _ in range(4):
            torch.testing.assert_close(made(x, y), expected)


def test_gradients_below_the_level() -> None:
    """Tensors that want gradients outside of torch.func get theirs."""
    x, y = values()
    for f in (wave, ours):
        x_, y_ = x.clone().requires_grad_(), y.clone().requires_grad_()
        for _ in range(3):
            func.grad(f)(x_, y_).pow(2).sum().backward()
        if f is wave:
            expected = x_.grad, y_.grad
    torch.testing.assert_close((x_.grad, y_.grad), expected)


def test_results_are_nobody_elses() -> None:
    """Gradients may be changed in place; arguments may change after the call."""
    x, y = values()
    slope = func.grad(ours)
    slope(x, y)
    first = slope(x, y)
    kept = first.clone()
    second = slope(x, y)
    second.zero_()
    x.zero_()
    y.zero_()

    assert torch.equal(first, kept)


def test_inputs_that_are_the_gradient() -> None:
    """The gradient of a product is the other factor, in memory of its own."""
    x, y = values()
    product = tbt.wrap(lambda x, y: tnp.sum(x * y))
    for _ in range(3):
        slope = func.grad(product)(x, y)
        assert torch.equal(slope, y)
        assert slope.data_ptr() != y.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes(dtype) -> None:
    """The cotangent 1 has the dtype of the result."""
    x, y = values(dtype)
    f = tbt.wrap(lambda x, y: tnp.sum(x * y))
    for _ in range(3):
        slope = func.grad(f)(x, y)
        assert slope.dtype == dtype
        torch.testing.assert_close(slope, y)


def test_nan_and_infinity() -> None:
    """Slopes at hard points are those of the two programs."""
    x = torch.tensor([0.0, float("nan"), float("inf")])
    f = tbt.wrap(lambda x: tnp.sum(tnp.sqrt(x)))
    for _ in range(3):
        torch.testing.assert_close(
            func.grad(f)(x), func.grad(lambda x: x.sqrt().sum())(x), equal_nan=True
        )


def fused() -> list[Slopes]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is Slopes]


def test_who_multiplies_computes_no_slopes() -> None:
    """After one backward pass with another cotangent the forward passes are short again."""
    before = {id(found) for found in fused()}
    f = tbt.wrap(lambda x: tnp.sum(x**3))
    x, _ = values()
    func.grad(lambda x: 2 * f(x))(x)
    (found,) = [found for found in fused() if id(found) not in before]

    assert not found.wanted
    torch.testing.assert_close(func.grad(f)(x), 3 * x**2)


def test_gradients_are_taken_from_the_forward_pass() -> None:
    """With every torch that we support; values alone stop it after some calls."""
    before = {id(found) for found in fused()}
    f = tbt.wrap(lambda x: tnp.sum(x**4))
    x, _ = values()
    for _ in range(3):
        func.grad(f)(x)
    (found,) = [found for found in fused() if id(found) not in before]
    assert found.wanted
    assert found.unused == 0

    for _ in range(20):
        func.grad(lambda x: (f(x), x.sum())[1])(x)
    assert not found.wanted
    torch.testing.assert_close(func.grad(f)(x), 4 * x**3)


def test_functions_with_effects() -> None:
    """Functions that print, or call back, are left as they are."""
    calls: list[int] = []

    def noted(x):
        tb.debug.callback(lambda: calls.append(1))
        return tnp.sum(x * x)

    f = tbt.wrap(noted)
    x, _ = values()
    before = {id(found) for found in fused()}
    torch.testing.assert_close(func.grad(f)(x), 2 * x)
    tb.effects_barrier()

    assert calls
    assert not [found for found in fused() if id(found) not in before]


def test_large_gradients_stay_where_they_are_needed() -> None:
    """Nothing large is computed before the backward pass."""
    before = {id(found) for found in fused()}
    f = tbt.wrap(lambda x: tnp.sum(x * x))
    x = torch.ones(1 << 15)
    torch.testing.assert_close(func.grad(f)(x), 2 * x)

    assert not [found for found in fused() if id(found) not in before]


def test_threads() -> None:
    """Each thread has its own levels and gradients."""
    x, y = values()
    f = tbt.wrap(lambda x, y: tnp.sum(tnp.sin(x) * y))
    wrong: list[float] = []

    def work(scale: float) -> None:
        right = torch.cos(x * scale) * y
        if not all(torch.allclose(func.grad(f)(x * scale, y), right) for _ in range(50)):
            wrong.append(scale)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_custom_rules() -> None:
    """Slopes are what the rule of the user says, not derivatives of the function."""

    @tb.custom_vjp
    def rule(x):
        return tnp.sum(x)

    rule.defvjp(lambda x: (rule(x), x), lambda x, g: (g * 7 * x,))
    f = tbt.wrap(rule)
    x, _ = values()
    for _ in range(3):
        torch.testing.assert_close(func.grad(f)(x), 7 * x)
