"""Eigenvalues and eigenvectors of general matrices."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.calls import (
    char,
    info_of,
    lapack,
    nan_unless,
    on_cpu,
    succeeded,
)
from tracebridge.core.linalg.eigenvectors import eig_by_sweeps
from tracebridge.core.linalg.family import (
    Composed,
    check_dtype,
    check_square,
    matrices,
)
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    along_columns,
    along_rows,
    as_dtype,
    complex_dtype,
    conj,
    diagonal,
    is_empty,
    matmul,
    per_matrix,
    real_dtype,
    rows_of,
    scalar,
    scale_columns,
)
from tracebridge.core.linalg.solving import lu_solution
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@public_path("tracebridge.lax.linalg")
class EigImplementation(enum.Enum):
    """The library that ``eig`` calls: ``LAPACK`` on the CPU, none elsewhere."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


@final
class Eig(Composed):
    """Eigenvalues, then left and right eigenvectors where they are wanted."""

    name = "eig"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("eig", a)
        check_square("eig", a)
        dtype = complex_dtype(a.dtype)
        vectors = a.update(dtype=dtype)
        n_vectors = params["compute_left_eigenvectors"] + params["compute_right_eigenvectors"]
        return [vectors.update(shape=a.shape[:-1]), *[vectors] * n_vectors]

    def compose(self, *operands: Value, **params: Any) -> Any:
        (a,) = operands
        if is_empty(a.aval):
            return [zeros_of(o) for o in self.abstract_eval(a.aval, **params)]
        left, right = params["compute_left_eigenvectors"], params["compute_right_eigenvectors"]
        return eig_by_sweeps(a, left=left, right=right)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        left, right = params["compute_left_eigenvectors"], params["compute_right_eigenvectors"]
        if (left or right) and not params["enable_eigvec_derivs"]:
            msg = "eig: eigenvectors are differentiated, which they can be only where eigenvalues "
            msg += "are distinct, and up to the choice of their phases"
            raise UnsupportedArgumentError(msg, hint="pass enable_eigvec_derivs=True, or use eigh")
        options = {**params, "compute_right_eigenvectors": True, "enable_eigvec_derivs": True}
        w, *vectors = self.bind(*primals, **options)
        change = as_dtype(tangents[0], w.aval.dtype)
        dw, d_right = _perturbed(w, vectors[-1], change)
        outs, changes = [w], [dw]
        if left:
            outs.append(vectors[0])
            changes.append(_perturbed(conj(w), vectors[0], adjoint(change))[1])
        if right:
            outs.append(vectors[-1])
            changes.append(d_right)
        return outs, changes


eig_p = Eig()


def _perturbed(w: Value, v: Value, change: Value) -> tuple[Any, Any]:
    """The tangents of eigenvalues and of vectors of length 1 whose largest element is real."""
    if v.aval.shape[-1] == 0:
        return zeros_of(w.aval), zeros_of(v.aval)
    factors, _, order = lu_p.bind(v)
    inner = lu_solution(factors, order, matmul(change, v))
    shape = inner.aval.shape
    difference = lax.sub(along_columns(w, shape), along_rows(w, shape))
    equal = lax.eq(difference, zeros_of(difference.aval))
    ones = full_of(difference.aval, 1)
    turn = lax.div(inner, lax.select_n(equal, difference, ones))
    free = matmul(v, lax.select_n(equal, turn, zeros_of(turn.aval)))
    down = len(shape) - 2
    largest = lax.argmax(lax.abs(v), down, INT32)
    here = lax.eq(rows_of(shape), along_columns(largest, shape))
    zeros = zeros_of(v.aval)
    pivot = lax.real(lax.reduce_sum(lax.select_n(here, zeros, v), (down,)))
    moved = lax.imag(lax.reduce_sum(lax.select_n(here, zeros, free), (down,)))
    length = lax.real(lax.reduce_sum(lax.mul(conj(v), free), (down,)))
    along = lax.complex(lax.neg(length), lax.neg(lax.div(moved, pivot)))
    return diagonal(inner), lax.add(free, scale_columns(v, along))


