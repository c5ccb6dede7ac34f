"""The public object: our names, the peer's names, reading and updating."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
