"""Convolutions by the library beside those of XLA: equal numbers, and only where it has kernels."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as jnp
from tracebridge import export, lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.conv import cpu_rules, onednn
from tracebridge.core.lowering.context import forget_copies
from tracebridge.core.mlir.onednn import CONVOLUTION

pytestmark = pytest.mark.skipif(not onednn.IS_BUILT_IN, reason="jaxlib has oneDNN on Linux, x86-64")


@pytest.fixture
def at_any_size(monkeypatch: pytest.MonkeyPatch):
    """The library is called for small convolutions too."""
    monkeypatch.setattr(onednn, "_FEW_PRODUCTS", 1)
    monkeypatch.setattr(onednn, "_FEW_SLOW_PRODUCTS", 1)
    limits = ("_FEW_PRODUCTS", "_LARGE_IMAGE", "_MANY_OF_GRADIENT", "_MANY_WITH_GAPS")
    gaps = ("_MANY_WITH_UNEVEN_GAPS", "_MANY_OF_SMALL_WITH_GAPS")
    for name in (*limits, *gaps, "_FEW_SUMS", "_WIDE", "_MANY_GROUPS"):
        monkeypatch.setattr(cpu_rules, name, 1)
    monkeypatch.setattr(cpu_rules, "_is_for_library", _can_convolve)
    forget_copies()
    yield
    forget_copies()


def _can_convolve(g: Any, dtype: Any, form: Any) -> bool:
    del form
    return onednn.can_convolve(g, dtype)


def array(seed: int, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


# x, kernel, layouts of x, kernel and result, parameters
CASES: dict[str, tuple[Any, ...]] = {
    "nhwc": ((2, 9, 8, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {}),
    "nchw": ((2, 3, 9, 8), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), {}),
    "other layout of the kernel": ((2, 9, 8, 3), (4, 3, 3, 2), ("NHWC", "OIHW", "NHWC"), {}),
    "strides, pads": (
        (2, 9, 8, 3),
        (3, 2, 3, 4),
        ("NHWC", "HWIO", "NHWC"),
        {"window_strides": (2, 3), "padding": [(2, 0), (1, 3)]},
    ),
    "pads that cut": (
        (2, 9, 8, 3),
        (3, 2, 3, 4),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": [(-2, 1), (1, -1)]},
    ),
    "holes": ((2, 9, 8, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {"rhs_dilation": (2, 3)}),
    "groups": (
        (2, 9, 8, 12),
        (3, 2, 4, 15),
        ("NHWC", "HWIO", "NHWC"),
        {"feature_group_count": 3},
    ),
    "depthwise": (
        (2, 5, 9, 8),
        (5, 1, 3, 3),
        ("NCHW", "OIHW", "NCHW"),
        {"feature_group_count": 5, "padding": "SAME"},
    ),
    "1d": ((2, 30, 3), (5, 3, 4), ("NWC", "WIO", "NWC"), {"padding": "SAME"}),
    "3d": ((2, 5, 6, 7, 3), (2, 3, 2, 3, 5), ("NDHWC", "DHWIO", "NDHWC"), {}),
    "one image": ((1, 3, 1, 2), (1, 1, 2, 2), ("NHWC", "HWIO", "NHWC"), {}),
}


def convolution(case: str) -> Any:
    *_, layouts, params = CASES[case]
    n_space = len(layouts[0]) - 2
    params = {"window_strides": (1,) * n_space, "padding": "VALID", **params}

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, dimension_numbers=layouts, **params)

    return f


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_operation(case: str, at_any_size: None) -> None:
    f = convolution(case)
    x, y = array(0, CASES[case][0]), array(1, CASES[case][1])
    assert CONVOLUTION in tb.jit(f).lower(x, y).as_text()
    with scope("platform_rules", False):
        assert CONVOLUTION not in tb.jit(f).lower(x, y).as_text()
        expected = np.asarray(tb.jit(f)(x, y))
    np.testing.assert_allclose(tb.jit(f)(x, y), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(f(x, y), expected, rtol=1e-5, atol=1e-5)


# how often the library is called for the gradients of both operands
@pytest.mark.parametrize(
    ("case", "calls"),
    [("nchw", 2), ("strides, pads", 5), ("pads that cut", 2), ("groups", 2), ("depthwise", 2)],
)
def test_gradients_are_those_of_the_operation(case: str, calls: int, at_any_size: None) -> None:
    f = convolution(case)
    x, y = array(0, CASES[case][0]), array(1, CASES[case][1])
    ct = array(2, f(x, y).shape)

    def gradients(x: Any, y: Any) -> Any:
        return tb.vjp(f, x, y)[1](ct)

    with scope("platform_rules", False):
        expected = tb.jit(gradients)(x, y)
    assert tb.jit(gradients).lower(x, y).as_text().count(CONVOLUTION) == calls
    for g, e in zip(tb.jit(gradients)(x, y), expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-4)


# x, kernel, groups of features
ODD_GRADIENTS: dict[str, tuple[Any, ...]] = {
    "one image": ((1, 9, 8, 3), (3, 3, 3, 4), 1),
    "one output": ((2, 9, 8, 3), (3, 3, 3, 1), 1),
    "one input": ((2, 9, 8, 1), (3, 3, 1, 4), 1),
    "one place of a kernel": ((2, 9, 8, 3), (1, 1, 3, 4), 1),
    "one place, in groups": ((2, 9, 8, 12), (1, 1, 4, 15), 3),
    "one place, depthwise": ((2, 9, 8, 4), (1, 1, 1, 4), 4),
    "one place of images": ((2, 1, 1, 12), (1, 1, 4, 15), 3),
    "two outputs of groups": ((2, 9, 8, 4), (3, 3, 1, 8), 4),
}


@pytest.mark.parametrize("case", ODD_GRADIENTS)
def test_gradients_that_the_library_does_not_take_are_right(case: str, at_any_size: None) -> None:
    """Nor does any form wait for it: what it would be given is asked for first."""
    x_shape, y_shape, groups = ODD_GRADIENTS[case]
    x, y = array(0, x_shape), array(1, y_shape)

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            y,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    ct = array(2, f(x, y).shape)
    with scope("platform_rules", False):
        expected = tb.jit(lambda x, y: tb.vjp(f, x, y)[1](ct))(x, y)
    for g, e in zip(tb.jit(lambda x, y: tb.vjp(f, x, y)[1](ct))(x, y), expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-4)


def test_the_largest_kernels_are_left_to_loops() -> None:
    """The gradient of a depthwise kernel on images of more places than the library's kernels."""
    f = convolution("depthwise")
    x = tb.ShapeDtypeStruct((64, 5, 224, 224), "float32")
    y = tb.ShapeDtypeStruct((5, 1, 3, 3), "float32")
    text = tb.jit(lambda x, y: tb.vjp(f, x, y)[1](x)[1]).lower(x, y).as_text()
    assert CONVOLUTION not in text
    assert "stablehlo.convolution" not in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_float32(dtype: str, at_any_size: None) -> None:
    f = convolution("nhwc")
    x, y = array(0, (2, 9, 8, 64), dtype), array(1, (3, 2, 64, 4), dtype)
    got = tb.jit(f)(x, y)
    assert CONVOLUTION in tb.jit(f).lower(x, y).as_text()
    assert got.dtype == dtype
    wide = f(x.astype("float32"), y.astype("float32"))
    np.testing.assert_array_equal(got, wide.astype(dtype))


