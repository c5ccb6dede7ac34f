"""The table of options: size, names, defaults, checking and parsing of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracebridge.core.config import env
from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS, Option
from tracebridge.core.errors.config_errors import OptionValueError


def test_the_table_stays_small() -> None:
    """At most 30 options."""
    assert len(OPTIONS) <= 30


@pytest.mark.parametrize("row", OPTIONS.values(), ids=str)
def test_every_row_is_complete(row: Option) -> None:
    """The default is a value of the option, its variable has our prefix, its doc is a sentence."""
    assert row.check(row.default) == row.default
    assert row.env == f"TRACEBRIDGE_{row.name.upper()}"
    assert row.doc.endswith(".")
    assert OPTIONS[row.name] is row


def test_defaults() -> None:
    """32 bits, synchronous CPU, one device, no cache folder: the documented starting point."""
    expected = {
        "enable_x64": False,
        "explicit_x64_dtypes": "warn",
        "numpy_dtype_promotion": "standard",
        "numpy_rank_promotion": "allow",
        "default_matmul_precision": None,
        "cpu_async_dispatch": False,
        "num_cpu_devices": 1,
        "compilation_cache_dir": None,
        "threefry_partitionable": True,
        "default_prng_impl": "threefry2x32",
        "source_locations": True,
        "transfer_guard": "allow",
    }

    assert expected == {name: OPTIONS[name].default for name in expected}


def test_what_changes_jaxprs_is_in_cache_keys() -> None:
    """These options give other programs for the same function and arguments."""
    assert {
        "enable_x64",
        "explicit_x64_dtypes",
        "numpy_dtype_promotion",
        "numpy_rank_promotion",
        "default_matmul_precision",
        "default_device",
        "default_prng_impl",
        "threefry_partitionable",
    } <= set(TRACING_OPTIONS)


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("enable_x64", 1, True),
        ("enable_x64", 0, False),
        ("num_cpu_devices", 4, 4),
        ("compilation_cache_dir", None, None),
        ("default_matmul_precision", "highest", "highest"),
        ("default_device", "cpu", "cpu"),
    ],
)
def test_good_values_are_normalised(name: str, value: object, normal: object) -> None:
    """Equal settings have one form, so that cache keys agree."""
    checked = OPTIONS[name].check(value)

    assert normal == checked
    assert type(normal) is type(checked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_x64", "yes"),
        ("enable_x64", 2),
        ("enable_x64", None),
        ("num_cpu_devices", True),
        ("num_cpu_devices", "2"),
        ("numpy_rank_promotion", "error"),
        ("default_matmul_precision", "exact"),
        ("compilation_cache_dir", 3),
    ],
)
def test_bad_values_are_refused_with_the_choices(name: str, value: object) -> None:
    """The message names the option, the value with its type, and what is allowed."""
    with pytest.raises(OptionValueError) as info:
        OPTIONS[name].check(value)

    assert f"option {name}: got {value!r} of type {type(value).__name__}, expected " in str(
        info.value
    )


@pytest.mark.parametrize("value", [[], 3, "nowhere", np.ones(2)], ids=repr)
def test_default_device_is_a_device_or_a_platform(value: Any) -> None:
    """Anything else is refused at once, not where the first array is made."""
    with pytest.raises(OptionValueError, match="expected a device or 'cpu' or 'gpu'"):
        OPTIONS["default_device"].check(value)
    assert "gpu" == OPTIONS["default_device"].check("gpu")
    assert OPTIONS["default_device"].check(None) is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("enable_x64", "1", True),
        ("enable_x64", "False", False),
        ("enable_x64", "on", True),
        ("num_cpu_devices", "8", 8),
        ("compilation_cache_dir", "none", None),
        ("compilation_cache_dir", "cache", "cache"),
        ("persistent_cache_min_compile_time_secs", "2", 2.0),
        ("numpy_rank_promotion", "raise", "raise"),
    ],
)
def test_variables_set_the_initial_value(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    """Text becomes a value of the option's type."""
    monkeypatch.setenv(OPTIONS[name].env, text)

    assert value == OPTIONS[name].initial()


@pytest.mark.parametrize(("name", "text"), [("enable_x64", "maybe"), ("num_cpu_devices", "two")])
def test_bad_variables_are_named(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """The reader learns which variable is wrong."""
    monkeypatch.setenv(OPTIONS[name].env, text)

    with pytest.raises(OptionValueError, match=f"{OPTIONS[name].env}='{text}'"):
        OPTIONS[name].initial()


def test_xla_flags_set_the_number_of_cpu_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known flag works; our own variable wins."""
    monkeypatch.delenv("TRACEBRIDGE_NUM_CPU_DEVICES", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_force_host_platform_device_count=6")
    assert OPTIONS["num_cpu_devices"].initial() == 6

    monkeypatch.setenv("TRACEBRIDGE_NUM_CPU_DEVICES", "3")
    assert OPTIONS["num_cpu_devices"].initial() == 3


def test_full_tracebacks_turn_filtering_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACEBRIDGE_TRACEBACK=full is the short way."""
    monkeypatch.delenv("TRACEBRIDGE_TRACEBACK_FILTERING", raising=False)
    monkeypatch.setenv("TRACEBRIDGE_TRACEBACK", "full")
    assert OPTIONS["traceback_filtering"].initial() == "off"

    monkeypatch.delenv("TRACEBRIDGE_TRACEBACK")
    assert OPTIONS["traceback_filtering"].initial() == "auto"


def test_environment_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, with a default."""
    monkeypatch.setenv("TB_TEST", "3")
    monkeypatch.delenv("TB_NONE", raising=False)

    assert (env.get("TB_TEST"), env.get("TB_NONE", "d")) == ("3", "d")


def test_device_count_flag_is_optional() -> None:
    """Other flags say nothing about devices; the last one counts."""
    assert env.forced_host_device_count({}) is None
    assert env.forced_host_device_count({"XLA_FLAGS": "--xla_dump_to=x"}) is None
    twice = "--xla_force_host_platform_device_count=2 --xla_force_host_platform_device_count=4"
    assert env.forced_host_device_count({"XLA_FLAGS": twice}) == 4
