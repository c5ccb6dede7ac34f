"""Convolutions agree with sums of products, with PyTorch, and all their rules agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose, check_rules

Host = np.ndarray[Any, Any]


def sample(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Host:
    """Small numbers of any dtype."""
    random = np.random.default_rng(seed + sum(shape))
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return random.integers(0 if dtype.kind in "ub" else -3, 3, shape).astype(dtype)
    x = random.normal(size=shape)
    if dtype.kind == "c":
        return (x + 1j * random.normal(size=shape)).astype(dtype)
    return x.astype(dtype)


def spread(x: Host, gaps: Any) -> Host:
    """Zeros between neighbours of the spatial axes."""
    for axis, gap in enumerate(gaps, 2):
        shape = list(x.shape)
        shape[axis] = (shape[axis] - 1) * gap + 1
        wide = np.zeros(shape, x.dtype)
        wide[(slice(None),) * axis + (slice(None, None, gap),)] = x
        x = wide
    return x


def by_loop(
    x: Host,
    y: Host,
    strides: Any,
    pads: Any,
    x_gaps: Any = None,
    y_gaps: Any = None,
    features: int = 1,
    batches: int = 1,
) -> Host:
    """Sums of products, one place of the kernel after the other; axes in the default order."""
    n = x.ndim - 2
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    wide = spread(wide, x_gaps or (1,) * n)
    kernel = spread(y.astype(wide.dtype), y_gaps or (1,) * n)
    for axis, (low, high) in enumerate(pads, 2):
        shape = list(wide.shape)
        for at, count in ((0, low), (None, high)):
            if count >= 0:
                shape[axis] = count
                parts = [np.zeros(shape, wide.dtype), wide]
                wide = np.concatenate(parts if at == 0 else parts[::-1], axis)
            else:
                index = slice(-count, None) if at == 0 else slice(None, count)
                wide = wide[(slice(None),) * axis + (index,)]
    groups = max(features, batches)
    outs: list[Host] = []
    for g in range(groups):
        part = np.array_split(wide, groups, 1 if features > 1 else 0)[g]
        one = np.array_split(kernel, groups, 0)[g]
        counts = [
            (a - k) // s + 1 for a, k, s in zip(part.shape[2:], one.shape[2:], strides, strict=True)
        ]
        total = np.zeros((part.shape[0], one.shape[0], *counts), wide.dtype)
        for place in np.ndindex(*one.shape[2:]):
            window = part[(slice(None), slice(None), *[
                slice(p, p + (c - 1) * s + 1, s)
                for p, c, s in zip(place, counts, strides, strict=True)
            ])]  # fmt: skip
            total += np.einsum("ni...,oi->no...", window, one[(slice(None), slice(None), *place)])
        outs.append(total)
    return np.concatenate(outs, 1)


# shapes of array and kernel, strides, padding, dilations, groups of features, of the batch
CASES: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 3, 5), (4, 3, 2), (1,), [(0, 0)], None, None, 1, 1),
    "strided": ((1, 2, 6, 5), (3, 2, 3, 2), (2, 3), [(1, 2), (0, 1)], None, None, 1, 1),
    "dilated": ((2, 2, 4, 3), (2, 2, 2, 2), (2, 1), [(1, 0), (2, 1)], (2, 3), (2, 1), 1, 1),
    "cut": ((1, 2, 6), (2, 2, 2), (1,), [(-1, 2)], (2,), None, 1, 1),
    "grouped": ((2, 4, 5), (6, 2, 2), (2,), [(1, 1)], None, (2,), 2, 1),
    "depthwise": ((2, 3, 4, 4), (6, 1, 2, 2), (1, 1), [(1, 0), (0, 1)], None, None, 3, 1),
    "batch_grouped": ((4, 3, 5), (6, 3, 2), (2,), [(1, 0)], None, None, 1, 2),
    "no_space": ((3, 4), (2, 4), (), [], None, None, 1, 1),
    "three_axes": ((1, 2, 3, 3, 4), (2, 2, 2, 2, 2), (1, 2, 1), [(1, 0), (0, 0), (0, 1)],
                   None, None, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_all_rules_agree(name: str) -> None:
    """Value, derivatives in both operands, batching over each and both."""
    x_shape, y_shape, strides, pads, x_gaps, y_gaps, features, batches = CASES[name]

    check_rules(
        lambda x, y: lax.conv_general_dilated(
            x, y, strides, pads, x_gaps, y_gaps, None, features, batches
        ),
        sample(*x_shape),
        sample(*y_shape, seed=3),
        reference=lambda x, y: by_loop(x, y, strides, pads, x_gaps, y_gaps, features, batches),
        order=2 if name in ("plain", "grouped") else 1,
        atol=1e-5,
    )


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "int8", "uint8",
                                   "bool", "complex64", "complex128"])  # fmt: skip
def test_dtypes(dtype: str) -> None:
    """The result has the dtype of the operands; booleans give whether there is a product."""
    import ml_dtypes  # noqa: F401 - gives NumPy the name bfloat16

    with enable_x64():
        x, y = sample(2, 3, 5, dtype=dtype), sample(4, 3, 2, dtype=dtype, seed=1)
        out = lax.conv_general_dilated(x, y, (1,), "VALID")
    expected = by_loop(x, y, (1,), [(0, 0)])

    assert out.dtype == x.dtype
    if dtype == "bool":
        assert (expected != 0).tolist() == np.asarray(out).tolist()
    elif x.dtype.kind in "iu":
        assert expected.astype(np.int64).astype(dtype).tolist() == np.asarray(out).tolist()
    else:
        tolerance = {"float64": 1e-13, "complex128": 1e-13}.get(dtype, 1e-5)
        tolerance = 2e-2 if x.dtype.itemsize == 2 else tolerance
        wide = np.asarray(out).astype(expected.dtype)
        np.testing.assert_allclose(wide, expected, rtol=tolerance, atol=tolerance)


def test_complex_rules() -> None:
    """Derivatives are not conjugated."""
    check_rules(
        lambda x, y: lax.conv_general_dilated(x, y, (2,), [(1, 0)]),
        sample(2, 2, 5, dtype=np.complex64),
        sample(3, 2, 2, dtype=np.complex64),
        order=1,
        atol=1e-5,
    )


def test_wider_results() -> None:
    """Sums in another dtype, and cotangents of the operands' dtypes."""
    x, y = sample(1, 2, 4, dtype=np.int8), sample(2, 2, 2, dtype=np.int8, seed=1) * 50
    out = lax.conv_general_dilated(x, y, (1,), "VALID", preferred_element_type=np.int32)

    assert by_loop(x, y, (1,), [(0, 0)]).tolist() == np.asarray(out).tolist()
    half = sample(1, 2, 4, dtype=np.float16)
    gradient = tb.grad(
        lambda x: lax.conv_general_dilated(
            x, half, (1,), "SAME", preferred_element_type=np.float32
        ).sum()
    )(half)
    assert gradient.dtype == np.float16


