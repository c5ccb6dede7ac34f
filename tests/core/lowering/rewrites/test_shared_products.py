"""Products that several sums share are written once, with the numbers of the plain sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.scopes import scope

_RNG = np.random.default_rng(0)
X, DY = [_RNG.standard_normal((512, 256)).astype(np.float32) for _ in range(2)]
G, B = [_RNG.standard_normal(256).astype(np.float32) for _ in range(2)]


def layer_norm(x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    """Rows of mean 0 and deviation 1, divided by the deviation."""
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) + bias


def by_rsqrt(x: Any, scale: Any, bias: Any) -> Any:
    """The same, multiplied by its inverse."""
    centred = x - x.mean(-1, keepdims=True)
    r = tb.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred * r * scale + bias


def rms_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Rows of mean square 1."""
    return x * tb.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Columns of mean 0 and deviation 1."""
    centred = x - x.mean(0)
    return centred / tnp.sqrt((centred**2).mean(0) + 1e-5) * scale + bias


def of_pictures(x: Any, scale: Any, bias: Any) -> Any:
    """Both of three axes that are summed come last."""
    x = x.reshape(512, 16, 16)
    centred = x - x.mean((1, 2), keepdims=True)
    r = tb.lax.rsqrt((centred * centred).mean((1, 2), keepdims=True) + 1e-5)
    return (centred * r * scale.reshape(16, 16) + bias.reshape(16, 16)).reshape(512, 256)


NORMS = [layer_norm, by_rsqrt, rms_norm, batch_norm, of_pictures]


def backward(norm: Any) -> Any:
    """Its backward pass."""
    return lambda dy, *args: tb.vjp(norm, *args)[1](dy)


def lowered(f: Any, *args: Any) -> str:
    """The text of the module."""
    return tb.jit(f).lower(*args).as_text()


def plainly(f: Any, *args: Any) -> Any:
    """The results without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


def assert_same(f: Any, *args: Any) -> None:
    """Each result is the plain one to a part in a million of its size, NaN and infinities too."""
    pairs = zip(tb.jit(f)(*args), plainly(f, *args), strict=True)
    for new, plain in [map(np.asarray, pair) for pair in pairs]:
        finite = plain[np.isfinite(plain)]
        size = abs(finite).max() if finite.size else 0.0
        np.testing.assert_allclose(new, plain, rtol=1e-5, atol=1e-6 * size)


@pytest.mark.parametrize("norm", NORMS, ids=lambda f: f.__name__)
def test_sums_of_derivatives_of_norms_share_a_product(norm: Any) -> None:
    """There is one choice for all sums that share, and the numbers are those of the plain sums."""
    assert lowered(backward(norm), DY, X, G, B).count("stablehlo.if") == 1
    assert_same(backward(norm), DY, X, G, B)


def _with(x: np.ndarray, index: Any, value: float) -> np.ndarray:
    x = x.copy()
    x[index] = value
    return x


@pytest.mark.parametrize(
    "args",
    [
        (DY, _with(X, 3, np.nan), G, B),
        (DY, _with(X, (5, 7), np.inf), G, B),
        (_with(DY, (5, 7), -np.inf), X, G, B),
        (DY, X, _with(G, 4, 0.0), B),
        (DY, X, _with(G, 4, np.inf), B),
        (DY, X, _with(G, 4, 1e30), B),
        (DY, _with(X, 3, 2.0), G, B),
        (1e-25 * DY, X, G, B),
        (_with(DY, slice(9, 12), 0.0), X, G, B),
        (1e25 * DY, 1e18 * X, G, B),
    ],
    ids=[
        "NaN", "infinite", "infinite cotangent", "scale of 0", "infinite scale", "large scale",
        "equal numbers", "small cotangents", "rows without cotangent",
        "product overflows",
    ],
)  # fmt: skip
def test_unusual_numbers_give_what_plain_sums_give(args: tuple[np.ndarray, ...]) -> None:
    """Where a weight or a sum has an unusual size, the plain sums run."""
    assert_same(backward(layer_norm), *args)


@pytest.mark.parametrize(
    "args",
    [(DY, _with(X, 3, 2.0), G, B), (1e-25 * DY, 1e-15 * X, G, B)],
    ids=["equal numbers", "product vanishes"],
)
def test_without_epsilon_small_deviations_divide_as_before(args: tuple[np.ndarray, ...]) -> None:
    """Rows of one number give no numbers, and a product that vanishes is not divided."""

    def norm(*args: Any) -> Any:
        return layer_norm(*args, epsilon=0.0)

    assert_same(backward(norm), *args)


def test_products_lie_where_results_will_be() -> None:
    """Compiled, a backward pass needs hardly any memory beside its results."""
    analysis = tb.jit(backward(layer_norm)).lower(DY, X, G, B).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < X.nbytes / 8


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y, w: ((x * y * w).sum(1), x.sum(0)),
        lambda x, y, w: ((x * y * w).sum(1), (x * y[0] * w).sum(0)),
        lambda x, y, w: ((x * y)[:100].sum(1), (x * y * w)[:100].sum(0)),
        lambda x, y, w: ((x * y).astype(tnp.bfloat16).sum(1), (x * y * w).sum(0)),
        lambda x, y, w: ((x / y * w).sum(1), (y / x).sum(0)),
        lambda x, y, w: ((x * y + w).sum(1), (x * y).sum(0)),
    ],
    ids=["one product", "another product", "small", "half precision", "quotients", "a sum"],
)
def test_others_are_left_alone(f: Any) -> None:
    """What shares no product of two arrays with another sum stays as it is."""
    assert "stablehlo.if" not in lowered(f, X, DY, G)


def test_sums_wait_for_what_they_read() -> None:
    """A sum that reads another one of the same product is not computed with it."""

    def f(x: Any, y: Any, w: Any) -> Any:
        rows = (x * y * w).sum(1)
        return rows, (x * y * tnp.tanh(rows)[:, None]).sum(0), (y * -x / 3.0).sum(1)

    assert lowered(f, X, DY, G).count("stablehlo.if") == 2
    assert_same(f, X, DY, G)
    tangents = (DY, X, G)
    assert_same(lambda *args: tb.jvp(f, args, tangents)[1], X, DY, G)


def test_effects_stay_single(capfd: pytest.CaptureFixture[str]) -> None:
    """What a program prints beside its sums is printed once."""

    def f(x: Any, y: Any, w: Any) -> Any:
        p = x * y
        tb.debug.print("first {}", p[0, 0])
        return (p * w).sum(1), p.sum(0)

    tb.block_until_ready(tb.jit(f)(X, DY, G))
    tb.effects_barrier()
    assert capfd.readouterr().out.count("first") == 1
