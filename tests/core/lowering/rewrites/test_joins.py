"""Cotangents of slices are joined where the slices are all of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites.programs import rewritten

X = np.random.default_rng(0).standard_normal((96, 32, 24)).astype(np.float32)


def thirds(x: Any) -> Any:
    """Three slices, one after the other."""
    a, b, c = x[:32], x[32:64], x[64:]
    return (a * b * tnp.sin(c)).sum()


def in_any_order(x: Any) -> Any:
    """Along the last axis, of several sizes, not in order."""
    return (x[..., 20:] * x[..., 3:7]).sum() + (x[..., :3] ** 3).sum() + (x[..., 7:20] ** 2).sum()


def overlapping(x: Any) -> Any:
    """Two slices that share places."""
    return (x[:60] * x[36:]).sum()


def incomplete(x: Any) -> Any:
    """Places that nobody reads."""
    return (x[:30] * x[40:70]).sum()


def of_two_axes(x: Any) -> Any:
    """Slices along different axes."""
    return (x[:48] ** 2).sum() + (x[:, :16] ** 3).sum()


@pytest.mark.parametrize(
    ("f", "n_joins"),
    [(thirds, 1), (in_any_order, 1), (overlapping, 0), (incomplete, 0), (of_two_axes, 0)],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_gradients_of_slices(f: Any, n_joins: int) -> None:
    """One concatenation where parts are the whole; the numbers are the same."""
    slope = tb.grad(f)
    names = primitives_in(rewritten(tb.make_jaxpr(slope)(X).jaxpr))
    found = np.asarray(tb.jit(slope)(X))
    with scope("platform_rules", False):
        wanted = np.asarray(tb.jit(lambda x: slope(x))(X))

    assert names.count("concatenate") == n_joins
    assert bool(n_joins) != ("pad" in names)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_one_part_is_added_where_the_others_are() -> None:
    """To a sum of what is in memory: at both ends and in the middle, with infinities and NaN."""
    part, end = np.full((30, 32, 24), 0.5, np.float32), X[:8].copy()
    part[0, 0, :3] = np.nan, np.inf, -np.inf

    def summed(x: Any, part: Any, end: Any) -> Any:
        def padded(y: Any, low: int) -> Any:
            return tnp.pad(y, [(low, 96 - low - len(y)), (0, 0), (0, 0)])

        return padded(end, 0) + (x + padded(part, 40)) + padded(end, 88), x

    names = primitives_in(rewritten(tb.make_jaxpr(summed)(X, part, end).jaxpr))
    assert (names.count("dynamic_update_slice"), names.count("pad")) == (3, 0)
    wanted = X.copy()
    wanted[40:70] += part
    wanted[:8] += end
    wanted[88:] += end
    found, kept = tb.jit(summed)(X, part, end)
    np.testing.assert_array_equal(np.asarray(found), wanted)
    np.testing.assert_array_equal(np.asarray(kept), X)


def test_a_part_of_what_is_computed_is_no_such_sum() -> None:
    """It would be written first: XLA computes it in the pass that adds."""

    def summed(x: Any, part: Any) -> Any:
        return tnp.sin(x) + tnp.pad(part, [(0, 66), (0, 0), (0, 0)])

    names = primitives_in(rewritten(tb.make_jaxpr(summed)(X, X[:30]).jaxpr))
    assert "dynamic_update_slice" not in names


@pytest.mark.parametrize(
    ("order", "follows"),
    [((3, 1, 2, 0, 4), True), ((1, 0, 2, 3, 4), True), ((1, 3, 2, 4, 0), True),
     ((0, 2, 1, 3, 4), False), ((4, 1, 2, 3, 0), False)],
)  # fmt: skip
def test_a_join_goes_where_its_axis_goes(order: tuple[int, ...], follows: bool) -> None:
    """Across axes of one element that were made behind it; not where other axes change places."""

    def joined(*parts: Any) -> Any:
        both = lax.concatenate([x[None] for x in parts], 0)
        return lax.transpose(both.reshape(3, 32, 24, 1, 16), order)

    parts = [np.full((32, 24, 16), i, np.float32) + X[:32, :24, :16] for i in range(3)]
    names = primitives_in(rewritten(tb.make_jaxpr(joined)(*parts).jaxpr))

    assert follows == ("transpose" not in names)
    wanted = np.stack(parts).reshape(3, 32, 24, 1, 16).transpose(order)
    np.testing.assert_array_equal(np.asarray(tb.jit(joined)(*parts)), wanted)
