"""Convolutions on the CPU: each form gives what the operation gives, and is used where it wins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.config.scopes import scope
from tracebridge.core.conv import cpu_forms as forms
from tracebridge.core.conv import cpu_gradients as gradients
from tracebridge.core.conv import cpu_rows as rows
from tracebridge.core.conv import cpu_toeplitz as toeplitz
from tracebridge.core.conv import library_forms, onednn
from tracebridge.core.conv.cpu_rules import form_of
from tracebridge.core.conv.geometry import geometry_of
from tracebridge.core.lowering.context import forget_copies

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
LAST = ("NHWC", "HWIO", "NHWC")
SHIFTS = (gradients.shifted_products,)
"""A form that is faster than others with AVX2, and not chosen elsewhere."""
# form of the value, dtype, shapes, strides, padding, dilations, numbers, groups, batch groups
CASES: dict[str, tuple[Any, ...]] = {
    "depthwise": (forms.multiply_add, F32, (4, 8, 9, 12), (16, 1, 3, 3), (1, 2), [(1, 1), (0, 2)],
                  (1, 1), (1, 2), None, 8, 1),
    "features_last": (forms.multiply_add, F32, (2, 9, 8, 4), (3, 2, 2, 24), (1, 1),
                      [(1, 1), (-1, 1)], (1, 1), (1, 1), LAST, 2, 1),
    "depthwise_gaps": (forms.by_phases, F32, (2, 8, 9, 9), (8, 1, 3, 4), (1, 1),
                       [(1, 2), (4, 0)], (2, 3), (1, 1), None, 8, 1),
    "larger_gaps": (forms.spread_products, F32, (2, 3, 5, 4), (4, 3, 4, 3), (1, 1),
                    [(3, 2), (2, 4)], (4, 4), (1, 1), None, 1, 1),
    "three_axes": (forms.peeled, F32, (1, 6, 6, 5, 7), (6, 6, 2, 3, 3), (1, 2, 1),
                   [(1, 1), (1, 1), (0, 1)], (1, 1, 1), (1, 1, 1), None, 1, 1),
    "peeled_results": (forms.peeled, F32, (3, 4, 8, 8, 7), (6, 4, 7, 6, 6), (1, 1, 1),
                       [(1, 1)] * 3, (1, 1, 1), (1, 1, 1), None, 1, 1),
    "one_axis": (forms.with_unit_axis, F64, (2, 16, 32), (16, 16, 5), (1,), [(2, 2)], (1,), (1,),
                 None, 1, 1),
    "few_groups": (forms.groups_apart, F32, (2, 32, 6, 6), (32, 16, 3, 3), (1, 1),
                   [(1, 1), (1, 1)], (1, 1), (1, 1), None, 2, 1),
    "products_by_group": (forms.contracted, F32, (12, 3, 20, 20), (16, 3, 18, 18), (1, 1),
                          [(0, 0), (0, 0)], (1, 1), (1, 1), None, 1, 4),
    "in_a_loop": (forms.contracted, F32, (4, 3, 20, 20), (40, 3, 16, 16), (1, 1),
                  [(0, 0), (0, 0)], (1, 1), (1, 1), None, 1, 4),
    "pairs_by_group": (forms.pairs_apart, F32, (7, 6, 4, 9), (6, 4, 7, 6), (1, 1),
                       [(1, 0), (1, 1)], (1, 1), (1, 1), ("HCNW", "HOWI", "HNCW"), 1, 2),
    "kernel_with_gaps": (forms.contracted, F32, (2, 3, 8, 8), (3, 3, 17, 17), (1, 1),
                         [(2, 2), (2, 2)], (2, 2), (1, 1), None, 1, 1),
    "sums_by_group": (forms.summed_products, F32, (4, 6, 11, 10), (4, 6, 9, 8), (1, 1),
                      [(1, 0), (0, 1)], (1, 1), (1, 1), None, 1, 4),
    "rows_by_group": (rows.summed_rows, F32, (4, 6, 11, 10), (4, 6, 10, 10), (1, 1),
                      [(1, 0), (1, 1)], (1, 1), (1, 1), None, 1, 4),
    "rows_with_holes": (rows.summed_rows, F32, (6, 4, 23, 13), (6, 4, 10, 12), (1, 2),
                        [(-2, 0), (2, 2)], (1, 1), (2, 1), ("CNHW", "IOHW", "NCHW"), 1, 4),
    "holes_of_one_axis": (rows.summed_rows, F32, (6, 4, 601), (6, 4, 300), (3,), [(2, 4)], (1,),
                          (2,), ("CNH", "IOH", "CNH"), 1, 4),
    "matrices": (rows.summed_matrices, F32, (3, 10, 12, 13), (3, 8, 12, 12), (1, 1),
                 [(0, 0), (0, -1)], (1, 1), (1, 1), ("CNHW", "IOHW", "CNHW"), 1, 1),
    "matrices_of_places_apart": (rows.summed_matrices, F64, (6, 6, 12, 11), (6, 16, 6, 6), (1, 1),
                                 [(-1, 0), (0, 0)], (1, 1), (2, 2), ("CNHW", "IOHW", "NCHW"), 1,
                                 1),
    "long": (toeplitz.by_blocks, F32, (2, 1, 9000), (1, 1, 200), (1,), [(3, 100)], (1,), (1,),
             None, 1, 1),
    "longer": (toeplitz.by_block_products, F32, (1, 2, 9000), (1, 2, 8900), (1,), [(30, 0)],
               (1,), (1,), None, 1, 1),
}  # fmt: skip


def convolution(name: str) -> Any:
    """The convolution of a case as a function, and random operands."""
    _, dtype, x, y, strides, pads, gaps, holes, numbers, features, batches = CASES[name]
    random = np.random.default_rng(0)

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(
            x, y, strides, pads, gaps, holes, numbers, features, batches
        )

    return f, random.normal(size=x).astype(dtype), random.normal(size=y).astype(dtype)


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The forms of our own, also where a library would be called (test_onednn.py)."""
    monkeypatch.setattr(onednn, "IS_BUILT_IN", False)
    forget_copies()
    yield
    forget_copies()


