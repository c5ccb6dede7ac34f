"""Names and forms of precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tracebridge import lax
from tracebridge.core.config.options import MATMUL_PRECISIONS
from tracebridge.core.errors.config_errors import OptionValueError
from tracebridge.core.lax.contract.precision import canonical_precision, tf32

DEFAULT, HIGH, HIGHEST = lax.Precision


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", DEFAULT),
        ("fastest", DEFAULT),
        ("bfloat16", DEFAULT),
        ("high", HIGH),
        ("bfloat16_3x", HIGH),
        ("tensorfloat32", HIGH),
        ("highest", HIGHEST),
        ("float32", HIGHEST),
        (None, DEFAULT),
    ],
)
def test_names(name: str | None, expected: lax.Precision) -> None:
    """Every name stands for one of three precisions."""
    assert expected is lax.Precision(name)


def test_unknown_names_are_refused() -> None:
    """An unknown name is no precision, alone or in a pair."""
    with pytest.raises(ValueError, match="'float64' is not a valid Precision"):
        lax.Precision("float64")
    for wrong in ("float64", ("high",), ("high", None), 3, ("high", "high", "high")):
        with pytest.raises(OptionValueError, match="dot_general: got precision="):
            canonical_precision(wrong, "dot_general")


@pytest.mark.parametrize("name", MATMUL_PRECISIONS)
def test_every_value_of_the_option_is_a_precision(name: str) -> None:
    """What default_matmul_precision takes has a normal form."""
    found = canonical_precision(name, "dot_general")

    assert isinstance(found, tuple | lax.DotAlgorithmPreset)


def test_precisions_print_as_their_names() -> None:
    """The short form is the name alone."""
    assert ("HIGH", "Precision.HIGH") == (str(HIGH), repr(HIGH))
    preset = lax.DotAlgorithmPreset.F32_F32_F32
    assert ("F32_F32_F32", "DotAlgorithmPreset.F32_F32_F32") == (str(preset), repr(preset))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DEFAULT", None),
        ("F16_F16_F32", (np.float16, np.float16, np.float32, 1, 1, 1, False)),
        ("TF32_TF32_F32_X3", (tf32, tf32, np.float32, 1, 1, 3, False)),
        ("BF16_BF16_F32_X9", (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32, 1, 1, 9, False)),
        ("F64_F64_F64", (np.float64, np.float64, np.float64, 1, 1, 1, False)),
    ],
)
def test_presets_are_algorithms(name: str, expected: Any) -> None:
    """A preset names the formats of the factors and the sum, and the number of products."""
    f32 = np.dtype(np.float32)
    found = lax.DotAlgorithmPreset[name].algorithm(f32, f32, f32)

    assert expected == (None if found is None else tuple(found))


def test_presets_for_eight_bits_follow_the_operands() -> None:
    """ANY_F8 stands for the formats of the operands."""
    a, b = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
    bf16 = np.dtype(ml_dtypes.bfloat16)

    assert (a, b, np.float32, 1, 1, 1, True) == tuple(
        lax.DotAlgorithmPreset.ANY_F8_ANY_F8_F32_FAST_ACCUM.algorithm(a, b, bf16) or ()
    )
    assert (a, b, bf16, 1, 1, 1, False) == tuple(
        lax.DotAlgorithmPreset.ANY_F8_ANY_F8_ANY.algorithm(a, b, bf16) or ()
    )
