"""Dtypes of the engine and of the frameworks: one row for each dtype that is exchanged.

Frameworks' dtypes are written by name, so that no framework is imported here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tracebridge.core.dtypes import dtypes
from tracebridge.core.errors.exchange_errors import UnsupportedExchangeDtypeError


class Row(NamedTuple):
    """One dtype: ours, torch's and TensorFlow's name, and whether it needs no disguise.

    ``plain`` dtypes are known to NumPy and DLPack alike. The others cross as unsigned integers
    of the same width where NumPy is on the way.
    """

    ours: np.dtype[Any]
    torch: str | None
    tensorflow: str | None
    plain: bool


TABLE: tuple[Row, ...] = (
    Row(dtypes.bool_, "bool", "bool", True),
    Row(dtypes.int8, "int8", "int8", True),
    Row(dtypes.int16, "int16", "int16", True),
    Row(dtypes.int32, "int32", "int32", True),
    Row(dtypes.int64, "int64", "int64", True),
    Row(dtypes.uint8, "uint8", "uint8", True),
    Row(dtypes.uint16, "uint16", "uint16", True),
    Row(dtypes.uint32, "uint32", "uint32", True),
    Row(dtypes.uint64, "uint64", "uint64", True),
    Row(dtypes.float16, "float16", "float16", True),
    Row(dtypes.float32, "float32", "float32", True),
    Row(dtypes.float64, "float64", "float64", True),
    Row(dtypes.complex64, "complex64", "complex64", True),
    Row(dtypes.complex128, "complex128", "complex128", True),
    Row(dtypes.bfloat16, "bfloat16", "bfloat16", False),
    Row(dtypes.float8_e4m3fn, "float8_e4m3fn", "float8_e4m3fn", False),
    Row(dtypes.float8_e5m2, "float8_e5m2", "float8_e5m2", False),
    Row(dtypes.float8_e4m3fnuz, "float8_e4m3fnuz", None, False),
    Row(dtypes.float8_e5m2fnuz, "float8_e5m2fnuz", None, False),
    Row(dtypes.float8_e8m0fnu, "float8_e8m0fnu", None, False),
)

FROM_TORCH: dict[str, Row] = {row.torch: row for row in TABLE if row.torch is not None}
FROM_TENSORFLOW: dict[str, Row] = {
    row.tensorflow: row for row in TABLE if row.tensorflow is not None
}
_OURS: dict[np.dtype[Any], Row] = {row.ours: row for row in TABLE}
CARRIERS: dict[int, np.dtype[Any]] = {1: dtypes.uint8, 2: dtypes.uint16}


def is_exchanged(dtype: np.dtype[Any]) -> bool:
    """Whether DLPack has a dtype of ours."""
    return dtype in _OURS


def row_of(dtype: Any, framework: str) -> Row:
    """The row of a dtype of ours that ``framework`` ("torch", "tensorflow", "dlpack") has.

    Raises:
        UnsupportedExchangeDtypeError: there is none.
    """
    row = _OURS.get(dtype)
    if row is None or (framework != "dlpack" and getattr(row, framework) is None):
        msg = f"an array of dtype {dtype} has no counterpart in {framework}"
        raise UnsupportedExchangeDtypeError(msg, hint="convert it first: x.astype('float32')")
    return row


def row_from(table: dict[str, Row], name: str, framework: str) -> Row:
    """The row of a framework's dtype ``name``.

    Raises:
        UnsupportedExchangeDtypeError: the engine has no such dtype, or stores it otherwise.
    """
    row = table.get(name)
    if row is None:
        msg = f"a {framework} tensor of dtype {name} cannot become an array"
        raise UnsupportedExchangeDtypeError(
            msg,
            expected="bool, integers of 8 to 64 bits, float8 to float64, bfloat16 or complex",
            hint="convert it to one of these in its own framework first",
        )
    return row
