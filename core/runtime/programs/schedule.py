"""In which order programs for the CPU run their kernels."""

from __future__ import annotations

from typing import Any

from tracebridge.core.config import env
from tracebridge.core.config.values import option

_FLAGS = ("xla_cpu_scheduler_type", "xla_cpu_enable_concurrency_optimized_scheduler")
_LEAST_MEMORY = ((_FLAGS[0], "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"),)

Options = tuple[tuple[str, Any], ...]  # Any: XLA's flags have values of several types


def with_schedule(options: Options, platform: str) -> Options:
    """Compiler options with the order that needs least memory, where nobody chose one.

    By itself XLA starts each kernel as early as it can, so that small programs hold copies of
    their arguments while a loop runs that needs none of them. The kernels use all cores one by
    one: no program was found that the other order makes slower. The option ``platform_rules`` turns
    this off, and the flags among the options or in ``XLA_FLAGS`` go first.
    """
    if platform != "cpu" or not option("platform_rules"):
        return options
    if any(flag in env.xla_flags() for flag in _FLAGS) or any(
        name in _FLAGS for name, _ in options
    ):
        return options
    return (*options, *_LEAST_MEMORY)