@pytest.mark.parametrize("name", CASES)
def test_forms_agree_with_the_operation(name: str, without_library: None) -> None:
    """The same sums in another order, by the form that the rule says."""
    f, x, y = convolution(name)
    with enable_x64(), scope("platform_rules", False):
        equation = tb.make_jaxpr(f)(x, y).eqns[0]
        expected = np.asarray(tb.jit(f)(x, y))
    with enable_x64():
        result = np.asarray(tb.jit(f)(x, y))
    g = geometry_of(x.shape, y.shape, expected.shape, equation.params)

    assert form_of(g, x.dtype, library=False) is CASES[name][0]
    assert result.dtype == expected.dtype
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result, expected, atol=scale * 8 * np.finfo(x.dtype).eps)


def test_derivatives_agree_with_the_operation() -> None:
    """Those of a strided depthwise convolution: gaps in the array, groups of the batch."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(6, 8, 12, 12)), random.normal(size=(8, 1, 3, 3))

    def both(x: Any, y: Any) -> Any:
        def loss(x: Any, y: Any) -> Any:
            return (lax.conv_general_dilated(x, y, (2, 2), "SAME", None, None, None, 8) ** 3).sum()

        return tb.grad(loss, (0, 1))(x, y)

    with enable_x64():
        results = tb.jit(both)(x, y)
        with scope("platform_rules", False):
            expected = tb.jit(both)(x, y)

    for result, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["depthwise", "long"])
def test_numbers_that_are_not_finite_stay_where_they_are(name: str) -> None:
    """An infinity or a NaN reaches the results whose windows have it, and no others."""
    f, x, y = convolution(name)
    x.flat[7], x.flat[-1] = np.inf, np.nan
    with scope("platform_rules", False):
        expected = np.asarray(tb.jit(f)(x, y))

    result = np.asarray(tb.jit(f)(x, y))
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))


def test_numbers_that_are_not_finite_reach_the_places_of_a_kernel_that_meet_them() -> None:
    """Zeros between lines do not meet them; the corner meets four places of nine."""
    random = np.random.default_rng(0)
    x, pull = random.normal(size=(2, 2, 4, 32, 16)).astype(np.float32)
    x[1, 1, 0, 0], x[0, 2, -1, -1] = np.inf, np.nan

    @tb.jit
    def gradient(x: Any) -> Any:
        def convolve(y: Any) -> Any:
            return lax.conv_general_dilated(x, y, (1, 1), "SAME", feature_group_count=4)

        return tb.vjp(convolve, tnp.zeros((4, 1, 3, 3)))[1](pull)[0]

    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.zeros((4, 1, 3, 3))
    for i, j in np.ndindex(3, 3):
        expected[:, 0, i, j] = (wide[..., i : i + 32, j : j + 16] * pull).sum((0, 2, 3))
    assert np.count_nonzero(~np.isfinite(expected)) == 8

    np.testing.assert_allclose(gradient(x), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats_add_up_in_float32(dtype: str) -> None:
    """The result is the rounded sum of products of the rounded operands."""
    f, x, y = convolution("depthwise")
    x, y = tnp.asarray(x).astype(dtype), tnp.asarray(y).astype(dtype)
    exact = tb.jit(f)(x.astype("float32"), y.astype("float32"))

    result = tb.jit(f)(x, y)
    assert result.dtype == np.dtype(x.dtype)
    error = np.abs(np.asarray(result.astype("float32")) - np.asarray(exact))
    assert np.all(error <= float(tnp.finfo(dtype).eps) * np.abs(np.asarray(exact)) + 1e-6)


def test_what_gradients_of_depthwise_kernels_read_is_computed_once() -> None:
    """Each place of the kernel reads it all: XLA must not make it a part of nine loops."""
    x, y = np.ones((4, 32, 16, 16), np.float32), np.ones((32, 1, 3, 3), np.float32)

    def loss(y: Any) -> Any:
        out = lax.conv_general_dilated(x, y, (1, 1), "SAME", feature_group_count=32)
        return (out * tnp.abs(out)).sum()

    text = tb.jit(tb.grad(loss)).lower(y).compile().as_text()
    fused = [part for part in text.split("\n\n") if "fused_computation" in part.split("\n")[0]]

    assert 1 <= sum(" abs(" in part for part in fused) <= 2


def _along_rows(x: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(x, kernel.reshape(1, 1, -1, 1), (1, 1), "VALID")


def _along_both(x: Any, kernel: Any) -> Any:
    """A kernel that is a product of two, as a Gaussian is, with something in between."""
    x = 1.5 * _along_rows(x, kernel)
    return lax.conv_general_dilated(x, kernel.reshape(1, 1, 1, -1), (1, 1), "VALID")


@pytest.mark.parametrize("taps", [3, 7, 11])
def test_what_another_convolution_reads_is_computed_once(taps: int) -> None:
    """Not for each tap of it, if both have many; the results are those of the operation."""
    rng = np.random.default_rng(0)
    x, kernel = rng.standard_normal((2, 1, 64, 64)), rng.standard_normal(taps)
    x, kernel = x.astype(np.float32), kernel.astype(np.float32)
    first = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), taps, 2) @ kernel
    expected = np.lib.stride_tricks.sliding_window_view(1.5 * first, taps, 3) @ kernel
    text = tb.jit(_along_both).lower(x, kernel).as_text()

    assert text.count("stablehlo.if") == (taps > 3)
    assert "stablehlo.if" not in tb.jit(_along_rows).lower(x, kernel).as_text()
    np.testing.assert_allclose(expected, tb.jit(_along_both)(x, kernel), rtol=1e-4, atol=1e-4)


def test_the_operation_stays() -> None:
    """Where it is fast, without the rules, and for other platforms."""
    f, x, y = convolution("depthwise")
    traced = tb.jit(f).trace(x, y)
    many = tnp.ones((1, 32, 8, 8)), tnp.ones((32, 32, 3, 3))

    def is_kept(text: str) -> bool:
        return "stablehlo.convolution" in text

    assert not is_kept(traced.lower().as_text())
    assert is_kept(traced.lower(lowering_platforms=("tpu",)).as_text())
    assert is_kept(tb.jit(lambda x, y: lax.conv(x, y, (1, 1), "SAME")).lower(*many).as_text())
    with scope("platform_rules", False):
        assert is_kept(traced.lower().as_text())


@pytest.mark.skipif(not onednn.IS_BUILT_IN, reason="jaxlib has oneDNN on Linux, x86-64")
@pytest.mark.parametrize(
    ("size", "features", "taps", "by_library"),
    [(16, 64, 3, True), (56, 8, 5, True), (32, 32, 3, False), (16, 8, 3, False)],
)
def test_gradients_of_kernels_by_the_library(
    size: int, features: int, taps: int, by_library: bool
) -> None:
    """Those of many features of small images, and of kernels with many taps."""
    x = tnp.zeros((8, features, size, size))
    y = tnp.zeros((features, features, taps, taps))

    def pull(y: Any) -> Any:
        return tb.vjp(lambda y: lax.conv(x, y, (1, 1), "SAME"), y)[1](x)

    (equation,) = tb.make_jaxpr(pull)(y).eqns
    left, right = [v.aval.shape for v in equation.invars]
    g = geometry_of(left, right, equation.outvars[0].aval.shape, equation.params)

    assert (
        form_of(g, F32, library=True, without=SHIFTS) is library_forms.features_last
    ) is by_library


@pytest.mark.skipif(not onednn.IS_BUILT_IN, reason="jaxlib has oneDNN on Linux, x86-64")
@pytest.mark.parametrize(
    ("examples", "inputs", "outputs", "size", "by_library"),
    [
        (16, 64, 64, 32, True),
        (12, 32, 64, 32, True),
        (8, 64, 64, 32, False),
        (32, 64, 64, 32, False),
        (16, 64, 32, 32, False),
        (16, 3, 64, 32, False),
        (16, 64, 128, 32, False),
        (16, 64, 64, 40, False),
    ],
)
def test_gradients_of_kernels_of_medium_images(
    examples: int, inputs: int, outputs: int, size: int, by_library: bool
) -> None:
    """By the library where its threads win and one alone loses nothing."""
    x = tnp.zeros((examples, size, size, inputs))
    g = tnp.zeros((examples, size, size, outputs))
    y = tnp.zeros((3, 3, inputs, outputs))
    numbers = ("NHWC", "HWIO", "NHWC")

    def pull(g: Any) -> Any:
        def convolve(y: Any) -> Any:
            return lax.conv_general_dilated(x, y, (1, 1), "SAME", dimension_numbers=numbers)

        return tb.vjp(convolve, y)[1](g)

    (equation,) = tb.make_jaxpr(pull)(g).eqns
    left, right = [v.aval.shape for v in equation.invars]
    found = geometry_of(left, right, equation.outvars[0].aval.shape, equation.params)

    assert (
        form_of(found, F32, library=True, without=SHIFTS) is library_forms.features_last
    ) is by_library


@pytest.mark.parametrize(
    ("strides", "dilation", "padding"),
    [((1, 1), (1, 1), "SAME"), ((2, 1), (1, 2), "VALID"), ((1, 3), (2, 1), ((3, 4), (0, 5)))],
)
def test_large_windows_of_one_feature_are_added_up_row_by_row(
    strides: Any, dilation: Any, padding: Any
) -> None:
    """A window of 11 by 11 gives the sums of the plain operation, in a text of its rows only."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 40, 36, 1)).astype("f")
    w = rng.standard_normal((11, 11, 1, 1)).astype("f")

    def convolve(x: Any, w: Any) -> Any:
        return tb.lax.conv_general_dilated(
            x, w, strides, padding, rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    text = tb.jit(convolve).lower(x, w).as_text()
    with scope("platform_rules", False):
        plain = tb.jit(convolve)(x, w)

    assert "stablehlo.while" in text
    assert text.count("stablehlo.multiply") < 40
    np.testing.assert_allclose(np.asarray(tb.jit(convolve)(x, w)), np.asarray(plain), atol=1e-4)
