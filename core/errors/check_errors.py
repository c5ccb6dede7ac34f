"""Errors that checks in traced programs find; see ``tracebridge.experimental.checkify``."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError

__all__ = [
    "CheckError",
    "DivisionByZeroError",
    "FailedCheckError",
    "NanError",
    "OutOfBoundsError",
]


class CheckError(TracebridgeError, ValueError):
    """A check in a traced program failed; subclasses say of which kind it was.

    A function made by `checkify` found a failure and `Error.throw` was called, or `check` was
    called outside of traced functions. The subclasses say which kind: `FailedCheckError`,
    `NanError`, `OutOfBoundsError`, `DivisionByZeroError`.

    Wrong::

        from tracebridge.experimental import checkify

        error, y = checkify.checkify(tb.lax.log, errors=checkify.all_checks)(-1.0)
        error.throw()

    Right::

        from tracebridge.experimental import checkify

        error, y = checkify.checkify(tb.lax.log, errors=checkify.all_checks)(2.0)
        error.throw()

    `error.get()` gives the message, or None, without raising.
    """


class FailedCheckError(CheckError):
    """A condition that was given to ``check`` did not hold.

    A condition that was given to `checkify.check` did not hold. The message is that of the check,
    with the values it was given.

    Wrong::

        from tracebridge.experimental import checkify

        checkify.check(1 > 2, "{} is not above {}", 1, 2)

    Right::

        from tracebridge.experimental import checkify

        checkify.check(2 > 1, "{} is not above {}", 2, 1)

    In a function that is compiled, apply `checkify.checkify` to it: programs cannot raise.
    """


class NanError(CheckError):
    """A primitive gave NaN.

    An operation gave NaN in a function under `checkify` with `nan_checks`. The message names the
    operation and the line.

    Wrong::

        from tracebridge.experimental import checkify

        error, y = checkify.checkify(tb.lax.sqrt, errors=checkify.nan_checks)(-1.0)
        error.throw()

    Right::

        from tracebridge.experimental import checkify

        error, y = checkify.checkify(tb.lax.sqrt, errors=checkify.nan_checks)(4.0)
        error.throw()

    Keep arguments inside the domain of the operation before it is applied.
    """


class OutOfBoundsError(CheckError, IndexError):
    """An index lay outside of the array.

    An index lay outside of an array, in a function under `checkify` with `index_checks`. Without
    the check such an index is moved inwards, or its update dropped.

    Wrong::

        from tracebridge.experimental import checkify

        x = tnp.arange(3.0)
        error, y = checkify.checkify(lambda i: x[i], errors=checkify.index_checks)(5)
        error.throw()

    Right::

        from tracebridge.experimental import checkify

        x = tnp.arange(3.0)
        error, y = checkify.checkify(lambda i: x[i], errors=checkify.index_checks)(2)
        error.throw()

    Say `x.at[i].get(mode="clip")` where moving the index inwards is meant.
    """


class DivisionByZeroError(CheckError, ZeroDivisionError):
    """A number was divided by zero.

    A number was divided by zero, in a function under `checkify` with `div_checks`.

    Wrong::

        from tracebridge.experimental import checkify

        error, y = checkify.checkify(tb.lax.div, errors=checkify.div_checks)(1.0, 0.0)
        error.throw()

    Right::

        from tracebridge.experimental import checkify

        error, y = checkify.checkify(tb.lax.div, errors=checkify.div_checks)(1.0, 2.0)
        error.throw()

    A division whose result is not used counts too: replace the divisor with `tnp.where` first.
    """