@pytest.mark.parametrize("numbers", [("NHWC", "HWIO", "NHWC"), ("HNCW", "WOHI", "CWHN")], ids=str)
def test_axes_in_any_order(numbers: tuple[str, str, str]) -> None:
    """Strides follow the spatial letters of the kernel."""
    x, y = sample(2, 3, 6, 5), sample(4, 3, 2, 3, seed=1)
    space = [c for c in numbers[1] if c not in "OI"]
    lhs = ["NCHW".index(c) for c in numbers[0]]
    rhs = ["OIHW".index(c) for c in numbers[1]]
    strides = [{"H": 2, "W": 1}[c] for c in space]
    pads = [{"H": (1, 0), "W": (0, 2)}[c] for c in space]
    expected = by_loop(x, y, (2, 1), [(1, 0), (0, 2)])
    expected = expected.transpose(["NCHW".index(c) for c in numbers[2]])

    check_rules(
        lambda x, y: lax.conv_general_dilated(x, y, strides, pads, None, None, numbers),
        x.transpose(lhs),
        y.transpose(rhs),
        reference=lambda x, y: expected,
        order=1,
        atol=1e-5,
    )


def test_no_elements() -> None:
    """Empty batches, features and windows that do not fit."""
    for x_shape, y_shape in (
        ((0, 2, 5), (3, 2, 2)),
        ((2, 0, 5), (3, 0, 2)),
        ((2, 2, 1), (3, 2, 2)),
        ((2, 2, 5), (0, 2, 2)),
    ):
        check_rules(
            lambda x, y: lax.conv_general_dilated(x, y, (1,), "VALID"),
            sample(*x_shape),
            sample(*y_shape),
            order=1,
        )


