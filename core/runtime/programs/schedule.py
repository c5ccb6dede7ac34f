"""In which order programs for the CPU run their kernels."""

from __future__ import annotations

from typing import Any

from tracebridge.core.config import env
from tracebridge.core.config.values import option

_FLAGS = ("xla_cpu_scheduler_type", "xla_cpu_enable_concurrency_optimized_scheduler")
_LEAST_MEMORY = ((_FLAGS[0], "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"),)

# A second order is tried where the first one needs memory of so many bytes, and for so many times
# the largest value: then several large values wait for each other.
_LEAST_BYTES = 1 << 23
_LARGE_VALUES = 2.5
# Bytecode of a program, of which a second compilation takes about a second.
_MOST_COMPILED_TWICE = 1 << 13
_LESS = 0.9  # of the memory, or the first order stays

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


def without_schedule(options: Options, given: Options) -> Options | None:
    """``options`` without the order that ``with_schedule`` added to those ``given``, if it did."""
    added = [pair for pair in _LEAST_MEMORY if pair in options and pair not in given]
    return tuple([pair for pair in options if pair not in added]) if added else None


def may_need_less(executable: Any, largest: float, size: int) -> bool:
    """Whether another order of a program of ``size`` bytes of code might need much less memory.

    The order that ``with_schedule`` chooses goes for the deepest value first. In backward passes
    that is the gradient of the first layer, and the cotangents of all layers wait for the other
    gradients. XLA's own order takes all values of one depth, and frees each cotangent.
    """
    if size > _MOST_COMPILED_TWICE:
        return False
    memory = _memory_of(executable)
    return memory >= _LEAST_BYTES and memory > _LARGE_VALUES * largest


def needs_less(executable: Any, other: Any) -> bool:
    """Whether a program needs clearly less memory than another one."""
    return _memory_of(executable) < _LESS * _memory_of(other)


def _memory_of(executable: Any) -> int:
    """Bytes between arguments and results."""
    return executable.get_compiled_memory_stats().temp_size_in_bytes
