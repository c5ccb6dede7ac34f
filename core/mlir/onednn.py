"""Calls of oneDNN, a library for x86 processors that jaxlib brings along.

XLA knows them as custom calls, ``__onednn$convolution`` and others, whose ``backend_config`` is the
JSON form of a message of XLA (``xla/service/cpu/onednn_config.proto``). Operands and results lie
row by row, in float32 here. XLA itself does not write these calls.

Each call looks the kernel up by shapes, which takes 20 to 40 us. Convolutions gain by it, sums
over the leading axes of two matrices, and on some processors other large products. Batches of
products do not, nor does layer norm; softmax writes over its operand.
"""

from __future__ import annotations

import functools
import importlib
import math
import platform
import re
import sys
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib.ffi import ONEDNN
from tracebridge.core.config.env import get
from tracebridge.core.mlir.attrs import array, i32, index_tensor, string
from tracebridge.core.util.processor import processor_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext

IS_BUILT_IN = sys.platform == "linux" and platform.machine() == "x86_64"
"""Whether jaxlib has the library: builds for Linux on x86 have it, others do not."""

_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
_AVX2 = frozenset({"avx2", "fma"})

CONVOLUTION = f"{ONEDNN}convolution"
MATMUL = f"{ONEDNN}matmul"

_ORIGINAL_VERSION = 1  # of StableHLO's custom_call: ``backend_config`` is a text


@functools.lru_cache(maxsize=1)
def instructions() -> frozenset[str]:
    """What the system says that the processor can do, and who made it.

    Without what the user forbids the library, by a variable that it reads itself.
    """
    lines = processor_lines(of_all_cores=False) or []
    return frozenset([word for line in lines for word in line.split()]) - _forbidden()


def _forbidden() -> frozenset[str]:
    limit = (get("ONEDNN_MAX_CPU_ISA") or get("DNNL_MAX_CPU_ISA") or "").upper()
    if limit in ("SSE41", "AVX"):
        return _AVX2 | _AVX512
    return _AVX512 if limit.startswith("AVX2") else frozenset()


def has_avx512() -> bool:
    """Whether the library takes its kernels for AVX-512."""
    return instructions() >= _AVX512


def has_avx2() -> bool:
    """Whether the library takes its kernels for AVX2, or for more."""
    return instructions() >= _AVX2 or has_avx512()


def emit_call(
    ctx: LoweringContext,
    target: str,
    config: Mapping[str, Any],
    operands: Sequence[Any],
    avals: Sequence[ShapedArray],
    out: ShapedArray,
) -> Any:
    """The call of ``target`` for operands of ``avals``."""
    attributes = {
        "call_target_name": string(target),
        "api_version": i32(_ORIGINAL_VERSION),
        "backend_config": string(_json(config)),
        "operand_layouts": array([_by_rows(a.ndim) for a in avals]),
        "result_layouts": array([_by_rows(out.ndim)]),
    }
    return ctx.op("stablehlo.custom_call", operands, [out], attributes).results[0]


def matmul_config(*, transpose_a: bool, transpose_b: bool) -> dict[str, Any]:
    """What is said of a product: which of the matrices lie the other way round in memory."""
    sides = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return {"onednn_matmul_config": {side: True for side, turned in sides.items() if turned}}


def _json(config: Mapping[str, Any]) -> str:
    # Most programs call no library, and the import of the package takes a millisecond less.
    return str(importlib.import_module("json").dumps(config))


def _by_rows(ndim: int) -> Any:
    return index_tensor(range(ndim - 1, -1, -1))


# what the calls cost --------------------------------------------------------------------------

_CALL = re.compile(
    r"= f32\[(?P<out>[\d,]+)\]\S* custom-call\(.*"
    rf'custom_call_target="(?P<target>{re.escape(CONVOLUTION)}|{re.escape(MATMUL)})".*'
    r"operand_layout_constraints=\{f32\[(?P<left>[\d,]+)\]\S*, f32\[(?P<right>[\d,]+)\]"
    r".*backend_config=(?P<config>.*)$",
    re.MULTILINE,
)
_OUTPUTS = re.compile(r'"output_feature_dim": ?"?(\d+)')


def with_calls(costs: dict[str, float], text: str) -> dict[str, float]:
    """XLA's ``costs`` of a program with the calls that the text of its HLO has.

    XLA takes -1 for what it does not know. Products with padding count.
    """
    costs = dict(costs)
    for call in _CALL.finditer(text):
        left, right, out = [
            [int(n) for n in call[name].split(",")] for name in ("left", "right", "out")
        ]
        if call["target"] == MATMUL:
            terms = left[0 if "transpose_a" in call["config"] else 1]
        else:
            found = _OUTPUTS.search(call["config"])
            # Protocol buffers leave zeros out.
            terms = math.prod(right) // right[int(found[1]) if found else 0]
        size = sum([math.prod(shape) for shape in (left, right, out)])
        more = {"flops": 2 * math.prod(out) * terms, "bytes accessed": 4 * size}
        for name, count in more.items():
            costs[name] = costs.get(name, -1.0) + 1.0 + count
    return costs
