"""Every program of tests/devices gives on a GPU what it gives on the CPU."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
from tests.core.lax.op_table import TABLE
from tests.devices.programs import PROGRAMS, Program

pytestmark = pytest.mark.gpu

NARROW = (ml_dtypes.bfloat16,)  # NumPy's comparisons do not know them
ELEMENTWISE = dict(zip(PROGRAMS, TABLE, strict=False))  # they come first

# Signs, phases or orders are the choice of a library; tests/gpu/test_linalg.py checks them.
UNDETERMINED = ("eig of", "eigh of", "svd of", "schur of", "hessenberg of", "tridiagonal of", "qr ")
# Streams that belong to a platform, callbacks without results, functions chosen by platform.
OF_A_PLATFORM = (
    "rng_bit_generator",
    "rng_uniform",
    "platform_dependent",
    "debug_callback",
    "tokens",
)
COMPARABLE = [p for p in PROGRAMS if not p.name.startswith(OF_A_PLATFORM)]


def tolerance(dtype: Any) -> float:
    """Of values of order one: sums are in another order, functions from another library."""
    if dtype.kind not in "fcV":
        return 0
    eps = {2: 2e-2, 4: 2e-5, 8: 2e-10, 16: 2e-10}.get(dtype.itemsize, 0.3)
    return 2e-5 if dtype == np.complex64 else eps


def filled(random: np.random.Generator, arg: Any) -> Any:
    """Numbers in (0.1, 0.9); matrices are symmetric and well conditioned.

    Integers repeat only where there are more than four: of equal indices any may win.
    """
    shape, dtype = arg.shape, np.dtype(arg.dtype)
    if dtype.kind in "iu":
        return (random.permutation(int(np.prod(shape))) % 4).reshape(shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    x = random.uniform(0.1, 0.9, shape)
    if dtype.kind == "c":
        x = x + 1j * random.uniform(0.1, 0.9, shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        x = x + np.conj(np.swapaxes(x, -1, -2)) + 4 * np.diag(np.arange(1, shape[-1] + 1))
    return x.astype(dtype)


def arguments(program: Program) -> list[Any]:
    """Those of the table of operations, or random ones."""
    op = ELEMENTWISE.get(program)
    if op is None:
        random = np.random.default_rng(zlib.crc32(program.name.encode()))
        return [filled(random, a) for a in program.args]
    wide = (np.float64, np.complex128, np.int64, np.uint64)
    dtypes = [t for t in op.dtypes if t not in wide] or op.dtypes
    return [a for t in dtypes for a in op.args(t)]


def run(program: Program, args: list[Any], platform: str) -> list[np.ndarray[Any, Any]]:
    """The results on a platform."""
    with (
        tb.enable_x64(True),
        tb.default_device(platform),
        tb.default_matmul_precision("highest"),
    ):
        out = tb.tree.leaves(tb.jit(program.fun)(*args))
    assert {d.platform for x in out for d in x.devices()} <= {platform}
    return [np.asarray(x) for x in out if not tb.dtypes.issubdtype(x.dtype, tb.dtypes.prng_key)]


@pytest.mark.parametrize("program", COMPARABLE, ids=str)
def test_equals_the_cpu(program: Program) -> None:
    """Values and gradients of every primitive."""
    args = arguments(program)

    here, there = run(program, args, "cpu"), run(program, args, "gpu")

    assert len(here) == len(there)
    for a, b in zip(here, there, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if program.name.startswith(UNDETERMINED):
            assert np.isfinite(a).all() == np.isfinite(b).all()
            continue
        limit = tolerance(a.dtype) * (10 if "det" in program.name else 1)
        wide = np.float32 if a.dtype in NARROW else a.dtype
        np.testing.assert_allclose(b.astype(wide), a.astype(wide), rtol=limit, atol=limit)
