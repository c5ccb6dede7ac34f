"""all_gather, psum_scatter and all_to_all in groups of positions and over several names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.testing import assert_allclose

Host = np.ndarray[Any, Any]
GROUPS = [[0, 3], [5, 1], [4, 2]]
PLACES = {i: (g, p) for g, group in enumerate(GROUPS) for p, i in enumerate(group)}


def sample(*shape: int) -> Host:
    """Distinct numbers."""
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype("f4")


def check(f: Callable[[Any], Any], x: Host, expected: Host) -> None:
    """Mapped plainly, from another axis, compiled, beside another axis, and transposed."""
    assert_allclose(tb.vmap(f, axis_name="i")(x), expected)
    moved = np.moveaxis(x, 0, -1)
    assert_allclose(tb.vmap(tb.jit(f), in_axes=-1, axis_name="i")(moved), expected)
    pairs = np.stack([x, x], axis=1)
    both = np.stack([expected, expected], axis=1)
    assert_allclose(tb.vmap(tb.vmap(f, axis_name="k"), axis_name="i")(pairs), both)
    ct = np.random.default_rng(1).normal(size=expected.shape).astype("f4")
    inside = tb.vmap(lambda x, ct: tb.vjp(f, x)[1](ct)[0], axis_name="i")(x, ct)
    outside = tb.vjp(tb.vmap(f, axis_name="i"), x)[1](ct)[0]
    assert_allclose(inside, outside, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tiled", [False, True])
def test_all_gather_in_groups(tiled: bool) -> None:
    """Each element gets the values of its group."""
    x = sample(6, 3, 2)
    join = np.concatenate if tiled else np.stack
    expected = np.stack([join([x[j] for j in GROUPS[PLACES[i][0]]], axis=1) for i in range(6)])

    check(
        lambda x: lax.all_gather(x, "i", axis=1, tiled=tiled, axis_index_groups=GROUPS), x, expected
    )


@pytest.mark.parametrize("tiled", [False, True])
def test_psum_scatter_in_groups(tiled: bool) -> None:
    """Each element gets its part of the sum over its group."""
    x = sample(6, 3, 4 if tiled else 2)

    def part(i: int) -> Host:
        group, place = PLACES[i]
        total = sum(x[j] for j in GROUPS[group])
        return total[:, 2 * place : 2 * place + 2] if tiled else total[:, place]

    expected = np.stack([part(i) for i in range(6)])
    check(
        lambda x: lax.psum_scatter(
            x, "i", scatter_dimension=1, tiled=tiled, axis_index_groups=GROUPS
        ),
        x,
        expected,
    )


@pytest.mark.parametrize("concat", [0, 1])
def test_all_to_all_in_groups(concat: int) -> None:
    """Each element gets from each member of its group the part with its own place."""
    x = sample(6, 3, 2)

    def received(i: int) -> Host:
        group, place = PLACES[i]
        return np.stack([x[j][:, place] for j in GROUPS[group]], axis=concat)

    expected = np.stack([received(i) for i in range(6)])
    check(lambda x: lax.all_to_all(x, "i", 1, concat, axis_index_groups=GROUPS), x, expected)


def over_two_names(f: Callable[[Any, Any], Any], x: Host, rows: int) -> Host:
    """``f(x, ("i", "j"))`` with the elements of ``x`` spread over two axes, as one axis again."""
    grid = x.reshape(rows, -1, *x.shape[1:])
    both = tb.vmap(tb.vmap(lambda x: f(x, ("i", "j")), axis_name="j"), axis_name="i")
    out = np.asarray(both(grid))
    return out.reshape(x.shape[0], *out.shape[2:])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, name: lax.all_gather(x, name, axis=1),
        lambda x, name: lax.all_gather(x, name, axis=0, tiled=True),
        lambda x, name: lax.psum_scatter(x, name),
        lambda x, name: lax.psum_scatter(lax.concatenate([x, x], 0), name, tiled=True),
        lambda x, name: lax.all_to_all(x, name, 0, 0),
        lambda x, name: lax.all_to_all(x, name, 0, 1),
        lambda x, name: lax.all_to_all(lax.concatenate([x, x], 0), name, 0, 1, tiled=True),
        lambda x, name: lax.pswapaxes(x, name, 0),
        lambda x, name: lax.ppermute(x, name, [(0, 4), (5, 0), (2, 2)]),
        lambda x, name: lax.pshuffle(x, name, [5, 0, 4, 1, 3, 2]),
        lambda x, name: lax.pbroadcast(x, name, 4),
    ],
)
def test_several_names_are_one_axis(f: Callable[[Any, Any], Any]) -> None:
    """Collectives over two axes do what they do over one axis with all elements."""
    x = sample(6, 6, 2)
    expected = np.asarray(tb.vmap(lambda x: f(x, "n"), axis_name="n")(x))

    assert_allclose(over_two_names(f, x, 2), expected)
    assert_allclose(over_two_names(f, x, 3), expected)


def test_permutations_over_two_names_have_derivatives() -> None:
    """What goes from a to b has its cotangent go from b to a, also for elements of pmap."""
    pairs = [(0, 3), (3, 1)]

    def f(x: Any) -> Any:
        return lax.ppermute(x * x, ("i", "j"), pairs)

    x = sample(2, 2) + 1
    weights = np.arange(1, 5, dtype="f4").reshape(2, 2)
    inner = tb.vmap(f, axis_name="j")
    gradient = tb.grad(lambda x: (weights * tb.vmap(inner, axis_name="i")(x)).sum())(x)
    expected = 2 * x * np.array([[4, 0], [0, 2]], "f4")

    assert_allclose(gradient, expected)
    if tb.local_device_count() >= 2:
        mapped = tb.grad(lambda x: (weights * tb.pmap(inner, axis_name="i")(x)).sum())(x)
        assert_allclose(mapped, expected)


@pytest.mark.parametrize("mapping", [tb.vmap, tb.pmap])
def test_reductions_in_groups_of_different_lengths(mapping: Any) -> None:
    """Each element gets what its group has, and the mean divides by the length of the group."""
    if mapping is tb.pmap and tb.local_device_count() < 4:
        pytest.skip("needs 4 devices (TRACEBRIDGE_NUM_CPU_DEVICES=4)")
    groups = [[3], [1, 2, 0]]
    x = np.array([1, 2, 6, 4], "f4")

    def f(x: Any) -> Any:
        return [
            g(x, "i", axis_index_groups=groups) for g in (lax.psum, lax.pmean, lax.pmax, lax.pmin)
        ]

    total, mean, largest, smallest = mapping(f, axis_name="i")(x)

    assert [9.0, 9.0, 9.0, 4.0] == total.tolist()
    assert [3.0, 3.0, 3.0, 4.0] == mean.tolist()
    assert [6.0, 6.0, 6.0, 4.0] == largest.tolist()
    assert [1.0, 1.0, 1.0, 4.0] == smallest.tolist()
    weighted = tb.grad(
        lambda x: (np.arange(4.0, dtype="f4") * mapping(f, axis_name="i")(x)[1]).sum()
    )
    assert_allclose(weighted(x), np.array([1, 1, 1, 3], "f4"))


def test_groups_must_be_equal_where_results_depend_on_their_length() -> None:
    """all_gather and the exchanges want groups of one length; groups are lists."""
    x = sample(4, 2)
    with pytest.raises(AxisSpecError, match="expected: groups of one length"):
        tb.vmap(
            lambda x: lax.all_gather(x, "i", axis_index_groups=[[0], [1, 2, 3]]), axis_name="i"
        )(x)
    with pytest.raises(AxisSpecError, match="axis_index_groups is 5 of type int"):
        tb.vmap(lambda x: lax.psum(x, "i", axis_index_groups=5), axis_name="i")(x)
