"""Thread-scoped state, global values, cache keys."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracebridge.core.config import option_scopes, transfer_guards, values
from tracebridge.core.config import state as states
from tracebridge.core.config.options import OPTIONS
from tracebridge.core.config.scopes import Scope, scope
from tracebridge.core.config.state import (
    State,
    enter_scope,
    leave_scope,
    state,
    with_axis,
    with_axis_env,
    with_override,
    with_trace,
)
from tracebridge.core.config.values import option, tracing_key, update
from tracebridge.core.errors.config_errors import OptionValueError, UnknownOptionError


@pytest.fixture(autouse=True)
def _global_values_restored() -> Iterator[None]:
    before = {name: values.global_value(name) for name in OPTIONS}
    yield
    for name, value in before.items():
        if values.global_value(name) != value:
            update(name, value)


def in_thread(fn: Callable[[], Any]) -> Any:
    """The result of `fn` in a new thread."""
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(fn()))
    thread.start()
    thread.join()
    return out[0]


# --- state -----------------------------------------------------------------------------------


def test_nothing_in_force_is_none() -> None:
    """The hot path tests one identity."""
    assert state() is None
    assert with_trace(None, None) is None
    assert with_axis_env(None, ()) is None
    assert with_axis(None, None, 3) is None


def test_state_becomes_none_again() -> None:
    """Removing the last part of a state gives None, not an empty state."""
    trace = object()
    traced = with_trace(None, trace)
    assert traced is not None
    assert traced.trace is trace
    assert with_trace(traced, None) is None
    assert with_axis_env(with_axis(None, "i", 3), ()) is None


def test_parts_are_independent() -> None:
    """Changing one part keeps the others."""
    trace = object()
    made = with_axis(with_override(with_trace(None, trace), "enable_x64", True), "i", 3)
    assert made is not None
    eager = with_trace(made, None)
    assert eager is not None

    assert (eager.trace, eager.overrides, eager.axis_env) == (
        None,
        (("enable_x64", True),),
        (("i", 3),),
    )
    assert made.trace is trace


def test_named_axes_nest() -> None:
    """The inner axis stands last; a mapped function without a name adds none."""
    outer = with_axis(None, "i", 2)
    inner = with_axis(outer, "j", 3)

    assert inner is not None
    assert inner.axis_env == (("i", 2), ("j", 3))
    assert with_axis(inner, None, 4) is inner
    change = enter_scope(lambda _: inner)
    try:
        assert states.axis_env() == (("i", 2), ("j", 3))
    finally:
        leave_scope(change)
    assert states.axis_env() == ()


def test_overrides_are_sorted_and_last_wins() -> None:
    """The order of `with` blocks does not show in keys."""
    a = with_override(with_override(None, "numpy_rank_promotion", "raise"), "enable_x64", True)
    b = with_override(with_override(None, "enable_x64", 1), "numpy_rank_promotion", "raise")
    assert a is not None
    assert b is not None

    assert a.overrides == b.overrides
    assert a.key == b.key
    again = with_override(a, "enable_x64", False)
    assert again is not None
    assert again.values["enable_x64"] is False


def test_key_has_only_what_affects_tracing() -> None:
    """debug_nans needs the slow call, not another program."""
    made = with_override(with_override(None, "debug_nans", True), "enable_x64", True)
    assert made is not None

    assert made.key == (("enable_x64", True),)
    assert len(made.overrides) == 2


def test_enter_and_leave() -> None:
    """Leaving the innermost scope gives the state object that was there."""
    outer = enter_scope(with_trace, "trace")
    first = state()
    inner = enter_scope(with_trace, None)
    assert state() is None
    leave_scope(inner)
    assert state() is first
    leave_scope(outer)
    assert state() is None


# --- scopes ----------------------------------------------------------------------------------


def test_scope_changes_and_restores() -> None:
    """Inside the block the new value, after it the old one and no state."""
    with option_scopes.enable_x64():
        assert option("enable_x64") is True
        with option_scopes.enable_x64(False):
            assert option("enable_x64") is False
        assert option("enable_x64") is True
    assert option("enable_x64") is False
    assert state() is None


def test_scope_is_left_by_exceptions() -> None:
    """An error inside the block does not leave the option changed."""
    with contextlib.suppress(KeyError), option_scopes.debug_nans():
        raise KeyError
    assert state() is None


def test_one_scope_object_can_be_entered_again() -> None:
    """Also inside itself."""
    wide = scope("enable_x64", True)
    with wide, wide:
        assert option("enable_x64")
    with wide:
        assert option("enable_x64")
    assert state() is None


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (option_scopes.explicit_x64_dtypes, "explicit_x64_dtypes", "error"),
        (option_scopes.numpy_dtype_promotion, "numpy_dtype_promotion", "strict"),
        (option_scopes.numpy_rank_promotion, "numpy_rank_promotion", "raise"),
        (option_scopes.default_matmul_precision, "default_matmul_precision", "highest"),
        (option_scopes.default_device, "default_device", "cpu"),
        (option_scopes.disable_jit, "disable_jit", True),
        (option_scopes.debug_nans, "debug_nans", True),
        (option_scopes.debug_infs, "debug_infs", True),
        (option_scopes.checking_leaks, "check_tracer_leaks", True),
        (option_scopes.enable_checks, "enable_checks", True),
        (option_scopes.log_compiles, "log_compiles", True),
        (option_scopes.explain_cache_misses, "explain_cache_misses", True),
        (option_scopes.threefry_partitionable, "threefry_partitionable", False),
        (option_scopes.default_prng_impl, "default_prng_impl", "rbg"),
        (transfer_guards.transfer_guard, "transfer_guard", "disallow"),
    ],
)
def test_each_named_scope_sets_its_option(
    make: Callable[[Any], Scope], name: str, value: Any
) -> None:
    """The function and the option belong together."""
    with make(value):
        assert value == option(name)
    assert option(name) == values.global_value(name)


def test_bad_scopes_are_refused_when_made() -> None:
    """Unknown name, wrong value, global-only option: before the block is entered."""
    with pytest.raises(UnknownOptionError, match="no option 'x'"):
        scope("x", 1)
    with pytest.raises(OptionValueError, match="got 'loud'"):
        option_scopes.numpy_rank_promotion("loud")
    with pytest.raises(OptionValueError, match="for one thread"):
        scope("num_cpu_devices", 2)


def test_threads_do_not_see_each_others_scopes() -> None:
    """A `with` block belongs to its thread; a new thread starts without state."""
    with option_scopes.enable_x64():
        assert in_thread(state) is None
        assert in_thread(lambda: option("enable_x64")) is False


# --- global values and keys ------------------------------------------------------------------


def test_update_is_seen_by_all_threads_and_counted() -> None:
    """A global change bumps the epoch."""
    before = values.global_epoch()
    update("numpy_rank_promotion", "warn")

    assert in_thread(lambda: option("numpy_rank_promotion")) == "warn"
    assert values.global_epoch() > before


def test_thread_value_wins_over_global() -> None:
    """A block keeps its value when the global one changes."""
    with option_scopes.numpy_rank_promotion("raise"):
        update("numpy_rank_promotion", "warn")
        assert option("numpy_rank_promotion") == "raise"
        assert values.global_value("numpy_rank_promotion") == "warn"
    assert option("numpy_rank_promotion") == "warn"


def test_listeners_hear_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With name and checked value, after the change."""
    monkeypatch.setattr(values, "_listeners", [])
    heard: list[tuple[str, Any, Any]] = []
    values.on_global_change(lambda name, value: heard.append((name, value, option(name))))

    update("enable_x64", 1)
    assert heard == [("enable_x64", True, True)]


