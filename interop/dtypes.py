"""Dtypes that the engine exchanges, and the names that a framework has for them.

Each adapter states its framework's rows; those of DLPack stand here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from tracebridge.core.dtypes import dtypes
from tracebridge.core.errors.exchange_errors import UnsupportedExchangeDtypeError
from tracebridge.core.runtime.arrays.transfer import check_host_dtype

# NumPy and the protocols of memory know these.
PLAIN: dict[str, np.dtype[Any]] = {
    "bool": dtypes.bool_,
    "int8": dtypes.int8,
    "int16": dtypes.int16,
    "int32": dtypes.int32,
    "int64": dtypes.int64,
    "uint8": dtypes.uint8,
    "uint16": dtypes.uint16,
    "uint32": dtypes.uint32,
    "uint64": dtypes.uint64,
    "float16": dtypes.float16,
    "float32": dtypes.float32,
    "float64": dtypes.float64,
    "complex64": dtypes.complex64,
    "complex128": dtypes.complex128,
}
# These cross as unsigned integers of the same width where NumPy is on the way.
DISGUISED: dict[str, np.dtype[Any]] = {
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.float8_e4m3fn,
    "float8_e5m2": dtypes.float8_e5m2,
    "float8_e4m3fnuz": dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": dtypes.float8_e8m0fnu,
}
CARRIERS: dict[int, np.dtype[Any]] = {1: dtypes.uint8, 2: dtypes.uint16}


def check_exchanged(dtype: np.dtype[Any]) -> None:
    """Raise for dtypes of NumPy that the protocols or the engine have not.

    Raises:
        UnsupportedExchangeDtypeError: floats of more than 64 bits.
        UnsupportedDtypeError: objects, strings, dates, structures.
    """
    if dtype.type in (np.longdouble, np.clongdouble) and np.dtype(np.longdouble) != np.float64:
        msg = f"DLPack has no dtype {dtype.name}"
        raise UnsupportedExchangeDtypeError(msg, hint="convert with x.astype('float64')")
    check_host_dtype(dtype)


@final
class DtypeRows:
    """The dtypes that one framework shares with the engine.

    Args:
        framework: what messages call it.
        rows: its name of a dtype -> ours.
    """

    def __init__(self, framework: str, rows: Mapping[str, np.dtype[Any]]) -> None:
        self.framework = framework
        self.rows = dict(rows)
        self._name_of = {ours: theirs for theirs, ours in rows.items()}

    def ours(self, name: str) -> np.dtype[Any]:
        """The engine's dtype for the framework's dtype ``name``.

        Raises:
            UnsupportedExchangeDtypeError: the engine has no such dtype, or stores it otherwise.
        """
        found = self.rows.get(name)
        if found is None:
            msg = f"a {self.framework} tensor of dtype {name} cannot become an array"
            raise UnsupportedExchangeDtypeError(
                msg,
                expected="bool, integers of 8 to 64 bits, float8 to float64, bfloat16 or complex",
                hint="convert it to one of these in its own framework first",
            )
        return found

    def name(self, dtype: np.dtype[Any]) -> str:
        """The framework's name for a dtype of the engine.

        Raises:
            UnsupportedExchangeDtypeError: it has none.
        """
        found = self._name_of.get(dtype)
        if found is None:
            msg = f"an array of dtype {dtype} has no counterpart in {self.framework}"
            raise UnsupportedExchangeDtypeError(msg, hint="convert it first: x.astype('float32')")
        return found


DLPACK = DtypeRows("DLPack", {**PLAIN, **DISGUISED})


def is_exchanged(dtype: np.dtype[Any]) -> bool:
    """Whether DLPack has a dtype of ours."""
    return dtype in _EXCHANGED


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype of ours needs no disguise."""
    return dtype in _PLAIN


_EXCHANGED = frozenset(DLPACK.rows.values())
_PLAIN = frozenset(PLAIN.values())
