"""Programs that differ in numbers are rewritten once, and each computes with its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lowering.rewrites.test_by_content import X, counting, traced
from tracebridge import lax
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.open_numbers import is_near_one, is_open
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.rewrites.by_content import by_content

# Some are near one, some are not; the kinds of one program are not those of the other.
NUMBERS = (0.3, 1.3, -1.7, 25.0, 0.3)


@pytest.fixture(autouse=True)
def _forget() -> None:
    tb.clear_caches()


def _rows(*shape: int) -> Any:
    return tnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_numbers_that_mean_something_are_not_open() -> None:
    """Zeros, ones, small whole and half numbers, and what is no number of floats."""
    closed = (0.0, -0.0, 1.0, -2.0, 0.5, 2.5, 8.0, float("inf"), float("nan"), 3, True, 2j)
    assert [False] * len(closed) == [is_open(x) for x in closed]
    assert [True] * len(NUMBERS) == [is_open(x) for x in NUMBERS]
    assert [False, True, True, False, False] == [is_near_one(x) for x in NUMBERS]


def test_programs_with_other_numbers_are_rewritten_once() -> None:
    """The same equations, with the numbers of each; factors near one are another kind."""
    asked, rewrite = counting()
    forms = [by_content(traced(lambda x, k=k: x * k + 1.0, X), rewrite) for k in NUMBERS]

    assert 2 == len(asked)
    for k, form in zip(NUMBERS, forms, strict=True):
        assert form is not None
        assert k in [c.value for c in form.consts if isinstance(c, Literal)]


def test_a_number_that_is_asked_for_is_part_of_the_key() -> None:
    """A rewrite that looks at it is asked again for another one, and not for the same one."""
    seen: list[float] = []

    def rewrite(jaxpr: Jaxpr) -> Jaxpr | None:
        (number,) = [float(c.value) for c in jaxpr.consts if isinstance(c, Literal)]
        seen.append(number)
        return None

    for k in (0.3, 0.7, 0.3, 0.7, 0.9):
        by_content(traced(lambda x, k=k: tnp.sin(x) * k, X), rewrite)
    assert [0.3, 0.7, 0.9] == seen


def test_numbers_are_put_into_called_programs_and_branches() -> None:
    """At any depth, where one program is called twice, and beside an array of the program."""
    table = _rows(64, 1024)
    x = _rows(64, 1024)

    def program(k: float, c: float) -> Callable[[Any], Any]:
        inner = tb.jit(lambda x: tnp.tanh(x * k) + table)

        def f(x: Any) -> Any:
            y = lax.cond(x[0, 0] > c, lambda y: inner(y) * k, lambda y: y - c, inner(x))
            return inner(y) * c

        return f

    for k, c in ((0.3, 1.3), (1.7, 0.2), (0.3, 0.4)):
        t, h = np.asarray(table), np.asarray(x)
        y = np.tanh(h * k) + t
        y = (np.tanh(y * k) + t) * k if h[0, 0] > c else y - c
        np.testing.assert_allclose(
            (np.tanh(y * k) + t) * c, tb.jit(program(k, c))(x), rtol=1e-4, atol=1e-5
        )


def test_sines_behind_a_test_have_the_bounds_of_their_numbers() -> None:
    """Whether angles need a test depends on the number that bounds them."""
    x = _rows(2, 1 << 16)
    for k in (0.3, 3e9, 0.3):
        inner = np.tanh(np.asarray(x)).astype(np.float32) * np.float32(k)
        np.testing.assert_allclose(
            np.sin(inner.astype(np.float64)),
            tb.jit(lambda x, k=k: tnp.sin(tnp.tanh(x) * k))(x),
            atol=1e-5 if k < 1 else 2,
        )
