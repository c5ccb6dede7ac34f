"""Cotangents of slices are joined where the slices are all of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
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
