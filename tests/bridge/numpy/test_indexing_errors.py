"""Indices that cannot be used, and what their errors say."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import IndexingError, NonConcreteBooleanIndexError


def test_traced_mask_names_the_way_out() -> None:
    """A traced mask has a result of unknown size; the error names numpy.where."""
    x = tnp.arange(3.0)
    with pytest.raises(NonConcreteBooleanIndexError, match=r"bool\[3\](.|\n)*numpy\.where"):
        tb.jit(lambda x: x[x > 1])(x)


def test_traced_mask_beside_other_indices() -> None:
    """The mask is found among the entries of a tuple too."""
    x = tnp.ones((2, 3))
    with pytest.raises(NonConcreteBooleanIndexError, match=r"numpy\.where"):
        tb.jit(lambda x, m: x[0, m])(x, np.array([True, False, True]))


def test_concrete_mask_selects_under_jit() -> None:
    """A mask from outside is concrete: the size is known while tracing."""
    x, mask = tnp.arange(3.0), np.array([True, False, True])

    assert [0.0, 2.0] == tb.jit(lambda x: x[mask])(x).tolist()


def test_traced_slice_bound_names_dynamic_slice() -> None:
    """A traced bound would make the size unknown; the error names dynamic_slice."""
    with pytest.raises(IndexingError, match="dynamic_slice"):
        tb.jit(lambda x, n: x[:n])(tnp.arange(3.0), 2)


@pytest.mark.parametrize("index", [{}, object(), (0, {}), len])
def test_other_objects_are_no_indices(index: object) -> None:
    """An IndexError, as in NumPy, read or updated, also while tracing."""
    x = tnp.ones((2, 3))
    reads = [lambda x: x[index], lambda x: x.at[index].get(), lambda x: x.at[index].add(1)]
    for read in reads:
        for run in (read, tb.jit(read)):
            with pytest.raises(IndexingError, match=r"of type .* is no index"):
                run(x)


@pytest.mark.parametrize("index", [0, -1, np.array(0), (slice(0), 0)])
def test_no_position_in_an_empty_axis(index: object) -> None:
    """One position of an axis of size 0 is refused, known or traced, read or updated."""
    x = tnp.zeros((0, 0))
    with pytest.raises(IndexingError, match="size 0"):
        x[index]
    with pytest.raises(IndexingError, match="size 0"):
        x.at[index].set(1.0)
    with pytest.raises(IndexingError, match="size 0"):
        tb.jit(lambda x, i: x.at[i].add(1.0))(x, 0)
    with pytest.raises(IndexingError, match="size 0"):
        tb.vmap(lambda i: x[:, i])(tnp.arange(2))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
def test_no_positions_in_empty_axes(shape: tuple[int, ...]) -> None:
    """Empty index arrays fit axes of size 0: empty reads, updates of nothing, zero gradients."""
    x, none = tnp.ones(shape), np.zeros(0, np.int32)

    assert (0,) == x[none, none].shape
    assert (0, shape[1]) == x[none].shape
    assert (shape[0], 0) == tb.jit(lambda x: x[:, none])(x).shape
    assert np.ones(shape).tolist() == x.at[none, none].add(5.0).tolist()
    assert np.ones(shape).tolist() == tb.jit(lambda x: x.at[:, none].set(5.0))(x).tolist()
    assert np.zeros(shape).tolist() == tb.grad(lambda x: x[none, none].sum())(x).tolist()


@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap"])
def test_nothing_to_take(mode: str | None) -> None:
    """Indices into an axis of size 0 are an error, as in NumPy; no indices are none."""
    x = tnp.zeros((2, 0))
    with pytest.raises(IndexingError, match=r"axis 1 of f32\[2,0\] has no elements"):
        tnp.take(x, np.array([0]), axis=1, mode=mode)
    empty = np.zeros((3, 0), np.int32)
    assert (2, 3, 0) == tnp.take(x, empty, axis=1, mode=mode).shape
