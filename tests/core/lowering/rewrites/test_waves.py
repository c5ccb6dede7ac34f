"""Regions of sines: values of the plain program, one test each, what is elementwise inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites.waves import LEAST_GUARDED

N = LEAST_GUARDED
_RNG = np.random.default_rng(0)
X, Y = (4 * _RNG.standard_normal((2, N))).astype(np.float32)
TABLE = np.linspace(-1, 1, N, dtype=np.float32)


def _stepped(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, _: (tnp.sin(c) + 0.5 * c * y, tnp.cos(c)[0]), x, None, length=3)


def _rows(x: Any, y: Any) -> Any:
    return tb.vmap(lambda a, b: tnp.sin(a + b[0]) * b)(x.reshape(4, -1), y.reshape(4, -1))


def _without_use(x: Any, y: Any) -> Any:
    _ = tnp.sin(x).sum()
    return tnp.sin(x) * 2 + y.sum()


# name -> program of two arrays; tests of angles and choices in it (two cases each)
PROGRAMS: dict[str, tuple[Any, int]] = {
    "chain": (lambda x, y: tnp.sin(x) * tnp.cos(x) + tnp.exp(-x * x), 1),
    "two angles": (lambda x, y: tnp.sin(x) * tnp.cos(y) + tnp.where(x > y, tnp.cos(x), 0), 1),
    "angle made on the way": (lambda x, y: tnp.sin(x * y + 1) - tnp.cos(x * y + 1), 1),
    "apart": (lambda x, y: (tnp.sin(x), tnp.cos(y) * 2), 2),
    "read again after a sum": (lambda x, y: tnp.sin(x) / (3 * N + tnp.sin(x).sum()) + y, 1),
    "sum of sines as an angle": (lambda x, y: tnp.sin(x + (tnp.cos(x) * y).sum() / N), 2),
    "angles from a region": (lambda x, y: tnp.cos(y * tnp.sin(x)), 2),
    "angles with a bound": (lambda x, y: tnp.sin(2 * tnp.sin(x) + tnp.cos(tnp.tanh(y))), 1),
    "only angles with a bound": (lambda x, y: tnp.cos(3 * tnp.tanh(x) - 1), 0),
    "kept values": (lambda x, y: (tnp.sin(x), tnp.cos(x), tnp.sin(x) * tnp.cos(x), y), 1),
    "broadcasts": (
        lambda x, y: tnp.sin(x.reshape(256, -1) * y[:256, None]) * y[: N // 256] + y[0],
        1,
    ),
    "larger results": (lambda x, y: tnp.sin(x)[None, :] * y[:2, None], 1),
    "a table": (lambda x, y: tnp.sin(x + TABLE) * TABLE + tnp.arange(N), 1),
    "small integers": (lambda x, y: tnp.sin(x).astype(tnp.int32) + 1, 1),
    "tangents": (lambda x, y: tnp.tan(x) * tnp.sin(x) + tnp.tan(y), 1),
    "steps": (_stepped, 1),
    "rows": (_rows, 1),
    "unused": (_without_use, 1),
    "few": (lambda x, y: tnp.sin(x[1:]) * y[1:], 0),
    "half precision": (lambda x, y: tnp.sin(x.astype(tnp.bfloat16)), 0),
}


def _text(f: Any, *args: Any) -> str:
    return tb.jit(f).lower(*args).as_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_region_has_one_test(name: str) -> None:
    """Two cases: whether the angles have to be compared, and which branch is taken."""
    f, regions = PROGRAMS[name]

    assert 2 * regions == _text(f, X, Y).count("stablehlo.case")
    with scope("platform_rules", False):
        assert "stablehlo.case" not in _text(f, X, Y)


def _all(xs: Any, ys: Any) -> Any:
    return [f(x, y) for (f, _), x, y in zip(PROGRAMS.values(), xs, ys, strict=True)]


_FAST, _PLAIN = tb.jit(_all), tb.jit(lambda xs, ys: _all(xs, ys))


@pytest.mark.parametrize("scale", [1, 500, 60_000, 1e7, 1e30])
def test_values_are_those_of_the_plain_program(scale: float) -> None:
    """Near, beyond what the sum of squares tells, and far; NaN and infinities beside them."""
    n = len(PROGRAMS)
    xs, ys = np.tile(X, (n, 1)), np.tile(Y, (n, 1))
    xs[:, 7], xs[:, 8:11] = scale, [[np.nan, np.inf, -0.0]]

    fast = _FAST(list(xs), list(ys))
    with scope("platform_rules", False):
        plain = _PLAIN(list(xs), list(ys))
    for name, a, b in zip(PROGRAMS, fast, plain, strict=True):
        for p, q in zip(tb.tree.leaves(a), tb.tree.leaves(b), strict=True):
            wide = np.asarray(p, np.float64), np.asarray(q, np.float64)
            np.testing.assert_allclose(*wide, rtol=1e-5, atol=1e-5, err_msg=name)


def test_signs_of_zeros_and_numbers_beside_far_angles() -> None:
    """One far angle changes no other value by more than its last digits."""
    f = tb.jit(lambda x: (tnp.sin(x), tnp.sin(x) * tnp.cos(x)))
    x = X.copy()
    x[:2] = 0.0, -0.0
    far = x.copy()
    far[5] = 3e38

    for near, other in zip(f(x), f(far), strict=True):
        np.testing.assert_array_equal(np.signbit(near[:2]), [False, True])
        np.testing.assert_array_equal(np.signbit(other[:2]), [False, True])
        np.testing.assert_allclose(near[6:], other[6:], rtol=1e-6, atol=1e-7)


def test_derivatives_of_both_orders() -> None:
    """Against those of the plain program, in one program with vmap of the gradient."""

    def everything(x: Any, y: Any) -> Any:
        def total(x: Any, y: Any) -> Any:
            return (tnp.sin(x) * tnp.cos(x * y) + tnp.exp(-(tnp.sin(y) ** 2))).sum()

        first = tb.grad(total, (0, 1))(x, y)
        second = tb.jvp(tb.grad(total), (x, y), (y, x))[1]
        mapped = tb.vmap(tb.grad(total))(x.reshape(2, -1), y.reshape(2, -1))
        return first, second, mapped

    x, y = X / 4, Y / 4
    fast = tb.tree.leaves(tb.jit(everything)(x, y))
    with scope("platform_rules", False):
        plain = tb.tree.leaves(tb.jit(lambda x, y: everything(x, y))(x, y))
    for a, b in zip(fast, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


def test_effects_keep_their_order() -> None:
    """Callbacks between sines, one of them with a value that a region makes."""
    seen: list[float] = []

    @tb.jit
    def f(x: Any) -> Any:
        y = tnp.sin(x)
        tb.debug.callback(lambda v: seen.append(float(v)), y[3], ordered=True)
        tb.debug.callback(lambda v: seen.append(float(v)), x[0], ordered=True)
        z = tnp.cos(y.sum() + x)
        tb.debug.callback(lambda v: seen.append(float(v)), z[1], ordered=True)
        tb.debug.callback(lambda v: seen.append(float(v)), x[2], ordered=True)
        return z

    z = f(X)
    tb.effects_barrier()
    np.testing.assert_allclose(seen, [np.sin(X[3]), X[0], z[1], X[2]], rtol=1e-6)


def test_programs_with_regions_pass_the_checks() -> None:
    """Types agree everywhere, those of weakly typed arrays too."""
    with tb.enable_checks(True):
        for f, _ in (PROGRAMS["chain"], PROGRAMS["kept values"], PROGRAMS["angles with a bound"]):
            assert "stablehlo.case" in _text(f, X, Y)
        weak = lax.full((N,), 1.0)
        np.testing.assert_allclose(tb.jit(lambda x: tnp.sin(x) * 2)(weak), 2 * np.sin(1), rtol=1e-6)


def test_float64_and_float32_in_one_region() -> None:
    """The sum of a narrow and a wide sine; one far angle of either kind."""
    with tb.enable_x64(True):
        f = tb.jit(lambda x, y: tnp.sin(x) + tnp.cos(y) * tnp.sin(y))
        wide = Y.astype(np.float64)
        far, far_wide = X.copy(), wide.copy()
        far[3], far_wide[3] = 1e30, 1e300
        for x, y in ((X, wide), (far, wide), (X, far_wide)):
            expected = np.sin(x.astype(np.float64)) + np.cos(y) * np.sin(y)
            np.testing.assert_allclose(f(x, y), expected, rtol=0, atol=2e-7)
        assert 2 == f.lower(X, wide).as_text().count("stablehlo.case")
