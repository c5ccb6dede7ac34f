"""The public object: our names, the peer's names, reading and updating."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tracebridge as tb
from tracebridge.core.config import option_scopes
from tracebridge.core.config.config import config, resolve_name
from tracebridge.core.config.options import OPTIONS
from tracebridge.core.errors import filtering
from tracebridge.core.errors.config_errors import OptionValueError, UnknownOptionError


@pytest.fixture(autouse=True)
def _values_restored() -> Iterator[None]:
    before = config.values
    yield
    for name, value in before.items():
        if config.values[name] != value:
            config.update(name, value)


def test_update_and_read_by_both_names() -> None:
    """Code written for the peer keeps working."""
    config.update("jax_enable_x64", True)

    assert config.enable_x64 is True
    assert config.jax_enable_x64 is True
    assert config.x64_enabled is True
    assert config.read("jax_enable_x64") is True
    config.update("enable_x64", False)
    assert config.jax_enable_x64 is False


@pytest.mark.parametrize(
    ("peer", "ours"),
    [
        ("jax_cpu_enable_async_dispatch", "cpu_async_dispatch"),
        ("jax_platform_name", "platforms"),
        ("jax_platforms", "platforms"),
        ("jax_num_cpu_devices", "num_cpu_devices"),
        ("jax_compilation_cache_dir", "compilation_cache_dir"),
        ("jax_include_full_tracebacks_in_locations", "source_locations"),
        ("jax_default_matmul_precision", "default_matmul_precision"),
        ("jax_threefry_partitionable", "threefry_partitionable"),
    ],
)
def test_peer_names_resolve(peer: str, ours: str) -> None:
    """Each name with the same meaning finds our option."""
    assert ours == resolve_name(peer)


def test_attributes_show_what_is_in_force_and_values_the_globals() -> None:
    """A block changes what this thread reads, not the global table."""
    with option_scopes.enable_x64():
        assert config.enable_x64 is True
        assert config.values["enable_x64"] is False


def test_unknown_names_get_suggestions() -> None:
    """A typing error is answered with the right name, and is an AttributeError."""
    with pytest.raises(
        UnknownOptionError, match=r"no option 'jax_enable_64'[^']*did you mean enable_x64"
    ):
        config.update("jax_enable_64", True)
    assert not hasattr(config, "no_such_thing")


def test_assignment_is_refused_with_the_remedy() -> None:
    """`config.x = 1` would look right and do nothing."""
    with pytest.raises(UnknownOptionError, match=r"config\.update\('enable_x64', True\)"):
        config.enable_x64 = True


def test_wrong_values_are_refused() -> None:
    """The option's own check runs."""
    with pytest.raises(OptionValueError, match="'allow' or 'warn' or 'raise'"):
        config.update("numpy_rank_promotion", "error")


def test_none_turns_the_transfer_guard_off() -> None:
    """The peer's default value is accepted."""
    config.update("jax_transfer_guard", "disallow")
    config.update("jax_transfer_guard", None)

    assert config.transfer_guard == "allow"


def test_traceback_filtering_reaches_the_errors_layer() -> None:
    """The layer below is told of the change."""
    config.update("traceback_filtering", "off")
    assert filtering.mode == "off"
    for mode in ("tracebackhide", "quiet_remove_frames", "remove_frames", "auto"):
        config.update("jax_traceback_filtering", mode)
        assert mode == filtering.mode


def test_dir_and_repr_list_all_options() -> None:
    """Completion and printing show what there is."""
    assert set(OPTIONS) <= set(dir(config))
    assert all(f"  {name} = " in repr(config) for name in OPTIONS)
    assert set(config.values) == {*OPTIONS, *[f"jax_{name}" for name in OPTIONS]}


def test_values_have_both_names() -> None:
    """The dict of global values is read under the peer's names too; the text shows each once."""
    assert config.values["jax_enable_x64"] == config.values["enable_x64"]
    assert "jax_enable_x64" not in repr(config)


def test_options_of_the_peer_that_are_no_choice() -> None:
    """What is done anyway may be asked for, and is what reading gives; nothing else."""
    for name, value in (
        ("jax_persistent_cache_min_entry_size_bytes", -1),
        ("jax_persistent_cache_min_entry_size_bytes", 0),
        ("jax_enable_compilation_cache", True),
        ("jax_use_shardy_partitioner", True),
        ("jax_mutable_array_checks", True),
    ):
        tb.config.update(name, value)
    assert tb.config.jax_use_shardy_partitioner is True
    assert 0 == tb.config.read("persistent_cache_min_entry_size_bytes")
    with pytest.raises(OptionValueError, match="no choice here"):
        tb.config.update("jax_persistent_cache_min_entry_size_bytes", 4096)
    with pytest.raises(OptionValueError, match="use_shardy_partitioner"):
        tb.config.update("jax_use_shardy_partitioner", False)


def test_guards_of_one_direction_are_options() -> None:
    """Options of the peer that are parts of transfer_guard."""
    try:
        tb.config.update("jax_transfer_guard_host_to_device", "disallow")
        assert "disallow" == tb.config.jax_transfer_guard_host_to_device
        assert "allow" == tb.config.jax_transfer_guard_device_to_host
        with pytest.raises(OptionValueError):
            tb.config.update("jax_transfer_guard_device_to_host", "never")
        with tb.transfer_guard_host_to_device("log"):
            assert "log" == tb.config.transfer_guard_host_to_device
    finally:
        tb.config.update("jax_transfer_guard_host_to_device", None)
    assert "allow" == tb.config.transfer_guard
