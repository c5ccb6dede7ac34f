"""to_tf over every primitive: the program in TensorFlow computes what the program in jit does."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
from tests.core.lax.op_table import TABLE, Op
from tests.devices.programs import PROGRAMS, Program
from tracebridge.core.dtypes import dtypes as d

pytestmark = pytest.mark.tf

# reason -> programs of tests/devices that are not compared here
ELSEWHERE = {
    "factors have signs and an order of their own: tests/integration/tf/test_linalg.py": (
        "cholesky lu qr eigh svd det det_alone solve hessenberg tridiagonal eig schur "
        "qr_with_pivots"
    ),
    "draws other numbers each time": "rng_uniform",
}
HOST = ("pure_callback", "io_callback", "debug_callback")
"""Functions of this process: an error, tested below."""

ELEMENTWISE = {str(op).replace(" ", "_") for op in TABLE}
OTHERS = [
    p
    for p in PROGRAMS
    if str(p) not in (*HOST, *ELEMENTWISE)
    and str(p).partition("_of_")[0] not in " ".join(ELSEWHERE.values()).split()
]
# A bound on what two releases of a compiler make of one program: fusions and approximations.
ROUNDINGS = {"bfloat16": 3e-2, "float16": 4e-3, "float64": 1e-11, "complex128": 1e-11}


def operand(random: np.random.Generator, aval: Any) -> np.ndarray[Any, Any]:
    """Elements between 0.1 and 0.9, integers from 0 to 3."""
    dtype = np.dtype(aval.dtype)
    if dtype.kind in "iu":
        return random.integers(0, 4, aval.shape).astype(dtype)
    x = random.uniform(0.1, 0.9, aval.shape)
    if dtype.kind == "c":
        x = x + 1j * random.uniform(0.1, 0.9, aval.shape)
    return x.astype(dtype)


def operands(program: Program) -> list[np.ndarray[Any, Any]]:
    """Reproducible arguments of a program."""
    random = np.random.default_rng(zlib.crc32(program.name.encode()))
    return [operand(random, aval) for aval in program.args]


def agree(expected: Any, actual: Any) -> None:
    """Fail unless all results have the dtype and shape, and the values up to roundings."""
    expected, actual = tb.tree.leaves(expected), tf.nest.flatten(actual)
    assert len(expected) == len(actual)
    for e, a in zip(expected, actual, strict=True):
        host, found = np.asarray(e), a.numpy()
        assert host.dtype == found.dtype
        assert host.shape == found.shape
        if host.dtype.kind in "iub":
            np.testing.assert_array_equal(found, host)
            continue
        bound = ROUNDINGS.get(host.dtype.name, 2e-5)
        wide = np.complex128 if host.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(found.astype(wide), host.astype(wide), rtol=bound, atol=bound)


def in_graph(fun: Any, *args: Any) -> Any:
    """The results of a tf.function."""
    graph = tf.function(tb.tf.to_tf(fun), autograph=False)
    return graph(*[tf.constant(a) for a in args])


@pytest.mark.parametrize("op", TABLE, ids=str)
def test_elementwise(op: Op) -> None:
    """Every dtype that the operation has: integers, 16 to 64 bits, complex numbers."""
    n = len(op.domains)
    args = [a for dtype in op.dtypes for a in op.args(dtype)]

    def fun(*xs: Any) -> list[Any]:
        return [op.fun(*xs[i : i + n]) for i in range(0, len(xs), n)]

    with tb.enable_x64(True):
        agree(tb.jit(fun)(*args), in_graph(fun, *args))


@pytest.mark.parametrize("program", OTHERS, ids=str)
def test_programs(program: Program) -> None:
    """Values and gradients of all other operations, in float32 and integers."""
    args = operands(program)
    with tb.enable_x64(True):
        agree(tb.jit(program.fun)(*args), in_graph(program.fun, *args))


# Operations whose programs for 64 bits are others, or have constants of their own.
WIDE = ["sort", "top_k", "cumsum", "reduce_prod", "gather", "scan", "fft", "irfft",
        "conv", "dot_general", "igamma", "betaln", "bessel_i0", "at[].add", "max_pooling",
        "associative_scan", "triangular_solve"]  # fmt: skip


@pytest.mark.parametrize("name", WIDE)
def test_programs_of_64_bits(name: str) -> None:
    """In float64 (complex128) and int64."""
    program = next(p for p in OTHERS if str(p) == name)
    wide = {"f": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64}
    args = [a.astype(wide[a.dtype.kind]) for a in operands(program)]
    with tb.enable_x64(True):
        expected = tb.jit(program.fun)(*args)
        assert any(np.asarray(e).dtype.itemsize >= 8 for e in tb.tree.leaves(expected))
        agree(expected, in_graph(program.fun, *args))


@pytest.mark.parametrize("name", ["erf", "top_k", "scan", "FFT", "conv", "normal", "composite"])
def test_saved(name: str, tmp_path: Any) -> None:
    """The signature of a SavedModel gives the same."""
    if name in ELEMENTWISE:
        op = next(o for o in TABLE if str(o) == name)
        fun, args = op.fun, op.args(d.float32)
    else:
        program = next(p for p in OTHERS if str(p) == name)
        fun, args = program.fun, operands(program)
    specs = [tf.TensorSpec(a.shape, a.dtype, name=f"x{i}") for i, a in enumerate(args)]
    tb.tf.save(lambda *xs: tb.tree.leaves(fun(*xs)), tmp_path / "model", specs)
    served = tf.saved_model.load(tmp_path / "model")

    agree(tb.jit(fun)(*args), served.serve(*args))


@pytest.mark.parametrize("name", HOST)
def test_functions_of_this_process(name: str) -> None:
    """The error names the function and says what to leave out."""
    program = next(p for p in PROGRAMS if str(p) == name)
    with pytest.raises(tb.errors.ExportError, match="cannot reach Python functions"):
        in_graph(program.fun, *operands(program))


def collectives(x: Any) -> Any:
    """All of them along an axis "i"."""
    lax = tb.lax
    return [
        *[f(x, "i") for f in (lax.psum, lax.pmax, lax.pmin, lax.pmean, lax.all_gather)],
        lax.ppermute(x, "i", [(0, 0)]),
        lax.all_to_all(x[None], "i", 0, 0),
        lax.psum_scatter(x[None], "i"),
        lax.axis_index("i"),
    ]


@pytest.mark.parametrize("mapped", [tb.vmap, tb.pmap])
def test_collectives_along_their_own_axis(mapped: Any) -> None:
    """Of one device, or of a mapped axis; without an axis there is nothing to collect."""
    fun = mapped(collectives, axis_name="i")
    x = np.array([[1, 2, 3]], np.float32)

    agree(tb.jit(fun)(x), in_graph(fun, x))
    with pytest.raises(tb.errors.UnboundAxisNameError, match="axis name: i"):
        in_graph(collectives, x)
