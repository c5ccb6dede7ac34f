"""Devices and processes."""

from __future__ import annotations

import pytest

import tracebridge as tb
from tracebridge.errors import BackendNotFoundError


def test_counts_agree_with_lists() -> None:
    """Numbers of devices and processes are those of the lists."""
    assert len(tb.devices()) == tb.device_count()
    assert len(tb.local_devices()) == tb.local_device_count()
    assert tb.process_indices() == tb.host_ids() == list(range(tb.process_count()))
    assert tb.process_index() == tb.host_id() < tb.host_count()
    assert set(tb.local_devices()) <= set(tb.devices())


def test_default_backend_is_that_of_the_first_device() -> None:
    """The platform of CUDA devices is called gpu."""
    platform = tb.devices()[0].platform

    assert {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform) == tb.default_backend()
    assert isinstance(tb.devices()[0], tb.Device)


def test_unknown_platforms_and_processes() -> None:
    """The message lists what there is."""
    with pytest.raises(BackendNotFoundError, match=r"'abacus'(.|\n)*cpu"):
        tb.devices("abacus")
    with pytest.raises(BackendNotFoundError, match="of type int"):
        tb.devices(3)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match=r"process_index=7, expected one of \[0\]"):
        tb.local_devices(7)


def test_environment_is_described() -> None:
    """Versions, devices and options are in the text."""
    text = tb.print_environment_info(return_string=True)

    assert text is not None
    assert [] == [w for w in ("jaxlib", "numpy", "python", "enable_x64") if w not in text]
