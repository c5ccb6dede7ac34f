"""Ragged products: those of each group, by NumPy; derivatives, batches, odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, lax

RANDOM = np.random.default_rng(0)
Numbers = lax.RaggedDotDimensionNumbers


def array(*shape: int, dtype: Any = np.float32) -> Any:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype(dtype)


def one_hot(sizes: Any, rows: int) -> Any:
    """The groups that rows belong to, ``[..., g, rows]``."""
    ends = np.cumsum(sizes, -1)[..., None]
    starts = ends - np.asarray(sizes)[..., None]
    i = np.arange(rows)
    return ((starts <= i) & (i < ends)).astype(np.float64)


def close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Equal up to roundings."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, tolerance, tolerance)


@pytest.mark.parametrize(
    "sizes", [[3, 0, 5, 2], [0, 0, 0, 0], [12, 0, 0, 0], [0, 4, 1, 7], [1, 1, 1, 1], [0, 0, 0, 12]]
)
def test_rows_meet_the_matrix_of_their_group(sizes: list[int]) -> None:
    """Empty groups take nothing, rows after the last group are 0."""
    x, y = array(12, 3), array(4, 3, 5)

    found = lax.ragged_dot(x, y, np.array(sizes))

    close(found, np.einsum("gm,mk,gkn->mn", one_hot(sizes, 12), x, y))


def test_many_rows() -> None:
    """Groups of several tiles, which begin and end anywhere."""
    sizes = np.array([130, 1, 0, 77, 300, 9, 33])
    x, y = array(600, 4), array(7, 4, 3)

    close(lax.ragged_dot(x, y, sizes), np.einsum("gm,mk,gkn->mn", one_hot(sizes, 600), x, y))
    sums = Numbers((([0], [0]), ([], [])), [0], [])
    found = lax.ragged_dot_general(x, x, sizes, sums)
    close(found, np.einsum("gm,mk,mn->gkn", one_hot(sizes, 600), x, x), 2e-4)


B, X, M, Y, K, J, N, G = 2, 3, 10, 2, 4, 2, 3, 4
ONE, PER = np.array([3, 1, 0, 4]), RANDOM.integers(0, 4, (B, X, G))
FREE = {
    "shared": (ONE, "gm"),
    "apart": (PER, "bxgm"),
}


@pytest.mark.parametrize("kind", FREE)
def test_a_free_axis_among_others(kind: str) -> None:
    """Axes JBXMKY and KNGJB: two of them contract, in another order; free ones on both sides."""
    sizes, marks = FREE[kind]
    numbers = Numbers((([4, 0], [0, 3]), ([1], [4])), [3], [2])
    x, y = array(J, B, X, M, K, Y), array(K, N, G, J, B)

    def fun(x: Any, y: Any) -> Any:
        return lax.ragged_dot_general(x, y, sizes, numbers)

    expected = np.einsum(f"{marks},jbxmky,kngjb->bxmyn", one_hot(sizes, M), x, y)
    close(fun(x, y), expected)
    check_derivatives(fun, x, y)


@pytest.mark.parametrize("kind", FREE)
def test_a_contracting_axis_among_others(kind: str) -> None:
    """Axes MYBXK and XMNBY; X comes before M in the order of contraction, Y after it."""
    sizes, marks = FREE[kind]
    numbers = Numbers((([3, 0, 1], [0, 1, 4]), ([2], [3])), [0], [])
    x, y = array(M, Y, B, X, K), array(X, M, N, B, Y)

    def fun(x: Any, y: Any) -> Any:
        return lax.ragged_dot_general(x, y, sizes, numbers)

    close(fun(x, y), np.einsum(f"{marks},mybxk,xmnby->gbkn", one_hot(sizes, M), x, y))
    check_derivatives(fun, x, y)


def check_derivatives(fun: Any, x: Any, y: Any) -> None:
    """It is linear in each operand, and its reverse mode is the adjoint."""
    dx, dy = array(*x.shape), array(*y.shape)

    @tb.jit
    def parts(x: Any, y: Any, ct: Any) -> Any:
        _, tangent = tb.jvp(fun, (x, y), (dx, dy))
        return tangent, fun(dx, y) + fun(x, dy), tb.vjp(fun, x, y)[1](ct)

    ct = array(*tb.eval_shape(fun, x, y).shape)
    tangent, expected, (gx, gy) = parts(x, y, ct)
    close(tangent, np.asarray(expected), 1e-4)
    left = np.vdot(ct, tangent)
    np.testing.assert_allclose(left, np.vdot(gx, dx) + np.vdot(gy, dy), 1e-3, 1e-3)


def test_derivatives_of_derivatives() -> None:
    """Each primitive is in the derivative of the other; the reference is dense."""
    x, y, dy = array(6, 2), array(2, 2, 3), array(2, 2, 3)
    sizes = np.array([4, 1])
    marks = tnp.asarray(one_hot(sizes, 6), "float32")

    def second(product: Any) -> Any:
        def slope(x: Any) -> Any:
            return tnp.sum(tb.grad(lambda y: tnp.sum(product(x, y) ** 3))(y) * dy)

        return tb.jit(tb.grad(slope))(x)

    expected = second(lambda x, y: tnp.einsum("gm,mk,gkn->mn", marks, x, y))

    close(second(lambda x, y: lax.ragged_dot(x, y, sizes)), np.asarray(expected), 1e-4)


def test_a_batch_axis() -> None:
    """Groups of products in step are what they are without groups."""
    numbers = Numbers((([2], [2]), ([0], [0])), [0], [])
    x, y = array(5, 2, 3), array(5, 4, 3)

    found = lax.ragged_dot_general(x, y, np.array([2, 1]), numbers)

    close(found, np.einsum("bmk,bnk->bmn", x, y))


@pytest.mark.parametrize("mapped", [(0, None, None), (None, 2, None), (1, 0, None), (1, None, 0),
                                    (None, None, 0), (0, 1, 1)])  # fmt: skip
@pytest.mark.parametrize("kind", ["rows", "sums"])
def test_batches_are_loops(kind: str, mapped: tuple[int | None, ...]) -> None:
    """Whatever operands are mapped over, sizes included."""
    numbers = Numbers((([0], [0]), ([], [])), [0], [])
    shapes = [(7, 3), (2, 3, 4) if kind == "rows" else (7, 4), (2,)]
    draws = [array(*s) for s in shapes[:2]], RANDOM.integers(0, 4, (3, 2))
    operands = [
        v if d is None else np.stack([v + i for i in range(3)], d)
        for v, d in zip(draws[0], mapped, strict=False)
    ]
    operands.append(draws[1][0] if mapped[2] is None else np.moveaxis(draws[1], 0, mapped[2]))

    def fun(x: Any, y: Any, sizes: Any) -> Any:
        if kind == "rows":
            return lax.ragged_dot(x, y, sizes)
        return lax.ragged_dot_general(x, y, sizes, numbers)

    found = tb.vmap(fun, mapped)(*operands)

    parts = [
        [v if d is None else np.take(v, i, d) for v, d in zip(operands, mapped, strict=True)]
        for i in range(3)
    ]
    close(found, np.stack([np.asarray(fun(*p)) for p in parts]))


def test_dtypes() -> None:
    """Results and sums have the dtype that is asked for; operands may differ."""
    x, y, sizes = array(40, 3), array(2, 3, 2), np.array([30, 10])
    expected = np.einsum("gm,mk,gkn->mn", one_hot(sizes, 40), x, y)
    half = lax.ragged_dot(x.astype("float16"), y.astype("float16"), sizes)
    assert "float16" == half.dtype
    close(half, expected, 2e-2)
    mixed = lax.ragged_dot(tnp.asarray(x, "bfloat16"), y, sizes, preferred_element_type="float32")
    assert "float32" == mixed.dtype
    close(mixed, expected, 5e-2)
    counts = np.arange(12).reshape(4, 3)
    whole = lax.ragged_dot(counts, np.ones((2, 3, 2), np.int32), np.array([2, 2], np.uint8))
    assert counts.sum(1).tolist() == whole[:, 0].tolist()
    gx = tb.grad(lambda x: lax.ragged_dot(x, y, sizes).sum())(tnp.asarray(x, "bfloat16"))
    assert "bfloat16" == gx.dtype
    with tb.enable_x64():
        wide = lax.ragged_dot(array(4, 3, dtype=np.complex128), y, np.array([2, 2]))
        assert "complex128" == wide.dtype


def test_sums_keep_what_other_groups_hold() -> None:
    """NaN of a group, or of rows of none, stays there."""
    x = array(30, 2)
    x[20:] = np.nan
    sums = Numbers((([0], [0]), ([], [])), [0], [])

    found = np.asarray(lax.ragged_dot_general(x, x, np.array([5, 10, 8]), sums))

    assert [False, False, True] == np.isnan(found).all((1, 2)).tolist()
    assert not np.isnan(found[:2]).any()


def test_nothing() -> None:
    """No rows, no groups, no columns."""
    none = np.zeros(0, np.int32)
    assert (0, 2) == lax.ragged_dot(np.ones((0, 3)), np.ones((2, 3, 2)), np.zeros(2, int)).shape
    assert not lax.ragged_dot(np.ones((4, 3)), np.ones((0, 3, 2)), none).any()
    assert not lax.ragged_dot(np.ones((4, 0)), np.ones((2, 0, 2)), np.array([2, 2])).any()
    assert (4, 0) == lax.ragged_dot(np.ones((4, 3)), np.ones((2, 3, 0)), np.array([2, 2])).shape


X2, Y3, TWO = np.ones((4, 3)), np.ones((2, 3, 5)), np.array([2, 2])
DENSE = (([1], [1]), ([], []))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: lax.ragged_dot(X2, Y3, np.ones(2)), TypeError, "group_sizes are"),
        (lambda: lax.ragged_dot(X2, Y3, np.array([1, 2, 1])), ValueError, "as many groups"),
        (lambda: lax.ragged_dot(X2, Y3, np.array(2)), ValueError, r"\(groups,\)"),
        (lambda: lax.ragged_dot(X2, Y3, np.ones((3, 2), int)), ValueError, r"\(groups,\)"),
        (lambda: lax.ragged_dot(X2, np.ones((2, 4, 5)), TWO), ValueError, "contracting axis"),
        (lambda: lax.ragged_dot(X2, Y3, TWO, group_offset=np.array([0])), TypeError, "None"),
        (
            lambda: lax.ragged_dot_general(X2, Y3, TWO, Numbers(DENSE, [], [0])),
            errors.RankError,
            "one axis of lhs",
        ),
        (
            lambda: lax.ragged_dot_general(X2, Y3, TWO, Numbers(DENSE, [0], [])),
            errors.RankError,
            "one axis that is neither",
        ),
        (
            lambda: lax.ragged_dot_general(X2, Y3, TWO, Numbers(DENSE, [0], [1])),
            errors.RankError,
            "one axis that is neither",
        ),
        (
            lambda: lax.ragged_dot_general(X2, X2, TWO, Numbers((([0], [0]), ([], [])), [0], [1])),
            errors.RankError,
            "none",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    """What is refused, with what is expected."""
    with pytest.raises(error, match=words):
        call()
