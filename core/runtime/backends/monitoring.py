"""Events of the engine and of users, and those who listen to them.

The engine reports how long tracing, lowering and compiling took, for each compiled function:
``/tracebridge/core/compile/jaxpr_trace_duration``, ``.../jaxpr_to_mlir_module_duration`` and
``.../backend_compile_duration``, with the name of the function as ``fun_name``. With a persistent
compilation cache each look into it is an event
``/tracebridge/compilation_cache/compile_requests_use_cache`` and one of ``.../cache_hits`` or
``.../cache_misses``; a hit also has the durations ``.../cache_retrieval_time_sec`` and
``.../compile_time_saved_sec``.
Thread-safety: lists of listeners are replaced, never changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tracebridge.core.config.values import option
from tracebridge.core.errors.transform_errors import ArgumentSpecError

TRACE = "/tracebridge/core/compile/jaxpr_trace_duration"
LOWER = "/tracebridge/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/tracebridge/core/compile/backend_compile_duration"
CACHE_HIT = "/tracebridge/compilation_cache/cache_hits"
CACHE_MISS = "/tracebridge/compilation_cache/cache_misses"
CACHE_REQUEST = "/tracebridge/compilation_cache/compile_requests_use_cache"
CACHE_RETRIEVAL = "/tracebridge/compilation_cache/cache_retrieval_time_sec"
CACHE_SAVED = "/tracebridge/compilation_cache/compile_time_saved_sec"
_DONE = {
    TRACE: "Finished tracing",
    LOWER: "Finished lowering",
    COMPILE: "Finished XLA compilation of",
}

Listener = Callable[..., None]
# Kind of event -> listeners in the order in which they were registered.
_LISTENERS: dict[str, tuple[Listener, ...]] = {}
_EVENT, _DURATION, _SPAN, _SCALAR = "event", "event duration", "event time span", "scalar"


def record_event(event: str, **kwargs: str | int) -> None:
    """Tell the listeners of events that something happened.

    Args:
        event: its name, such as ``/my_library/cache_miss``.
        **kwargs: more about it.

    >>> from tracebridge import monitoring
    >>> listen = lambda event, **kwargs: print(event, kwargs)
    >>> monitoring.register_event_listener(listen)
    >>> monitoring.record_event("/my_library/cache_miss", size=3)
    /my_library/cache_miss {'size': 3}
    >>> monitoring.unregister_event_listener(listen)
    """
    for listener in _LISTENERS.get(_EVENT, ()):
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Tell the listeners of durations how many seconds something took.

    Args:
        event: its name.
        duration: seconds.
        **kwargs: more about it.

    >>> from tracebridge import monitoring
    >>> listen = lambda event, duration, **kwargs: print(event, duration)
    >>> monitoring.register_event_duration_secs_listener(listen)
    >>> monitoring.record_event_duration_secs("/my_library/load", 0.5)
    /my_library/load 0.5
    >>> monitoring.unregister_event_duration_listener(listen)
    """
    for listener in _LISTENERS.get(_DURATION, ()):
        listener(event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Tell the listeners of time spans when something began and ended.

    Args:
        event: its name.
        start_time: seconds since the epoch.
        end_time: seconds since the epoch.
        **kwargs: more about it.

    >>> from tracebridge import monitoring
    >>> listen = lambda event, start, end, **kwargs: print(event, end - start)
    >>> monitoring.register_event_time_span_listener(listen)
    >>> monitoring.record_event_time_span("/my_library/load", 10.0, 12.0)
    /my_library/load 2.0
    >>> monitoring.unregister_event_time_span_listener(listen)
    """
    for listener in _LISTENERS.get(_SPAN, ()):
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float, **kwargs: str | int) -> None:
    """Tell the listeners of scalars a number.

    Args:
        event: what it is.
        value: the number.
        **kwargs: more about it.

    >>> from tracebridge import monitoring
    >>> listen = lambda event, value, **kwargs: print(event, value)
    >>> monitoring.register_scalar_listener(listen)
    >>> monitoring.record_scalar("/my_library/programs", 12)
    /my_library/programs 12
    >>> monitoring.unregister_scalar_listener(listen)
    """
    for listener in _LISTENERS.get(_SCALAR, ()):
        listener(event, value, **kwargs)


# listeners ---------------------------------------------------------------------------------------


def register_event_listener(callback: Listener) -> None:
    """Call ``callback(event, **kwargs)`` at each event.

    >>> from tracebridge import monitoring
    >>> monitoring.register_event_listener(lambda event, **kwargs: None)
    >>> monitoring.clear_event_listeners()
    """
    _register(_EVENT, callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call ``callback(event, duration, **kwargs)`` at each duration, the engine's included.

    >>> import tracebridge as tb
    >>> from tracebridge import monitoring
    >>> seen = []
    >>> monitoring.register_event_duration_secs_listener(lambda e, d, **kw: seen.append(e))
    >>> x = tb.jit(lambda x: x + 1)(1.0)
    >>> [event.split("/")[-1] for event in seen]
    ['jaxpr_trace_duration', 'jaxpr_to_mlir_module_duration', 'backend_compile_duration']
    >>> monitoring.clear_event_listeners()
    """
    _register(_DURATION, callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call ``callback(event, start_time, end_time, **kwargs)`` at each time span.

    >>> from tracebridge import monitoring
    >>> monitoring.register_event_time_span_listener(lambda event, start, end, **kwargs: None)
    >>> monitoring.clear_event_listeners()
    """
    _register(_SPAN, callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call ``callback(event, value, **kwargs)`` at each scalar.

    >>> from tracebridge import monitoring
    >>> monitoring.register_scalar_listener(lambda event, value, **kwargs: None)
    >>> monitoring.clear_event_listeners()
    """
    _register(_SCALAR, callback)


def unregister_event_listener(callback: Listener) -> None:
    """Stop calling a listener of events.

    Raises:
        ArgumentSpecError: it is not registered.

    >>> from tracebridge import monitoring
    >>> monitoring.register_event_listener(print)
    >>> monitoring.unregister_event_listener(print)
    """
    _unregister(_EVENT, callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Stop calling a listener of durations.

    Raises:
        ArgumentSpecError: it is not registered.

    >>> from tracebridge import monitoring
    >>> monitoring.register_event_duration_secs_listener(print)
    >>> monitoring.unregister_event_duration_listener(print)
    """
    _unregister(_DURATION, callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Stop calling a listener of time spans.

    Raises:
        ArgumentSpecError: it is not registered.

    >>> from tracebridge import monitoring
    >>> monitoring.register_event_time_span_listener(print)
    >>> monitoring.unregister_event_time_span_listener(print)
    """
    _unregister(_SPAN, callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Stop calling a listener of scalars.

    Raises:
        ArgumentSpecError: it is not registered.

    >>> from tracebridge import monitoring
    >>> monitoring.register_scalar_listener(print)
    >>> monitoring.unregister_scalar_listener(print)
    """
    _unregister(_SCALAR, callback)


def clear_event_listeners() -> None:
    """Stop calling all listeners of all kinds.

    >>> from tracebridge import monitoring
    >>> monitoring.register_event_listener(print)
    >>> monitoring.clear_event_listeners()
    >>> monitoring.record_event("/nobody/listens")
    """
    _LISTENERS.clear()


def _register(kind: str, callback: Listener) -> None:
    if not callable(callback):
        msg = f"a listener ({kind}) is {callback!r} of type {type(callback).__name__}"
        raise ArgumentSpecError(msg, expected="a function")
    _LISTENERS[kind] = (*_LISTENERS.get(kind, ()), callback)


def _unregister(kind: str, callback: Listener) -> None:
    known = list(_LISTENERS.get(kind, ()))
    if callback not in known:
        msg = f"{callback!r} is no registered listener ({kind})"
        raise ArgumentSpecError(msg)
    known.remove(callback)
    _LISTENERS[kind] = tuple(known)


# the engine's own durations ----------------------------------------------------------------------


def finished(event: str, name: str, begin: float, logger: logging.Logger) -> None:
    """Report a duration that began at ``begin``, as ``time.perf_counter()`` tells the time.

    It is logged for debugging, with the option ``log_compiles`` as a warning.
    """
    seconds = time.perf_counter() - begin
    if _LISTENERS:
        now = time.time()
        record_event_duration_secs(event, seconds, fun_name=name)
        record_event_time_span(event, now - seconds, now, fun_name=name)
    level = logging.WARNING if option("log_compiles") else logging.DEBUG
    logger.log(level, "%s %s in %.1f ms", _DONE[event], name, 1e3 * seconds)
