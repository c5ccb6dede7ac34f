"""Faster forms of sums of products: the numbers of the plain ones, and none of their arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.scopes import scope

_RNG = np.random.default_rng(0)
X, G, S = [_RNG.standard_normal(s).astype(np.float32) for s in ((64, 16), (64, 24), (64,))]
WIDE, WEIGHTS = [_RNG.standard_normal(s).astype(np.float32) for s in ((600, 256), (256,))]


pytestmark = pytest.mark.usefixtures("without_kernels")


def outer(x: Any, g: Any) -> Any:
    """One product for each sample, as gradients of weights have."""
    return tb.vmap(lambda a, b: a[:, None] * b[None])(x, g)


def by_broadcasts(x: Any, g: Any) -> Any:
    """The same, written out."""
    return x[:, :, None] * g[:, None]


# name -> function of X, G, S; whether it needs sums over single factors
FORMS: dict[str, tuple[Any, bool]] = {
    "squares": (lambda x, g, s: (outer(x, g) ** 2).sum((1, 2)), True),
    "squares of one axis": (lambda x, g, s: (outer(x, g) ** 2).sum(2), True),
    "products with themselves": (lambda x, g, s: (outer(x, g) * outer(x, g)).sum(), True),
    "flat squares": (lambda x, g, s: (outer(x, g).reshape(64, -1) ** 2).sum(1), True),
    "weighted": (lambda x, g, s: tnp.einsum("a,abc->bc", s, outer(x, g)), False),
    "weighted, flat": (lambda x, g, s: s @ outer(x, g).reshape(64, -1), False),
    "broadcast": (lambda x, g, s: (by_broadcasts(x, g) * s[:, None, None]).sum(0), False),
    "negative": (lambda x, g, s: (-by_broadcasts(x, g) * 3.0).sum(0), False),
    "transposed": (lambda x, g, s: outer(x, g).transpose(2, 0, 1).sum(1), False),
    "with a matrix": (lambda x, g, s: tnp.einsum("abc,cd->d", outer(x, g), g[:24, :5]), True),
    "of pairs": (lambda x, g, s: (x[:, None] * x[None]).sum(2), False),
}


def lowered(f: Any, *args: Any) -> str:
    """The text of the module."""
    return tb.jit(f).lower(*args).as_text()


def plainly(f: Any, *args: Any) -> Any:
    """The result without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


@pytest.mark.parametrize("name", FORMS)
def test_sums_of_outer_products_do_without_them(name: str) -> None:
    """Values agree, and the large product is made at most behind the guard."""
    f, guarded = FORMS[name]

    np.testing.assert_allclose(tb.jit(f)(X, G, S), plainly(f, X, G, S), rtol=1e-5, atol=1e-4)
    text = lowered(f, X, G, S)
    assert ("stablehlo.if" in text) is guarded
    assert guarded or not {"64x16x24", "64x384", "64x64x16", "24x64x16"} & set(text.split("xf32"))
    assert guarded or "tensor<64x16x24xf32>" not in text
    with scope("platform_rules", False):
        assert "stablehlo.if" not in lowered(f, X, G, S)


def test_derivatives_and_batching_see_the_written_program() -> None:
    """Gradient, tangent, second order and vmap of each form, in one program."""

    def everything(x: Any, g: Any, s: Any) -> Any:
        def total(x: Any) -> Any:
            return sum((f(x, g, s) ** 2).mean() for f, _ in FORMS.values())

        first = tb.grad(total)(x)
        second = tb.jvp(tb.grad(total), (x,), (x,))[1]
        mapped = tb.vmap(lambda x: FORMS["squares"][0](x, g, s))(tnp.stack([x, 2 * x]))
        return first, second, mapped

    x = 0.1 * X
    for fast, plain in zip(tb.jit(everything)(x, G, S), plainly(everything, x, G, S), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5 * float(abs(plain).max()))


def _special(x: Any, g: Any) -> Any:
    return FORMS["squares"][0](x, g, 1), (x[:, :, None] * g[:, None]).sum(0)


