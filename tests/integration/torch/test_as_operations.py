"""Small functions under torch.func run as torch's own operations, with the results of programs."""

from __future__ import annotations

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
import tracebridge.torch as tbt
from tests.integration.torch.test_slopes import MAKERS
from tracebridge.torch._eager import levels, transforms

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
func = torch.func
X = torch.tensor([0.3, -1.2, 0.0, 2.5])
HARD = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 200.0, 1e-38])


@pytest.fixture(name="made")
def count_made(monkeypatch):
    """The functions that were written as operations of torch."""
    found = []

    def noted(family, xs):
        run = as_operations(family, xs)
        if run is not None:
            found.append(family.name)
        return run

    as_operations = transforms.as_operations
    monkeypatch.setattr(transforms, "as_operations", noted)
    return found


# name -> the function of x, in our words and in those of torch
FUNCTIONS = {
    "add": lambda x: x + x,
    "number first": lambda x: 2 - x * 3,
    "sub": lambda x: x - 0.1,
    "mul": lambda x: x * x,
    "div": lambda x: x / -3,
    "neg": lambda x: -x,
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "three": lambda x: (x * 2 + 1) ** 2,
}
NAMED = ("sin", "cos", "tanh", "exp")


def pairs():
    yield from [(name, f, f) for name, f in FUNCTIONS.items()]
    yield from [(name, getattr(tnp, name), getattr(torch, name)) for name in NAMED]
    yield "sum of rows", lambda x: tnp.sum(x[None] * x), None
    yield "total", lambda x: tnp.sum(x * x), lambda x: (x * x).sum()


def slope(f):
    return func.grad(lambda x: f(x).sum())


DERIVED = func.vmap, slope, lambda f: slope(slope(f)), func.jacrev


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "ours", "of_torch"), [p for p in pairs() if p[2]])
def test_values_and_derivatives(name, ours, of_torch, dtype, made) -> None:
    """At usual points and at hard ones those of the program, and of torch."""
    f = tbt.wrap(ours)
    for x in (X.to(dtype), HARD.to(dtype)):
        for make in DERIVED:
            given = x[None] if make is func.vmap else x
            expected = make(of_torch)(given)
            for _ in range(3):
                torch.testing.assert_close(make(f)(given), expected, equal_nan=True)
        # Without torch.func the program runs.
        torch.testing.assert_close(f(x), func.vmap(f)(x[None])[0], equal_nan=True)
    assert made, name


@pytest.mark.parametrize("maker", MAKERS)
def test_results_are_those_of_torch(maker) -> None:
    """Under every composition of transformations, hooks and modes, first calls and known ones."""
    x, y = torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    expected = MAKERS[maker](lambda x, y: (torch.sin(x) * y).sum())(x, y)
    made = MAKERS[maker](tbt.wrap(lambda x, y: tnp.sum(tnp.sin(x) * y)))
    for _ in range(4):
        torch.testing.assert_close(made(x, y), expected)


LEFT = {
    "an argument": lambda x: x,
    "a constant": lambda x: tnp.ones(4) * 2,
    "one result twice": lambda x: (x * 2,) * 2,
    "ties": lambda x: tnp.maximum(x, 0),
    "many operations": lambda x: tnp.sin(tnp.cos(tnp.sin(tnp.cos(tnp.sin(x))))),
    "a sum over no axes": lambda x: tnp.sum(x, ()),
    "a quotient": lambda x: x / tnp.sin(x),
    "infinity": lambda x: x * tnp.inf,
    "an array inside": lambda x: x * tnp.arange(4.0),
    "a rule": lambda x: tb.nn.relu(x) * 2,
    "integers": lambda x: x.astype(int) * 2,
    "an accuracy": lambda x: tb.lax.exp(x, accuracy=tb.lax.AccuracyMode.HIGHEST),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_a_program(name, made) -> None:
    """Whatever torch might do otherwise, and what is slower so."""
    f = tbt.wrap(LEFT[name])
    got = func.vmap(f)(X[None])
    torch.testing.assert_close(
        torch.utils._pytree.tree_leaves(got)[0][0],
        torch.utils._pytree.tree_leaves(f(X))[0],
        equal_nan=True,
    )
    assert made == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.complex64])
def test_other_dtypes_stay_programs(dtype, made) -> None:
    """Sums of theirs are added up in other dtypes."""
    f = tbt.wrap(lambda x: tnp.sum(x * x))
    x = torch.ones(2, 4, dtype=dtype)
    assert func.vmap(f)(x).dtype == f(x[0]).dtype
    assert made == []


