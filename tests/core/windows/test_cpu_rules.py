"""Windows on the CPU: each form gives what a loop gives, with its ties and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.config.scopes import scope
from tracebridge.core.windows.geometry import checked_windows

# shape, window, strides, padding
CASES: dict[str, tuple[Any, ...]] = {
    "apart": ((2, 3, 24, 22), (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
    "overlapping": ((2, 23, 24, 3), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "steps_over": ((3, 20, 15), (1, 2, 3), (1, 3, 4), [(0, 0), (1, 2), (2, 3)]),
    "cut": ((3, 20, 15), (1, 3, 2), (1, 1, 2), [(0, 0), (-2, 3), (1, -4)]),
    "large": ((2, 30, 35), (1, 9, 5), (1, 1, 2), [(0, 0), (4, 9), (0, 2)]),
    "larger": ((1000,), (100,), (1,), [(40, 20)]),
    "running": ((5, 50), (1, 60), (1, 1), [(0, 0), (59, 0)]),
    "running_back": ((50, 5), (50, 1), (1, 1), [(0, 49), (0, 0)]),
}
COMPUTATIONS: dict[str, tuple[float, Any, Any]] = {
    "sum": (0.0, lax.add, np.sum),
    "max": (-np.inf, lax.max, np.argmax),
    "min": (np.inf, lax.min, np.argmin),
}


def by_loop(name: str, x: Any, ct: Any, windows: Any) -> tuple[Any, Any]:
    """The value and the pulled back ``ct``, window by window; the first of equal elements wins."""
    sizes, strides, pads = windows
    wide = checked_windows("test", x.shape, sizes, strides, pads)
    out, back = np.zeros_like(ct), np.zeros_like(x)
    for place in np.ndindex(*ct.shape):
        starts = [p * s - low for p, s, (low, _) in zip(place, strides, wide.padding, strict=True)]
        box = tuple([
            slice(max(a, 0), max(min(a + w, n), 0))
            for a, w, n in zip(starts, sizes, x.shape, strict=True)
        ])  # fmt: skip
        seen = x[box]
        init, _, choose = COMPUTATIONS[name]
        if name == "sum":
            out[place] = seen.sum()
            back[box] += ct[place]
        elif seen.size:
            winner = np.unravel_index(choose(seen), seen.shape)
            out[place] = seen[winner]
            back[box][winner] += ct[place]
        else:
            out[place] = init
    return out, back


@pytest.mark.parametrize("name", CASES)
def test_forms_agree_with_a_loop(name: str) -> None:
    """Values of sums and extremes, and what is pulled back; many elements are equal."""
    shape, *windows = CASES[name]
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, shape).astype(np.float32)
    lower = np.where(np.arange(x.size).reshape(shape) % 17, x, -np.inf)
    lower[..., :2] = np.nan
    operands = {"sum": x, "max": lower, "min": lower}

    def f(operands: Any, cts: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for key, (init, fun, _) in COMPUTATIONS.items():
            out, pull = tb.vjp(
                lambda x, i=init, g=fun: lax.reduce_window(x, i, g, *windows), operands[key]
            )
            results[key] = out if cts is None else (out, *pull(cts[key]))
        return results

    shapes = tb.eval_shape(lambda x: f(x, None), operands)
    cts = {k: random.integers(1, 9, v.shape).astype(np.float32) for k, v in shapes.items()}
    results = tb.jit(f)(operands, cts)

    for key, result in results.items():
        expected = by_loop(key, operands[key], cts[key], windows)
        for value, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int32", "uint8"])
def test_dtypes(dtype: str) -> None:
    """Results have the dtype of the operand; narrow floats add up in float32."""
    with enable_x64(dtype == "float64"):
        x = tnp.asarray(np.random.default_rng(0).integers(0, 9, (80, 40))).astype(dtype)
        zero = x[0, 0] * 0

        def f(x: Any) -> list[Any]:
            lowest = -np.inf if tnp.issubdtype(x.dtype, tnp.floating) else zero
            return [
                lax.reduce_window(x, zero, lax.add, (3, 3), (1, 1), "SAME"),
                lax.reduce_window(x, lowest, lax.max, (12, 7), (1, 2), "SAME"),
            ]

        results = tb.jit(f)(x)
        with scope("platform_rules", False):
            expected = tb.jit(f)(x)

    for result, other in zip(results, expected, strict=True):
        assert result.dtype == np.dtype(x.dtype)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(other))
