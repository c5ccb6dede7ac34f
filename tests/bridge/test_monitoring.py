"""tracebridge.monitoring: events of users and the durations that the engine reports."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, monitoring

COMPILE = "/tracebridge/core/compile/"
STAGES = [
    COMPILE + name
    for name in ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration",
                 "backend_compile_duration")
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_listeners() -> Iterator[None]:
    """No listener of a test outlives it."""
    yield
    monitoring.clear_event_listeners()


KINDS = {
    "event": (
        monitoring.record_event,
        monitoring.register_event_listener,
        monitoring.unregister_event_listener,
        (),
    ),
    "duration": (
        monitoring.record_event_duration_secs,
        monitoring.register_event_duration_secs_listener,
        monitoring.unregister_event_duration_listener,
        (0.5,),
    ),
    "time span": (
        monitoring.record_event_time_span,
        monitoring.register_event_time_span_listener,
        monitoring.unregister_event_time_span_listener,
        (1.0, 2.0),
    ),
    "scalar": (
        monitoring.record_scalar,
        monitoring.register_scalar_listener,
        monitoring.unregister_scalar_listener,
        (3,),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_listeners(kind: str) -> None:
    """Listeners of a kind get its events with all that belongs to them, until unregistered."""
    record, register, unregister, values = KINDS[kind]
    seen: list[Any] = []

    def listen(event: str, *given: Any, **more: Any) -> None:
        seen.append((event, given, more))

    record("/before", *values)
    register(listen)
    record("/mine", *values, size=3)
    for other in KINDS.values():
        if other[0] is not record:
            other[0]("/other", *other[3])
    assert seen == [("/mine", values, {"size": 3})]
    unregister(listen)
    record("/after", *values)
    assert len(seen) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_listeners(kind: str) -> None:
    """What is no function cannot be registered, what is not registered cannot be removed."""
    _, register, unregister, _ = KINDS[kind]
    with pytest.raises(errors.ArgumentSpecError, match="a listener"):
        register(3)
    with pytest.raises(errors.ArgumentSpecError, match="is no registered listener"):
        unregister(print)


_STEPS = ["Finished tracing", "Finished lowering", "Finished XLA compilation of"]


def test_order_and_clear() -> None:
    """Listeners are called in the order of registration; clearing removes all."""
    seen: list[int] = []
    monitoring.register_event_listener(lambda _: seen.append(1))
    monitoring.register_event_listener(lambda _: seen.append(2))
    monitoring.record_event("/mine")
    monitoring.clear_event_listeners()
    monitoring.record_event("/mine")
    assert seen == [1, 2]


def listened(run: Any) -> list[tuple[str, float, str]]:
    """The durations that the engine reports during ``run()``."""
    seen: list[tuple[str, float, str]] = []

    def listen(event: str, duration: float, fun_name: str = "") -> None:
        seen.append((event, duration, fun_name))

    monitoring.register_event_duration_secs_listener(listen)
    run()
    monitoring.unregister_event_duration_listener(listen)
    return seen


def test_durations_of_a_miss() -> None:
    """Tracing, lowering and compiling are reported once per program, and nothing on a hit."""

    def my_function(x: Any) -> Any:
        return tnp.sin(x) * 3.25

    f = tb.jit(my_function)
    x = tnp.ones(3)
    found = [s for s in listened(lambda: f(x)) if s[2] == "my_function"]
    assert [event for event, *_ in found] == STAGES
    assert all([0 <= seconds < 60 for _, seconds, _ in found])
    assert listened(lambda: f(x)) == []
    # A new shape is a new program.
    assert len([s for s in listened(lambda: f(x[:2])) if s[2] == "my_function"]) == 3


def test_durations_of_stages() -> None:
    """The stages of AOT compilation report too."""
    f = tb.jit(lambda x: x * 7.5)
    lowered: list[Any] = []
    first = listened(lambda: lowered.append(f.lower(1.0)))
    assert [event for event, *_ in first] == STAGES[:2]
    assert [event for event, *_ in listened(lambda: lowered[0].compile())] == STAGES[2:]


def test_time_spans_of_a_miss() -> None:
    """The same stages as spans of the clock."""
    seen: list[Any] = []
    monitoring.register_event_time_span_listener(
        lambda event, start, end, **_: seen.append((event, start, end))
    )
    tb.jit(lambda x: x * 8.5)(1.0)
    assert [event for event, *_ in seen] == STAGES
    assert all([start <= end for _, start, end in seen])
    ends = [end for *_, end in seen]
    assert ends == sorted(ends)


def test_compilations_are_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    """Without an option, for who asks Python's logging for details."""
    with caplog.at_level(logging.DEBUG, logger="tracebridge"):
        tb.jit(lambda x: x * 3.5)(1.0)

    texts = [r.message for r in caplog.records if r.levelno == logging.DEBUG]
    assert _STEPS == [t.split(" <lambda>")[0] for t in texts if "<lambda>" in t]


def test_log_compiles(caplog: pytest.LogCaptureFixture) -> None:
    """The option logs what was done to which function, and how long it took."""

    def my_function(x: Any) -> Any:
        return x * 9.5

    with caplog.at_level(logging.WARNING), tb.log_compiles():
        tb.jit(my_function)(1.0)
    texts = [r.getMessage() for r in caplog.records if "my_function" in r.getMessage()]
    assert [t.split(" in ")[0] for t in texts] == [f"{done} my_function" for done in _STEPS]
    assert all([t.endswith(" ms") for t in texts])
    caplog.clear()
    tb.jit(lambda x: x * 10.5)(1.0)
    assert not caplog.records
