"""Scopes are left in any order: each takes back what it has changed and nothing else."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.scope_stack import VariableStack
from tracebridge.core.config.state import state
from tracebridge.core.ir.name_stack import current_names
from tracebridge.core.ir.trace import is_eager
from tracebridge.extend import source_info_util
from tracebridge.extend.core import set_current_trace, take_current_trace

USER = tb.make_user_context("none")
MESH = tb.make_mesh((1,), ("x",))
OTHER_MESH = tb.make_mesh((1,), ("y",))

# What each scope changes, by the function that reads it, and the value that it gives to it.
READERS: dict[str, Callable[[], Any]] = {
    **{
        name: (lambda name=name: tb.config.read(name))
        for name in (
            "enable_x64",
            "explicit_x64_dtypes",
            "numpy_dtype_promotion",
            "numpy_rank_promotion",
            "default_matmul_precision",
            "default_device",
            "disable_jit",
            "debug_nans",
            "debug_infs",
            "check_tracer_leaks",
            "enable_checks",
            "log_compiles",
            "explain_cache_misses",
            "threefry_partitionable",
            "default_prng_impl",
        )
    },
    "user": lambda: USER.value,
    "mesh": lambda: tb.sharding.get_abstract_mesh().axis_names,
    "host_to_device": lambda: _guard("host_to_device"),
    "device_to_device": lambda: _guard("device_to_device"),
    "device_to_host": lambda: _guard("device_to_host"),
    "eager": lambda: is_eager(),
    # Without what transformations add to a name: jvp(layer).
    "names": lambda: tuple([getattr(name, "name", name) for name in current_names()]),
}


def _guard(direction: str) -> str:
    levels = tb.config.transfer_guard
    if "=" not in levels:
        return levels
    return dict(pair.split("=") for pair in levels.split(","))[direction]


@dataclass(frozen=True)
class Kind:
    make: Callable[[], contextlib.AbstractContextManager[Any]]
    changes: tuple[tuple[str, Any], ...]
    pushes: bool = False


def _option(make: Callable[[Any], Any], name: str, *values: Any) -> list[Kind]:
    return [Kind(lambda v=v: make(v), ((name, v),)) for v in values]


DEVICE = tb.devices("cpu")[0]
KINDS = [
    *_option(tb.enable_x64, "enable_x64", True, False),
    *_option(tb.explicit_x64_dtypes, "explicit_x64_dtypes", "allow", "error"),
    *_option(tb.numpy_dtype_promotion, "numpy_dtype_promotion", "strict"),
    *_option(tb.numpy_rank_promotion, "numpy_rank_promotion", "warn", "raise"),
    *_option(tb.default_matmul_precision, "default_matmul_precision", "float32"),
    *_option(tb.default_device, "default_device", DEVICE),
    *_option(tb.disable_jit, "disable_jit", False),
    *_option(tb.debug_nans, "debug_nans", True),
    *_option(tb.debug_infs, "debug_infs", True),
    *_option(tb.checking_leaks, "check_tracer_leaks", False),
    *_option(tb.enable_checks, "enable_checks", True, False),
    *_option(tb.log_compiles, "log_compiles", False),
    *_option(tb.explain_cache_misses, "explain_cache_misses", False),
    *_option(tb.threefry_partitionable, "threefry_partitionable", False, True),
    *_option(tb.default_prng_impl, "default_prng_impl", "rbg"),
    *_option(USER, "user", "a", "b"),
    Kind(lambda: tb.transfer_guard("log"), tuple((d, "log") for d in list(READERS) if "_to_" in d)),
    *_option(tb.transfer_guard_host_to_device, "host_to_device", "log_explicit", "allow"),
    *_option(tb.transfer_guard_device_to_device, "device_to_device", "log_explicit"),
    *_option(tb.transfer_guard_device_to_host, "device_to_host", "log_explicit"),
    Kind(lambda: MESH, (("mesh", ("x",)),)),
    Kind(lambda: OTHER_MESH, (("mesh", ("y",)),)),
    Kind(lambda: tb.sharding.use_abstract_mesh(OTHER_MESH.abstract_mesh), (("mesh", ("y",)),)),
    Kind(lambda: tb.named_scope("layer"), (("names", "layer"),), pushes=True),
    Kind(lambda: source_info_util.extend_name_stack("part"), (("names", "part"),), pushes=True),
    Kind(source_info_util.reset_name_stack, (("names", ()),)),
    Kind(tb.ensure_compile_time_eval, (("eager", True),)),
    Kind(take_current_trace, (("eager", True),)),
    Kind(lambda: set_current_trace(None), (("eager", True),)),
]
# Reads no option that these scopes change, and costs no compilation.
TRACES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "make_jaxpr": lambda f: tb.make_jaxpr(f)(1.0),
    "grad": lambda f: tb.grad(f)(1.0),
    "jvp": lambda f: tb.jvp(f, (1.0,), (1.0,)),
    "vmap": lambda f: tb.vmap(f, axis_name="i")(np.ones(2, np.float32)),
}

Open = list[tuple[int, Kind]]


class Model:
    """The value of each option is that of the scope, among those still open, begun last."""

    def __init__(self) -> None:
        self.before = {name: read() for name, read in READERS.items()}
        self.open: Open = []
        self.generators: dict[int, Iterator[None]] = {}
        self.count = 0

    def expected(self) -> dict[str, Any]:
        values = dict(self.before)
        for _, kind in self.open:
            for name, value in kind.changes:
                values[name] = (*values[name], value) if kind.pushes else value
        return values

    def check(self) -> None:
        assert self.expected() == {name: read() for name, read in READERS.items()}

    def begin(self, kind: Kind) -> None:
        def suspended() -> Iterator[None]:
            with kind.make():
                yield

        self.count += 1
        generator = self.generators[self.count] = suspended()
        next(generator)
        self.open.append((self.count, kind))

    def end(self, which: int, close: Callable[[Any], None]) -> None:
        if not self.generators:
            return
        number = sorted(self.generators)[which % len(self.generators)]
        close(self.generators.pop(number))
        self.open = [(n, kind) for n, kind in self.open if n != number]

    def trace(self, name: str, steps: list[Any]) -> None:
        # The program of a jit or a rule is made outside of all names; grad and vmap keep them.
        self.count += 1
        number = self.count

        def function(x: Any) -> Any:
            self.open.append((number, Kind(contextlib.nullcontext, (("eager", False),))))
            self.run(steps)
            return x * 1.0

        TRACES[name](function)
        self.open = [(n, kind) for n, kind in self.open if n != number]

    def run(self, steps: list[Any]) -> None:
        for step in steps:
            match step:
                case ("begin", kind):
                    self.begin(KINDS[kind])
                case ("end", which):
                    self.end(which, lambda g: g.close())
                case ("collect", which):
                    self.end(which, lambda g: None)
                case _:
                    self.trace(*step)
            self.check()


begins = st.tuples(st.just("begin"), st.integers(0, len(KINDS) - 1))
ends = st.tuples(st.sampled_from(["end", "collect"]), st.integers(0, 9))
steps = st.recursive(
    st.lists(st.one_of(begins, ends), max_size=8),
    lambda inner: st.lists(
        st.one_of(begins, ends, st.tuples(st.sampled_from(sorted(TRACES)), inner)), max_size=8
    ),
    max_leaves=5,
)


@given(steps)
def test_each_scope_takes_back_its_own_change(program: list[Any]) -> None:
    """After any interleaving of scopes and traces the options are those of the open scopes."""
    model = Model()
    try:
        model.run(program)
    finally:
        while model.generators:
            model.end(0, lambda g: g.close())
    model.check()
    assert state() is None
    assert type(tnp.ones(2) + 1).__name__ == "Array"


def _suspended(make: Callable[[], Any]) -> Generator[None]:
    with make():
        yield


@pytest.mark.parametrize("trace", sorted(TRACES))
def test_a_generator_of_a_finished_trace_brings_nothing_back(trace: str) -> None:
    """Scopes that were entered while tracing are left later, by the garbage collector."""
    cycles: list[Any] = []

    def entering(kind: Kind, x: Any) -> Any:
        cycle: list[Any] = [_suspended(kind.make)]
        next(cycle[0])
        cycle.append(cycle)
        cycles.append(cycle)
        return x * 1.0

    for kind in KINDS:
        TRACES[trace](functools.partial(entering, kind))
        assert is_eager()
    cycles.clear()
    gc.collect()

    assert state() is None
    assert current_names() == ()
    np.testing.assert_array_equal(np.asarray(tnp.ones(2) + 1), [2.0, 2.0])


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_scope_closed_by_another_thread(kind: int) -> None:
    """The thread that closes it keeps what it has; that which opened it is rid of the scope."""
    before = {name: read() for name, read in READERS.items()}
    generator = _suspended(KINDS[kind].make)
    next(generator)
    seen: list[Any] = []

    def close() -> None:
        with tb.numpy_rank_promotion("warn"):
            generator.close()
            seen.append({name: read() for name, read in READERS.items()})

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()

    assert seen == [{**before, "numpy_rank_promotion": "warn"}]
    with tb.named_scope("any"):  # names are tidied up when scopes change
        pass
    assert before == {name: read() for name, read in READERS.items()}


def test_a_scope_shared_by_two_threads() -> None:
    """One object entered by two threads, left in the order in which it was entered."""
    shared = tb.enable_x64()
    inside, leave = threading.Event(), threading.Event()
    seen: list[bool] = []

    def other() -> None:
        with shared:
            inside.set()
            leave.wait(10)
            seen.append(tb.config.enable_x64)
        seen.append(tb.config.enable_x64)

    thread = threading.Thread(target=other)
    with shared:
        thread.start()
        inside.wait(10)
    mine = tb.config.enable_x64
    leave.set()
    thread.join()

    assert (mine, seen) == (False, [True, False])


def test_a_context_that_began_inside_a_scope_keeps_it() -> None:
    """An asyncio task, or copied context, does not lose the scope when its maker leaves it."""
    with tb.enable_x64():
        inner = contextvars.copy_context()
    with tb.numpy_rank_promotion("warn"):
        pass

    assert inner.run(lambda: tb.config.enable_x64) is True
    assert tb.config.enable_x64 is False


# What tells whether operations are recorded, by the paths on which they enter the engine.
RECORDED: dict[str, Callable[[], Any]] = {
    "operator": lambda: tnp.ones(2) + 1,
    "staged function": lambda: tnp.cumsum(tnp.ones(2)),
    "primitive": lambda: lax.sin(np.ones(2, np.float32)),
    "jit": lambda: tb.jit(lambda x: x + 1)(tnp.ones(2)),
    "cond": lambda: lax.cond(True, lambda x: x, lambda x: x, 1.0),
    "device_put": lambda: tb.device_put(np.ones(2), tb.devices()[0]),
    "reference": lambda: tb.new_ref(1.0)[...],
    "map": lambda: tb.pmap(lambda x: x + 1)(tnp.ones((1, 2))),
}


@pytest.mark.parametrize("trace", sorted(TRACES))
@pytest.mark.parametrize("wide", [False, True])
def test_a_context_that_began_inside_a_trace_outlives_it(trace: str, wide: bool) -> None:
    """Callbacks that a traced function has scheduled run eagerly, under the options it had."""
    copies: list[contextvars.Context] = []

    def function(x: Any) -> Any:
        with tb.enable_x64(wide):
            copies.append(contextvars.copy_context())
        return x * 1.0

    TRACES[trace](function)

    for name, operation in RECORDED.items():
        result = copies[0].copy().run(operation)
        assert (name, "Array") == (name, type(result).__name__)
    assert copies[0].run(lambda: tnp.ones(2) + 1).dtype == (np.float64 if wide else np.float32)
    assert copies[0].run(is_eager)


def test_a_context_that_began_inside_an_inner_trace_keeps_the_outer_one() -> None:
    """Of the traces in a copied context only those that have ended are left out."""
    copies: list[contextvars.Context] = []

    def inner(x: Any) -> Any:
        copies.append(contextvars.copy_context())
        return x * 2.0

    def outer(x: Any) -> Any:
        tb.vmap(inner)(tnp.ones(3))
        return copies[-1].run(lambda: x * x)

    assert float(tb.jit(outer)(3.0)) == 9.0
    assert float(tb.grad(outer)(3.0)) == 6.0


def test_a_scope_that_a_finalizer_leaves_while_another_is_entered() -> None:
    """A step that is under way does not put back what ended meanwhile."""
    shown: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("shown", default=())
    stack = VariableStack(shown, ())
    first = stack.enter(lambda outer: (*outer, "first"))
    kept = stack.enter(lambda outer: (*outer, "kept"))
    finalizer = [first]

    def second(outer: tuple[str, ...]) -> tuple[str, ...]:
        if finalizer:
            stack.leave(finalizer.pop())
        return (*outer, "second")

    change = stack.enter(second)

    assert shown.get() == ("kept", "second")
    stack.leave(kept)
    assert shown.get() == ("second",)
    stack.leave(change)
    assert shown.get() == ()


def test_many_collections_at_any_time() -> None:
    """The garbage collector runs at every allocation and closes generators of traces."""

    def function(x: Any) -> Any:
        for make in (tb.enable_x64, lambda: tb.named_scope("n"), tb.ensure_compile_time_eval):
            cycle: list[Any] = [_suspended(make)]
            next(cycle[0])
            cycle.append(cycle)
        with tb.numpy_rank_promotion("warn"):
            return lax.sin(x)

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 20, 1000)
    try:
        for _ in range(5):
            tb.grad(function)(1.0)
            gc.collect()
            assert state() is None
            assert current_names() == ()
    finally:
        gc.set_threshold(*thresholds)
