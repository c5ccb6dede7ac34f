"""How wide the vectors of programs for the CPU are."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from tracebridge.core.config import env
from tracebridge.core.config.values import option

_FLAG = "xla_cpu_prefer_vector_width"
# CPUs that have 512-bit vectors but not these instructions lower their clock when they use them.
_FEATURE = "avx512_vbmi2"
_WIDE = ((_FLAG, 512),)

Options = tuple[tuple[str, Any], ...]  # Any: XLA's flags have values of several types


def with_vector_width(options: Options, platform: str) -> Options:
    """Compiler options with vectors of 512 bits, where the CPU has them and nobody chose.

    XLA takes 256 by itself. The option ``platform_rules`` turns this off, and the flag
    ``xla_cpu_prefer_vector_width`` among the options or in ``XLA_FLAGS`` goes first.
    """
    if platform != "cpu" or not option("platform_rules") or not _has_wide_vectors():
        return options
    if _FLAG in env.xla_flags() or any(name == _FLAG for name, _ in options):
        return options
    return (*options, *_WIDE)


@functools.cache
def _has_wide_vectors() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            # All cores have the same; those of ARM are called Features.
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return _FEATURE in flags.split()
