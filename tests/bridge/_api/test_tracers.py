"""Misuse of traced values: leaks, control flow, conversions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)

X = np.arange(3, dtype=np.float32)

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jit": tb.jit,
    "grad": lambda f: lambda x: tb.vjp(f, x)[0],
    "vmap": tb.vmap,
    "jvp": lambda f: lambda x: tb.jvp(f, (x,), (x,))[0],
    "make_jaxpr": tb.make_jaxpr,
    "eval_shape": lambda f: lambda x: tb.eval_shape(f, x),
}
EACH = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)


@EACH
def test_leaked_tracers_are_found_at_the_next_use(transform: Any) -> None:
    """Outside of traces, inside another trace, and as a result."""
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        leaked.append(x * 2)
        return x

    transform(f)(X)
    (tracer,) = leaked

    with pytest.raises(UnexpectedTracerError, match="it has leaked"):
        tnp.sin(tracer)
    with pytest.raises(UnexpectedTracerError, match="it has leaked"):
        tb.jit(lambda x: x + tracer)(X)
    with pytest.raises(UnexpectedTracerError, match="it has leaked"):
        tb.jit(lambda x: tracer)(X)
    with pytest.raises(UnexpectedTracerError, match="it has leaked"):
        tb.grad(lambda x: tnp.sum(x * tracer))(X)


def test_leak_names_the_line() -> None:
    """The message says where the value was made."""
    leaked: list[Any] = []

    @tb.jit
    def f(x: Any) -> Any:
        leaked.append(tnp.sin(x))
        return x

    f(X)

    with pytest.raises(UnexpectedTracerError, match=r"where: .*test_tracers\.py:\d+"):
        leaked[0] + 1


@EACH
def test_option_finds_leaks_at_once(transform: Any) -> None:
    """check_tracer_leaks looks at the end of each trace; programs without leaks pass."""
    leaked: list[Any] = []

    def leaks(x: Any) -> Any:
        leaked.append(x * 2)
        return x

    with tb.checking_leaks():
        transform(lambda x: tnp.sin(x) * x)(X)
        with pytest.raises(UnexpectedTracerError, match=r"has ended, but .* is still referenced"):
            transform(leaks)(X)


def test_option_accepts_compositions() -> None:
    """Nested transformations with auxiliary data hold no tracers when they end."""

    def f(x: Any) -> Any:
        return tnp.sum(x * tnp.sin(x)), {"x": x, "t": "text"}

    with tb.checking_leaks():
        tb.jit(tb.value_and_grad(f, has_aux=True))
        tb.value_and_grad(f, has_aux=True)(X)
        tb.hessian(f, has_aux=True)(X)
        tb.vmap(tb.jit(tb.grad(lambda x: x**3)))(X)


def test_failed_traces_have_ended() -> None:
    """A tracer that escapes through an exception is a leak, too."""
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        leaked.append(x)
        raise ZeroDivisionError

    for transform in (tb.jit, tb.grad, tb.vmap):
        with pytest.raises(ZeroDivisionError):
            transform(f)(X)
    for tracer in leaked:
        with pytest.raises(UnexpectedTracerError, match="it has leaked"):
            tracer + 1


@pytest.mark.parametrize("transform", [tb.jit, tb.vmap], ids=["jit", "vmap"])
@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda x: 1 if x else 2, TracerBoolConversionError),
        (lambda x: x and 2, TracerBoolConversionError),
        (lambda x: not x, TracerBoolConversionError),
        (lambda x: 1 if x > 1 else 2, TracerBoolConversionError),
        (lambda x: int(x), ConcretizationTypeError),
        (lambda x: [1, 2, 3][x], TracerIntegerConversionError),
        (lambda x: range(x), TracerIntegerConversionError),
        (lambda x: float(x), ConcretizationTypeError),
        (lambda x: complex(x), ConcretizationTypeError),
        (lambda x: np.asarray(x), TracerArrayConversionError),
        (lambda x: np.sin(x), TracerArrayConversionError),
    ],
)
def test_traced_values_have_no_number(transform: Any, use: Any, error: type[Exception]) -> None:
    """Python control flow, conversions and NumPy functions are refused."""
    with pytest.raises(error, match=r"(i32|bool)\[\]"):
        transform(use)(np.arange(3) if transform is tb.vmap else 3)


def test_message_names_the_argument() -> None:
    """By parameter, key path and function."""

    @tb.jit
    def f(params: Any, *rest: Any, flag: Any) -> Any:
        return 1 if flag["a"][0] else 2

    with pytest.raises(ConcretizationTypeError, match=r"argument flag\['a'\]\[0\] of f"):
        f({"w": 1.0}, 2.0, flag={"a": (True,)})


def test_message_names_what_a_value_depends_on() -> None:
    """A computed value is traced back to its line and to arguments."""

    @tb.jit
    def f(x: Any, y: Any, z: Any) -> Any:
        return x if tnp.sin(x) * z > 0 else y

    needed = r"test_tracers\.py:\d+ .*, depends on the values of the arguments x and z of f"
    with pytest.raises(TracerBoolConversionError, match=needed):
        f(1.0, 2.0, 3.0)


def test_derivatives_see_the_numbers_of_eager_arguments() -> None:
    """Outside of jit, Python control flow on a differentiated argument works."""

    def f(x: Any) -> Any:
        return x * 3 if x > 0 else -x

    assert (3.0, -1.0) == (float(tb.grad(f)(1.0)), float(tb.grad(f)(-1.0)))
    assert 3.0 == float(tb.jvp(f, (1.0,), (1.0,))[1])
    with pytest.raises(TracerBoolConversionError, match="argument x of f"):
        tb.jit(tb.grad(f))(1.0)


def test_tracers_are_arrays_for_isinstance() -> None:
    """Code that asks for arrays accepts traced values; printing shows the type."""
    seen: list[str] = []

    def f(x: Any) -> Any:
        assert isinstance(x, tb.Array)
        seen.append(f"{x} {x!r}")
        return x

    tb.jit(f)(X)

    assert "f32[3]" in seen[0]


def test_a_tracer_of_another_thread() -> None:
    """Using a value in a thread that does not trace it is an error, not a wrong result."""
    errors: list[BaseException] = []

    def f(x: Any) -> Any:
        def work() -> None:
            try:
                tnp.sin(x)
            except Exception as error:  # noqa: BLE001 - compared below
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    tb.jit(f)(X)

    assert [True] == [
        isinstance(e, (ConcretizationTypeError, UnexpectedTracerError)) for e in errors
    ]


def test_traced_arrays_of_several_elements_have_no_truth_value() -> None:
    """The same error as outside of a trace: it is no matter of tracing."""
    for call in (bool, tb.jit(bool)):
        with pytest.raises(ValueError, match="truth value of an array with more than one"):
            call(tnp.arange(3))
