"""The XLA flags that a program is compiled with, where its caller chose none."""

from __future__ import annotations

from tracebridge.core._jaxlib.xla import NO_EMITTERS, QUICK_COMPILE
from tracebridge.core.config import env
from tracebridge.core.config.values import option
from tracebridge.core.runtime.programs.schedule import Options, with_schedule


def with_flags(options: Options, platform: str) -> Options:
    """Compiler options and what the library's options and the platform add to them.

    What is among the options, or in ``XLA_FLAGS``, is left as it is.
    """
    return with_schedule(_with_effort(options), platform)


def _with_effort(options: Options) -> Options:
    """Compiler options by which XLA hardly optimises, where the library's option asks for that."""
    return _with(options, QUICK_COMPILE) if option("disable_most_optimizations") else options


def without_emitters(options: Options) -> Options:
    """Compiler options by which XLA compiles a small program for the CPU in half of the time."""
    return _with(options, NO_EMITTERS)


def _with(options: Options, more: Options) -> Options:
    chosen = {name for name, _ in options}
    flags = env.xla_flags()
    return (*options, *[f for f in more if f[0] not in chosen and f[0] not in flags])
