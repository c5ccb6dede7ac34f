"""Products, einsum, polynomials, interpolation, selection, indexed access, mapped functions."""

from __future__ import annotations

import numpy as np

from tests.bridge.numpy.table import F, M, V, X, case

PRODUCTS = [
    *case("dot", "fcib", X(2, 3), X(3, 4), grad=True),
    *case("dot", "f", X(3), X(3), grad=True),
    *case("dot", "f", X(2, 3), X(3)),
    *case("dot", "f", X(), X(2, 3), grad=True),
    *case("dot", "f", X(2, 3), X(2, 3, 2)),
    *case("dot matmul", "eB", X(2, 3), X(3, 4), traced=False),
    *case("inner", "fc", X(2, 3), X(4, 3), grad=True),
    *case("inner", "fi", X(), X(3)),
    *case("matmul", "fcib", X(2, 3), X(3, 4), grad=True),
    *case("matmul", "f", X(2, 1, 2, 3), X(2, 3, 2), grad=True),
    *case("matmul", "f", X(3), X(2, 3, 4)),
    *case("matmul", "f", X(2, 3), X(3)),
    *case("matmul", "f", X(3), X(3)),
    *case("matmul", "f", X(2, 0), X(0, 3), traced=False),
    *case("outer", "fci", X(2), X(3), grad=True),
    *case("outer", "f", X(2, 2), X()),
    *case("tensordot", "fi", X(2, 3), X(2, 3), grad=True),
    *case("tensordot", "f", X(2, 3), X(3, 4), axes=1, grad=True),
    *case("tensordot", "f", X(2, 3, 4), X(4, 3), axes=((1, -1), (1, 0))),
    *case("tensordot", "f", X(2), X(3), axes=0),
    *case("vdot", "fci", X(2, 3), X(2, 3), grad=True),
    *case("vecdot", "fci", X(2, 3), X(3), grad=True),
    *case("vecdot", "f", X(3, 2), X(3, 1), axis=0),
    *case("matvec", "fc", X(2, 4, 3), X(3), grad=True),
    *case("vecmat", "fc", X(3), X(2, 3, 4), grad=True),
    *case("cross", "f", X(2, 3), X(3), grad=True),
    *case("cross", "i", X(3, 2), X(3, 2), axis=0),
    *case("cross", "f", X(3, 2), X(2, 3), axisa=0, axisc=0),
    *case("kron", "fcib", X(2, 2), X(1, 3), grad=True),
    *case("kron", "f", X(2), X(2, 2)),
    *case("einsum", "f", "ij,jk->ik", X(2, 3), X(3, 4), grad=True),
    *case("einsum", "fi", "ii", X(3, 3), grad=True),
    *case("einsum", "f", "ii->i", X(3, 3), grad=True),
    *case("einsum", "f", "...ij,...jk", X(2, 2, 3), X(3, 2)),
    *case("einsum", "c", "ij,kj,k->i", X(2, 3), X(4, 3), X(4), grad=True),
    *case("einsum", "f", X(2, 3), [0, 1], X(3), [1], [0]),
    *case("einsum", "f", "ab->ba", X(2, 3)),
    *case("einsum", "f", "ab,ab->", X(2, 3), X(2, 3), optimize="optimal"),
]  # fmt: skip


