"""Products of operands with scales for blocks of a contracting axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import bfloat16
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.contract.dot import DotDimensionNumbers, dot_general_p
from tracebridge.core.lax.contract.precision import canonical_precision

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value


def scaled_dot(
    lhs: Operand,
    rhs: Operand,
    *,
    lhs_scale: Operand | None = None,
    rhs_scale: Operand | None = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: object = None,
) -> Any:
    """``(lhs * lhs_scale) @ (rhs * rhs_scale)``, for operands of few bits.

    Scaled operands are rounded to bfloat16. That is exact for float8 and float4 with scales that
    are powers of 2.

    Args:
        lhs: array of shape ``(*batch, m, k)``; any axes with ``dimension_numbers``.
        rhs: array of shape ``(*batch, k, n)``; any axes with ``dimension_numbers``.
        lhs_scale: factors of ``lhs``: its shape, but with ``k / b`` elements along contracting
            axes, each for a block of ``b`` elements, at least 2; ``None`` means 1.
        rhs_scale: factors of ``rhs``, likewise.
        dimension_numbers: as in ``dot_general``.
        preferred_element_type: dtype of the sums and of the result; default: bfloat16.

    Returns:
        Array with the batch axes, the free axes of ``lhs``, then those of ``rhs``.

    Raises:
        RankError: operands of fewer than two axes, or scales of other ranks.
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge as tb
    >>> x, scale = tb.numpy.ones((1, 4)), tb.numpy.array([[2.0, 8.0]])
    >>> tb.lax.scaled_dot(x, x.T, lhs_scale=scale).tolist()
    [[20.0]]
    """
    x, y = as_value(lhs, "scaled_dot"), as_value(rhs, "scaled_dot")
    if dimension_numbers is None:
        n = x.aval.ndim
        if n < 2 or n != y.aval.ndim:
            msg = f"scaled_dot: got {x.aval.str_short()} and {y.aval.str_short()}"
            raise RankError(msg, expected="as many axes, at least 2, or dimension_numbers")
        batch = tuple(range(n - 2))
        dimension_numbers = ((n - 1,), (n - 2,)), (batch, batch)
    (xc, yc), (xb, yb) = [tuple([tuple(side) for side in pair]) for pair in dimension_numbers]
    dtype = bfloat16
    if preferred_element_type is not None:
        dtype = canonicalize_explicit(preferred_element_type, "scaled_dot")
    return dot_general_p.bind(
        scaled("scaled_dot: lhs", x, lhs_scale, xc, bfloat16),
        scaled("scaled_dot: rhs", y, rhs_scale, yc, bfloat16),
        dimension_numbers=((xc, yc), (xb, yb)),
        precision=canonical_precision(None, "scaled_dot"),
        preferred_element_type=dtype,
    )


def scaled(what: str, x: Value, scale: Operand | None, blocked: Sequence[int], dtype: Any) -> Any:
    """``x`` times the scale of each block along the axes ``blocked``, in ``dtype``.

    Raises:
        RankError: the scale has another number of axes.
        ShapeMismatchError: its sizes are no parts of those of ``x``.
    """
    values = lax.convert_dtype(x, dtype)
    if scale is None:
        return values
    s = as_value(scale, what)
    got = f"{what} is {x.aval.str_short()}, its scale {s.aval.str_short()}"
    if s.aval.ndim != x.aval.ndim:
        raise RankError(got, expected="as many axes")
    wide: list[Any] = []
    for axis, (n, m) in enumerate(zip(x.aval.shape, s.aval.shape, strict=True)):
        fits = n == m if axis not in blocked or n == 0 else m and n % m == 0 and n // m >= 2
        if not fits:
            expected = f"axis {axis} of the size {n}"
            if axis in blocked:
                expected = f"axis {axis} of a size that divides {n} into blocks of 2 or more"
            raise ShapeMismatchError(got, expected=expected)
        wide.extend([m, n // m if m else 1])
    blocks = lax.broadcast_in_dim(
        lax.convert_dtype(s, dtype), tuple(wide), tuple(range(0, 2 * s.aval.ndim, 2))
    )
    return lax.mul(values, lax.reshape(blocks, x.aval.shape))
