"""Names and registration of custom call targets."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tracebridge.core._jaxlib import ffi


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "lapack_sgetrf_ffi"),
        (np.float64, "lapack_dgetrf_ffi"),
        ("complex64", "lapack_cgetrf_ffi"),
        (np.dtype(np.complex128), "lapack_zgetrf_ffi"),
    ],
)
def test_lapack_names(dtype: object, name: str) -> None:
    """One letter for each dtype, as LAPACK has it."""
    assert name == ffi.lapack_target("getrf_ffi", dtype)


def test_lapack_has_no_half_precision() -> None:
    """The message lists what there is."""
    with pytest.raises(TypeError, match="got dtype float16, expected one of"):
        ffi.lapack_target("getrf_ffi", np.float16)


def test_registering_twice_is_harmless() -> None:
    """Other libraries register the same kernels."""
    ffi.register_lapack_targets()
    ffi._registered.clear()
    ffi.register_lapack_targets()
    ffi.register_sparse_targets()
    ffi.register_sparse_targets()


def test_capsule_around_a_function_pointer() -> None:
    """What a compiled kernel needs to be registered."""
    function = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)

    assert "PyCapsule" in type(ffi.make_capsule(function)).__name__


def test_headers_are_there() -> None:
    """The folder that a user's kernel is compiled with."""
    assert (Path(ffi.include_dir()) / "xla" / "ffi" / "api" / "ffi.h").exists()