@pytest.mark.torch
@pytest.mark.parametrize("n", [1, 2, 3])
def test_against_torch(n: int) -> None:
    """Convolutions and transposed ones of one to three axes, with groups, strides and dilation."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    space, kernel = (7, 6, 5)[:n], (3, 2, 2)[:n]
    x, y = sample(2, 4, *space), sample(6, 2, *kernel, seed=1)
    forward = getattr(functional, f"conv{n}d")
    expected = forward(
        torch.tensor(x), torch.tensor(y), stride=2, padding=1, dilation=2, groups=2
    ).numpy()
    actual = lax.conv_general_dilated(
        x, y, (2,) * n, [(1, 1)] * n, None, (2,) * n, None, feature_group_count=2
    )

    assert_allclose(np.asarray(actual), expected, rtol=1e-4, atol=1e-5)
    x, y = sample(2, 4, *space), sample(4, 3, *kernel, seed=2)
    backward = getattr(functional, f"conv_transpose{n}d")
    expected = backward(torch.tensor(x), torch.tensor(y), stride=2, padding=1).numpy()
    letters = "HWD"[:n]
    numbers = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    actual = lax.conv_transpose(
        x, y, (2,) * n, [(1, 1)] * n, dimension_numbers=numbers, transpose_kernel=True,
        use_consistent_padding=True,
    )  # fmt: skip

    assert_allclose(np.asarray(actual), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed_convolutions_are_gradients(stride: int, padding: str) -> None:
    """With ``transpose_kernel`` they transpose the convolution with that padding."""
    n = 3
    y = sample(2, 4, 5, seed=1)
    numbers = ("NHC", "HIO", "NHC")
    x = sample(1, n, 5)
    out = lax.conv_transpose(x, y, (stride,), padding, transpose_kernel=True)
    size = out.shape[1]

    def forward(z: Any) -> Any:
        return lax.conv_general_dilated(z, y, (stride,), padding, dimension_numbers=numbers)

    zeros = np.zeros((1, size, 4), np.float32)
    if forward(zeros).shape == x.shape:
        (expected,) = tb.vjp(forward, zeros)[1](x)
        assert_allclose(np.asarray(out), np.asarray(expected), rtol=1e-5, atol=1e-5)
    shape = lax.conv_transpose_shape_tuple(x.shape, (2, 5, 4), (stride,), padding, numbers)
    assert shape == out.shape


def test_short_forms() -> None:
    """They are the general function with defaults, and shapes are known beforehand."""
    x, y = sample(2, 3, 6), sample(4, 3, 2, seed=1)
    general = lax.conv_general_dilated(x, y, (2,), "SAME")

    assert np.asarray(general).tolist() == lax.conv(x, y, (2,), "SAME").tolist()
    spread_out = lax.conv_with_general_padding(x, y, (2,), [(1, 0)], (2,), None)
    assert_allclose(
        np.asarray(spread_out), by_loop(x, y, (2,), [(1, 0)], (2,)), atol=1e-5, check_dtype=False
    )
    assert general.shape == lax.conv_shape_tuple(x.shape, y.shape, (2,), "SAME")
    assert lax.conv_shape_tuple((4, 3, 6), y.shape, (2,), [(0, 0)], 2) == (2, 4, 3)
    numbers = ("NHC", "HIO", "NHC")
    assert lax.conv_general_shape_tuple((2, 6, 3), (2, 3, 4), (2,), "SAME", numbers) == (2, 3, 4)


def test_patches_and_local_kernels() -> None:
    """Patches times a kernel are the convolution; local kernels that are the same, too."""
    x, y = sample(2, 3, 5, 4), sample(4, 3, 2, 3, seed=1)
    options: Any = ((2, 1), [(1, 0), (0, 1)])
    expected = by_loop(x, y, *options)
    patches = lax.conv_general_dilated_patches(x, (2, 3), *options)
    product = np.einsum("nphw,op->nohw", np.asarray(patches), y.reshape(4, -1))

    assert_allclose(product, expected, atol=1e-5, check_dtype=False)
    local = np.broadcast_to(y.reshape(4, -1, 1, 1), (4, 18, *expected.shape[2:])).copy()
    check_rules(
        lambda x, k: lax.conv_general_dilated_local(x, k, *options, (2, 3)),
        x, local, reference=lambda x, k: expected, order=1, atol=1e-5,
    )  # fmt: skip
    numbers = ("NHWC", "HWOI", "HWNC")
    moved = lax.conv_general_dilated_local(
        x.transpose(0, 2, 3, 1), local.transpose(2, 3, 0, 1), *options, (2, 3), None, None, numbers
    )
    assert_allclose(np.asarray(moved), expected.transpose(2, 3, 0, 1), atol=1e-5, check_dtype=False)


def test_errors_say_what_is_wrong() -> None:
    """Each mistake has its class."""
    x, y = sample(2, 3, 5), sample(4, 3, 2)
    wrong: list[tuple[Any, Any]] = [
        (RankError, lambda: lax.conv(x, y[0], (1,), "SAME")),
        (RankError, lambda: lax.conv(x, y, (1, 1), "SAME")),
        (RankError, lambda: lax.conv_general_dilated(x, y, (1,), [(0, 0), (0, 0)])),
        (ShapeMismatchError, lambda: lax.conv(x, y[:, :2], (1,), "SAME")),
        (ShapeMismatchError, lambda: lax.conv(x, y, (0,), "VALID")),
        (ShapeMismatchError, lambda: lax.conv_general_dilated(x, y, (1,), "SAME",
                                                              batch_group_count=3)),
        (DtypeMismatchError, lambda: lax.conv(x, y.astype(np.float16), (1,), "SAME")),
        (DtypeMismatchError, lambda: lax.conv(x, y, (1,), "SAME",
                                              preferred_element_type=np.int32)),
        (ArgumentValueError, lambda: lax.conv(x, y, (1,), "FULL")),
        (ArgumentValueError, lambda: lax.conv_general_dilated(x, y, (1,), (3,))),
        (ArgumentValueError, lambda: lax.conv_transpose(x, y, (1,), "SAME_LOWER")),
        (ArgumentTypeError, lambda: lax.conv_dimension_numbers((1, 2), (1, 2), "NC")),
        (ArgumentValueError, lambda: lax.conv_general_permutations(("NCH", "OIW", "NCH"))),
        (ArgumentValueError, lambda: lax.conv_general_permutations(("NNH", "OIH", "NCH"))),
    ]  # fmt: skip
    for kind, call in wrong:
        with pytest.raises(kind, match="conv"):
            call()


def test_derivatives_for_all_sizes_after_strides() -> None:
    """How much the last window leaves over depends on the size: one program for all of them."""

    def value(x: Any, k: Any) -> Any:
        options = {"rhs_dilation": (2, 1), "feature_group_count": 2}
        return (lax.conv_general_dilated(x, k, (3, 2), ((2, 1), (0, 2)), **options) ** 2).sum()

    def bends(x: Any, k: Any) -> Any:
        def slope(x: Any, k: Any) -> Any:
            return sum((g**2).sum() for g in tb.grad(value, argnums=(0, 1))(x, k))

        return tb.grad(slope, argnums=(0, 1))(x, k)

    rng = np.random.default_rng(0)
    k = rng.standard_normal((4, 1, 3, 2)).astype(np.float32)
    x = rng.standard_normal((2, 2, 9, 8)).astype(np.float32)
    specs = tb.export.symbolic_args_specs((x, k), ("b, _, h, w", None))
    cases = (tb.grad(value, argnums=(0, 1)), ((5, 2), (7, 4))), (bends, ((6, 3), (12, 7)))
    for derivative, sizes in cases:
        program = tb.export.export(tb.jit(derivative))(*specs)
        for h, w in sizes:
            x = rng.standard_normal((1, 2, h, w)).astype(np.float32)
            for actual, expected in zip(program.call(x, k), derivative(x, k), strict=True):
                scale = np.abs(expected).max()
                np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5 * scale)


def test_paddings_that_cut_read_nothing_beside_the_array() -> None:
    """XLA's own convolution did, of float32 with an unusual order of axes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(4, 8, 5, 13)).astype(np.float32)
    y = random.normal(size=(3, 1, 5, 6)).astype(np.float32)
    numbers = ("HNCW", "HWIO", "HNCW")
    pads = [(-1, 1), (-2, -3)]

    def f(x: Any, y: Any, padding: Any) -> Any:
        return tb.lax.conv_general_dilated(x, y, (1, 1), padding, dimension_numbers=numbers)

    whole = np.asarray(f(x[1:, :, :, 2:-3].copy(), y, [(0, 1), (0, 0)]))
    np.testing.assert_allclose(
        tb.jit(lambda x, y: f(x, y, pads))(x, y), whole, rtol=1e-5, atol=1e-5
    )
