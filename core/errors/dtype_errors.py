"""Errors and warnings about dtypes and promotion.

Operations raise TypeError for a wrong dtype, the functions that differentiation gives (pullbacks,
linearizations) ValueError in comparable libraries; DtypeMismatchError is both, so that code that
catches either keeps working. Promotion fails with ValueError there, arithmetic of keys with
TypeError: TypePromotionError is both, too.
"""

from __future__ import annotations

from tracebridge.core.errors.base import PUBLIC_MODULE, TracebridgeError


class DtypeMismatchError(TracebridgeError, TypeError, ValueError):
    """Dtypes that must be equal differ, or an operation does not take this dtype.

    Arguments of one operation have different dtypes where equal ones are needed, or the operation
    is not defined for the dtype. Functions of `tb.lax` do not promote.

    Wrong::

        tb.lax.add(tnp.ones(2), tnp.ones(2, dtype="int32"))

    Right::

        tnp.add(tnp.ones(2), tnp.ones(2, dtype="int32"))
    """


class UnsupportedDtypeError(TracebridgeError, TypeError, ValueError):
    """A value has a dtype that no array can hold (object, str, datetime, foreign byte order).

    A value has a dtype that arrays cannot hold: objects, strings, dates, structured records, or
    numbers in foreign byte order.

    Wrong::

        tnp.array(["a", "b"])

    Right::

        tnp.array([ord("a"), ord("b")])

    Foreign byte order: `x.astype(x.dtype.newbyteorder("="))`.
    """


class ExplicitX64Error(UnsupportedDtypeError):
    """A 64-bit dtype was asked for by name while 64-bit types are off and none may be narrowed.

    A 64-bit dtype was asked for by name while 64-bit types are off (`enable_x64`), and the option
    `explicit_x64_dtypes` is `"error"`. It is a `ValueError` and an `UnsupportedDtypeError` too.

    Wrong::

        with tb.explicit_x64_dtypes("error"):
            tnp.zeros(3, dtype="float64")

    Right::

        with tb.enable_x64():
            tnp.zeros(3, dtype="float64")
    """


class TypePromotionError(TracebridgeError, ValueError, TypeError):
    """There is no implicit promotion between these dtypes.

    No dtype is a common one for these: promotion is strict (`numpy_dtype_promotion="strict"`), or
    one of them is a narrow float format that is never promoted silently.

    Wrong::

        tnp.ones(2, dtype="float8_e4m3fn") + tnp.ones(2, dtype="bfloat16")

    Right::

        tnp.ones(2, dtype="float8_e4m3fn").astype("bfloat16") + tnp.ones(2, dtype="bfloat16")
    """


class ExplicitX64Warning(UserWarning):
    """A 64-bit dtype was asked for by name while 64-bit types are off, and 32 bits were given.

    A 64-bit dtype was asked for by name while 64-bit types are off, and the 32-bit one was given.

    Wrong::

        tnp.zeros(3, dtype="float64")  # gives float32

    Right::

        tb.config.update("enable_x64", True)
        tnp.zeros(3, dtype="float64")

    `tb.config.update("explicit_x64_dtypes", "allow")` keeps 64-bit dtypes that are named and
    leaves the defaults at 32 bits; `"error"` refuses them.
    """


ExplicitX64Warning.__module__ = PUBLIC_MODULE
