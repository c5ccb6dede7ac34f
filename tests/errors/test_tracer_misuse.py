"""Traced values where Python or NumPy needs concrete ones, and traced values that leaked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors


def vector() -> Any:
    """An argument."""
    return tnp.arange(3.0)


def check(error: pytest.ExceptionInfo[Any], *words: str) -> None:
    """All words are in the message, no name of an internal class is, nothing is chained to it."""
    message = str(error.value)
    for word in words:
        assert word in message
    for word in ("StagedTracer", "DualTracer", "BatchTracer", "JvpTracer"):
        assert word not in message
    assert error.value.__context__ is None or error.value.__suppress_context__


CONCRETE: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "if": (lambda x: 1 if x[0] > 0 else 2, errors.TracerBoolConversionError, "where"),
    "and": (lambda x: x[0] > 0 and x[1], errors.TracerBoolConversionError, "logical_and"),
    "while": (
        lambda x: [0 for _ in iter(lambda: bool(x[0]), False)],
        errors.TracerBoolConversionError,
        "while_loop",
    ),
    "int": (lambda x: int(x[0]), errors.ConcretizationTypeError, "int()"),
    "float": (lambda x: float(x[0]), errors.ConcretizationTypeError, "float()"),
    "complex": (lambda x: complex(x[0]), errors.ConcretizationTypeError, "complex()"),
    "item": (lambda x: x[0].item(), errors.ConcretizationTypeError, "item()"),
    "tolist": (lambda x: x.tolist(), errors.ConcretizationTypeError, "tolist()"),
    "asarray": (lambda x: np.asarray(x), errors.TracerArrayConversionError, "tracebridge.numpy"),
    "np.sin": (lambda x: np.sin(x), errors.TracerArrayConversionError, "tracebridge.numpy"),
    "nonzero": (lambda x: tnp.nonzero(x), errors.ConcretizationTypeError, "size="),
    "mask": (lambda x: x[x > 1], errors.NonConcreteBooleanIndexError, "where"),
}


@pytest.mark.parametrize("name", CONCRETE)
@pytest.mark.parametrize("transform", [tb.jit, tb.make_jaxpr], ids=["jit", "make_jaxpr"])
def test_concrete_value_needed_while_staging(name: str, transform: Any) -> None:
    """The message says what asked for the value, its type, where it comes from and a way out."""
    function, cls, words = CONCRETE[name]
    with pytest.raises(cls) as caught:
        transform(function)(vector())
    check(caught, words, "way out", "where:", "f32[" if name not in {"if", "and", "mask"} else "[")


INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "range": lambda x, n: [x for _ in range(n)],
    "list index": lambda x, n: [1, 2, 3][n],
    "shape": lambda x, n: tnp.zeros(n),
    "shape of two": lambda x, n: tnp.zeros((2, n)),
    "reshape": lambda x, n: x.reshape(n, 1),
    "axis": lambda x, n: tnp.sum(x, axis=n),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_traced_integer_where_python_needs_one(name: str) -> None:
    """Sizes and axes cannot be traced: the message says so and offers static_argnums."""
    with pytest.raises(errors.TracerIntegerConversionError) as caught:
        tb.jit(INTEGERS[name])(vector(), 2)
    check(caught, "__index__()", "i32[]", "argument n of <lambda>", "static_argnums")


def test_traced_slice_bound() -> None:
    """A slice bound decides the shape: the message offers dynamic_slice."""
    with pytest.raises(IndexError) as caught:
        tb.jit(lambda x, n: x[:n])(vector(), 2)
    check(caught, "slice bound is traced", "i32[]", "dynamic_slice", "where")


def test_traced_end_of_arange() -> None:
    """The size of arange cannot be traced."""
    with pytest.raises(errors.ConcretizationTypeError) as caught:
        tb.jit(lambda n: tnp.arange(n))(3)
    check(caught, "arange", "i32[]", "argument n of <lambda>", "static")


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: tb.vmap(f)(vector()),
        lambda f: tb.jit(tb.grad(f))(1.0),
        lambda f: tb.jit(tb.vmap(f))(vector()),
    ],
    ids=["vmap", "jit of grad", "jit of vmap"],
)
def test_branch_under_transformation(transform: Any) -> None:
    """Under every transformation that hides the numbers, `if` raises the same error."""
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        transform(lambda x: x if x > 0.5 else -x)
    check(caught, "bool[]", "if x:", "lax.cond")


def test_branch_under_grad_alone_works() -> None:
    """grad without jit runs on concrete numbers: Python may look at them."""

    def f(x: Any) -> Any:
        return x * 3.0 if x > 0 else x

    assert 3.0 == float(tb.grad(f)(1.0))
    assert 1.0 == float(tb.grad(f)(-1.0))


# leaks -------------------------------------------------------------------------------------------


class Store:
    """Where a function under transformation wrongly keeps a value."""

    value: Any = None


def leaked(run: Callable[[Callable[..., Any]], Any]) -> Any:
    """The value that a function kept when ``run`` transformed and called it."""
    store = Store()

    def keeps(x: Any) -> Any:
        store.value = x * 2.0
        return tnp.sum(x)

    run(keeps)
    return store.value


RUNS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: tb.jit(f)(vector()),
    "grad": lambda f: tb.grad(f)(vector()),
    "jvp": lambda f: tb.jvp(f, (vector(),), (vector(),)),
    "linearize": lambda f: tb.linearize(f, vector()),
    "vmap": lambda f: tb.vmap(f)(tnp.ones((2, 3))),
    "jit of grad": lambda f: tb.jit(tb.grad(f))(vector()),
    "make_jaxpr": lambda f: tb.make_jaxpr(f)(vector()),
}
USES: dict[str, Callable[[Any], Any]] = {
    "operator": lambda x: x + 1.0,
    "numpy function": lambda x: tnp.sin(x),
    "lax function": lambda x: tb.lax.sin(x),
    "method": lambda x: x.sum(),
    "index": lambda x: x[0],
    "argument of jit": lambda x: tb.jit(lambda a: a * 2.0)(x),
    "closure of jit": lambda x: tb.jit(lambda a: a * x)(vector()),
    "result of jit": lambda x: tb.jit(lambda a: x)(vector()),
    "argument of grad": lambda x: tb.grad(lambda a: tnp.sum(a * a))(x),
    "closure of grad": lambda x: tb.grad(lambda a: tnp.sum(a * x))(vector()),
    "closure of vmap": lambda x: tb.vmap(lambda a: a * x)(vector()),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("use", USES)
def test_leaked_value(run: str, use: str) -> None:
    """A value that outlives its transformation is named as leaked wherever it is used."""
    value = leaked(RUNS[run])
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        USES[use](value)
    check(caught, "leaked", "f32[", "return the value")


NAMES = {"jit": "keeps", "make_jaxpr": "keeps", "jit of grad": "keeps"}


@pytest.mark.parametrize("run", RUNS)
def test_leak_names_transformation_and_line(run: str) -> None:
    """The error says what was traced and which line of the user made the value."""
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        leaked(RUNS[run]) + 1.0
    line = leaked.__code__.co_firstlineno + 5
    check(
        caught,
        f"while {NAMES.get(run, f'{run}(keeps)')} was traced",
        f"test_tracer_misuse.py:{line} (leaked.<locals>.keeps)",
    )


@pytest.mark.parametrize("run", [r for r in RUNS if r not in NAMES])
def test_leaked_argument_names_the_call(run: str) -> None:
    """An argument that leaked was made by the call of the transformed function."""
    store = Store()

    def keeps(x: Any) -> Any:
        store.value = x
        return tnp.sum(x)

    RUNS[run](keeps)
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        store.value + 1.0
    check(caught, f"an argument of {run}(keeps), called at ", "test_tracer_misuse.py:")


def test_leak_out_of_nested_transformations() -> None:
    """The value inside knows what the outermost transformation is, and the line."""
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        leaked(lambda f: tb.vmap(tb.grad(f))(tnp.ones((2, 3)))) + 1.0
    check(caught, "vmap(keeps)", "test_tracer_misuse.py")
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        leaked(lambda f: tb.jacfwd(f)(vector())) + 1.0
    check(caught, "jacfwd(keeps)", "test_tracer_misuse.py")


def test_no_lines_without_the_option() -> None:
    """Option source_locations off: nothing is stored; the rest of the message stays."""
    before = tb.config.source_locations
    tb.config.update("source_locations", False)
    try:
        with pytest.raises(errors.UnexpectedTracerError) as caught:
            leaked(RUNS["grad"]) + 1.0
    finally:
        tb.config.update("source_locations", before)
    assert "where:" not in str(caught.value)


def test_leak_from_a_loop_body() -> None:
    """A carry that a loop body stored is named as the argument that it is."""
    store = Store()

    def body(carry: Any, x: Any) -> Any:
        store.value = carry
        return carry + x, x

    tb.lax.scan(body, 0.0, vector())
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        store.value + 1.0
    check(caught, "leaked", "body", "scan")


def test_leak_to_numpy() -> None:
    """NumPy, too, refuses a leaked value, with the line that made it."""
    with pytest.raises(errors.TracerArrayConversionError) as caught:
        np.asarray(leaked(RUNS["jit"]))
    check(caught, "__array__()", "keeps")


def test_check_tracer_leaks_finds_it_at_the_end_of_tracing() -> None:
    """With the option on, storing a tracer is an error even if nobody uses it."""
    with tb.checking_leaks(), pytest.raises(errors.UnexpectedTracerError) as caught:
        leaked(RUNS["jit"])
    check(caught, "leak")
