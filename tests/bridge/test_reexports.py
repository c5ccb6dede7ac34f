"""Modules that only pass names on: dtypes, errors, stages, typing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import dtypes, errors
from tracebridge.core.dtypes.extended import ExtendedDType


def test_every_error_class_is_public() -> None:
    """Each exception and warning of the engine is in tracebridge.errors."""
    package = importlib.import_module("tracebridge.core.errors")
    defined = {
        name
        for info in pkgutil.iter_modules(package.__path__)
        for name, value in vars(importlib.import_module(f"{package.__name__}.{info.name}")).items()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and value.__module__ == "tracebridge.errors"
    }

    assert defined <= set(errors.__all__)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float64", "float32"),
        (None, "float32"),
        (int, "int32"),
        (np.uint64, "uint32"),
        ("bfloat16", "bfloat16"),
    ],
)
def test_canonical_dtypes(given: Any, expected: str) -> None:
    """64 bits become 32 unless enabled."""
    assert expected == dtypes.canonicalize_dtype(given).name
    with tb.enable_x64():
        assert 8 == dtypes.canonicalize_dtype("float64").itemsize


def test_extended_dtypes_need_permission() -> None:
    """They are no dtypes of numbers."""

    class Fake(ExtendedDType):
        type = dtypes.extended
        name = "fake"
        element_shape = (2,)
        element_dtype = np.dtype(np.uint32)

    with pytest.raises(errors.UnsupportedDtypeError, match="allow_extended_dtype"):
        dtypes.canonicalize_dtype(Fake())
    assert "fake" == dtypes.canonicalize_dtype(Fake(), allow_extended_dtype=True).name


def test_result_types() -> None:
    """The lattice; the flag for weak results."""
    assert np.float32 == dtypes.result_type(tnp.ones(2), 1)
    assert (np.float32, True) == dtypes.result_type(1, 2.0, return_weak_type_flag=True)
    with (
        tb.numpy_dtype_promotion("strict"),
        pytest.raises(dtypes.TypePromotionError, match="int32"),
    ):
        dtypes.result_type(np.int32, np.float32)


@pytest.mark.parametrize(
    ("x", "expected"),
    [(True, bool), (3, int), (2.0, float), (1j, complex), (np.float16(1), float)],
)
def test_python_classes_of_elements(x: Any, expected: type) -> None:
    """Of numbers and arrays."""
    assert expected is dtypes.scalar_type_of(x)
    assert expected is dtypes.scalar_type_of(tnp.asarray(x))


def test_things_without_a_python_class() -> None:
    """Float0 has none."""
    with pytest.raises(TypeError, match="float0"):
        dtypes.scalar_type_of(np.zeros(2, tb.float0))


def test_bfloat16_is_a_class() -> None:
    """Its instances are scalars, as with NumPy's own classes."""
    assert isinstance(dtypes.bfloat16, type)
    assert isinstance(np.zeros(1, dtypes.bfloat16)[0], dtypes.bfloat16)
    assert np.dtype("bfloat16") == dtypes.bfloat16 == tnp.ones(1, dtypes.bfloat16).dtype
    assert not isinstance(1.0, dtypes.bfloat16)


def test_questions_about_dtypes() -> None:
    """Hierarchy, sizes and limits include the narrow types."""
    assert dtypes.issubdtype(dtypes.bfloat16, np.floating)
    assert not dtypes.issubdtype("int4", np.floating)
    assert 4 == dtypes.itemsize_bits("int4")
    assert 7 == int(dtypes.iinfo("int4").max)
    assert float(dtypes.finfo("bfloat16").eps) == 2.0**-7


def test_stages_are_classes_of_results() -> None:
    """What jit's methods give."""
    f = tb.jit(tnp.sin)

    assert isinstance(f, tb.stages.Wrapped)
    assert isinstance(f.trace(1.0), tb.stages.Traced)
    assert isinstance(f.lower(1.0), tb.stages.Lowered)
    assert isinstance(f.lower(1.0).compile(), tb.stages.Compiled)
    assert isinstance(f.lower(1.0).args_info[0][0], tb.stages.ArgInfo)