def test_large_tensors_stay_programs(made) -> None:
    """Also where only the mapped axis is long; and where few elements came before."""
    f = tbt.wrap(lambda x: tnp.sum(x * x))
    func.vmap(f)(torch.ones(2, 4))
    assert len(made) == 1
    for _ in range(3):
        torch.testing.assert_close(func.vmap(f)(torch.ones(5000, 4)), torch.full((5000,), 4.0))
        func.grad(f)(torch.ones(5000))
        func.vmap(func.grad(f))(torch.ones(5000, 4))
        func.grad(lambda x: func.vmap(f)(x).sum())(torch.ones(5000, 4))
    assert len(made) == 1


def test_inner_levels(made, monkeypatch) -> None:
    """Sizes of one look say nothing of the maps around: these are counted each time."""
    f = tbt.wrap(lambda x: tnp.sum(x * x))
    both = func.vmap(func.grad(f))
    few, many = torch.ones(2, 4), torch.ones(5000, 4)
    for _ in range(3):
        torch.testing.assert_close(both(few), 2 * few)
        assert len(made) == 1
    runs = []
    has_few = levels.has_few_elements
    monkeypatch.setattr(levels, "has_few_elements", lambda xs: runs.append(has_few(xs)) or runs[-1])
    for x in (few, many, few, many):
        torch.testing.assert_close(both(x), 2 * x)
    assert runs == [True, False, True, False]
    assert len(made) == 1


def test_autocast(made) -> None:
    """What autocast does to operations of torch it does not do to programs, known calls or not."""
    f = tbt.wrap(lambda x: tnp.exp(x) * 2)
    x = torch.full((2, 4), 3.0)
    expected = f(x)
    func.vmap(f)(x)
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(func.vmap(f)(x), expected)
        torch.testing.assert_close(func.vmap(f)(x), expected)
    assert len(made) == 1


def test_known_operations_follow_options() -> None:
    """An option that looks at results is asked, for the process and for a block."""
    f = tbt.wrap(lambda x: x * 1e30)
    x = torch.full((2, 3), 1e30)
    for _ in range(3):
        func.vmap(f)(x)
    with tb.debug_infs(True), pytest.raises(tb.errors.NonFiniteError):
        func.vmap(f)(x)
    tb.config.update("debug_infs", True)
    try:
        with pytest.raises(tb.errors.NonFiniteError):
            func.vmap(f)(x)
    finally:
        tb.config.update("debug_infs", False)
    assert func.vmap(f)(x).isinf().all()


def test_results_are_nobody_elses() -> None:
    """In memory of their own, in the structure that the function gave them."""
    f = tbt.wrap(lambda x, y: {"a": x + y, "b": [x * y]})
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    for _ in range(3):
        got = func.vmap(f)(x, y)
        got["a"].zero_()
        got["b"][0].zero_()
    assert x.sum() == y.sum() == 6


def test_results_are_contiguous(made) -> None:
    """As those of programs, whatever the order of the axes of the inputs is in memory."""
    f = tbt.wrap(lambda x: x * 2)
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(3):
        func.grad(lambda x: f(x.T).view(-1).sum())(x)
        assert func.vmap(lambda x: f(x.T).view(-1))(x[None]).tolist() == [[0, 6, 2, 8, 4, 10]]
    assert made == []


def test_profilers_see_the_name() -> None:
    """Under a profiler the function is the one event that it always is."""
    f = tbt.wrap(lambda x: x * 3)
    x = torch.ones(2, 3)
    for _ in range(3):
        func.vmap(f)(x)
    with torch.profiler.profile(acc_events=True) as profile:
        func.vmap(f)(x)
    assert any(["tracebridge::" in event.name for event in profile.events()])


def test_calls_are_known() -> None:
    """From the second call on nobody looks at the program."""
    f = tbt.wrap(lambda x, y: tnp.sum(x * y))
    x, y = torch.ones(3), torch.ones(3)
    func.grad(f)(x, y)
    func.vmap(f)(x[None], y[None])
    (family,) = f.families.values()
    known: levels.Levels = family.levels

    assert len(known.small) == 1
    assert list(known.small_maps) == [(0, 0)]
    assert known.grads == known.maps == {}
    func.grad(f)(x, y)
    assert len(known.small) == 1
