"""Functions whose arguments are sizes, where the sizes are symbolic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import export, image, lax, nn, ops, random
from tracebridge.errors import InconclusiveDimensionError


def compare(f: Any, shape: str, *sizes: tuple[int, ...]) -> None:
    """The program for all sizes gives what ``f`` gives for each."""
    spec = tb.ShapeDtypeStruct(export.symbolic_shape(shape), "float32")
    exported = export.export(tb.jit(f))(spec)
    for size in sizes:
        x = tnp.asarray(np.random.default_rng(0).standard_normal(size), "float32")
        found, wanted = exported.call(x), tb.jit(f)(x)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_ranges() -> None:
    """Any integer step of a known sign, symbolic ones too; empty ranges are empty."""

    def ranges(x: Any) -> Any:
        b = x.shape[0]
        return (
            tnp.arange(0, 5 * b + 1, 2),
            tnp.arange(0, b - 3, 2),
            tnp.arange(b, -1, -1),
            tnp.arange(5 * b + 1, b, -2, "float32"),
            tnp.arange(0, 10, b),
            tnp.arange(10, 0, -b),
        )

    compare(ranges, "b", (2,), (6,))


def test_positions_as_many_as_elements() -> None:
    """The number of positions may be a symbolic size."""

    def positions(x: Any) -> Any:
        b, mask = x.shape[0], x % 3 == 1
        return (
            *tnp.nonzero(mask, size=b),
            *tnp.where(mask, size=2 * b, fill_value=-1),
            tnp.flatnonzero(mask, size=b + 1),
            tnp.argwhere(mask, size=b),
        )

    compare(positions, "b", (2,), (6,))


def test_distinct_elements_as_many_as_elements() -> None:
    """The number of distinct elements may be a symbolic size."""

    def distinct(x: Any) -> Any:
        n, x = x.shape[0], tnp.round(x)
        return (
            *tnp.unique(x, True, True, True, size=n),
            tnp.unique(x, size=n + 1, fill_value=7.0),
            tnp.union1d(x, x + 1, size=2 * n),
        )

    compare(distinct, "n", (2,), (6,))


def test_slices_of_symbolic_steps() -> None:
    """Every b-th row, forwards and backwards, with any bounds."""

    def slices(x: Any) -> Any:
        b = x.shape[1]
        return x[::b], x[::-b], x[2::b], x[: 2 * b + 2 : b], x[-2:-b:-b], x[b : -2 * b - 2 : -b]

    compare(slices, "c, b", (16, 8), (9, 2), (3, 1))


def test_bounds_of_unknown_sign() -> None:
    """A bound counts from the start; sizes that make it negative are refused."""
    spec = tb.ShapeDtypeStruct(export.symbolic_shape("b"), "float32")
    exported = export.export(tb.jit(lambda x: (x[x.shape[0] - 3 :], x[: x.shape[0] - 3])))(spec)
    x = np.arange(5, dtype="float32")

    np.testing.assert_array_equal(exported.call(x)[0], x[2:])
    np.testing.assert_array_equal(exported.call(x)[1], x[:2])
    with pytest.raises(TypeError, match=r"needs 0 <= b - 3"):
        exported.call(x[:2])


def test_reshapes_without_a_quotient() -> None:
    """Sizes that need not divide ask for a constraint; one that says so is enough."""
    (b,) = export.symbolic_shape("b")
    with pytest.raises(InconclusiveDimensionError, match=r"shapes \(b, 2, 4\) and \(b, -1, 3\)"):
        tb.eval_shape(lambda: tnp.ones((b, 2, 4)).reshape((b, -1, 3)))
    (a,) = export.symbolic_shape("a", constraints=["mod(a + mod(a, 2), -2) == 0"])
    halves = tb.eval_shape(lambda: tnp.ones((a + a % 2,)).reshape((2, -1)))

    assert halves.shape == (2, (a + a % 2) // 2)


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        (lambda b: (0.0, b), ValueError, "either dimension expressions or integers"),
        (lambda b: (0, b, 0.5), ValueError, "either dimension expressions or integers"),
        (lambda b: (0, b, 0), ValueError, "step == 0"),
        (
            lambda b: (0, b, b - 2),
            InconclusiveDimensionError,
            "step b - 2 it must be resolved statically",
        ),
    ],
)
def test_wrong_ranges(args: Any, error: type[Exception], says: str) -> None:
    """Their sizes cannot be written as expressions."""
    (b,) = export.symbolic_shape("b")
    with pytest.raises(error, match=says):
        tb.eval_shape(lambda: tnp.arange(*args(b)))


def test_sizes_as_arguments() -> None:
    """Widths, diagonals, places to cut at, numbers of classes and segments, how many are taken."""

    def f(x: Any) -> Any:
        b = x.shape[0]
        numbers = tnp.arange(b)
        return (
            tnp.pad(x, [(b, 0), (x.shape[1], 1)]),
            tnp.pad(x, [(b, 0), (2, 1)], mode="edge"),
            tnp.tril(tnp.ones((b, b + 2)), k=b - 1),
            *tnp.split(x, (1, b - 1)),
            *tnp.split(tnp.concatenate([x, x]), 2),
            tnp.bincount(numbers % 2, length=b),
            nn.one_hot(numbers, b),
            ops.segment_sum(x, numbers // 2, num_segments=b),
            ops.segment_max(x, numbers // 2, num_segments=b, bucket_size=2),
            *lax.top_k(x[:, 0], b - 1),
            lax.index_in_dim(x, b - 1, keepdims=False),
            image.resize(x, (2 * b, 3), "nearest"),
        )

    compare(f, "b + 2, 3", (6, 3))


def test_windows_over_symbolic_axes() -> None:
    """Convolutions with strides and the padding SAME, or a symbolic one; sums of windows."""
    kernel = np.arange(12, dtype="f").reshape(2, 2, 3)

    def f(x: Any) -> Any:
        return (
            lax.conv_general_dilated(x, kernel, (2,), "SAME"),
            lax.conv_general_dilated(x, kernel, (1,), [(x.shape[2], 1)], lhs_dilation=(2,)),
            lax.reduce_window(x, 0.0, lax.add, (1, 1, 3), (1, 1, 1), "SAME"),
        )

    compare(f, "1, 2, b", (1, 2, 5))


@pytest.mark.parametrize("partitionable", [True, False])
def test_random_numbers(partitionable: bool) -> None:
    """Draws, keys and numbers with parameters of symbolic sizes."""

    def f(x: Any) -> Any:
        key = random.key(1)
        return (
            random.uniform(key, x.shape),
            random.key_data(random.split(key, 2 * x.shape[0])),
            random.categorical(key, x, axis=1),
            *([random.gamma(key, abs(x) + 1)] if partitionable else []),
        )

    with tb.threefry_partitionable(partitionable):
        compare(f, "b, 4", (3, 4))
