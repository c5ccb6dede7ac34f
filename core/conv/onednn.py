"""Convolutions by oneDNN, a library for x86 processors that jaxlib brings along.

XLA calls it by the custom call ``__onednn$convolution``, whose ``backend_config`` is the JSON form
of XLA's ``OneDnnConvolutionConfig``. Axes may have any order, sums are in float32. XLA itself does
not write this call.
"""

from __future__ import annotations

import json
import math
import platform
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib.ffi import ONEDNN_CONVOLUTION
from tracebridge.core.mlir.attrs import array, i32, index_tensor, string

if TYPE_CHECKING:
    from tracebridge.core.conv.geometry import Geometry
    from tracebridge.core.conv.numbers import Ints
    from tracebridge.core.ir.rule_contexts import LoweringContext

IS_BUILT_IN = sys.platform == "linux" and platform.machine() == "x86_64"
"""Whether jaxlib has the library: builds for Linux on x86 have it, others do not."""

_ORIGINAL_VERSION = 1  # of StableHLO's custom_call: ``backend_config`` is a text

# A call looks the kernel up and arranges the weights anew, which takes 40 us. XLA does so many
# products meanwhile; with groups, or along three axes, fewer.
_FEW_PRODUCTS = 1 << 22
_FEW_SLOW_PRODUCTS = 1 << 20
_MAX_KERNEL = 1 << 10  # places of a kernel, beyond which the library has plain loops only


def has_kernels(g: Geometry, dtype: Any) -> bool:
    """Whether the library is there and has fast kernels for such axes and elements."""
    return (
        IS_BUILT_IN
        and dtype == np.float32
        and 1 <= g.n_space <= 3
        and g.batch_groups == 1
        and all([_is_usual(spec) for spec in (g.numbers.lhs_spec, g.numbers.out_spec)])
    )


def can_convolve(g: Geometry, dtype: Any) -> bool:
    """Whether the library has a fast kernel for the convolution, and it is worth the call."""
    least = _FEW_PRODUCTS if g.groups == 1 and g.n_space < 3 else _FEW_SLOW_PRODUCTS
    return (
        has_kernels(g, dtype)
        and g.products >= least
        and max(g.lhs_dilation) == 1
        and math.prod(g.kernel) <= min(_MAX_KERNEL, math.prod(g.results))
    )


def _is_usual(spec: Ints) -> bool:
    """Whether axes lie in an order that the library has fast kernels for: NCHW or NHWC."""
    space = [*spec[2:]]
    return [*spec[:2], *space] == sorted(spec) or [spec[0], *space, spec[1]] == sorted(spec)


def has_features_last(g: Geometry) -> bool:
    """Whether features are the axis that vectors lie along."""
    return g.numbers.lhs_spec[1] == g.numbers.out_spec[1] == len(g.lhs) - 1


def emit(ctx: LoweringContext, x: Any, y: Any, g: Geometry) -> Any:
    """The call, for operands in float32 and paddings that do not cut."""
    attributes = {
        "call_target_name": string(ONEDNN_CONVOLUTION),
        "api_version": i32(_ORIGINAL_VERSION),
        "backend_config": string(json.dumps({"onednn_conv_config": _config(g)})),
        "operand_layouts": array([_by_rows(g)] * 2),
        "result_layouts": array([_by_rows(g)]),
    }
    return ctx.op("stablehlo.custom_call", [x, y], [ctx.aval_out], attributes).results[0]


def _by_rows(g: Geometry) -> Any:
    return index_tensor(range(len(g.lhs) - 1, -1, -1))


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
            "window_dilations": list(g.rhs_dilation),
        },
        "feature_groups": g.feature_groups,
    }


def _axes(spec: Ints) -> dict[str, Any]:
    return {"batch_dim": spec[0], "feature_dim": spec[1], "spatial_dims": list(spec[2:])}


_CALL = re.compile(
    r"= f32\[(?P<out>[\d,]+)\]\S* custom-call\(.*"
    rf'custom_call_target="{re.escape(ONEDNN_CONVOLUTION)}".*'
    r"operand_layout_constraints=\{f32\[(?P<array>[\d,]+)\]\S*, f32\[(?P<kernel>[\d,]+)\].*"
    r'"output_feature_dim": ?"?(?P<outputs>\d+)'
)


def with_calls(costs: dict[str, float], text: str) -> dict[str, float]:
    """XLA's ``costs`` of a program with the calls that the text of its HLO has.

    XLA takes -1 for what it does not know. Products with padding count.
    """
    costs = dict(costs)
    for call in _CALL.finditer(text):
        names = ("array", "kernel", "out")
        shapes = [[int(n) for n in call[name].split(",")] for name in names]
        sizes = [math.prod(shape) for shape in shapes]
        products = sizes[2] * sizes[1] // shapes[1][int(call["outputs"])]
        more = {"flops": 2 * products, "bytes accessed": 4 * sum(sizes)}
        for name, count in more.items():
            costs[name] = costs.get(name, -1.0) + 1.0 + count
    return costs
