"""Numbers rounded to the steps of small integers, for training with them, and their products."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, cast, is_array


def _rounded(x: Value, scale: Any, zero: Any, least: int, largest: int) -> tuple[Any, Any]:
    """The nearest steps, and which numbers have one: these alone have a derivative."""
    exact = cast(x, np.dtype(np.float32)) if x.dtype.itemsize == 2 else x
    fixed = lax.stop_gradient(exact)
    between = is_array(zero) and zero.dtype.kind == "f"
    scale, zero = [lax.stop_gradient(cast(v, exact.dtype)) for v in (scale, zero)]
    steps = fixed * (cast(1, exact.dtype) / scale)
    # A place of zero between steps is rounded together with the number.
    step = tnp.round(steps + zero) if between else tnp.round(steps) + zero
    kept = (step >= least) & (step <= largest)
    y = (tnp.clip(step, least, largest) - zero) * scale
    moving = tnp.where(kept, exact, cast(0, exact.dtype))
    return cast(y + (moving - lax.stop_gradient(moving)), x.dtype), kept


def _one_scale(x: Value, scale: Any, zero: Any, quant_min: int, quant_max: int) -> tuple[Any, Any]:
    return _rounded(x, scale, zero, quant_min, quant_max)


def _one_scale_or_none(
    x: Value, scale: Value, zero: Value, enabled: Value, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    """As one scale, where a flag says so."""
    scale, zero, on = [tnp.reshape(v, (-1,))[0] for v in (scale, zero, enabled)]
    y, kept = _rounded(x, scale, zero, quant_min, quant_max)
    return tnp.where(on != 0, y, x), kept | (on == 0)


def _scale_of_each(
    x: Value, scale: Value, zero: Value, axis: int, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    shape = [1] * x.ndim
    shape[axis] = -1
    scale, zero = tnp.reshape(scale, shape), tnp.reshape(zero, shape)
    return _rounded(x, scale, zero, quant_min, quant_max)


def _int_product(a: Value, b: Value) -> Any:
    return tnp.matmul(a, b, preferred_element_type=np.int32)


ROWS: Final[dict[str, Operator]] = {
    "_int_mm.default": _int_product,
    "fake_quantize_per_tensor_affine_cachemask.default": _one_scale,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": _one_scale_or_none,
    "fake_quantize_per_channel_affine_cachemask.default": _scale_of_each,
}
