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
