"""Which convolutions the library gets on which processors: those that end, and are fast there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.conv import onednn
from tracebridge.core.lowering.context import forget_copies
from tracebridge.core.mlir import onednn as calls
from tracebridge.core.mlir.onednn import CONVOLUTION

# Elsewhere no rule is there to be chosen: jaxlib has no such library, and convolutions are XLA's.
pytestmark = pytest.mark.skipif(not onednn.IS_BUILT_IN, reason="jaxlib has oneDNN on Linux, x86-64")

AVX512 = "fma avx2 avx512f avx512dq avx512cd avx512bw avx512vl"
Processor = Callable[[str | None], None]


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processor]:
    """Says what the processor can do; None where the system does not tell."""

    def is_one_with(flags: str | None) -> None:
        lines = None if flags is None else ["vendor_id\t: AuthenticAMD", f"flags\t\t: {flags}"]
        monkeypatch.setattr(calls, "processor_lines", lambda of_all_cores: lines)
        calls.instructions.cache_clear()
        forget_copies()

    yield is_one_with
    monkeypatch.undo()
    calls.instructions.cache_clear()
    forget_copies()


def lowered(x: tuple[int, ...], y: tuple[int, ...], layouts: tuple[str, ...], **params: Any) -> str:
    """The program of a convolution, which is not compiled."""
    params = {"window_strides": (1,) * (len(x) - 2), "padding": "SAME", **params}

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, dimension_numbers=layouts, **params)

    return tb.jit(f).lower(*[tb.ShapeDtypeStruct(s, "float32") for s in (x, y)]).as_text()


FRONT = ("NCHW", "OIHW", "NCHW")
LAST = ("NHWC", "HWIO", "NHWC")
# shapes of the array and the kernel with features in front, layouts, groups
IN_FRONT: dict[str, tuple[Any, ...]] = {
    "images": ((4, 64, 56, 56), (64, 64, 3, 3), FRONT, 1),
    "one image": ((1, 128, 28, 28), (128, 128, 3, 3), FRONT, 1),
    "groups": ((8, 32, 32, 32), (64, 8, 3, 3), FRONT, 4),
    "three axes": ((1, 32, 8, 16, 16), (32, 32, 3, 3, 3), ("NCDHW", "OIDHW", "NCDHW"), 1),
}


@pytest.mark.parametrize("case", IN_FRONT)
def test_features_in_front_are_turned_round_without_avx512(case: str, processor: Processor) -> None:
    """The library would turn them round itself for AVX-512, and has no safe kernel otherwise."""
    x, y, layouts, groups = IN_FRONT[case]
    transposed = {}
    for flags in (AVX512, "fma avx2", "fma avx2 avx512f"):
        processor(flags)
        text = lowered(x, y, layouts, feature_group_count=groups)
        assert text.count(CONVOLUTION) == 1
        transposed[flags] = text.count("stablehlo.transpose")

    assert transposed == {AVX512: 0, "fma avx2": 2, "fma avx2 avx512f": 2}


@pytest.mark.parametrize(
    ("inputs", "outputs", "is_turned"), [(32, 64, True), (32, 128, True), (16, 128, False)]
)
def test_rows_of_many_more_outputs_than_inputs_are_not_turned_round(
    inputs: int, outputs: int, is_turned: bool, processor: Processor
) -> None:
    """Copies of the results take what the library saves with AVX2."""
    layouts = ("NCW", "OIW", "NCW")
    for flags, is_call in ((AVX512, True), ("fma avx2", is_turned)):
        processor(flags)
        text = lowered((8, inputs, 256), (outputs, inputs, 5), layouts)
        assert (CONVOLUTION in text) is is_call


@pytest.mark.parametrize("flags", [AVX512, "fma avx2"])
def test_features_that_are_last_stay_there(flags: str, processor: Processor) -> None:
    processor(flags)
    text = lowered((8, 32, 32, 32), (3, 3, 32, 64), LAST)

    assert CONVOLUTION in text
    assert "stablehlo.transpose" not in text


@pytest.mark.parametrize("flags", ["sse4_2 avx", "avx2", "sse4_2 avx fma avx512f", None])
@pytest.mark.parametrize("layouts", [FRONT, LAST])
def test_other_processors_do_without_the_library(
    flags: str | None, layouts: tuple[str, ...], processor: Processor
) -> None:
    processor(flags)
    shapes = ((8, 32, 32, 32), (64, 32, 3, 3)), ((8, 32, 32, 32), (3, 3, 32, 64))

    assert CONVOLUTION not in lowered(*shapes[layouts is LAST], layouts)


@pytest.mark.parametrize(
    ("limit", "calls_library", "turns"),
    [("AVX2", True, True), ("avx", False, False), ("AVX512_CORE", True, False)],
)
def test_what_users_forbid_the_library(
    limit: str,
    calls_library: bool,
    turns: bool,
    processor: Processor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    processor(AVX512)
    text = lowered((4, 64, 56, 56), (64, 64, 3, 3), FRONT)

    assert (CONVOLUTION in text) == calls_library
    assert ("stablehlo.transpose" in text) == turns


@pytest.mark.parametrize("flags", [AVX512, "fma avx2"])
def test_depthwise_kernels_with_holes_are_not_for_the_library(
    flags: str, processor: Processor
) -> None:
    """It takes products of matrices for them. A single place has no holes, whatever is said."""
    processor(flags)
    x, groups = (8, 48, 48, 96), {"feature_group_count": 96}

    assert CONVOLUTION in lowered(x, (7, 7, 1, 96), LAST, **groups)
    assert CONVOLUTION not in lowered(x, (7, 7, 1, 96), LAST, **groups, rhs_dilation=(2, 2))
    along_rows = lowered(x, (1, 49, 1, 96), LAST, **groups, rhs_dilation=(3, 1))
    assert CONVOLUTION in along_rows
    assert r"\22window_dilations\22: [1, 1]" in along_rows


@pytest.mark.parametrize(
    ("examples", "size", "taps", "calls_of"),
    [(4, 28, 3, (4, 0)), (4, 28, 4, (4, 4)), (4, 56, 3, (4, 4)), (16, 28, 3, (4, 4))],
)
def test_gaps_are_taken_apart_where_the_library_is_faster(
    examples: int, size: int, taps: int, calls_of: tuple[int, int], processor: Processor
) -> None:
    """With AVX2 alone XLA does small images as fast by one product of matrices.

    Unless there are many, or kernels have as many places in all phases.
    """
    x = tb.ShapeDtypeStruct((examples, size, size, 64), "float32")
    y = tb.ShapeDtypeStruct((taps, taps, 64, 128), "float32")
    ct = tb.ShapeDtypeStruct((examples, size // 2, size // 2, 128), "float32")

    def pull(x: Any, y: Any, ct: Any) -> Any:
        def convolve(x: Any) -> Any:
            return lax.conv_general_dilated(x, y, (2, 2), "SAME", dimension_numbers=LAST)

        return tb.vjp(convolve, x)[1](ct)[0]

    for flags, count in zip((AVX512, "fma avx2"), calls_of, strict=True):
        processor(flags)
        text = tb.jit(lambda *v: pull(*v)).lower(x, y, ct).as_text()
        assert text.count(CONVOLUTION) == count


MANY_TIMES = """
import numpy as np
import tracebridge as tb
from tracebridge import lax

def run(x, y, layouts, groups=1, holes=None):
    x, y = [np.ones(shape, np.float32) for shape in (x, y)]
    f = tb.jit(lambda x, y: lax.conv_general_dilated(
        x, y, (1,) * (x.ndim - 2), "SAME", None, holes, layouts, groups))
    for _ in range(40):
        f(x, y).block_until_ready()

front, last = ("NCDHW", "OIDHW", "NCDHW"), ("NDHWC", "DHWIO", "NDHWC")
run((1, 32, 8, 16, 16), (32, 32, 3, 3, 3), front)
run((2, 32, 8, 8, 8), (32, 8, 3, 3, 3), front, groups=4)
run((2, 8, 16, 16, 37), (3, 3, 3, 1, 37), last, groups=37, holes=(1, 2, 2))
run((1, 8, 16, 16, 32), (3, 3, 3, 32, 32), last)
run((8, 32, 32, 32), (64, 8, 3, 3), None, groups=4)
run((8, 64, 512), (64, 16, 5), None, groups=4)
print("ended")
"""


def test_convolutions_end() -> None:
    """Those that ended never, or in a crash, where the library took a product of matrices."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_TIMES], check=True, capture_output=True, text=True, timeout=60
    )

    assert done.stdout == "ended\n"