def test_a_refused_update_changes_nothing() -> None:
    """Neither value nor epoch."""
    epoch = values.global_epoch()
    with pytest.raises(OptionValueError):
        update("enable_x64", "maybe")
    with pytest.raises(UnknownOptionError):
        update("enable_x65", True)

    assert values.global_epoch() == epoch
    assert option("enable_x64") is False


def test_key_is_the_same_however_a_value_was_set() -> None:
    """A global change and a block with the same value share compiled programs."""
    plain = tracing_key()
    with option_scopes.enable_x64():
        scoped = tracing_key()
    update("enable_x64", True)

    assert tracing_key() == scoped != plain
    with option_scopes.enable_x64(False):
        assert tracing_key() == plain


def test_key_follows_global_changes_inside_a_block() -> None:
    """A remembered key is dropped when a global value changes."""
    with option_scopes.enable_x64():
        before = tracing_key()
        update("numpy_rank_promotion", "raise")
        assert tracing_key() != before


def test_options_without_effect_on_programs_leave_the_key() -> None:
    """Logging does not compile anew."""
    plain = tracing_key()
    with option_scopes.log_compiles(), option_scopes.debug_nans():
        assert tracing_key() == plain


_SETTINGS = st.dictionaries(
    st.sampled_from(["enable_x64", "threefry_partitionable", "disable_jit"]), st.booleans()
)


