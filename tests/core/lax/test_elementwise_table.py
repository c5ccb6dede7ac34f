"""Every elementwise operation: values, dtypes, derivatives, batching, special values, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.lax.op_table import BINARY, EVERY, TABLE, UNARY, Op
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.mlir.context import building
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.symbolic.scope import symbolic_shape
from tracebridge.testing import check_rules
from tracebridge.testing.grads import vjp_of

Host = np.ndarray[Any, Any]

WITH_DTYPES = [pytest.param(op, dtype, id=f"{op}-{dtype}") for op in TABLE for dtype in op.dtypes]
# Derivatives are checked where differences are exact enough, else batching and jit alone.
WIDEST = [
    pytest.param(op, dtype, id=f"{op}-{dtype}")
    for op in TABLE
    for dtype in (
        [t for t in (d.float64, d.complex128, d.bool_) if t in op.dtypes]
        or [t for t in (d.int32, d.float32) if t in op.dtypes]
    )
]
MANY = [op for op in TABLE if len(op.domains) > 1]


def assert_within(actual: Host, expected: Host, ulps: float) -> None:
    """Each element is within some units in the last place of its dtype of the expected one."""
    dtype = actual.dtype
    if not d.is_inexact(dtype) or ulps == 0:
        np.testing.assert_array_equal(actual, expected.astype(dtype))
        return
    high = np.complex128 if d.is_complex(dtype) else np.float64
    info = finfo(dtype)
    with np.errstate(all="ignore"):
        found, wanted = actual.astype(high), expected.astype(high)
        error = np.abs(found - wanted)
        # Subnormal results may be flushed to zero.
        allowed = ulps * float(info.eps) * np.abs(wanted) + float(info.tiny)
        # Results of wider dtypes may overflow here.
        overflow = (np.abs(wanted) > float(info.max)) & (found == np.inf * np.sign(wanted.real))
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | (error <= allowed)
    same |= overflow

    assert np.all(same), f"got {found[~same]}, expected {wanted[~same]} at {np.argwhere(~same)}"


@pytest.mark.parametrize(("op", "dtype"), WITH_DTYPES)
def test_values_equal_the_reference(op: Op, dtype: Any) -> None:
    """Elements are within a few units in the last place, and have the promised dtype."""
    hosts = op.args(dtype)

    actual = np.asarray(op.fun(*map(put_numpy, hosts)))

    assert op.out_dtype(dtype) == actual.dtype
    assert_within(actual, op.expected(*hosts), op.ulps)


@pytest.mark.parametrize(("op", "dtype"), WIDEST)
def test_rules_agree(op: Op, dtype: Any) -> None:
    """jit, jvp, vjp, second order and vmap agree with each other and with differences."""
    hosts = op.args(dtype)

    check_rules(op.fun, *hosts, order=op.order, widen=False, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", MANY, ids=str)
def test_rank_0_operands_stand_beside_arrays(op: Op) -> None:
    """Each operand alone may be a scalar: the result is that of the repeated scalar."""
    dtype = d.float64 if d.float64 in op.dtypes else op.dtypes[0]
    hosts = op.args(dtype, (3,))
    for i, host in enumerate(hosts):
        some = [h[0] if k == i else h for k, h in enumerate(hosts)]
        full = [np.full_like(h, host[0]) if k == i else h for k, h in enumerate(hosts)]
        expected = np.asarray(op.fun(*map(put_numpy, full)))

        actual = np.asarray(op.fun(*[put_numpy(np.asarray(h)) for h in some]))

        np.testing.assert_array_equal(expected, actual)
        check_rules(op.fun, *some, order=min(op.order, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", TABLE, ids=str)
def test_results_are_weak_if_all_operands_are(op: Op) -> None:
    """Only what Python scalars alone decided stays weakly typed."""
    narrow = [t for t in (d.float32, d.complex64, d.int32) if t in op.dtypes]
    dtype = narrow[0] if narrow else op.dtypes[0]
    dtypes = [h.dtype for h in op.args(dtype)]
    strong = stage(lambda *xs: [op.fun(*xs)], [ShapedArray((2,), t) for t in dtypes])
    weak = stage(lambda *xs: [op.fun(*xs)], [ShapedArray((2,), t, weak_type=True) for t in dtypes])
    keeps = "convert" not in op.name and strong.out_avals[0].dtype != bool

    assert not strong.out_avals[0].weak_type
    assert not keeps or weak.out_avals[0].weak_type


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-30, np.inf, -np.inf, np.nan, 3e38]


@pytest.mark.parametrize("dtype", [d.float32, d.float64], ids=str)
@pytest.mark.parametrize("op", [o for o in UNARY if o.special and d.float32 in o.dtypes], ids=str)
def test_special_values_of_unary_operations(op: Op, dtype: Any) -> None:
    """Zeros, infinities, NaN and huge numbers give what NumPy gives, signs of zeros included."""
    host = np.array(SPECIAL, dtype)
    actual = np.asarray(op.fun(put_numpy(host)))
    with np.errstate(all="ignore"):
        expected = op.expected(host)

    assert_within(actual, expected, 16)
    if actual.dtype != bool:
        zero = (actual == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(expected[zero]), np.signbit(actual[zero]))


@pytest.mark.parametrize("dtype", [d.float32, d.float64], ids=str)
@pytest.mark.parametrize("op", [o for o in BINARY if o.special and d.float32 in o.dtypes], ids=str)
def test_special_values_of_binary_operations(op: Op, dtype: Any) -> None:
    """Each pair of zeros, infinities, NaN and ordinary numbers gives what NumPy gives."""
    values = np.array(SPECIAL, dtype)
    x, y = (v.reshape(-1) for v in np.meshgrid(values, values, indexing="ij"))
    actual = np.asarray(op.fun(put_numpy(x), put_numpy(y)))
    with np.errstate(all="ignore"):
        expected = np.asarray(op.reference(x, y))

    assert_within(actual, expected, 16)


@pytest.mark.parametrize("op", [o for o in UNARY + BINARY if o.name != "copy"], ids=str)
def test_dtypes_outside_the_table_are_refused(op: Op) -> None:
    """An operand of the wrong kind raises, and the message names the function and the dtype."""
    kinds = {k: [t for t in EVERY if d.issubdtype(t, k)] for k in KINDS}
    for kind, members in kinds.items():
        wrong = members[0]
        if any(t in op.dtypes for t in members) or (op.name, kind) in WIDER:
            continue
        hosts = [put_numpy(np.ones((2,), wrong)) for _ in op.domains]
        with pytest.raises(UnsupportedDtypeError, match=r"works on|no negative powers") as caught:
            op.fun(*hosts)

        assert f"{op.name} " in str(caught.value) or op.name == "reciprocal"
        assert wrong.name in str(caught.value)


KINDS = (np.bool_, np.signedinteger, np.unsignedinteger, np.floating, np.complexfloating)
# Dtypes that an operation takes but that NumPy's counterpart, or our table, has no values for.
WIDER = {
    ("atan2", np.complexfloating),
    ("shift_right_arithmetic", np.unsignedinteger),
    ("conj", np.floating),
    ("max", np.complexfloating),
    ("min", np.complexfloating),
}


@pytest.mark.parametrize("op", [o for o in BINARY if o.name != "complex"], ids=str)
def test_mixed_dtypes_are_refused(op: Op) -> None:
    """There is no promotion between arrays."""
    x, y = put_numpy(np.ones(2, np.float32)), put_numpy(np.ones(2, np.float64))
    with pytest.raises((DtypeMismatchError, UnsupportedDtypeError)) as caught:
        op.fun(x, y)

    assert f"{op.name}" in str(caught.value)
    assert "float64" in str(caught.value) or "f64[2]" in str(caught.value)


@pytest.mark.parametrize("op", BINARY, ids=str)
def test_mixed_shapes_are_refused(op: Op) -> None:
    """There is no broadcasting between arrays that have axes."""
    dtype = op.dtypes[0]
    x, y = put_numpy(np.ones(2, dtype)), put_numpy(np.ones(3, dtype))
    with pytest.raises(ShapeMismatchError, match=rf"^{op.name}: .*got \(2,\), \(3,\)"):
        op.fun(x, y)


@pytest.mark.parametrize("op", TABLE, ids=str)
def test_symbolic_shapes_lower(op: Op) -> None:
    """Programs and reverse derivatives with a symbolic dimension are valid StableHLO."""
    dtype = d.float64 if d.float64 in op.dtypes else op.dtypes[0]
    shape = symbolic_shape("n, 3")
    dtypes = [h.dtype for h in op.args(dtype, (1,))]
    for k in range(-1 if len(dtypes) > 1 else 0, len(dtypes)):
        # Operand k is a scalar, unless it is the only one.
        shapes = [() if i == k and len(dtypes) > 1 else shape for i in range(len(dtypes))]
        avals = [ShapedArray(s, t) for s, t in zip(shapes, dtypes, strict=True)]
        verify(lambda *xs: [op.fun(*xs)], avals)
        active = [d.is_inexact(t) for t in dtypes]
        (out,) = stage(lambda *xs: [op.fun(*xs)], avals).out_avals
        if op.order and any(active) and d.is_inexact(out.dtype):
            verify(vjp_of(lambda *xs: [op.fun(*xs)], active), [*avals, out])


def verify(fun: Any, avals: list[ShapedArray]) -> None:
    """Lower a flat function and let MLIR check the module."""
    lowered = lower_module(stage(fun, avals), "f", "cpu")
    with building():
        assert lowered.module.operation.verify()
