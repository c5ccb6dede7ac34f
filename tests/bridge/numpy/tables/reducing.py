"""Reductions, running reductions, statistics, quantiles, histograms, sorting, searching, sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.bridge.numpy.table import D, F, M, V, X, case

NAN, INF = float("nan"), float("inf")
HOLES = [[1.0, NAN, 3.0], [NAN, -5.0, 2.5]]
SUMS = "sum prod mean"
SPREAD = "std var"
EXTREMA = "max min amax amin"
NAN_SUMS = "nansum nanprod nanmean"
NAN_SPREAD = "nanstd nanvar"

REDUCTIONS = [
    *case(f"{SUMS} {SPREAD}", "fc", X(2, 3), grad=True),
    *case(f"{SUMS} {SPREAD} {EXTREMA}", "ib", X(2, 3), 1),
    *case(f"{SUMS} {SPREAD} {EXTREMA}", "eB", X(2, 3), 1, traced=False),
    *case("sum prod", "u", X(2, 3), -1, traced=False),
    *case(f"{SUMS} {SPREAD} {EXTREMA} ptp", "f", D(2, 3, 2), axis=(0, -1), keepdims=True,
          grad=True),
    *case(f"{SUMS} {SPREAD} ptp", "f", D(2, 3), axis=-1, grad=True),
    *case(f"{SUMS} {SPREAD} {EXTREMA} all any ptp", "f", X(), traced=False),
    *case("sum prod all any", "f", X(0, 3), axis=0, traced=False),
    *case(f"{SUMS} {SPREAD} {EXTREMA} all any", "f", X(0, 3), axis=1, traced=False),
    *case(f"{SUMS} {SPREAD} all any", "f", X(2, 3), where=M(2, 3)),
    *case("sum prod", "f", X(2, 3), axis=0, where=M(3), initial=2.5, grad=True),
    *case(EXTREMA, "fi", X(2, 3), axis=0, where=M(3), initial=1),
    *case("sum prod", "i", X(2, 3), axis=0, initial=3),
    *case(EXTREMA, "f", D(2, 3), grad=True),
    *case(EXTREMA, "f", X(0, 3), axis=0, initial=-1.0, traced=False),
    *case(EXTREMA, "f", V([[1.0, NAN, INF], [-INF, 2.0, 3.0]]), axis=0),
    *case(EXTREMA, "c", X(2, 3), axis=0, traced=False),
    *case("sum prod mean", "f", X(2, 3), dtype=np.float16, traced=False, rtol=1e-2),
    *case("sum prod", "b", X(2, 3), dtype=np.int8, traced=False),
    *case("mean std var", "i", X(2, 3), dtype=np.float32, traced=False),
    *case(SPREAD, "f", X(2, 3), axis=1, ddof=1, grad=True),
    *case(SPREAD, "f", X(2, 3), axis=0, correction=0.5),
    *case("all any", "fib", V([[0, 1, 1], [0, 0, 2]]), 0),
    *case("all any", "c", X(2, 3), keepdims=True, traced=False),
    *case("count_nonzero", "fib", V([[0, 1, 1], [0, 0, 2]])),
    *case("count_nonzero", "f", V([[0, 1, 1], [0, 0, 2]]), axis=1, keepdims=True),
    *case("ptp", "i", X(2, 3), axis=0),
]  # fmt: skip

NAN_REDUCTIONS = [
    *case(f"{NAN_SUMS} {NAN_SPREAD}", "f", X(2, 3), axis=1, grad=True),
    *case("nanmax nanmin nanmedian", "f", D(2, 3), axis=1, grad=True),
    *case(f"{NAN_SUMS} {NAN_SPREAD} nanmax nanmin nanmedian", "f", V(HOLES), axis=0),
    *case(f"{NAN_SUMS} {NAN_SPREAD} nanmax nanmin nanmedian", "e", V(HOLES), axis=0, traced=False),
    *case(f"{NAN_SUMS} {NAN_SPREAD} nanmax nanmin nanmedian", "f", V(HOLES), keepdims=True),
    *case(f"{NAN_SUMS} {NAN_SPREAD} nanmax nanmin nanmedian", "f", V([[NAN], [NAN]]), axis=1,
          traced=False),
    *case(f"{NAN_SUMS} {NAN_SPREAD} nanmax nanmin nanmedian", "i", X(2, 3), axis=1, traced=False),
    *case(f"{NAN_SUMS} {NAN_SPREAD}", "f", V(HOLES), axis=1, where=V([[1, 1, 0], [1, 1, 1]], "b")),
    *case("nansum nanprod", "f", V(HOLES), axis=1, initial=2.0),
    *case("nanmax nanmin", "f", V(HOLES), axis=1, initial=2.0, where=M(3)),
    *case("nansum nanprod nanmean", "c", V([[1j, complex(NAN, 0), 2]]), axis=1),
    *case("nanvar nanstd", "f", V(HOLES), ddof=1),
    *case("nanvar nanstd", "c", V([[1j, complex(NAN, 0), 2]]), axis=1, traced=False),
    *case("nanpercentile", "f", V(HOLES), 40.0, axis=1),
    *case("nanquantile", "f", V(HOLES), V([0.2, 0.9], "f"), axis=0, exact=True),
    *case("nanquantile", "f", V(HOLES), 0.3, keepdims=True, method="nearest"),
    *case("nanquantile nanpercentile", "f", D(2, 3), 0.25, axis=1, grad=True),
]  # fmt: skip

CUMULATIVE = [
    *case("cumsum cumprod nancumsum nancumprod", "f", X(2, 3), axis=1, grad=True),
    *case("cumsum cumprod", "cib", X(2, 3), axis=0),
    *case("cumsum cumprod nancumsum nancumprod", "eB", X(2, 3), traced=False),
    *case("cumsum cumprod", "fi", X(2, 3)),
    *case("cumsum cumprod", "f", X(0, 3), axis=0, traced=False),
    *case("cumsum cumprod", "i", X(2, 3), axis=1, dtype=np.float32),
    *case("nancumsum nancumprod", "f", V(HOLES), axis=1),
    *case("nancumsum nancumprod", "i", X(2, 3), axis=1, traced=False),
    *case("cumulative_sum cumulative_prod", "f", X(2, 3), axis=1, include_initial=True, grad=True),
    *case("cumulative_sum cumulative_prod", "ibe", X(4), traced=False),
    *case("diff", "fc", X(2, 4), grad=True),
    *case("diff", "ib", X(2, 4), n=2, axis=0),
    *case("diff", "f", X(2, 4), prepend=X(2, 1), append=0.5, grad=True),
    *case("diff", "i", X(2, 1), traced=False),
    *case("ediff1d", "fi", X(2, 3)),
    *case("ediff1d", "f", X(4), to_end=X(2), to_begin=X(1), grad=True),
    *case("gradient", "f", X(4), grad=True),
    *case("gradient", "f", X(3, 4), 0.5, axis=1),
    *case("gradient", "f", X(4), V([0.0, 1.0, 2.5, 3.0], "f"), grad=True),
    *case("gradient", "i", X(3, 4), traced=False),
    *case("trapezoid", "f", X(2, 4), grad=True),
    *case("trapezoid", "f", X(2, 4), V([0.0, 1.0, 2.5, 3.0], "f"), grad=True),
    *case("trapezoid", "fi", X(3, 2), dx=0.5, axis=0),
    *case("unwrap", "f", X(2, 5, low=-9, high=9), rtol=1e-4, grad=True),
    *case("unwrap", "f", X(5, 2, low=-9, high=9), axis=0, period=4.0, rtol=1e-4),
    *case("unwrap", "f", X(5, low=-9, high=9), discont=4.0, rtol=1e-4),
    *case("unwrap", "i", V([0, 1, 2, -1, 0]), period=4, traced=False),
]  # fmt: skip

STATISTICS = [
    *case("average", "f", X(2, 3), grad=True),
    *case("average", "f", X(2, 3), axis=1, weights=X(3, low=0.5), grad=True),
    *case("average", "f", X(2, 3), weights=X(2, 3, low=0.5), returned=True),
    *case("average", "i", X(2, 3), axis=0, keepdims=True),
    *case("corrcoef", "f", X(3, 5), grad=True),
    *case("corrcoef", "f", X(5, 3), rowvar=False),
    *case("corrcoef", "f", X(5), X(5)),
    *case("corrcoef", "c", X(3, 5), traced=False),
    *case("cov", "fc", X(3, 5), grad=True),
    *case("cov", "f", X(5, 3), rowvar=False, bias=True),
    *case("cov", "f", X(5), X(5), ddof=0),
    *case("cov", "f", X(2, 4), fweights=V([1, 2, 3, 1], "i"), aweights=X(4, low=0.5)),
    *case("cov", "i", X(3, 5), traced=False),
    *case("median", "f", D(2, 3), grad=True),
    *case("median", "f", D(2, 4), axis=1, keepdims=True, grad=True),
    *case("median", "ieb", X(2, 3), axis=0, traced=False,
          ref=lambda x, axis: np.median(np.asarray(x, np.float32) if x.dtype == bool else x, axis)),
    *case("median", "f", V([[1.0, NAN, 2.0], [3.0, 1.0, 2.0]]), axis=1),
    *case("percentile", "f", D(2, 5), 35.0, axis=1, grad=True),
    *case("quantile", "f", D(2, 5), 0.35, axis=1, grad=True),
    *case("quantile", "f", D(2, 5), V([[0.0, 1.0], [0.4, 0.5]], "f"), axis=0, exact=True),
    *case("quantile", "ie", D(6), 0.3, traced=False),
    *[
        one
        for method in ("linear", "lower", "higher", "midpoint", "nearest")
        for one in case("quantile", "f", D(2, 5), 0.35, axis=-1, keepdims=True, method=method)
    ],
    *[
        one
        for method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "hazen",
                       "interpolated_inverted_cdf", "weibull", "median_unbiased",
                       "normal_unbiased")
        for one in case("quantile", "f", D(2, 5), 0.37, axis=-1, method=method, traced=False)
    ],
    *case("percentile quantile", "f", V([[1.0, NAN, 2.0]]), 0.5, axis=1),
    *case("quantile", "f", D(5), 0.4, weights=X(5, low=0.5), method="inverted_cdf"),
    *case("percentile", "f", D(2, 5), 40.0, weights=V([1.0, 2, 0, 1, 3], "f"), axis=1,
          method="inverted_cdf"),
]  # fmt: skip


def _counts_as_floats(x: np.ndarray, *args: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Counts in the dtype of the edges, as when there are weights."""
    counts, edges = np.histogram(x, *args, **options)
    return counts.astype(edges.dtype), edges


