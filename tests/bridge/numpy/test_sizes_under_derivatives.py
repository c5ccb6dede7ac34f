"""Sizes that depend on elements, where the elements are known: under eager differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ConcretizationTypeError

X = np.array([0.0, 2.0, 1.0, 0.0], np.float32)
Y = np.array([2.0, 5.0], np.float32)

DIFFERENTIATIONS: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: tb.jvp(f, (X,), (X,)),
    "vjp": lambda f: tb.vjp(f, X),
    "linearize": lambda f: tb.linearize(f, X),
    "hessian": lambda f: tb.hessian(lambda x: f(x).sum())(X),
}
POSITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "nonzero": lambda np, x: np.nonzero(x)[0],
    "flatnonzero": lambda np, x: np.flatnonzero(x),
    "argwhere": lambda np, x: np.argwhere(x),
    "where": lambda np, x: np.where(x)[0],
    "arange": lambda np, x: np.arange(x[1]),
    "unique indices": lambda np, x: np.unique(x, return_index=True)[1],
    "method": lambda np, x: x.nonzero()[0],
}
ELEMENTS: dict[str, Callable[[Any, Any], Any]] = {
    "unique": lambda np, x: np.unique(x),
    "unique along": lambda np, x: np.unique(x.reshape(2, 2), axis=0),
    "union1d": lambda np, x: np.union1d(x, Y),
    "intersect1d": lambda np, x: np.intersect1d(x, Y),
    "setdiff1d": lambda np, x: np.setdiff1d(x, Y),
    "setdiff1d assume_unique": lambda np, x: np.setdiff1d(x, Y, assume_unique=True),
    "setxor1d": lambda np, x: np.setxor1d(x, Y),
    "extract": lambda np, x: np.extract(x, x),
    "compress": lambda np, x: np.compress(x != 0, x),
    "trim_zeros": lambda np, x: np.trim_zeros(x),
}


@pytest.mark.parametrize("how", DIFFERENTIATIONS)
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_found_while_differentiating(name: str, how: str) -> None:
    """Positions are those of NumPy, and arrays: they have no derivative."""
    find = POSITIONS[name]
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(np.asarray(find(tnp, x)))
        return x * x

    DIFFERENTIATIONS[how](f)

    np.testing.assert_array_equal(find(np, X), seen[0])


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_keep_their_derivatives(name: str) -> None:
    """Values are those of NumPy; the derivative goes to the elements that were taken."""
    pick = ELEMENTS[name]
    value, pushed = tb.jvp(lambda x: pick(tnp, x), (X,), (np.ones_like(X),))
    squares = tb.grad(lambda x: (pick(tnp, x) ** 2).sum())(X)

    np.testing.assert_array_equal(pick(np, X), value)
    assert value.dtype == np.float32
    of_x = np.isin(value, X)
    np.testing.assert_array_equal(of_x & (pushed != 0), pushed != 0)
    taken = pick(np, X)[(pushed != 0) & of_x]
    np.testing.assert_allclose(2 * np.sum(taken), squares.sum())


@pytest.mark.parametrize("name", [*POSITIONS, *ELEMENTS])
def test_unknown_elements_decide_no_sizes(name: str) -> None:
    """Under jit the elements are not known: the error says so."""
    f = {**POSITIONS, **ELEMENTS}[name]
    for run in (tb.jit(lambda x: f(tnp, x)), tb.jit(tb.grad(lambda x: f(tnp, x).sum()))):
        with pytest.raises((ConcretizationTypeError, IndexError)):
            run(X)


def test_item_gives_what_is_known() -> None:
    """item works under eager differentiation, also with an index; not under jit."""
    seen: list[Any] = []
    tb.grad(lambda x: (seen.extend([x[1].item(), x.item(2), x.argmax().item()]), x.sum())[1])(X)

    assert [2.0, 1.0, 1] == seen
    with pytest.raises(ConcretizationTypeError, match=r"item\(\) was called"):
        tb.jit(lambda x: x[0].item())(X)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_round_without_digits_gives_integers(wrap: Callable[[Any], Any]) -> None:
    """round(x) is an integer, as Python's is; round(x, 0) keeps the dtype."""
    x = np.array([1.5, 2.5, -0.5], np.float32)
    whole = wrap(lambda x: round(x))(tnp.asarray(x))
    same = wrap(lambda x: round(x, 0))(tnp.asarray(x))

    assert (np.int32, np.float32) == (whole.dtype, same.dtype)
    assert [2, 2, 0] == whole.tolist() == same.tolist()
    assert 0.0 == tb.grad(lambda x: round(x) * 1.0)(2.0)