def test_numbers_that_are_not_finite_stay_where_they_are(at_any_size: None) -> None:
    f = convolution("strides, pads")
    x, y = np.array(array(0, (2, 9, 8, 3))), array(1, (3, 2, 3, 4))
    x[0, 0, 0, 0], x[1, 4, 4, 1] = np.nan, np.inf
    with scope("platform_rules", False):
        expected = np.asarray(tb.jit(f)(x, y))
    result = np.asarray(tb.jit(f)(x, y))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))


def test_inside_of_loops_and_maps(at_any_size: None) -> None:
    f = convolution("nhwc")
    x, y = array(0, (3, 2, 9, 8, 3)), array(1, (3, 2, 3, 4))
    each = [np.asarray(f(v, y)) for v in x]
    np.testing.assert_allclose(lax.map(lambda v: f(v, y), x), each, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tb.vmap(f, in_axes=(0, None))(x, y), each, rtol=1e-5, atol=1e-5)
    ys = jnp.stack([y, 2 * y, -y])
    np.testing.assert_allclose(
        tb.vmap(f)(x, ys), [f(*v) for v in zip(x, ys, strict=True)], rtol=1e-5, atol=1e-5
    )


def test_the_library_is_left_alone_where_it_has_no_kernels(at_any_size: None) -> None:
    def calls(x: Any, y: Any, layouts: tuple[str, ...], **params: Any) -> bool:
        params = {"window_strides": (1, 1), "padding": "VALID", **params}
        f = tb.jit(lambda x, y: lax.conv_general_dilated(x, y, dimension_numbers=layouts, **params))
        return CONVOLUTION in f.lower(x, y).as_text()

    layouts = ("NHWC", "HWIO", "NHWC")
    x, y = array(0, (2, 9, 8, 3)), array(1, (3, 2, 3, 4))
    assert calls(x, y, layouts)
    assert not calls(x, y, layouts, lhs_dilation=(2, 1), rhs_dilation=(2, 1))
    assert not calls(array(0, (3, 9, 8, 2)), y, ("CHWN", "HWIO", "CHWN"))
    # One feature: the library takes both orders of axes for the same.
    assert not calls(array(0, (2, 9, 8, 1)), array(1, (3, 2, 1, 4)), layouts)
    assert not calls(x, y, ("NHWC", "HWIO", "NCHW"))
    thin = {"feature_group_count": 3}  # two outputs of one feature
    assert not calls(x, array(1, (3, 2, 1, 6)), layouts, **thin)
    with tb.enable_x64():
        assert not calls(array(0, x.shape, "float64"), array(1, y.shape, "float64"), layouts)


