"""How many CPU devices there are, by option, variable or XLA_FLAGS; what a start does to malloc."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

import tracebridge as tb
from tracebridge.core.errors.config_errors import OptionFrozenError


def count(environment: dict[str, str], first: str = "pass", **variables: str) -> str:
    """What a program prints that counts devices after the statement ``first``."""
    code = (
        f"import tracebridge as tb; {first}; print(tb.device_count('cpu'), len(tb.devices('cpu')))"
    )
    names = ("TRACEBRIDGE_NUM_CPU_DEVICES", "XLA_FLAGS")
    plain = {k: v for k, v in environment.items() if k not in names}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**plain, **variables}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_ways_to_have_several_devices(subprocess_environment: dict[str, str]) -> None:
    """The option wins over its variable, and that over XLA_FLAGS."""
    env, flag = subprocess_environment, "--xla_force_host_platform_device_count=3"

    assert "1 1" == count(env)
    assert "3 3" == count(env, XLA_FLAGS=flag)
    assert "2 2" == count(env, XLA_FLAGS=flag, TRACEBRIDGE_NUM_CPU_DEVICES="2")
    update = "tb.config.update('num_cpu_devices', 4)"
    assert "4 4" == count(env, update, XLA_FLAGS=flag, TRACEBRIDGE_NUM_CPU_DEVICES="2")


def test_flags_after_the_import(subprocess_environment: dict[str, str]) -> None:
    """XLA_FLAGS count when the backend starts, unless the program has chosen; then no more."""
    env = subprocess_environment
    flag = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=3'"
    used, chosen = "tb.devices(); ", "tb.config.update('num_cpu_devices', 1); "

    assert "3 3" == count(env, flag)
    assert "3 3" == count(env, f"{flag}; tb.devices(); assert tb.config.num_cpu_devices == 3")
    assert "1 1" == count(env, used + flag)
    assert "1 1" == count(env, chosen + flag)
    assert "2 2" == count(env, flag, TRACEBRIDGE_NUM_CPU_DEVICES="2")


def test_too_late() -> None:
    """Once the backend runs the number stays; naming the same one is fine."""
    n = len(tb.devices("cpu"))

    tb.config.update("num_cpu_devices", n)
    with pytest.raises(OptionFrozenError, match=rf"num_cpu_devices={n + 1}: the CPU backend runs"):
        tb.config.update("num_cpu_devices", n + 1)
    assert n == tb.config.num_cpu_devices == len(tb.devices("cpu"))
    assert issubclass(OptionFrozenError, RuntimeError)


# A block that glibc maps alone is given back as soon as it is free, and each new one costs page
# faults. Once a larger block was freed, such blocks come from the heap, which keeps them.
IN_HEAP = """
import numpy as np
import tracebridge as tb

tb.devices()
address = np.empty(16 << 20, np.uint8).__array_interface__["data"][0]
heap = [line for line in open("/proc/self/maps") if line.endswith("[heap]\\n")]
ranges = [[int(part, 16) for part in line.split()[0].split("-")] for line in heap]
print(any(first <= address < last for first, last in ranges))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_memory_of_large_results_is_kept(subprocess_environment: dict[str, str]) -> None:
    """Blocks of many megabytes come from the heap, unless the user has told malloc otherwise."""

    def run(**variables: str) -> str:
        names = [k for k in subprocess_environment if k.startswith(("MALLOC_", "GLIBC_TUNABLES"))]
        plain = {k: v for k, v in subprocess_environment.items() if k not in names}
        return subprocess.run(
            [sys.executable, "-c", IN_HEAP],
            env={**plain, **variables}, capture_output=True, text=True, timeout=120, check=True,
        ).stdout.strip()  # fmt: skip

    assert "True" == run()
    assert "False" == run(MALLOC_MMAP_THRESHOLD_="131072")