_FAST, _PLAIN = tb.jit(_special), tb.jit(lambda x, g: _special(x, g))


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf, 0.0, 1e25, 1e-25, 3.0])
@pytest.mark.parametrize("g", [np.nan, np.inf, 0.0, 1e25, 1e-25])
def test_special_values_come_out_as_before(x: float, g: float) -> None:
    """NaN, infinity times zero, overflow and underflow in a sum of squares, element by element."""
    xs, gs = X.copy(), G.copy()
    xs[3, 2], gs[3, 5], gs[4, 0] = x, g, g
    xs[5], gs[5] = x, g

    squares, product = _FAST(xs, gs)
    with scope("platform_rules", False):
        plain_squares, plain_product = _PLAIN(xs, gs)
    np.testing.assert_allclose(squares, plain_squares, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(product, plain_product, rtol=1e-4, atol=1e-4)


def test_sums_over_broadcast_axes_count_their_copies() -> None:
    """An axis that no factor has is not lost: of sums, of contractions, of squares."""

    def copies(y: Any, n: int = 7) -> Any:
        return tnp.broadcast_to(y, (n, *y.shape))

    def f(x: Any, g: Any) -> Any:
        y = by_broadcasts(x, g)
        return (
            copies(y).sum(0), copies(y).sum((0, 1)), copies(y**2).sum(), copies(y**2).sum((0, 2)),
            tnp.broadcast_to(y[:, :, None], (64, 16, 5, 24)).sum((0, 2)),
            (tnp.ones((9, 64, 16, 24)) * y).sum((0, 1)),
            tnp.einsum("nabc,na->bc", copies(y), copies(g[:, 0])),
        )  # fmt: skip

    for fast, plain in zip(tb.jit(f)(X, G), plainly(f, X, G), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-4)


def test_sums_beside_copies_are_those_of_one_slice() -> None:
    """Where an axis that stays is broadcast, XLA compiles a sum that reads foreign memory."""
    x, w, rows = X[:24], G[0, :16], X[:5, 0]
    y = tnp.broadcast_to
    shape = 32, 24, 16
    one = (x * w).sum(0)
    forms: list[tuple[Any, Any]] = [
        (lambda x: (y(x, shape) * w).sum(1), one),
        (lambda x: (tnp.repeat(x[None], 32, 0) * w).sum(1), one),
        (lambda x: (y(x, (4, 8, 24, 16)).reshape(shape) * w).sum(1), one),
        (lambda x: (tnp.exp(y(x, shape)) * w).sum(1), (np.exp(x) * w).sum(0)),
        (lambda x: (y(x, shape).mT * w[:, None]).sum(2), one),
        (lambda x: y((x * rows[:, None, None])[:, None], (5, 6, 24, 16)).sum(2),
         (x * rows[:, None, None]).sum(1)[:, None]),
    ]  # fmt: skip
    for f, expected in forms:
        fast = tb.jit(f)(x)
        np.testing.assert_allclose(
            fast, np.broadcast_to(expected, fast.shape), rtol=1e-4, atol=1e-4
        )
        assert "stablehlo.slice" in lowered(f, x)


def test_sums_that_vanish_are_not_trusted_beside_large_factors() -> None:
    """Squares of 1e-25 are 0, but not the square of its product with 1e18."""
    small, large = np.full((64, 16), 1e-25, np.float32), np.full((64, 24), 1e18, np.float32)

    def f(x: Any, g: Any) -> Any:
        squares = by_broadcasts(x, g) ** 2
        return squares.sum(1), tnp.einsum("abc,cd->d", squares, g[:24, :5] * 1e-18)

    for fast, expected in zip(tb.jit(f)(small, large), (1.6e-13, 2.4576e-10), strict=True):
        np.testing.assert_allclose(fast, np.full_like(fast, expected), rtol=1e-5)


def test_weighted_sums_are_products_with_the_weights() -> None:
    """Rows and columns of arrays in memory, not of what is computed on the way."""
    forms: list[tuple[Any, bool]] = [
        (lambda x, w: (x * w).sum(1), True),
        (lambda x, w: (x * tnp.tile(w, 3)[:600, None]).sum(0), True),
        (lambda x, w: (w * x.T[:, :, None].reshape(256, 600).T).sum(-1), True),
        (lambda x, w: (tnp.exp(x) * w).sum(1), False),
        (lambda x, w: (x * w).sum(0), False),
        (lambda x, w: (x * w).sum(), False),
        (lambda x, w: (x * x).sum(1), False),
    ]
    for f, is_product in forms:
        assert ("dot_general" in lowered(f, WIDE, WEIGHTS)) is is_product
        np.testing.assert_allclose(
            tb.jit(f)(WIDE, WEIGHTS), plainly(f, WIDE, WEIGHTS), rtol=1e-5, atol=1e-4
        )

    rows, weights = np.ones_like(WIDE), np.ones_like(WEIGHTS)
    rows[0, 0], rows[1, 1], rows[2, 2:4] = np.nan, np.inf, (np.inf, -np.inf)
    weights[5], rows[3, 5] = 0, np.inf
    expected = np.full(600, 255.0, np.float32)
    expected[:4] = np.nan, np.inf, np.nan, np.nan
    np.testing.assert_array_equal(tb.jit(forms[0][0])(rows, weights), expected)


def test_long_products_are_not_taken_apart() -> None:
    """Squares of squares, and a product of more factors than Python may nest calls."""

    def f(x: Any, n: int) -> Any:
        y = x
        for _ in range(n):
            y = y * y * 0.5 if n < 50 else y * x
        return (y[:, :, None] * y[:, None]).sum((1, 2))

    for n in (40, 600):
        assert "dot_general" not in lowered(lambda x, n=n: f(x, n), X[:, :12] / 9)


def test_sums_of_reshaped_arrays_are_sums_over_their_axes() -> None:
    """Also for integers; not where a sum covers a part of an axis."""
    x = _RNG.integers(0, 9, (8, 3, 4, 10))

    def f(x: Any) -> Any:
        return (
            x.reshape(8, 12, 10).sum(1), x.reshape(24, 40).sum(0), x.reshape(8, 120).sum(1),
            x.reshape(8, 3, 40).sum(), x.reshape(12, 80).sum(1), x.reshape(8, 6, 20).sum(2),
        )  # fmt: skip

    for fast, plain in zip(tb.jit(f)(x), plainly(f, x), strict=True):
        np.testing.assert_array_equal(fast, plain)
    assert "reshape" not in lowered(lambda x: x.reshape(8, 12, 10).sum(1), x)


def test_sums_of_negated_arrays_are_negated_sums() -> None:
    """With infinities and NaN; what is negated and used besides stays."""
    x = X.copy()
    x[0, 0], x[1, :2], x[2, 3] = np.inf, (np.inf, -np.inf), np.nan

    def f(x: Any) -> Any:
        negative = -tnp.sin(x) * x[:1]
        return (-x).sum(1), (-tnp.tanh(x)).sum(0), (-negative).sum(), -negative

    for fast, plain in zip(tb.jit(f)(x), plainly(f, x), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)
    text = lowered(lambda x: (-x).sum(1), X)
    assert "tensor<64xf32>" in next(line for line in text.splitlines() if "negate" in line)


def test_concatenations_are_made_where_they_go() -> None:
    """Stacked results of a vmap, moved to another axis, are no transposition."""

    def f(x: Any) -> Any:
        return tb.vmap(lambda r: tnp.stack([r, 2 * r, r * r], 1).T)(x), tnp.stack([x, x], 2).mT

    text = lowered(f, X)
    assert "transpose" not in text
    for fast, plain in zip(tb.jit(f)(X), plainly(f, X), strict=True):
        np.testing.assert_array_equal(fast, plain)


@pytest.mark.parametrize("dtype", [np.int32, tnp.bfloat16, np.float16])
def test_rounded_and_counted_products_stay(dtype: Any) -> None:
    """Integers are not multiplied as floats, and half precision rounds where it did."""
    x, g = [tnp.asarray(v).astype(dtype) for v in (X * 3, G * 3)]

    def f(x: Any, g: Any) -> Any:
        return (by_broadcasts(x, g) ** 2).sum((1, 2))

    with scope("platform_rules", False):
        plain = lowered(f, x, g)
    assert lowered(f, x, g).count("multiply") == plain.count("multiply")


# functions that are read twice --------------------------------------------------------------------


def writes_exponentials(f: Any, x: Any) -> bool:
    """Whether all that reads the exponentials reads one array in memory."""
    written = r"(%\d+) = stablehlo.exponential .*\n.* stablehlo.optimization_barrier \1 "
    return re.search(written, lowered(f, x)) is not None


def normalised(x: Any) -> Any:
    e = tnp.exp(x - tnp.max(x, axis=-1, keepdims=True))
    return e / tnp.sum(e, axis=-1, keepdims=True)


@pytest.mark.parametrize("f", [normalised, tb.nn.softmax])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_that_are_summed_and_read_are_computed_once(f: Any, dtype: Any) -> None:
    with scope("enable_x64", True):
        x = np.random.default_rng(0).normal(size=(256, 256)).astype(dtype)
        result, plain = tb.jit(f)(x), plainly(f, x)
        assert writes_exponentials(f, x)
        with scope("platform_rules", False):
            assert not writes_exponentials(f, x)

    assert result.dtype == dtype
    np.testing.assert_allclose(np.asarray(result), np.asarray(plain), rtol=1e-6)


def test_exponentials_that_are_results_too() -> None:
    """All that reads them reads the one array, before the sum and after it; so does the caller."""
    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)

    def f(x: Any) -> Any:
        e = tnp.exp(x)
        before, total, after = e * 2.0, tnp.sum(e, axis=0), tnp.sqrt(e)
        return e, before, total, after, tnp.sum(e)

    for a, b in zip(tb.jit(f)(x), plainly(f, x), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


def test_exponentials_that_are_read_once_fuse_into_the_sum() -> None:
    """Those of few elements are left to XLA too."""
    x = np.ones((256, 256), np.float32)

    assert not writes_exponentials(lambda x: tnp.sum(tnp.exp(x), axis=-1), x)
    assert not writes_exponentials(normalised, x[:8])


def test_derivatives_of_normalised_exponentials() -> None:
    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    ct = np.random.default_rng(1).normal(size=(256, 256)).astype(np.float32)

    def gradients() -> list[Any]:
        out, pull = tb.vjp(normalised, x)
        return [out, *pull(ct), tb.jit(tb.grad(lambda x: tnp.sum(normalised(x) * ct)))(x)]

    fast = gradients()
    with scope("platform_rules", False):
        for a, b in zip(fast, gradients(), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-6)
