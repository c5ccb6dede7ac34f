"""scipy.special: hypergeometric functions, against many digits."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.scipy import special as ours

INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(5)
Host = np.ndarray[Any, Any]
N = 24


def rows(*ranges: tuple[float, float]) -> Host:
    """Arguments from these ranges, one per column."""
    return np.array([RNG.uniform(*ends, N) for ends in ranges])


POSITIVE, SMALL, ANY = (0.1, 6.0), (-3.0, 3.0), (-6.0, 6.0)
CONFLUENT = {
    "positive": (rows(POSITIVE, POSITIVE, (0, 50)), 80),
    "negative": (rows(POSITIVE, POSITIVE, (-60, 0)), 100),
    "far": (rows(ANY, POSITIVE, (-600, 600)), 1e3),
    "mixed": (rows(ANY, ANY, (-20, 20)), 100),
    "cancelling": (rows((-20, 20), (-20, 20), (-60, 60)), 200),
}
BESIDE_1 = np.concatenate([rows(ANY, SMALL, POSITIVE), 1 - 10 ** rows((-14, -1))])
WHOLE = np.concatenate([np.floor(rows((1, 5), (5, 8), (8, 12))), 1 - 10 ** rows((-10, 0))])
FAR = np.concatenate([rows(POSITIVE, POSITIVE, POSITIVE), -(10 ** rows((-3, 10)))])
GAUSS = {
    "positive": (rows(POSITIVE, POSITIVE, POSITIVE, (0, 1)), 100),
    "beside 1": (BESIDE_1, 1e4),
    "logarithms": (WHOLE, 200),
    "negative": (FAR, 1e3),
    "mixed": (rows(ANY, SMALL, ANY, (-3, 1)), 1e6),
}


def worst(actual: Host, exact: Any, points: Host) -> float:
    """The largest relative error in units of the last place, of numbers that the dtype holds."""
    wanted = np.array([float(exact(*[mp.mpf(float(v)) for v in p])) for p in points.T])
    info = np.finfo(actual.dtype)
    inside = (np.abs(wanted) < info.max) & (np.abs(wanted) > info.tiny)
    return float(np.max(np.abs(actual[inside] / wanted[inside] - 1)) / info.eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["hyp1f1", "hyp2f1"])
def test_values(name: str, dtype: Any) -> None:
    """Results of float32 are exact; float64 loses what cancels in 2F1, within bounds."""
    f, exact = getattr(ours, name), getattr(mp, name)
    cases = CONFLUENT if name == "hyp1f1" else GAUSS
    points = np.concatenate([p for p, _ in cases.values()], axis=1).astype(dtype)
    with tb.enable_x64(dtype == np.float64):
        every = np.asarray(f(*points))
    found = np.split(every, len(cases))

    assert dtype == every.dtype
    for i, (case, (_, bound)) in enumerate(cases.items()):
        error = worst(found[i], exact, points[:, i * N : (i + 1) * N])
        assert error <= (1 if dtype == np.float32 else bound), (case, error)


def test_edges() -> None:
    """Poles, polynomials, the singular point, infinities and NaN as SciPy's."""
    confluent = [
        (1, 0, 1), (-1, 0, 1), (-2, -3, 1.5), (-2, -3, -1.5), (-3, -2, 1.5), (-2, -2, 1),
        (1, 2, INF), (1, 2, -INF), (1, 2, NAN), (NAN, 1, 1), (2, -1, 0), (0, 2, 3),
    ]  # fmt: skip
    gauss = [
        (1, 2, 3, 1), (1, 1, 3, 1), (1, 2, 3, 1.5), (-2, 1, 3, 1.5), (1, 2, 0, 0.5),
        (1, 2, -1, 0.5), (-1, 2, -1, 0.5), (-2, 2, -1, 0.5), (1, 2, 3, -INF), (1, 2, 3, NAN),
        (0, 1, 2, 5), (1, 2, -3, 0), (-1, 2, -3, 0.5), (0.5, 0.5, 1, -1e10), (1, 1, 1, 1),
        (1, 1, 0.5, 1),
        (2, 1, 1, 0.5), (-1, 2, 3, 1), (1, -0.5, 1, 1), (2, 2, 2, -3),
    ]  # fmt: skip
    # SciPy has infinity for the first, which is 1 + 0 x + ..., and for the second, minus infinity.
    own = [(0, -1, 1), (-1, 1, INF)]
    for name, points in (("hyp1f1", confluent + own), ("hyp2f1", gauss)):
        arguments = np.array(points, np.float32).T
        found = np.asarray(getattr(ours, name)(*arguments))
        with np.errstate(all="ignore"):
            wanted = np.asarray(getattr(special, name)(*arguments.astype(float)))
        if name == "hyp1f1":
            wanted[-2:] = 1, NAN
        np.testing.assert_allclose(found, wanted, rtol=3e-7, err_msg=name)

    assert "bfloat16" == ours.hyp1f1(*[tnp.asarray(0.5, "bfloat16")] * 3).dtype


SLOPES = {
    # Of the last two terms of plain sums seven and nine digits would be left.
    "hyp1f1": (
        [1.5, -2, 0.7, 3, 0, 17.75, -16.25],
        [2.5, 1.5, 3, 0.4, 1.3, -5.75, 2],
        [1.5, 3, -30, 50, 2, -41.75, 38.5],
    ),
    "hyp2f1": (
        [1.5, -2, 0.7, 3, 1],
        [2.5, 1.5, 3, 0.4, 1],
        [1.5, 3, 3, 5, 2],
        [0.3, 0.6, -5, 0.99, 0.999],
    ),
}


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives(name: str) -> None:
    """In all arguments, at polynomials and beside 1; and the second one in the last."""
    f, exact = getattr(ours, name), getattr(mp, name)
    points = np.array(SLOPES[name], float)
    count = len(points)

    def total(*xs: Any) -> Any:
        return tnp.sum(f(*xs))

    last = count - 1
    with tb.enable_x64():
        program = tb.jit(
            lambda *xs: [
                *tb.grad(total, tuple(range(count)))(*xs),
                tb.grad(lambda *xs: tnp.sum(tb.grad(total, last)(*xs)), last)(*xs),
            ]
        )
        *slopes, second = [np.asarray(v) for v in program(*points)]
    orders = [*np.eye(count, dtype=int).tolist(), [0] * last + [2]]
    with mp.workdps(40):
        wanted = [[float(mp.diff(exact, tuple(p), tuple(o))) for p in points.T] for o in orders]

    np.testing.assert_allclose([*slopes, second], wanted, rtol=1e-12, atol=1e-12)
