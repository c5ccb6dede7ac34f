"""What is remembered, for how long, and what makes a function be traced again."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.util.caching import all_caches


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, x: Any, *rest: Any, **kwargs: Any) -> Any:
        self.traces += 1
        return tb.tree.map(lambda a: a * 2.0, x)


def count(*classes: type) -> int:
    """Live objects of these classes."""
    gc.collect()
    return sum(type(o) in classes for o in gc.get_objects())


# tracing again -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: tnp.arange(3.0),
        lambda: np.arange(3.0, dtype="float32"),
        lambda: 1.5,
        lambda: {"w": tnp.ones(2), "b": [1.0, np.ones(3, "float32")]},
        lambda: (),
    ],
    ids=["array", "ndarray", "number", "tree", "empty"],
)
def test_same_call_never_retraces(make: Any) -> None:
    """New values of the same types find the program."""
    f = Counted()
    jitted = tb.jit(f)
    for _ in range(5):
        jitted(make())
    assert 1 == f.traces


def test_what_retraces() -> None:
    """Shape, dtype, weak type and structure each make one more trace, and only once."""
    f = Counted()
    jitted = tb.jit(f)
    calls = [
        tnp.ones(3),
        tnp.ones(4),
        tnp.ones(3, "float16"),
        tnp.float32(1.0),
        1.0,
        [tnp.ones(3)],
        {"a": tnp.ones(3)},
        {"b": tnp.ones(3)},
    ]
    for _ in range(2):
        for x in calls:
            jitted(x)
    assert len(calls) == f.traces


def test_changed_static_retraces() -> None:
    """Each static value is its own program; 1, 1.0 and True, and 0.0 and -0.0, are different."""
    seen: list[str] = []

    def f(x: Any, s: Any) -> Any:
        seen.append(repr(s))
        return x * s

    jitted = tb.jit(f, static_argnums=1)
    x = tnp.ones(2)
    statics = [1, 2, 1.0, True, 0.0, -0.0]
    for _ in range(2):
        for s in statics:
            jitted(x, s)
    assert [repr(s) for s in statics] == seen


def test_keyword_or_position_makes_no_third_trace() -> None:
    """Positional and keyword calls are two structures; each is traced once."""
    f = Counted()
    jitted = tb.jit(lambda x, y: f(x))
    x = tnp.ones(2)
    for _ in range(3):
        jitted(x, x)
        jitted(x, y=x)
        jitted(y=x, x=x)
    assert f.traces <= 3


def test_two_jits_of_one_function_share_the_trace() -> None:
    """jit(f) made anew in a loop traces f once."""
    f = Counted()
    for _ in range(4):
        tb.jit(f)(tnp.ones(3))
    assert 1 == f.traces


def test_transformed_function_is_traced_once_under_jit() -> None:
    """jit(grad(f)) does not call f again for the same types."""
    traces: list[int] = []

    def f(x: Any) -> Any:
        traces.append(1)
        return tnp.sum(x * x)

    gradient = tb.jit(tb.grad(f))
    for k in range(4):
        gradient(tnp.full(3, float(k)))
    assert 1 == len(traces)


def test_option_is_part_of_the_key() -> None:
    """A changed option that tracing reads makes a new trace; changing back finds the old one."""
    f = Counted()
    jitted = tb.jit(f)
    x = np.arange(3)
    jitted(x)
    with tb.enable_x64(True):
        wide = jitted(x)
    narrow = jitted(x)
    assert 2 == f.traces
    assert ("float64", "float32") == (wide.dtype.name, narrow.dtype.name)


# memory ------------------------------------------------------------------------------------------


def test_counting_sees_what_is_held() -> None:
    """The tests below count live programs: one that is held is counted."""
    tb.make_jaxpr(lambda a: a * 2.0)(1.0)  # the first one also makes what is kept for all
    before = count(Jaxpr)
    held = [tb.make_jaxpr(lambda a: a * 2.0)(1.0) for _ in range(5)]
    assert before + 5 == count(Jaxpr)
    del held
    assert before == count(Jaxpr)


def test_fresh_lambdas_that_are_traced_are_forgotten() -> None:
    """Tracing thousands of short-lived functions keeps none of their programs."""
    x = np.ones(3, "float32")

    def trace() -> None:
        tb.make_jaxpr(lambda a: tnp.sin(a) * 2.0)(x)

    trace()
    before = count(Jaxpr, Application)
    for _ in range(10_000):
        trace()
    assert count(Jaxpr, Application) <= before + 20


def test_fresh_lambdas_that_are_jitted_are_forgotten() -> None:
    """Calling thousands of short-lived jitted functions keeps a bounded number of programs."""
    x = tnp.ones(3)

    def call() -> None:
        tb.jit(lambda a: a * 2.0)(x)

    for _ in range(20):
        call()
    before = count(Jaxpr, Application, Program)
    for _ in range(1000):
        call()
    assert count(Jaxpr, Application, Program) <= before + 20


def test_fresh_constants_do_not_pile_up() -> None:
    """Numbers in fresh functions (an annealed rate, say) leave nothing behind when traced."""
    x = np.ones(3, "float32")

    def trace(rate: float) -> None:
        tb.make_jaxpr(lambda a: tnp.sum(a * rate))(x)

    trace(0.0)
    before = count(Jaxpr, Application)
    for k in range(2000):
        trace(k / 7)
    assert count(Jaxpr, Application) <= before + 20


def test_a_dead_function_frees_its_program() -> None:
    """The Jaxpr and the program of a jitted function go with it."""

    def make() -> tuple[Any, Any]:
        table = tnp.arange(3.0)  # a constant of the program
        jitted = tb.jit(lambda a: tnp.sin(a) * table)
        jitted(tnp.ones(3))
        return jitted, weakref.ref(table)

    jitted, constant = make()
    gc.collect()
    assert constant() is not None
    del jitted
    gc.collect()
    assert constant() is None


def test_a_dead_function_under_grad_and_vmap_frees_its_program() -> None:
    """What transformations derived from a jitted function goes with it, too."""

    def make() -> tuple[Any, Any]:
        table = tnp.arange(3.0)
        jitted = tb.jit(lambda a: tnp.sum(tnp.sin(a) * table))
        tb.grad(jitted)(tnp.ones(3))
        tb.vmap(tb.grad(jitted))(tnp.ones((2, 3)))
        return jitted, weakref.ref(table)

    jitted, constant = make()
    del jitted
    gc.collect()
    assert constant() is None


def test_arguments_are_not_kept() -> None:
    """No cache holds an argument or a result of a call."""
    jitted = tb.jit(lambda a: a + 1.0)
    x = tnp.ones(3)
    y = jitted(x)
    tb.grad(lambda a: tnp.sum(jitted(a)))(x)
    refs = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [None, None] == [ref() for ref in refs]


def test_a_failed_call_keeps_nothing() -> None:
    """After an error in a traced function neither its argument nor its tracers live on."""

    def fails(a: Any) -> Any:
        raise ValueError("mine")

    x = tnp.ones(3)
    ref = weakref.ref(x)
    with pytest.raises(ValueError, match="mine"):
        tb.jit(fails)(x)
    with pytest.raises(ValueError, match="mine"):
        tb.grad(fails)(x)
    del x
    gc.collect()
    assert ref() is None


# clearing ----------------------------------------------------------------------------------------


def test_clear_caches_empties_and_retraces() -> None:
    """All registered caches are empty afterwards, and functions still work."""
    f = Counted()
    jitted = tb.jit(f)
    jitted(tnp.ones(3))
    assert any(len(cache) for cache in all_caches())
    tb.clear_caches()
    assert {} == {cache.name: len(cache) for cache in all_caches() if len(cache)}
    np.testing.assert_array_equal(np.asarray(jitted(tnp.ones(3))), np.full(3, 2.0))
    assert 2 == f.traces


def test_clear_cache_of_one_function() -> None:
    """The others keep their programs."""
    one, two = Counted(), Counted()
    first, second = tb.jit(one), tb.jit(two)
    for jitted in (first, second):
        jitted(tnp.ones(3))
    first.clear_cache()
    for jitted in (first, second):
        jitted(tnp.ones(3))
    assert (2, 1) == (one.traces, two.traces)
