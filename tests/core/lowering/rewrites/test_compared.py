"""Gradients of maxima of arrays that may be rounded in several ways: no row loses its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax, nn
from tracebridge.core.lowering.rewrites.compared import with_compared

FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a product and a sum": lambda x, b, c: tnp.max(c * b + x, -1),
    "exponentials": lambda x, b, c: tnp.max(tnp.exp(c) * 0.1 - tnp.abs(x), -1),
    "a softmax": lambda x, b, c: tnp.max(nn.softmax(tnp.log1p(tnp.abs(c))) - tnp.abs(x), -1),
    "a minimum": lambda x, b, c: tnp.min(tnp.sin(c * b) + x * x, -1),
    "a norm": lambda x, b, c: tnp.linalg.norm(c * b + x, tnp.inf, axis=-1),
    "the other axis": lambda x, b, c: tnp.max((c * b + x).T, 0),
}


def arguments(rows: int, columns: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    shapes = ((rows, columns), (columns,), (columns,))
    x, b, c = [random.standard_normal(s).astype(np.float32) for s in shapes]
    return x, b, c


def rows_without(gradient: Any) -> int:
    return int((np.asarray(gradient) == 0).all(-1).sum())


@pytest.mark.parametrize("shape", [(800, 7), (300, 100)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_row_has_a_gradient(name: str, shape: tuple[int, int]) -> None:
    """In one program, in a pullback by itself, computed again, and in a loop."""
    f, args = FUNCTIONS[name], arguments(*shape)

    def total(*args: Any) -> Any:
        return f(*args).sum()

    def by_steps(x: Any, b: Any, c: Any) -> Any:
        return lax.scan(lambda s, row: (s + f(row[None], b, c).sum(), None), 0.0, x)[0]

    for g in (total, tb.checkpoint(total), by_steps):
        assert rows_without(tb.jit(tb.grad(g))(*args)) == 0
    y, pullback = tb.vjp(f, *args)
    assert rows_without(pullback(tnp.ones(y.shape))[0]) == 0


def test_what_is_stored() -> None:
    """An array that is rounded twice; neither one that is given nor one that is rounded once."""
    x, b, c = arguments(30, 7)

    def is_stored(f: Callable[..., Any]) -> bool:
        return (
            with_compared(tb.make_jaxpr(tb.grad(lambda *a: f(*a).sum()))(x, b, c).jaxpr) is not None
        )

    assert is_stored(lambda x, b, c: tnp.max(c * b + x, -1))
    assert not is_stored(lambda x, b, c: tnp.max(x, -1))
    assert not is_stored(lambda x, b, c: tnp.max(tnp.abs(x - b), -1))
    assert not is_stored(lambda x, b, c: nn.logsumexp(c * b + x, -1))


def test_ties_share_the_gradient() -> None:
    """As before, also of an array that is computed."""
    x = np.float32([[1, 3, 3], [2, 2, 2]])
    expected = np.float32([[0, 1, 1], [2 / 3] * 3])
    gradient = tb.jit(tb.grad(lambda x: tnp.max(2.0 * x + 1.0, -1).sum()))(x)

    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
