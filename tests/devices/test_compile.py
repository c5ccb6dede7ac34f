"""Every program compiles for a TPU v5e and for an H100, which are not here.

``make test-devices`` runs these in an environment with both plugins; where none is installed they
are skipped. Nothing is executed: what a device would answer is not known.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.devices.programs import PROGRAMS, Program
from tracebridge.core._jaxlib import plugins
from tracebridge.core._jaxlib.topologies import H100, TPU_V5E, compile_for, compile_only_devices

TARGETS = {"tpu": TPU_V5E, "cuda": H100}
INSTALLED = [platform for platform in TARGETS if platform in plugins.discover_plugins()]
if not INSTALLED:
    pytest.skip("no plugin of a TPU or GPU is installed", allow_module_level=True)

# Otherwise libtpu asks the metadata server of a cloud machine, and waits.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
# A TPU serves one process, so a second one may not load libtpu; compilers may be many.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")


@pytest.fixture(scope="module")
def devices() -> dict[str, list[Any]]:
    """The described machines."""
    return {platform: compile_only_devices(platform, TARGETS[platform]) for platform in INSTALLED}


@pytest.mark.parametrize("platform", INSTALLED)
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_compiles(program: Program, platform: str, devices: dict[str, list[Any]]) -> None:
    """The platform's compiler takes the program."""
    if platform in program.not_on:
        pytest.skip(f"refused with an error that names {platform}")

    assert compile_for(program.text(platform), devices[platform]) is not None


def test_a_machine_that_is_not_described() -> None:
    """The error says what to install."""
    with pytest.raises(plugins.PluginLoadError, match="takes a plugin"):
        compile_only_devices("abacus", "")
