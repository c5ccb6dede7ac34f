"""Random straight-line programs on references compute what they compute on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp

SHAPE = (3, 4)
Step = tuple[str, int, Any, float]

places = st.sampled_from(
    [..., 0, -1, slice(1, 3), (slice(None), 2), (1, 3), (slice(None, None, 2), slice(0, 2))]
)
steps = st.tuples(
    st.sampled_from(["set", "add", "scale", "swap", "copy", "mix"]),
    st.integers(0, 1),
    places,
    st.integers(-3, 3).map(float),
)
programs = st.lists(steps, min_size=1, max_size=6)


def run(program: list[Step], cells: Any, x: Any) -> Any:
    """The program on two arrays or references; gives what it read last, or ``x``."""
    last = x
    for kind, which, place, number in program:
        here, other = cells[which], cells[1 - which]
        if kind == "set":
            here[place] = number * last
        elif kind == "add":
            here[place] += number + last
        elif kind == "scale":
            here[place] = here[place] * number
        elif kind == "swap":
            old = here[place].copy()
            here[place] = other[place]
            other[place] = old
        elif kind == "copy":
            here[...] = other[...]
        else:
            last = (here[place] * other[place]).sum() % 7.0
    return last


def start() -> list[np.ndarray]:
    """Two arrays of small whole numbers: arithmetic on them is exact."""
    base = np.arange(12, dtype=np.float64).reshape(SHAPE)
    return [base % 5.0, base % 3.0]


def check(program: list[Step], call: Callable[[list[Any]], Any], times: int = 1) -> None:
    """``call`` on references gives what the program on arrays gives."""
    arrays = start()
    expected: Any = 2.0
    for _ in range(times):
        expected = run(program, arrays, expected)
    refs = [tb.new_ref(a) for a in start()]
    actual = call(refs)
    np.testing.assert_allclose(expected, actual)
    for array, ref in zip(arrays, refs, strict=True):
        np.testing.assert_allclose(array, ref[...])


@pytest.fixture(autouse=True, scope="module")
def _double() -> Any:
    with tb.enable_x64(True):
        yield


@given(program=programs)
def test_eager(program: list[Step]) -> None:
    """Outside of traces."""
    check(program, lambda refs: run(program, refs, tnp.float64(2.0)))


@settings(max_examples=25)
@given(program=programs)
def test_jit(program: list[Step]) -> None:
    """As arguments and as closures of jit."""
    check(program, lambda refs: tb.jit(lambda r, x: run(program, r, x))(refs, 2.0))
    check(program, lambda refs: tb.jit(lambda x: run(program, refs, x))(2.0))


@settings(max_examples=15)
@given(program=programs)
def test_scan(program: list[Step]) -> None:
    """As closures of the body of a scan."""

    def call(refs: list[Any]) -> Any:
        def body(c: Any, _: None) -> tuple[Any, None]:
            return tnp.asarray(run(program, refs, c), np.float64), None

        return tb.lax.scan(body, tnp.float64(2.0), None, length=3)[0]

    check(program, call, times=3)


@settings(max_examples=15)
@given(program=programs)
def test_vmap(program: list[Step]) -> None:
    """Mapped references: each element is a program of its own."""
    xs = np.array([1.0, -2.0])
    stacked = [np.stack([a, a + 1.0]) for a in start()]
    refs = [tb.new_ref(s) for s in stacked]
    actual = tb.vmap(lambda r, x: run(program, r, x))(refs, xs)
    for i, x in enumerate(xs):
        arrays = [s[i].copy() for s in stacked]
        np.testing.assert_allclose(run(program, arrays, x), actual[i])
        for array, ref in zip(arrays, refs, strict=True):
            np.testing.assert_allclose(array, ref[i])


@settings(max_examples=10)
@given(program=programs)
def test_gradient(program: list[Step]) -> None:
    """The gradient is that of the program on functional updates: checked by jvp and vjp."""

    def f(x: Any) -> Any:
        refs = [tb.new_ref(tnp.asarray(a)) for a in start()]
        last = run([s for s in program if s[0] != "mix"], refs, x)
        return (refs[0][...] * 0.5 + refs[1][...]).sum() + last

    ahead = tb.jvp(f, (0.3,), (1.0,))[1]
    numeric = (float(f(0.3 + 1e-5)) - float(f(0.3 - 1e-5))) / 2e-5
    np.testing.assert_allclose(numeric, ahead, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ahead, tb.grad(f)(0.3), rtol=1e-9)
