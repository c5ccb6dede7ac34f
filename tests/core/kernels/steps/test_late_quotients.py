"""Weighted means that are divided behind their product: where that is done, and the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, needs_kernels
from tracebridge import lax, nn
from tracebridge.core.kernels.steps.late_quotients import with_late_quotients
from tracebridge.core.lowering.rewrites.batches import _meaning
from tracebridge.core.lowering.rewrites.flat import flat

pytestmark = needs_kernels


def sizes_divided(f: Callable[..., Any], *args: Any) -> list[int]:
    """How many elements the quotients of a program have, after the rewrite."""
    program = with_late_quotients(flat(tb.make_jaxpr(f)(*args).jaxpr, _meaning))
    return [app.out.size for app, _ in program.equations if app.primitive is lax.div_p]


def mean(weights: Callable[..., Any]) -> Callable[..., Any]:
    """The values, weighted by a function of scores."""
    return lambda x, v: weights(x) @ v


def by_sum(x: Any, largest: Any) -> Any:
    e = tnp.exp(x - largest)
    return e / e.sum(-1, keepdims=True)


SCORES, VALUES = array(4, 40, 50), array(4, 50, 8)


@pytest.mark.parametrize("weights", [nn.softmax, lambda x: by_sum(x, x.max(-1, keepdims=True))])
def test_a_softmax_is_divided_behind_its_product(weights: Callable[..., Any]) -> None:
    """There are as many quotients as results, not as weights."""
    assert sizes_divided(mean(weights), SCORES, VALUES) == [4 * 40 * 8]
    is_as_plain(mean(weights), SCORES, VALUES, tolerance=2e-6)


def test_weights_in_the_second_place_and_in_other_orders() -> None:
    """Axes of the divisor go with those of the result, wherever these are."""
    for spec in ("bts,bsh->bth", "bts,bsh->bht", "bts,bsh->hbt", "bts,bsh->tbh"):

        def f(x: Any, v: Any, spec: str = spec) -> Any:
            return tnp.einsum(spec, nn.softmax(x), v)

        def g(x: Any, v: Any, spec: str = spec) -> Any:
            a, b = spec.split("->", maxsplit=1)[0].split(",")
            return tnp.einsum(f"{b},{a}->{spec.split('->')[1]}", v, nn.softmax(x))

        for h in (f, g):
            assert sizes_divided(h, SCORES, VALUES) == [4 * 40 * 8]
            is_as_plain(h, SCORES, VALUES, tolerance=2e-6)


def test_what_could_overflow_is_divided_first() -> None:
    """Exponentials of anything may be large, and so are sums of them where their means are not."""
    f = mean(lambda x: by_sum(x, 0.0))
    large, values = np.full((2, 4, 64), 87.0, np.float32), np.full((2, 64, 2), 50.0, np.float32)
    assert sizes_divided(f, large, values) == [2 * 4 * 64]
    is_as_plain(f, large, values, tolerance=2e-6)


def test_the_largest_of_other_rows_is_no_bound() -> None:
    """The differences with it may be large: of a square matrix, rows and columns are alike."""
    square, values = array(4, 30, 30), array(4, 30, 8)
    for largest, n in (
        (lambda x: x.max(-1)[:, :, None], 8),
        (lambda x: x.max(-1)[:, None, :], 30),
        (lambda x: x.max(-2)[:, :, None], 30),
        (lambda x: x.max((-2, -1), keepdims=True), 8),
        (lambda x: x.max(), 8),
    ):
        f = mean(lambda x, largest=largest: by_sum(x, largest(x)))
        assert sizes_divided(f, square, values) == [4 * 30 * n]
        is_as_plain(f, square, values, tolerance=2e-6)


def test_what_stays_as_it_is() -> None:
    """Divisors along the sum, quotients that others read, results that are larger than weights."""
    over_queries = mean(lambda x: nn.softmax(x, axis=-2))
    both = lambda x, v: ((w := nn.softmax(x)) @ v, w)
    assert sizes_divided(over_queries, SCORES, VALUES) == [4 * 40 * 50]
    assert sizes_divided(both, SCORES, VALUES) == [4 * 40 * 50]
    assert sizes_divided(mean(nn.softmax), SCORES, array(4, 50, 60)) == [4 * 40 * 50]
    for f in (over_queries, both):
        is_as_plain(f, SCORES, VALUES, tolerance=2e-6)


def test_rows_without_weights_and_infinite_scores() -> None:
    """Rows of minus infinity are NaN in both forms, and an infinite score hides the others."""
    scores = SCORES.copy()
    scores[0, 0], scores[1, 2, 3:], scores[2, 1, 4] = -np.inf, -np.inf, np.inf
    is_as_plain(mean(nn.softmax), scores, VALUES, tolerance=2e-6)