def test_small_convolutions_are_left_to_xla() -> None:
    f = convolution("nhwc")
    small = tb.jit(f).lower(array(0, (1, 8, 8, 8)), array(1, (3, 3, 8, 8)))
    large = tb.jit(f).lower(array(0, (4, 28, 28, 64)), array(1, (3, 3, 64, 64)))
    assert CONVOLUTION not in small.as_text()
    assert CONVOLUTION in large.as_text()


def test_exports_keep_the_operation(at_any_size: None) -> None:
    f = convolution("nhwc")
    x, y = array(0, (2, 9, 8, 3)), array(1, (3, 2, 3, 4))
    exported = export.export(tb.jit(f))(x, y)
    assert CONVOLUTION not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(x, y), f(x, y), rtol=1e-5, atol=1e-5)


def test_work_in_the_library_counts_as_flops(at_any_size: None) -> None:
    f = convolution("groups")
    x, y = array(0, CASES["groups"][0]), array(1, CASES["groups"][1])
    lowered = tb.jit(f).lower(x, y)
    flops = 2 * f(x, y).size * 3 * 2 * 4
    assert lowered.cost_analysis()["flops"] == flops
    assert lowered.compile().cost_analysis()["flops"] == flops


def test_programs_with_the_library_are_not_kept_in_files(
    at_any_size: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    f = convolution("nhwc")
    x, y = array(0, (2, 9, 8, 3)), array(1, (3, 2, 3, 4))
    options = {
        "compilation_cache_dir": str(tmp_path),
        "persistent_cache_min_compile_time_secs": 0.0,
    }
    for name, value in options.items():
        request.addfinalizer(partial(tb.config.update, name, tb.config.values[name]))
        tb.config.update(name, value)
    tb.jit(lambda x, y: f(x, y) + 1)(x, y)
    assert not list(tmp_path.iterdir())
    with scope("platform_rules", False):
        tb.jit(lambda x, y: f(x, y) + 2)(x, y)
    assert list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_calls_leave_no_memory_behind(at_any_size: None) -> None:
    f = tb.jit(convolution("nhwc"))
    x, y = array(0, (8, 64, 64, 8)), array(1, (3, 3, 8, 8))

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(20):
        f(x, y).block_until_ready()
    before = resident()
    for _ in range(200):
        f(x, y).block_until_ready()
    assert resident() - before < 32 << 20  # a result has a megabyte


def kernel_gradient(x: Any, g: Any) -> tuple[Any, Any]:
    """The program of the gradient of a 3x3 kernel that keeps sizes, and what it has to give."""
    kernel = jnp.zeros((g.shape[1], x.shape[1], 3, 3), np.float32)
    height, width = x.shape[2:]

    def convolved(kernel):
        numbers = ("NCHW", "OIHW", "NCHW")
        return lax.conv_general_dilated(x, kernel, (1, 1), [(1, 1)] * 2, dimension_numbers=numbers)

    compiled = tb.jit(lambda kernel, g: tb.vjp(convolved, kernel)[1](g)[0]).lower(kernel, g)
    padded = np.pad(np.asarray(x), [(0, 0), (0, 0), (1, 1), (1, 1)])
    expected = np.empty(kernel.shape, np.float32)
    for i in range(3):
        for j in range(3):
            window = padded[:, :, i : i + height, j : j + width]
            expected[:, :, i, j] = np.tensordot(g, window, ([0, 2, 3], [0, 2, 3]))
    return compiled.compile(), expected


@pytest.fixture
def without_shifts(monkeypatch: pytest.MonkeyPatch):
    """The library's gradients also where products of shifted copies are faster."""
    monkeypatch.setattr(cpu_rules, "_is_for_shifts", lambda *_: False)
    forget_copies()
    yield
    forget_copies()


def test_gradients_of_kernels_take_large_cotangents_in_halves(without_shifts: None):
    """Two calls over half of the outputs each give the gradient, and need less between them."""
    x, g = array(1, (8, 16, 64, 64)), array(2, (8, 64, 64, 64))
    program, expected = kernel_gradient(x, g)

    assert program.as_text().count(f'custom_call_target="{CONVOLUTION}"') == 2
    assert program.memory_analysis().temp_size_in_bytes < g.nbytes + x.nbytes
    kernel = jnp.zeros(expected.shape, np.float32)
    np.testing.assert_allclose(program(kernel, g), expected, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize(("examples", "steps"), [(16, 4), (24, 4), (18, 2), (15, 1)])
def test_gradients_of_kernels_add_up_many_examples_in_steps(examples: int, steps: int):
    """Only the copies of one step are there at a time."""
    x, g = array(1, (examples, 16, 64, 64)), array(2, (examples, 32, 64, 64))
    program, expected = kernel_gradient(x, g)

    assert steps == program.as_text().count(f'custom_call_target="{CONVOLUTION}"')
    copied = program.memory_analysis().temp_size_in_bytes
    assert copied < 1.4 * (g.nbytes + x.nbytes) / steps
    kernel = jnp.zeros(expected.shape, np.float32)
    np.testing.assert_allclose(program(kernel, g), expected, rtol=1e-3, atol=4e-2)
