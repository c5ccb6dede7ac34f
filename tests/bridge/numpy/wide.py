"""The table of NumPy functions with 64-bit arguments, many calls in one program."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np

from tests.bridge.numpy.table import Case, numbered
from tests.bridge.numpy.tables import elementwise, products, reducing, shaping

WIDE = {
    np.dtype(narrow): np.dtype(wide)
    for narrow, wide in (("f4", "f8"), ("i4", "i8"), ("u1", "u8"), ("c8", "c16"))
}
# Results that have another dtype than the reference of the table: counts are integers, positions
# in fewer than 2**31 elements have 32 bits, products of integers are floats as in the peer.
OTHER_DTYPES = frozenset(
    {"convolve", "digitize", "histogram2d", "histogramdd", "polyder", "polymul", "searchsorted"}
)
TOLERANCE = 1e-13
CASES = numbered([*elementwise.CASES, *reducing.CASES, *shaping.CASES, *products.CASES])


def chosen(letters: str, part: int, parts: int) -> list[Case]:
    """One case of each function with arguments of these kinds; a part of them."""
    by_name: dict[str, list[Case]] = {}
    for case in CASES:
        if case.traced and case.letter in letters and case.arrays():
            by_name.setdefault(case.name, []).append(case)
    choose = random.Random(0)
    found = [choose.choice(cases) for _, cases in sorted(by_name.items())]
    return [c for c in found if zlib.crc32(c.name.encode()) % parts == part]


def wide_arrays(case: Case) -> list[np.ndarray]:
    """The arguments of a case, with 64 bits."""
    return [np.asarray(x.astype(WIDE.get(x.dtype, x.dtype))) for x in case.arrays()]


class Calls:
    """All cases as one function of flat arrays; ``results`` puts its results in order."""

    def __init__(self, cases: list[Case], arrays: list[list[np.ndarray]]) -> None:
        self.cases = cases
        self.arrays = arrays
        self.flat = [x for row in arrays for x in row]

    def __call__(self, *xs: Any) -> list[list[Any]]:
        given = iter(xs)
        return [
            case.run(*[next(given) for _ in row])
            for case, row in zip(self.cases, self.arrays, strict=True)
        ]

    def wrong(self, results: list[list[np.ndarray]]) -> list[str]:
        """What differs from NumPy: dtypes, or numbers by more than roundings of 64 bits."""
        found: list[str] = []
        for case, row, actual in zip(self.cases, self.arrays, results, strict=True):
            for a, e in zip(actual, case.numpy(row), strict=True):
                if str(a.dtype) != str(e.dtype) and case.name not in OTHER_DTYPES:
                    found.append(f"{case}: {a.dtype}, NumPy has {e.dtype}")
                elif distance(a, e) > TOLERANCE:
                    found.append(f"{case}: differs by {distance(a, e):.1e}")
        return found


def distance(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference at finite numbers, relative to the largest of them."""
    finite = np.isfinite(expected) if expected.dtype.kind in "fc" else np.ones(expected.shape, bool)
    e = np.where(finite, expected, 0).astype(np.clongdouble)
    a = np.where(finite, actual, 0).astype(np.clongdouble)
    if not e.size:
        return 0.0
    return float(np.abs(a - e).max() / (1 + np.abs(e).max()))