def _moderate(a: Value) -> list[Any]:
    """Matrices over powers of two, where elements are so large or small that LAPACK scales them.

    Its libraries do not scale the eigenvalues back. The powers are 1 for all other matrices.
    """
    dtype = real_dtype(a.aval.dtype)
    parts = [lax.real(a), lax.imag(a)] if is_complex(a.aval.dtype) else [a]
    axes = (a.aval.ndim - 2, a.aval.ndim - 1)
    sizes = [lax.reduce_max(lax.abs(x), axes) for x in parts]
    size = sizes[0] if len(sizes) == 1 else lax.max(sizes[0], sizes[1])
    info = np.finfo(dtype)
    # Twice as strict as the bounds of LAPACK: the norm of two parts is larger.
    low = 2.0 * float(info.tiny) ** 0.5 / float(info.eps)
    is_far = lax.bitwise_or(lax.lt(size, scalar(size, low)), lax.gt(size, scalar(size, 1.0 / low)))
    usable = lax.bitwise_and(lax.is_finite(size), lax.ge(size, scalar(size, float(info.tiny))))
    # The exponent alone: a quotient by it is exact. By the primitive: data that have 64 bits keep
    # them, whatever the options say.
    kind = np.dtype(f"i{dtype.itemsize}")
    mask = int(np.array(math.inf, dtype).view(kind))
    bits = lax.bitcast_convert_type_p.bind(size, new_dtype=kind)
    power = lax.bitwise_and(bits, full_of(bits.aval, mask))
    power = lax.bitcast_convert_type_p.bind(power, new_dtype=dtype)
    unit = lax.select_n(lax.bitwise_and(is_far, usable), full_of(size.aval, 1), power)
    return [lax.div(a, as_dtype(per_matrix(unit, a.aval.shape), a.aval.dtype)), unit]


def _scaled_back(values: Value, unit: Value) -> Any:
    every = lax.broadcast_in_dim(unit, values.aval.shape, tuple(range(unit.aval.ndim)))
    # By parts: a complex product makes NaN of what is infinite.
    return lax.complex(lax.mul(lax.real(values), every), lax.mul(lax.imag(values), every))


def _eig_cpu(ctx: LoweringContext, operand: IrValue, **params: Any) -> list[Any]:
    (a,) = ctx.avals_in
    values, info = ctx.avals_out[0], info_of(a)
    vectors = values.update(shape=a.shape)
    parts = [a.update(shape=a.shape[:-1])] * (1 if is_complex(a.dtype) else 2)
    wanted = [params["compute_left_eigenvectors"], params["compute_right_eigenvectors"]]
    attributes = {
        name: char("V" if is_wanted else "N")
        for name, is_wanted in zip(("compute_left", "compute_right"), wanted, strict=True)
    }
    outs = [*parts, vectors, vectors, info]
    size = a.update(shape=a.shape[:-2], dtype=real_dtype(a.dtype))
    operand, unit = ctx.lower_fun(_moderate, operand, avals_in=[a])
    *w, left, right, status = lapack(ctx, "geev", [operand], [a], outs, attributes)
    eigenvalues = w[0] if len(w) == 1 else ctx.op1("stablehlo.complex", w, values)
    (eigenvalues,) = ctx.lower_fun(_scaled_back, eigenvalues, unit, avals_in=[values, size])
    ok = succeeded(ctx, status, info)
    kept = [v for v, is_wanted in zip((left, right), wanted, strict=True) if is_wanted]
    results = [nan_unless(ctx, ok, eigenvalues, values)]
    return [*results, *[nan_unless(ctx, ok, v, vectors) for v in kept]]


on_cpu(eig_p, _eig_cpu)


def eig(
    x: Operand,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Any]:
    """Eigenvalues and eigenvectors of general matrices.

    Args:
        x: matrices of shape ``(*batch, n, n)``.
        compute_left_eigenvectors: whether rows with ``u^H x = w u^H`` are wanted.
        compute_right_eigenvectors: whether columns with ``x v = v w`` are wanted.
        enable_eigvec_derivs: whether eigenvectors may be differentiated: it is right only where
            eigenvalues are distinct and one element of each vector is the largest.
        implementation: ``LAPACK``, or None.
        use_magma: no effect; MAGMA is not used.

    Returns:
        ``[w, left, right]`` without what is not wanted: complex arrays of shapes ``(*batch, n)``
        and ``(*batch, n, n)``; vectors are columns of length 1 whose largest element is real. NaN
        where it failed.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError, ShapeMismatchError: ``x`` is not of square matrices.
        UnsupportedArgumentError: another library than LAPACK is asked for.

    >>> import tracebridge as tb
    >>> w, v = tb.lax.linalg.eig(tb.numpy.eye(2), compute_left_eigenvectors=False)
    >>> w.tolist()
    [(1+0j), (1+0j)]
    """
    if implementation not in (None, EigImplementation.LAPACK) or use_magma:
        msg = f"eig: implementation={implementation}, use_magma={use_magma}"
        raise UnsupportedArgumentError(msg, expected="LAPACK: no other library is used")
    (a,), _ = matrices("eig", x)
    check_square("eig", a.aval)
    return eig_p.bind(
        a,
        compute_left_eigenvectors=bool(compute_left_eigenvectors),
        compute_right_eigenvectors=bool(compute_right_eigenvectors),
        enable_eigvec_derivs=bool(enable_eigvec_derivs),
        implementation=implementation,
    )