def _padded(found: tuple[np.ndarray, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    """The remainder with leading zeros, so that its size does not depend on numbers."""
    quotient, rest = found
    return quotient, np.concatenate([np.zeros(size - len(rest), rest.dtype), rest])


POLYNOMIALS = [
    *case("convolve correlate", "f", X(5), X(3), grad=True, rtol=1e-4),
    *case("convolve", "i", X(5), X(3), ref=lambda a, v: np.convolve(a, v).astype(np.float32)),
    *case("convolve correlate", "fc", X(3), X(5), mode="same", rtol=1e-4),
    *case("convolve correlate", "f", X(5), X(3), mode="valid"),
    *case("poly", "f", X(3), grad=True),
    *case("poly", "f", X(3, 3), grad=True, rtol=1e-4),
    *case("polyadd polysub", "fi", X(4), X(2), grad=True),
    *case("polymul", "f", X(4, low=1), X(2, low=1), grad=True),
    *case("polymul", "i", X(4, low=1), X(2, low=1),
          ref=lambda a, b: np.polymul(a, b).astype(np.float32)),
    *case("polymul", "f", V([0.0, 1.0, 2.0]), V([0.0, 3.0]), traced=False, trim_leading_zeros=True,
          ref=lambda a, b, trim_leading_zeros: np.polymul(a, b)),
    *case("polydiv", "f", X(5, low=1), X(3, low=1), rtol=1e-4,
          ref=lambda u, v: _padded(np.polydiv(u, v), 5), grad=True),
    *case("polydiv", "f", V([1.0, 5.0, 7.0]), V([1.0, 2.0]), traced=False, trim_leading_zeros=True,
          ref=lambda a, b, trim_leading_zeros: np.polydiv(a, b)),
    *case("polyder", "f", X(5), grad=True),
    *case("polyder", "i", X(5), ref=lambda p: np.polyder(p).astype(np.float32)),
    *case("polyder", "f", X(5), m=2),
    *case("polyint", "fi", X(3), grad=True),
    *case("polyint", "f", X(3), m=2, k=V([1.0, 2.0], "f")),
    *case("polyval", "fci", X(3), X(2, 2), grad=True),
    *case("polyval", "f", X(3), 2.0, unroll=2, ref=lambda p, x, unroll: np.polyval(p, x)),
    *case("interp", "f", X(2, 3), V([-1.0, 0.0, 1.5], "f"), F(3), grad=True),
    *case("interp", "f", X(5), V([-1.0, 0.0, 1.5], "f"), F(3), left=9.0, right=-9.0),
    *case("interp", "f", X(5, low=-9, high=9), V([1.0, 0.0, 2.5], "f"), F(3), period=3.0,
          rtol=1e-4),
    *case("interp", "i", X(5), V([-1.0, 0.0, 1.5], "f"), F(3)),
]  # fmt: skip

SELECTION = [
    *case("choose", "f", V([[0, 2, 1]], "i"), [X(2, 3), X(3), X()], traced=False),
    *case("choose", "f", V([[0, 2, 1]], "i"), [X(2, 3), X(3), X()], mode="wrap", grad=True),
    *case("choose", "f", V([0, 5, -1], "i"), [X(3), X(3)], mode="clip"),
    *case("choose", "i", V([0, 5, -1], "i"), [X(3), X(3)], mode="wrap"),
    *case("compress", "f", np.array([True, False, True]), X(3), grad=True),
    *case("compress", "i", np.array([True, False]), X(2, 3), axis=0),
    *case("compress", "f", M(3), X(3), size=3, fill_value=7.0,
          ref=lambda m, x, size, fill_value: np.r_[x[m], np.full(3 - m.sum(), 7, x.dtype)]),
    *case("extract", "fi", np.array([[True, False, True]] * 2), X(2, 3), grad=True),
    *case("extract", "f", M(3), X(3), size=2, fill_value=7.0,
          ref=lambda m, x, size, fill_value: np.r_[x[m], np.full(3, 7, x.dtype)][:2]),
    *case("piecewise", "f", X(2, 3), [M(2, 3), M(2, 3)], [lambda x: x * x, 3.0], exact=True,
          grad=True,
          ref=lambda x, c, f: np.select(c[::-1], [np.full_like(x, 3), x * x], 0).astype(x.dtype)),
    *case("select", "f", [M(2, 3), M(3)], [X(2, 3), X(3)], 1.5, grad=True, exact=True),
    *case("select", "i", [M(3)], [X(3)]),
]  # fmt: skip

INDEXED = [
    *case("take", "fi", X(5), V([0, 3, -1], "i"), grad=True),
    *case("take", "f", X(2, 3), V([[0, 2], [1, 1]], "i"), axis=1),
    *case("take", "f", X(5), V([0, 7, -9], "i"), mode="clip"),
    *case("take", "f", X(5), V([0, 7, -9], "i"), mode="wrap"),
    *case("take", "f", X(3), V([0, 7], "i"), mode="fill", fill_value=-1.0,
          ref=lambda x, i, **_: np.array([x[0], -1], x.dtype)),
    *case("take", "f", X(3), V([0, 7], "i"),
          ref=lambda x, i: np.array([x[0], np.nan], x.dtype)),
    *case("take_along_axis", "fi", X(2, 3), V([[0, 2], [1, -1]], "i"), axis=1, grad=True),
    *case("take_along_axis", "f", X(2, 3), V([[0, 1, 0]], "i"), axis=0),
    *case("take_along_axis", "f", X(2, 3), V([5, 0], "i"), axis=None),
    *case("put", "fi", X(2, 3), V([0, 4], "i"), X(2), inplace=False, grad=True,
          ref=lambda a, i, v, inplace: _changed(np.put, a, i, v)),
    *case("put", "f", X(4), V([0, 9], "i"), X(1), mode="clip", inplace=False,
          ref=lambda a, i, v, mode, inplace: _changed(np.put, a, i, v, mode)),
    *case("put", "f", X(4), V([0, 9], "i"), X(1), mode="wrap", inplace=False,
          ref=lambda a, i, v, mode, inplace: _changed(np.put, a, i, v, mode)),
    *case("put_along_axis", "fi", X(2, 3), V([[0], [2]], "i"), X(2, 1), 1, inplace=False,
          grad=True,
          ref=lambda a, i, v, axis, inplace: _changed(np.put_along_axis, a, i, v, axis)),
    *case("place", "fi", X(2, 3), M(2, 3), X(2), inplace=False, grad=True,
          ref=lambda a, m, v, inplace: _changed(np.place, a, m, v)),
    *case("fill_diagonal", "fi", X(3, 4), 7, inplace=False, exact=True,
          ref=lambda a, v, inplace: _changed(np.fill_diagonal, a, v)),
    *case("fill_diagonal", "f", X(5, 2), X(2), wrap=True, inplace=False, grad=True,
          ref=lambda a, v, wrap, inplace: _changed(np.fill_diagonal, a, v, wrap)),
]  # fmt: skip


def _changed(function: object, array: np.ndarray, *args: object) -> np.ndarray:
    """What a function that writes in place leaves."""
    copy = np.array(array)
    function(copy, *args)  # pyright: ignore[reportCallIssue] - any of several functions
    return copy


FUNCTIONS = [
    *case("apply_along_axis", "f", lambda v: (v * v).sum(), 1, X(2, 3), grad=True),
    *case("apply_along_axis", "f", lambda v: v[::-1], 0, X(2, 3)),
    *case(
        "apply_over_axes",
        "f",
        lambda x, axis: x.sum(axis, keepdims=True),
        X(2, 3, 2),
        [0, 2],
        grad=True,
    ),
]

DIVISORS = [
    *case("gcd lcm", "i", X(2, 4, low=-30, high=30), X(4, low=-30, high=30)),
    *case("gcd lcm", "u", X(3, low=0, high=12), X(3, low=0, high=12), traced=False),
    *case("gcd lcm", "i", V([0, 0, 6]), V([0, 5, 0]), traced=False),
]

CASES = [*PRODUCTS, *POLYNOMIALS, *SELECTION, *INDEXED, *FUNCTIONS, *DIVISORS]
