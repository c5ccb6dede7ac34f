"""Gradients of kernels as products of shifted copies: the sums of the convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.conv import cpu_gradients, cpu_rules
from tracebridge.core.conv.geometry import Geometry, geometry_of
from tracebridge.core.lowering.context import forget_copies
from tracebridge.core.mlir import onednn as calls

F32 = np.dtype(np.float32)
FRONT, LAST = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")
ROWS, ROWS_LAST = ("NCW", "OIW", "NCW"), ("NWC", "WIO", "NWC")
VOLUMES = ("NCDHW", "OIDHW", "NCDHW")


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One with AVX2 alone, on which these products were measured."""
    monkeypatch.setattr(calls, "processor_lines", lambda of_all_cores: ["flags\t\t: fma avx2"])
    calls.instructions.cache_clear()
    forget_copies()
    yield
    monkeypatch.undo()
    calls.instructions.cache_clear()
    forget_copies()


@pytest.fixture
def at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small gradients are products too, in steps of a few elements."""
    monkeypatch.setattr(cpu_rules, "_FEW_PRODUCTS", 1)
    monkeypatch.setattr(cpu_rules, "_is_for_shifts", _can_shift)
    monkeypatch.setattr(cpu_gradients, "_STEP", 1 << 10)
    monkeypatch.setattr(cpu_gradients, "_LEAST_LINES", 1)


def _can_shift(g: Geometry, dtype: Any) -> bool:
    del dtype
    return cpu_gradients.can_shift(g)


def kernel_gradient(params: dict[str, Any], kernel: tuple[int, ...]) -> Any:
    """The gradient of a kernel of shape ``kernel``, as a function of the array and a cotangent."""

    def f(x: Any, ct: Any) -> Any:
        def convolve(y: Any) -> Any:
            return lax.conv_general_dilated(x, y, **params)

        return tb.vjp(convolve, np.zeros(kernel, x.dtype))[1](ct)[0]

    return f


def of_definition(x: Any, ct: Any, kernel: int, strides: Any, pads: Any, holes: Any) -> Any:
    """The sums in float64, of an array and a cotangent with features in front."""
    wide = np.pad(np.float64(x), [(0, 0), (0, 0), *[(max(p, 0), max(q, 0)) for p, q in pads]])
    ends = zip(pads, wide.shape[2:], strict=True)
    cuts = [slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in ends]
    wide = wide[(slice(None), slice(None), *cuts)]
    total = np.zeros((ct.shape[1], x.shape[1], *kernel))
    for place in np.ndindex(*kernel):
        at = [
            slice(t * b, t * b + (n - 1) * s + 1, s)
            for t, b, s, n in zip(place, holes, strides, ct.shape[2:], strict=True)
        ]
        there = wide[(slice(None), slice(None), *at)]
        axes = [0, *range(2, x.ndim)]
        total[(slice(None), slice(None), *place)] = np.tensordot(ct, there, (axes, axes))
    return total


# array and kernel with features in front, layouts, strides, paddings, holes of the kernel
CASES: dict[str, tuple[Any, ...]] = {
    "images": ((2, 5, 9, 8), (4, 5, 3, 3), FRONT, (1, 1), [(1, 1), (1, 1)], (1, 1)),
    "features last": ((2, 5, 9, 8), (4, 5, 3, 2), LAST, (1, 1), [(1, 1), (0, 1)], (1, 1)),
    "one image": ((1, 5, 19, 8), (4, 5, 3, 3), FRONT, (1, 1), [(1, 1), (1, 1)], (1, 1)),
    "strides": ((3, 5, 19, 11), (4, 5, 3, 4), FRONT, (2, 3), [(1, 1), (2, 0)], (1, 1)),
    "strides, last": ((1, 5, 29, 11), (4, 5, 5, 4), LAST, (3, 2), [(1, 1), (2, 0)], (1, 1)),
    "holes": ((2, 5, 13, 12), (4, 5, 3, 3), FRONT, (1, 1), [(2, 0), (1, 3)], (2, 3)),
    "strides and holes": ((2, 5, 17, 14), (4, 5, 3, 3), LAST, (2, 3), [(2, 0), (1, 3)], (3, 2)),
    "pads that cut": ((2, 5, 13, 12), (4, 5, 3, 3), FRONT, (1, 1), [(-2, 1), (1, -1)], (1, 1)),
    "few features": ((2, 1, 9, 8), (9, 1, 3, 3), FRONT, (1, 1), [(1, 1), (1, 1)], (1, 1)),
    "few outputs": ((2, 9, 19, 18), (1, 9, 3, 3), FRONT, (1, 1), [(1, 1), (1, 1)], (1, 1)),
    "one axis": ((4, 5, 23), (4, 5, 5), ROWS, (1,), [(2, 2)], (1,)),
    "one axis, last": ((4, 9, 23), (2, 9, 5), ROWS_LAST, (2,), [(2, 1)], (1,)),
    "three axes": ((2, 4, 6, 7, 5), (3, 4, 2, 3, 2), VOLUMES, (1, 2, 1), [(1, 1)] * 3, (1, 1, 1)),
}  # fmt: skip


def operands(case: str) -> Any:
    """The gradient of a case, its operands in the layouts, and what it has to give."""
    x_shape, y_shape, layouts, strides, pads, holes = CASES[case]
    random = np.random.default_rng(0)
    x = random.normal(size=x_shape).astype(np.float32)
    spans = zip(x_shape[2:], y_shape[2:], strides, pads, holes, strict=True)
    sizes = [(n + p + q - (k - 1) * b - 1) // s + 1 for n, k, s, (p, q), b in spans]
    ct = random.normal(size=(x_shape[0], y_shape[0], *sizes)).astype(np.float32)
    expected = of_definition(x, ct, y_shape[2:], strides, pads, holes)
    if layouts[0].endswith("C"):
        x, ct = np.moveaxis(x, 1, -1), np.moveaxis(ct, 1, -1)
        expected = np.moveaxis(expected, (0, 1), (-1, -2))
    params = {
        "window_strides": strides,
        "padding": pads,
        "rhs_dilation": holes,
        "dimension_numbers": layouts,
    }
    return kernel_gradient(params, expected.shape), np.ascontiguousarray(x), ct, expected


@pytest.mark.parametrize("case", CASES)
def test_products_of_shifts_are_the_gradient(case: str, at_any_size: None) -> None:
    """Beside the sums of the definition in float64."""
    f, x, ct, expected = operands(case)
    (equation,) = tb.make_jaxpr(f)(x, ct).eqns
    left, right = [v.aval.shape for v in equation.invars]
    g = geometry_of(left, right, equation.outvars[0].aval.shape, equation.params)

    assert cpu_rules.form_of(g, F32, library=True) is cpu_gradients.shifted_products
    result = np.asarray(tb.jit(f)(x, ct))
    assert result.dtype == F32
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("case", ["images", "strides, last"])
def test_second_derivatives_and_batches(case: str, at_any_size: None) -> None:
    """The form is of the lowering only: transformations see the convolution."""
    f, x, ct, _ = operands(case)

    def loss(x: Any, ct: Any) -> Any:
        return (f(x, ct) ** 3).sum()

    both = tb.vmap(tb.grad(loss, (0, 1)))
    xs, cts = [np.stack([v, -2 * v]) for v in (x, ct)]
    results = tb.jit(both)(xs, cts)
    with scope("platform_rules", False):
        expected = tb.jit(both)(xs, cts)

    for result, other in zip(results, expected, strict=True):
        scale = np.abs(np.asarray(other)).max()
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-4 * scale)


def test_numbers_that_are_not_finite_reach_the_places_that_meet_them(at_any_size: None) -> None:
    """The zeros around the shifted cotangent meet more of the array than it does."""
    f, x, ct, _ = operands("images")
    x[0, 2, 0, 0], x[1, 3, -1, 4], ct[0, 1, 4, 4] = np.inf, np.nan, -np.inf
    _, y_shape, _, strides, pads, holes = CASES["images"]
    with np.errstate(invalid="ignore"):
        expected = of_definition(x, ct, y_shape[2:], strides, pads, holes)
    assert 0 < np.count_nonzero(~np.isfinite(expected)) < expected.size

    result = np.asarray(tb.jit(f)(x, ct))
    np.testing.assert_array_equal(np.isnan(expected), np.isnan(result))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 5, 9, 8), (2, 5, 0, 8), (2, 0, 9, 8)])
def test_empty_arrays_have_gradients_of_zeros(shape: tuple[int, ...], at_any_size: None) -> None:
    """No example, no line or no feature."""
    params = {"window_strides": (1, 1), "padding": [(1, 1), (1, 1)]}
    f = kernel_gradient(params, (4, shape[1], 3, 3))
    ct = np.ones((shape[0], 4, *shape[2:]), np.float32)

    result = np.asarray(tb.jit(f)(np.ones(shape, np.float32), ct))
    np.testing.assert_array_equal(result, np.zeros((4, shape[1], 3, 3)))


@pytest.mark.parametrize(
    ("array", "kernel", "layouts", "is_product"),
    [
        ((1, 64, 56, 56), (64, 64, 3, 3), FRONT, True),
        ((8, 32, 32, 32), (64, 32, 3, 3), FRONT, True),
        ((8, 32, 32, 32), (64, 32, 3, 3), LAST, True),
        ((1, 16, 16, 16, 16), (32, 16, 3, 3, 3), VOLUMES, True),
        ((1, 32, 14, 14), (32, 32, 3, 3), LAST, False),  # few products
        ((2, 1, 28, 28), (32, 1, 3, 3), FRONT, False),  # few shifts
        ((32, 64, 8, 8), (64, 64, 3, 3), FRONT, False),  # many zeros
        ((8, 32, 256), (64, 32, 5), ROWS, False),
    ],
)
def test_where_gradients_are_products(
    array: Any, kernel: Any, layouts: Any, is_product: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where few copies make many products, on processors on which this was measured."""
    n = len(array) - 2
    pads = [(k // 2, k // 2) for k in kernel[2:]]
    ct = (array[0], kernel[0], *array[2:])
    if layouts[0].endswith("C"):
        array, ct = [(*s[:1], *s[2:], s[1]) for s in (array, ct)]
        kernel = (*kernel[2:], kernel[1], kernel[0])
    params = {"window_strides": (1,) * n, "padding": pads, "dimension_numbers": layouts}
    avals = [tb.ShapeDtypeStruct(s, "float32") for s in (array, ct)]

    def text() -> str:
        f = kernel_gradient(params, kernel)
        return tb.jit(lambda x, ct: f(x, ct)).lower(*avals).as_text()

    assert ("stablehlo.if" in text()) is is_product
    for flags in ("fma avx2 avx512f avx512dq avx512bw avx512vl", "sse4_2"):
        lines = [f"flags\t\t: {flags}"]
        monkeypatch.setattr(calls, "processor_lines", lambda of_all_cores, v=lines: v)
        calls.instructions.cache_clear()
        forget_copies()
        assert "stablehlo.if" not in text()


@pytest.mark.parametrize(("examples", "steps"), [(1, 4), (32, 16)])
def test_copies_of_one_step_are_there_at_a_time(examples: int, steps: int) -> None:
    """By lines of one image, by examples of many; the steps of both need less than the operands."""
    x = tb.ShapeDtypeStruct((examples, 32, 112, 96), "float32")
    f = kernel_gradient({"window_strides": (1, 1), "padding": [(1, 1)] * 2}, (32, 32, 3, 3))
    lowered = tb.jit(f).lower(x, x)

    assert lowered.as_text().count("stablehlo.dot_general") == steps
    needed = lowered.compile().memory_analysis().temp_size_in_bytes
    assert needed < 2 * 4 * x.size