@given(_SETTINGS, _SETTINGS)
def test_equal_keys_mean_equal_values(a: dict[str, bool], b: dict[str, bool]) -> None:
    """Two settings share a key exactly if every option that affects tracing is equal."""

    def key_and_values(settings: dict[str, bool]) -> tuple[Any, list[Any]]:
        with contextlib.ExitStack() as stack:
            for name, value in settings.items():
                stack.enter_context(scope(name, value))
            return tracing_key(), [option(n) for n, row in OPTIONS.items() if row.affects_tracing]

    (key_a, values_a), (key_b, values_b) = key_and_values(a), key_and_values(b)
    assert (key_a == key_b) == (values_a == values_b)
    assert (hash(key_a) == hash(key_b)) or key_a != key_b


def test_fast_path_is_left_by_debugging_options() -> None:
    """Global or scoped; logging does not matter."""
    assert values.fast_path_allowed()
    with option_scopes.debug_nans():
        assert not values.fast_path_allowed()
    with option_scopes.log_compiles():
        assert values.fast_path_allowed()
    update("debug_infs", True)
    assert not values.fast_path_allowed()
    with option_scopes.debug_infs(False):
        assert values.fast_path_allowed()


class Device:
    """Stands for a device."""

    platform = "test"
    client = None


def test_many_different_states_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered about sets of overrides is bounded."""
    monkeypatch.setattr(states, "MAX_REMEMBERED", 8)
    monkeypatch.setattr(values, "MAX_REMEMBERED", 8)
    for _ in range(50):
        device = Device()
        with option_scopes.default_device(device):
            assert device in tracing_key()

    assert len(states._derived) <= 8
    assert len(values._effective) <= 8
    assert State(None, ()).values == {}


def test_scopes_decorate_functions() -> None:
    """A decorated function runs inside a block of its own, also from several threads at once."""

    @option_scopes.enable_x64(True)
    def value(wait: threading.Barrier | None = None) -> bool:
        """Its documentation."""
        if wait is not None:
            wait.wait(10)
        return option("enable_x64")

    @transfer_guards.transfer_guard_host_to_device("log")
    def guard() -> str:
        return option("transfer_guard")

    barrier = threading.Barrier(3)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert [True] * 3 == [f.result() for f in [pool.submit(value, barrier) for _ in range(3)]]
    assert value() is True
    assert option("enable_x64") is False
    assert guard().startswith("host_to_device=log")
    assert ("value", "Its documentation.") == (value.__name__, value.__doc__)


def test_decorated_functions_end_their_blocks_at_errors() -> None:
    """An exception in the function ends the block."""

    @option_scopes.debug_nans(True)
    def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails()
    assert option("debug_nans") is False
