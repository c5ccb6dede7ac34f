"""Sums on the CPU: each way gives the sum, with NaNs and infinities, whatever feeds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.scopes import scope

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((16384, 4), (1,)),
    ((16384, 4), (0,)),
    ((4096, 16), (1,)),
    ((4096, 12), (0,)),
    ((2048, 32), (1,)),
    ((2, 4096, 1, 7), (1,)),
    ((64, 64, 4, 4), (2, 3)),
    ((64, 64, 4, 4), (0, 1)),
    ((8, 1024, 1, 8), (2, 3)),
    ((32768,), (0,)),
    ((128, 300), (1,)),
    ((4096, 128), (0,)),
    ((2, 40_000), (0,)),
    ((6, 5, 70, 20), (0, 1)),
    ((40, 40, 3), (2,)),
    ((40, 2, 40, 3), (0, 1)),
    ((2000, 4), (0,)),
    ((70, 100), (1,)),
]
FEEDS: dict[str, Any] = {
    "argument": lambda x: x,
    "product": lambda x: x * x,
    "choice": lambda x: tnp.where(x > 0, x, 2 * x),
    "reshaped": lambda x: x[::-1] + 1,
    "parts": lambda x: (x[1:] - x[:-1]) ** 2 * x[1:],
    "chain": lambda x: (x - x[..., :1]) * x / (1 + x[:1] ** 2) * x[..., -1:],
}


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums_are_those_of_float64(shape: Any, axes: Any) -> None:
    """All feeds in one program, against NumPy in float64; the plain lowering agrees."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def sums(x: Any) -> Any:
        return [lax.reduce_sum(feed(x), axes) for feed in FEEDS.values()]

    fast = tb.jit(sums)(x)
    with scope("platform_rules", False):
        plain = tb.jit(sums)(x)

    for feed, a, b in zip(FEEDS.values(), fast, plain, strict=True):
        fed = np.asarray(feed(x.astype(np.float64)), np.float64)
        expected, size = np.sum(fed, axes), np.sum(np.abs(fed), axes)
        assert np.all(np.abs(a - expected) <= 2e-6 * size)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("shape", "axes"), SHAPES[:6])
def test_special_values_of_one_row_stay_in_it(shape: Any, axes: Any) -> None:
    """NaN, infinities of one and of both signs."""
    x = np.ones(shape, np.float32)
    rows = np.moveaxis(x, axes[0], -1).reshape(-1, shape[axes[0]])
    rows = rows.copy()
    rows[0, 0] = np.nan
    rows[1, 0], rows[2, 0] = np.inf, -np.inf
    rows[3, :2] = np.inf, -np.inf
    moved = np.moveaxis(x, axes[0], -1).shape
    x = np.moveaxis(rows.reshape(moved), -1, axes[0])

    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(tb.jit(lambda x: lax.reduce_sum(x, axes))(x), x.sum(axes))


def test_the_library_gets_no_parts_of_arrays() -> None:
    """It would write each of them: what is computed from them is written, once."""

    def n_stored(f: Any, *shape: int) -> int:
        return tb.jit(f).lower(tnp.zeros(shape)).as_text().count("stablehlo.if")

    def energy(x: Any) -> Any:
        return (x[2:] - 2 * x[1:-1] + x[:-2]) ** 2

    assert n_stored(lambda x: energy(x).sum(), 500, 400) == 1
    assert n_stored(lambda x: energy(x).sum(1), 500, 400) == 1
    assert n_stored(lambda x: energy(x).sum(), 40_000) == 1
    assert n_stored(lambda x: (x[1:] ** 2).sum(), 40_000) == 0
    assert n_stored(lambda x: (x * x[:1] + x[1:2]).sum(), 500, 400) == 0
    assert n_stored(lambda x: energy(x).sum(), 200) == 0
    with scope("platform_rules", False):
        assert n_stored(lambda x: energy(x).sum(), 500, 400) == 0


def test_the_library_does_not_get_short_rows() -> None:
    """What each shape becomes; below 4096 elements, in float64 and in exports nothing changes."""

    def text(shape: Any, axes: Any, dtype: Any = np.float32, fed: Any = lambda x: x) -> str:
        f = tb.jit(lambda x: lax.reduce_sum(fed(x), axes))
        return f.lower(tnp.zeros(shape, dtype)).as_text()

    assert "stablehlo.subtract" in text((1000, 1000, 3), (2,))
    assert "stablehlo.subtract" in text((100_000, 10), (0,))
    assert "stablehlo.dot_general" in text((10_000, 32), (1,))
    assert "stablehlo.dot_general" not in text((10_000, 32), (1,), fed=lambda x: x * x)
    assert "stablehlo.dot_general" in text((8192, 16), (1,))
    assert "stablehlo.subtract" in text((8192, 16), (1,), fed=lambda x: x * x)
    assert "stablehlo.dot_general" not in text((8192, 16), (1,), fed=FEEDS["chain"])
    for shape, axes in (((4096, 256), (1,)), ((4096, 256), (0,)), ((8, 64, 128), (0, 1))):
        assert "stablehlo.dot_general" in text(shape, axes)
        assert "stablehlo.dot_general" in text(shape, axes, fed=FEEDS["chain"])
        assert "stablehlo.dot_general" not in text(shape, axes, fed=FEEDS["product"])
    assert "stablehlo.dot_general" in text((3, 20_000), (0,), fed=FEEDS["product"])
    assert "stablehlo.dot_general" not in text((8192, 1024), (1,), fed=FEEDS["chain"])
    # What reads such a sum does not become a part of the library's kernel.
    for shape, fed in (((20_000, 128), FEEDS["argument"]), ((4096, 256), FEEDS["product"])):
        assert "stablehlo.reduce_precision" in text(shape, (1,), fed=fed)
        assert "stablehlo.dot_general" not in text(shape, (1,), fed=fed)
    assert "reduce_precision" not in text((20_000, 128), (1,), fed=lambda x: lax.exp(x - 1))
    for shape, axes in (((64, 64, 3), (2,)), ((128, 64), (0,)), ((32, 16, 16), (1,))):
        assert "stablehlo.subtract" in text(shape, axes)
    for shape, axes in (((128, 128), (1,)), ((8, 16, 16, 8), (0, 1, 2)), ((3000, 4), (0,))):
        assert "stablehlo.dot_general" in text(shape, axes)
    assert "stablehlo.dot_general" not in text((128, 128), (1,), fed=FEEDS["product"])
    for plain in (
        text((1000, 3), (1,)),
        text((5000, 64), (0,)),
        text((100_000, 10), (0, 1)),
        text((100_000, 10), (0,), np.int32),
        text((1000, 64, 8), (0, 1)),
    ):
        assert "subtract" not in plain
        assert "dot_general" not in plain
