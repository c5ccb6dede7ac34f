"""The XLA flags that a program is compiled with, where its caller chose none."""

from __future__ import annotations

from tracebridge.core._jaxlib.xla import QUICK_COMPILE
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
    if not option("disable_most_optimizations"):
        return options
    chosen = {name for name, _ in options}
    flags = env.xla_flags()
    return (*options, *(f for f in QUICK_COMPILE if f[0] not in chosen and f[0] not in flags))
