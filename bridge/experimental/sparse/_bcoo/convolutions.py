"""Convolutions of sparse arrays: bcoo_conv_general_dilated."""

from __future__ import annotations

import functools
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.programs.eval_shape import eval_shape
from tracebridge._api.programs.jit import jit
from tracebridge.core.conv.functions import conv_general_dilated
from tracebridge.core.conv.numbers import conv_dimension_numbers
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    UnsupportedArgumentError,
    kind_of,
)
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout

_CALL = "bcoo_conv_general_dilated"


def bcoo_conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> BCOO:
    """Convolution of sequences, of which at least one is sparse.

    The result has an element for each pair of elements, and those outside of it are padding.

    Args:
        lhs: BCOO or dense array of shape ``(1, 1, n)``.
        rhs: likewise, the kernel.
        window_strides: ones.
        padding: as in ``lax.conv_general_dilated``.
        lhs_dilation: None or ones.
        rhs_dilation: None or ones.
        dimension_numbers: None, or what it stands for: batch, channel, position.
        feature_group_count: 1.
        batch_group_count: 1.
        precision: without effect; products of single elements have that of their dtype.
        preferred_element_type: dtype of the result.
        out_sharding: as in ``lax.conv_general_dilated``.

    Returns:
        BCOO array with two axes of batches.

    Raises:
        ArgumentTypeError: an array is neither sparse nor dense.
        UnsupportedArgumentError: shapes, strides, dilations or groups of other convolutions.
        RankError, ShapeMismatchError: what ``lax.conv_general_dilated`` raises.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> x = sparse.BCOO.fromdense(tnp.array([[[0.0, 2.0, 0.0, 1.0]]]))
    >>> kernel = tnp.array([[[1.0, 10.0]]])
    >>> y = sparse.bcoo_conv_general_dilated(x, kernel, window_strides=(1,), padding="VALID")
    >>> print(y.todense())
    [[[20.  2. 10.]]]
    """
    for name, x in (("lhs", lhs), ("rhs", rhs)):
        if not isinstance(x, BCOO) and not hasattr(x, "dtype"):
            raise ArgumentTypeError(f"{_CALL}: {name} is {kind_of(x)}, expected an array")
    single = {
        "window_strides": window_strides,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
    }
    for name, value in single.items():
        if value is not None and any([n != 1 for n in value]):
            raise UnsupportedArgumentError(
                f"{_CALL}: {name} is {value}", expected="ones", hint="convolve dense arrays"
            )
    if (feature_group_count, batch_group_count) != (1, 1):
        msg = f"{_CALL}: {feature_group_count} and {batch_group_count} groups"
        raise UnsupportedArgumentError(msg, expected="1", hint="convolve dense arrays")
    plain = all([tuple(x.shape[:-1]) == (1, 1) for x in (lhs, rhs)])
    if not plain or _moved(lhs, rhs, dimension_numbers):
        msg = f"{_CALL}: shapes {tuple(lhs.shape)} and {tuple(rhs.shape)}"
        raise UnsupportedArgumentError(
            msg,
            expected="(1, 1, n) and (1, 1, m), the axes in that order",
            hint="convolve dense arrays",
        )
    dense = functools.partial(
        conv_general_dilated,
        window_strides=window_strides,
        padding=padding,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )
    given = [ShapeDtypeStruct(x.shape, x.dtype) for x in (lhs, rhs)]
    out: Any = eval_shape(dense, *given)
    low = _low_padding(padding, lhs.shape[-1], rhs.shape[-1], out.shape[-1])
    return _convolved(_elements(lhs), _elements(rhs), low, out.shape[-1], out.dtype)


def _moved(lhs: Any, rhs: Any, numbers: Any) -> bool:
    """Whether axes are in another order than batch, channel, position."""
    if numbers is None:
        return False
    found, plain = [conv_dimension_numbers(lhs.shape, rhs.shape, n) for n in (numbers, None)]
    return found != plain


def _low_padding(padding: Any, n: int, window: int, size: int) -> int:
    """The zeros in front of ``lhs``."""
    if not isinstance(padding, str):
        return int(padding[0][0])
    total = max(size + window - 1 - n, 0)
    return -(-total // 2) if padding.upper() == "SAME_LOWER" else total // 2


def _elements(x: Any) -> tuple[Any, Any]:
    """Values and positions of a sequence; values of padding are zero."""
    if not isinstance(x, BCOO):
        return x[0, 0], tnp.arange(x.shape[-1], dtype="int32")
    x = bcoo_update_layout(x, n_batch=2, n_dense=0)  # of size 1 each
    where = x.indices[0, 0, :, 0]
    return tnp.where(where < x.shape[-1], x.data[0, 0], 0), where


@functools.partial(jit, static_argnums=(2, 3, 4))
def _convolved(lhs: Any, rhs: Any, low: int, size: int, dtype: Any) -> BCOO:
    (x, i), (kernel, j) = lhs, rhs
    data = (x[:, None] * kernel[None, :]).reshape(-1).astype(dtype)
    where = (i[:, None] + (low - j[None, :])).reshape(-1)
    inside = (where >= 0) & (where < size)
    data, where = tnp.where(inside, data, 0), tnp.where(inside, where, size)
    return BCOO((data[None, None], where[None, None, :, None]), shape=(1, 1, size))
