"""debug_nans and debug_infs: the operation and the line that a NaN comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, lax


@pytest.fixture(autouse=True, params=["global", "scoped"])
def _nans_are_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """The option is on, for the process or for the thread."""
    if request.param == "scoped":
        with tb.debug_nans():
            yield
        return
    tb.config.update("debug_nans", True)
    yield
    tb.config.update("debug_nans", False)


def log_of(x: Any) -> Any:
    """NaN for numbers below 1."""
    y = x - 1
    return 2 * tnp.log(y)  # the line to be named


LINE = log_of.__code__.co_firstlineno + 3


def looped(x: Any) -> Any:
    """NaN in the second step."""
    return lax.scan(lambda c, _: (tnp.sqrt(c - 1), None), x, None, length=2)[0]


CALLS = {
    "eager": log_of,
    "jit": tb.jit(log_of),
    "nested jit": tb.jit(lambda x: tb.jit(log_of)(x) + 1),
    "grad": tb.grad(log_of),
    "grad of jit": tb.grad(tb.jit(log_of)),
    "jvp of jit": lambda x: tb.jvp(tb.jit(log_of), (x,), (1.0,)),
    "vmap of jit": lambda x: tb.vmap(tb.jit(log_of))(tnp.stack([x, x])),
    "keywords": lambda x: tb.jit(log_of)(x=x),
}


@pytest.mark.parametrize("name", CALLS)
def test_operation_and_line_are_named(name: str) -> None:
    """Each time, not only the first, also where the call has worked before."""
    call = CALLS[name]
    call(tnp.float32(2.5))
    for value in (tnp.float32(0.5), 0.5):
        with pytest.raises(errors.NonFiniteError) as info:
            call(value)
        message = str(info.value)
        assert (
            "(nan) encountered in log: result 0 contains NaN (option debug_nans is on)" in message
        )
        assert f"{__file__}:{LINE} (log_of)" in message
    call(tnp.float32(2.5))


def test_operations_of_the_lax_layer() -> None:
    """Single operations are checked at each call."""
    x = tnp.float32(-1.0)
    for _ in range(2):
        lax.log(-x)
        with pytest.raises(errors.NonFiniteError, match="encountered in log: result 0"):
            lax.log(x)


def test_jitted_loops() -> None:
    """In a jitted loop the operation of the step is found."""
    with pytest.raises(errors.NonFiniteError, match="in sqrt: result 0 contains NaN"):
        tb.jit(looped)(1.5)
    assert float(tb.jit(looped)(5.0)) == 1.0


def bad_step(c: Any, *_: Any) -> Any:
    """A step that gives a NaN for numbers below 1."""
    c = c - 1
    return tnp.sqrt(c)


LOOPS = {
    "scan": lambda x: looped(x),
    "reverse scan": lambda x: lax.scan(
        lambda c, y: (bad_step(c), y), x, tnp.arange(2.0), reverse=True
    ),
    "while_loop": lambda x: lax.while_loop(lambda c: c > -1, lambda c: bad_step(c), x),
    "fori_loop": lambda x: lax.fori_loop(0, 2, lambda _, c: bad_step(c), x),
    "cond": lambda x: lax.cond(x > 0, lambda x: bad_step(x - 1), lambda x: x, x),
    "cond in scan": lambda x: lax.scan(
        lambda c, _: (lax.cond(c > 9, lambda c: c, bad_step, c), None), x, None, length=2
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_eager_control_flow(name: str) -> None:
    """Outside of jit the loop is walked through; operation and line of the step are named."""
    with pytest.raises(errors.NonFiniteError) as info:
        LOOPS[name](tnp.float32(1.5))
    message = str(info.value)
    assert "it comes from sqrt at" in message
    line = (looped if name == "scan" else bad_step).__code__.co_firstlineno
    assert any([f"{__file__}:{line + k} (" in message for k in (2, 3)])


def test_backward_pass() -> None:
    """A NaN that only the gradient has is traced to an operation of the transposed program."""

    def f(x: Any) -> Any:
        return tnp.where(x > 0, tnp.sqrt(x), 0.0) * 0.0

    with pytest.raises(errors.NonFiniteError, match=r"transpose\(f\).*it comes from \w+"):
        tb.grad(tb.jit(f))(0.0)


def test_arguments_that_are_nan() -> None:
    """A NaN that was passed in is found where it is first used."""
    with pytest.raises(errors.NonFiniteError, match=r"in sub(tract)?: "):
        tb.jit(log_of)(float("nan"))


def test_side_effects_are_not_repeated() -> None:
    """A program with effects does not run again; the message names the program."""
    seen: list[float] = []

    def f(x: Any) -> Any:
        tb.debug.callback(lambda v: seen.append(float(v)), x)
        return tnp.log(x)

    with pytest.raises(errors.NonFiniteError, match="in f: result 0 contains NaN"):
        tb.jit(f)(-1.0)
    assert seen == [-1.0]


def test_donated_arguments_are_gone() -> None:
    """Without its arguments a program cannot run again; the message names the program."""
    with pytest.raises(errors.NonFiniteError, match="in log_of: result 0 contains NaN"):
        tb.jit(log_of, donate_argnums=0)(tnp.float32(0.5))


def test_infinities() -> None:
    """The other option is about infinities only."""
    with tb.debug_infs():
        with pytest.raises(errors.NonFiniteError, match=r"infinity \(option debug_infs"):
            tb.jit(lambda x: 1 / x)(0.0)
        assert float(tb.jit(lambda x: x + 1)(0.0)) == 1.0
    assert float(tb.jit(lambda x: 1 / x)(0.0)) == float("inf")


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_results_of_callbacks_are_checked(wrap: Any) -> None:
    """NaN may come from the host."""

    @wrap
    def f(x: Any) -> Any:
        return tb.pure_callback(lambda v: np.log(v), x, x)

    assert float(f(tnp.ones(()))) == 0.0
    with pytest.raises(errors.NonFiniteError, match="contains NaN"), np.errstate(all="ignore"):
        f(tnp.float32(-1.0))