def _counts_as_ints(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Counts that no weights make floats."""
    return found[0].astype(np.int32), *found[1:]


HISTOGRAMS = [
    *case("bincount", "i", V([0, 1, 1, 3, 5]), mapped=False, traced=False),
    *case("bincount", "i", V([0, 1, 1, 3, 5]), F(5), minlength=8, traced=False),
    *case("bincount", "f", V([0, 1, 1, 3, 5], "i"), F(5), length=6, grad=True,
          ref=lambda x, w, length: np.bincount(x, w, length)),
    *case("bincount", "i", V([0, 1, 1, 3, 5]), length=4,
          ref=lambda x, length: np.bincount(x[x < length], minlength=length)),
    *case("histogram", "fi", X(12), 4, mapped=False, ref=_counts_as_floats),
    *case("histogram", "f", X(12), V([-2.0, 0.0, 0.5, 2.0], "f"), density=True),
    *case("histogram", "f", X(12), 3, range=(-1, 1), weights=F(12)),
    *case("histogram", "b", V([1, 0, 1]), 2, range=(0, 1), traced=False,
          ref=lambda x, *n, **span: _counts_as_floats(x.astype(np.uint8), *n, **span)),
    *case("histogram_bin_edges", "fi", X(12), 4),
    *case("histogram_bin_edges", "f", X(12), 4, range=(0, 2)),
    *case("histogram2d", "f", X(12), X(12), 3, mapped=False,
          ref=lambda x, y, n: _counts_as_ints(np.histogram2d(x, y, n))),
    *case("histogram2d", "f", X(12), X(12), [2, 3], range=[[-1, 1], [-2, 2]], density=True),
    *case("histogramdd", "f", X(12, 2), 3, mapped=False,
          ref=lambda x, n: _counts_as_ints(np.histogramdd(x, n))),
    *case("histogramdd", "f", X(12, 2), [2, 3], range=((-1, 1), (-2, 2)), weights=X(12, low=0)),
    *case("digitize", "fi", X(2, 4), V([-1.0, 0.0, 1.0], "f")),
    *case("digitize", "f", X(2, 4), V([1.0, 0.0, -1.0], "f"), right=True),
]  # fmt: skip

SORTING = [
    *case("sort", "f", D(2, 4), grad=True),
    *case("sort", "iubeBc", X(2, 4), axis=0, traced=False),
    *case("sort", "i", X(2, 4), axis=None),
    *case("sort", "f", V([[2.0, NAN, -INF, INF, -0.0, 0.0]])),
    *case("sort", "f", D(4), descending=True, grad=True,
          ref=lambda x, descending: np.sort(x)[::-1]),
    *case("argsort", "fi", X(2, 4), ref=lambda x: np.argsort(x, kind="stable")),
    *case("argsort", "i", X(2, 4), axis=None, ref=lambda x, axis: np.argsort(x, axis, "stable")),
    *case("argsort", "f", V([2.0, NAN, -INF, INF]), traced=False),
    *case("argsort", "i", V([[2, 1, 2, 1]]), descending=True,
          ref=lambda x, descending: np.argsort(-x, kind="stable")),
    *case("sort argsort", "f", X(0, 2), traced=False),
    *case("lexsort", "fi", (X(5), V([1, 0, 1, 0, 1], "i"))),
    *case("lexsort", "i", X(3, 5, low=0, high=1), axis=0, ref=lambda k, axis: np.lexsort(k, axis)),
    *case("sort_complex", "fic", X(5), ref=np.sort_complex, exact=True),
]  # fmt: skip

SEARCHING = [
    *case("argmax argmin", "fi", X(2, 3)),
    *case("argmax argmin", "beB", X(2, 3), axis=1, traced=False),
    *case("argmax argmin", "f", X(2, 3), axis=0, keepdims=True),
    *case("argmax argmin", "f", V([[1.0, NAN, 2.0], [1.0, 5.0, 5.0]]), axis=1),
    *case("argmax argmin", "i", V([[2, 2, 1, 1]]), axis=1),
    *case("nanargmax nanargmin", "f", V(HOLES), axis=1),
    *case("nanargmax nanargmin", "f", V(HOLES)),
    *case("nanargmax nanargmin", "i", X(2, 3), axis=0, keepdims=True),
    *case("argwhere flatnonzero nonzero", "fib", V([[0, 1, 2], [3, 0, 0]]), traced=False),
    *case("argwhere", "i", V([[0, 1, 2], [3, 0, 0]]), size=4, fill_value=-1,
          ref=lambda x, **_: np.array([[0, 1], [0, 2], [1, 0], [-1, -1]])),
    *case("flatnonzero", "i", V([0, 1, 2, 0]), size=3, fill_value=7,
          ref=lambda x, **_: np.array([1, 2, 7])),
    *case("nonzero", "i", V([[0, 1], [1, 0]]), size=1, ref=lambda x, **_: (np.array([0]),
          np.array([1]))),
    *case("searchsorted", "fi", V([-1, 0, 0, 1]), X(2, 3)),
    *case("searchsorted", "f", V([-1.0, 0.0, 1.0]), V([0.0, NAN, 5.0, -INF]), side="right"),
    *case("searchsorted", "f", V([1.0, -1.0, 0.0]), X(2), sorter=V([1, 2, 0], "i")),
    *case("where", "fc", M(2, 3), X(3), X(2, 1), grad=True),
    *case("where", "ieb", M(2, 3), X(3), X(2, 1), traced=False),
    *case("where", "f", M(2, 3), X(2, 3), 0.5, grad=True, exact=True),
    *case("where", "i", V([[1, 0], [0, 2]]), traced=False),
]  # fmt: skip

SETS = [
    *case("unique", "fib", V([2, 1, 2, 0]), traced=False),
    *case("unique", "i", V([2, 1, 2, 0]), return_index=True, return_inverse=True,
          return_counts=True, traced=False),
    *case("unique", "i", V([[1, 2], [0, 1], [1, 2]]), axis=0, return_inverse=True, traced=False),
    *case("unique", "f", V([NAN, 1.0, NAN]), traced=False),
    *case("unique", "f", V([NAN, 1.0, NAN]), equal_nan=False, traced=False),
    *case("unique", "i", V([2, 1, 2, 0]), size=5, fill_value=9,
          ref=lambda x, **_: np.array([0, 1, 2, 9, 9])),
    *case("unique_all unique_counts unique_inverse unique_values", "if", V([[2, 1], [2, 0]]),
          traced=False),
    *case("unique_values", "if", V([[2, 1], [2, 0]]), traced=False,
          ref=lambda x: np.unique(x)),
    *case("unique_counts", "i", V([2, 1, 2]), size=4, fill_value=0,
          ref=lambda x, **_: (np.array([1, 2, 0, 0]), np.array([1, 2, 0, 0]))),
    *case("union1d intersect1d setdiff1d setxor1d", "fi", V([1, 3, 2, 3]), V([3, 5, 1]),
          traced=False),
    *case("intersect1d", "i", V([1, 3, 2]), V([3, 5, 1]), return_indices=True, traced=False),
    *case("union1d", "i", V([1, 3, 2, 3]), V([3, 5, 1]), size=5, fill_value=0,
          ref=lambda a, b, **_: np.array([1, 2, 3, 5, 0])),
    *case("isin", "fi", X(2, 3), V([1, 0, -1])),
    *case("isin", "i", X(2, 3), V([1, 0, -1]), invert=True),
    *case("isin", "i", X(0, 3), V([1, 0, -1]), traced=False),
]  # fmt: skip

CASES = [
    *REDUCTIONS,
    *NAN_REDUCTIONS,
    *CUMULATIVE,
    *STATISTICS,
    *HISTOGRAMS,
    *SORTING,
    *SEARCHING,
    *SETS,
]
