"""Errors about options."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class UnknownOptionError(TracebridgeError, AttributeError):
    """There is no option of this name.

    There is no option of this name. The message names the closest ones. Options are changed by
    `update`, not by assignment.

    Wrong::

        tb.config.update("enable_64", True)

    Right::

        tb.config.update("enable_x64", True)
    """


class OptionValueError(TracebridgeError, ValueError, TypeError):
    """An option was given a value of the wrong type or outside its choices.

    An option got a value of the wrong type or outside its choices, or an option that can only be
    changed globally was used in a `with` block.

    Wrong::

        tb.config.update("numpy_rank_promotion", "error")

    Right::

        tb.config.update("numpy_rank_promotion", "raise")
    """


class OptionFrozenError(TracebridgeError, RuntimeError):
    """An option was changed too late: what it is about has started with another value.

    An option was changed too late. The number of CPU devices is read when the CPU backend starts,
    at the first use of a device; afterwards it stays.

    Wrong::

        x = tb.device_put(1.0, tb.devices("cpu")[0])
        tb.config.update("num_cpu_devices", 3)

    Right::

    Change it before the first use, or set the environment variable `TRACEBRIDGE_NUM_CPU_DEVICES`
    before the program starts.

        tb.config.update("num_cpu_devices", 3)
        x = tb.device_put(1.0, tb.devices("cpu")[0])
    """
