"""Convolutions by oneDNN, whose kernels on x86 are those that torch uses too.

Axes may have any order, sums are in float32.

Where the library has no kernel of its own it takes a product of matrices (``gemm:jit``), which
divides its work among threads twice, one within the other. XLA's threads are not told so: the
inner part waits for the outer one, and the program never ends. No such call is written: without
AVX-512 features have to be last, and depthwise kernels have no holes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.mlir.onednn import (
    CONVOLUTION,
    IS_BUILT_IN,
    emit_call,
    has_avx2,
    has_avx512,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.conv.geometry import Geometry
    from tracebridge.core.conv.numbers import Ints
    from tracebridge.core.ir.rule_contexts import LoweringContext

# A call looks the kernel up and arranges the weights anew, which takes 40 us. XLA does so many
# products meanwhile; with groups, or along three axes, fewer.
_FEW_PRODUCTS = 1 << 22
_FEW_SLOW_PRODUCTS = 1 << 21
_MAX_KERNEL = 1 << 14  # places of a kernel
LEAST_OF_GROUP = 4
"""Features of a group; for fewer the library has plain loops."""


def has_kernels(g: Geometry, dtype: Any) -> bool:
    """Whether the library is there and has fast kernels for such axes and elements.

    It may want features last (``wants_features_last``).
    """
    return (
        IS_BUILT_IN
        and has_avx2()
        and dtype == np.float32
        and 1 <= g.n_space <= 3
        and g.batch_groups == 1
        and (g.groups == 1 or _has_kernels_for_groups(g))
        and _is_usual(g.numbers.lhs_spec)
        and _axes_order(g.numbers.lhs_spec) == _axes_order(g.numbers.out_spec)
        and not _is_ambiguous(g)
    )


def _has_kernels_for_groups(g: Geometry) -> bool:
    if g.inputs == g.outputs == 1:
        return g.n_space > 1 and max(_holes(g)) == 1
    # Few inputs do where the kernel is as large as an image: a gradient.
    is_gradient = math.prod(g.results) < math.prod(g.kernel)
    return (is_gradient or g.inputs >= LEAST_OF_GROUP) and g.outputs >= LEAST_OF_GROUP


def _holes(g: Geometry) -> list[int]:
    """Steps between the places of a kernel. A single one has none."""
    return [hole if n > 1 else 1 for hole, n in zip(g.rhs_dilation, g.kernel, strict=True)]


def wants_features_last(g: Geometry) -> bool:
    """Whether the library has kernels for the convolution with features last only.

    For AVX-512 it turns arrays round by itself.
    """
    return not has_avx512() and not has_features_last(g)


def can_convolve(g: Geometry, dtype: Any) -> bool:
    """Whether the library has a fast kernel for the convolution, and it is worth the call."""
    least = _FEW_PRODUCTS if g.groups == 1 and g.n_space < 3 else _FEW_SLOW_PRODUCTS
    return (
        has_kernels(g, dtype)
        and g.products >= least
        and max(g.lhs_dilation) == 1
        and math.prod(g.kernel) <= _MAX_KERNEL
    )


def _is_ambiguous(g: Geometry) -> bool:
    """Whether an array has one feature or one place, so that NCHW and NHWC are the same memory.

    The library takes kernels that it has made for one of them for the other, and some of them
    write nothing then.
    """
    features = g.lhs[g.numbers.lhs_spec[1]], g.out[g.numbers.out_spec[1]]
    return 1 in (*features, math.prod(g.sizes), math.prod(g.results))


def _axes_order(spec: Ints) -> list[int]:
    """The roles of axes (0: batch, 1: features) in their order in memory."""
    return sorted(range(len(spec)), key=lambda role: spec[role])


def _is_usual(spec: Ints) -> bool:
    """Whether axes lie in an order that the library has fast kernels for: NCHW or NHWC."""
    space = [*spec[2:]]
    return [*spec[:2], *space] == sorted(spec) or [spec[0], *space, spec[1]] == sorted(spec)


def has_features_last(g: Geometry) -> bool:
    """Whether features are the axis that vectors lie along."""
    return g.numbers.lhs_spec[1] == g.numbers.out_spec[1] == len(g.lhs) - 1


def emit(ctx: LoweringContext, operands: Sequence[Any], g: Geometry) -> Any:
    """The call, for operands in float32 and paddings that do not cut."""
    config = {"onednn_conv_config": _config(g)}
    return emit_call(ctx, CONVOLUTION, config, operands, ctx.avals_in, ctx.aval_out)


def _config(g: Geometry) -> dict[str, Any]:
    lhs, rhs, out = g.numbers
    filter_axes = {
        "output_feature_dim": rhs[0],
        "input_feature_dim": rhs[1],
        "spatial_dims": list(rhs[2:]),
    }
    return {
        "dims": len(g.lhs),
        "input": {"data": _axes(lhs)},
        "kernel": {"filter": filter_axes},
        "output": {"data": _axes(out)},
        "window": {
            "strides": list(g.strides),
            "pad_left": [low for low, _ in g.padding],
            "pad_right": [high for _, high in g.padding],
            "window_dilations": _holes(g),
        },
        "feature_groups": g.feature_groups,
    }


def _axes(spec: Ints) -> dict[str, Any]:
    return {"batch_dim": spec[0], "feature_dim": spec[1], "spatial_dims": list(spec[2:])}
