"""The tails of the normal distribution, by quotients of polynomials.

The quotients were fitted with 60 digits to the functions themselves, with least largest errors.
"""

from __future__ import annotations

from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special.series import eps_of, horner

TAIL = 5.0
"""Where the tail begins for which ``tail_fraction`` has been fitted."""

# Numerators and denominators, constants first: for 64 bits, and for 32.
_FRACTION = (
    (
        (
            0.999999999999969, 47.57950027217044, 728.914081754216, 4154.17819181071,
            7440.141355677631, 1866.6110908153803,
        ),
        (
            1.0, 49.57950027211302, 818.0730823362164, 5368.529341098399, 12959.354784062385,
            7795.96825386276,
        ),
    ),
    (
        (0.9999995974954684, 9.720003865390671, 8.966956513892441),
        (1.0, 11.71983188302623, 22.43116358216661),
    ),
)  # fmt: skip
_NEAR = (
    (
        (
            0.005843876910567297, 6.0616835166509695, 265.76496553172456, 3073.803034011918,
            15271.559191282124, 35626.79724063531, 24388.65602486618, 3061.7674231184933,
        ),
        (
            1.0, 62.58361802518038, 971.1082899559243, 6171.158147877975, 19661.791924825546,
            25820.926098963155, 10769.593183680408, 853.5664789463083,
        ),
    ),
    (
        (0.007537418488247028, 5.723246657596992, 145.34788749809434, 572.5747890047328,
         244.29899101015366),
        (1.0, 39.77413014428326, 273.505236730301, 368.64574659749945, 79.11423126831464),
    ),
)  # fmt: skip
_FAR_FROM = 5.5
_FAR = (
    (
        0.0009379617265533708, 7.903581591175074, 2413.965181161463, 182108.07995023372,
        4505234.525196276, 37614775.26011429, 85439616.48020822, 8094640.490146579,
        -1897410.1984520878,
    ),
    (
        1.0, 396.53651390885557, 37272.23562133611, 1167665.5181507047, 13216185.213786623,
        49892062.62459857, 42691901.646273285, -1538198.1610443743,
    ),
)  # fmt: skip


def _is_wide(x: Array) -> bool:
    return eps_of(x) < 1e-10


def _quotient(x: Array, fit: tuple[tuple[float, ...], tuple[float, ...]]) -> Any:
    numerator, denominator = fit
    return horner(x, numerator) / horner(x, denominator)


def tail_fraction(z: Array) -> Any:
    """The normal density over what is above ``z``, for ``z`` from ``TAIL`` on: near ``z``."""
    inverse = 1 / z
    narrow = not _is_wide(z)
    return z + inverse * _quotient(inverse * inverse, _FRACTION[narrow])


def tail_quantile(log_q: Array) -> Any:
    """The number above which lies ``exp(log_q)`` of the normal distribution, up to a tenth."""
    root = tnp.sqrt(-2 * log_q)
    inverse = 1 / root
    if not _is_wide(log_q):
        return root - _quotient(inverse, _NEAR[1])
    far = root > _FAR_FROM
    return root - tnp.where(far, _quotient(inverse, _FAR), _quotient(inverse, _NEAR[0]))
