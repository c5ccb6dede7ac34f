"""dce_sink and stage: what keeps values in programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.equations import primitives_in
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.testing import assert_allclose

X = np.arange(3, dtype="f4")


def f(x: Any) -> Any:
    """Twice ``x``; its sine is computed and not used."""
    lax.dce_sink({"a": lax.sin(x)})
    return 2 * x


def names(fun: Any, *args: Any) -> list[str]:
    """Primitives of the traced function."""
    return primitives_in(tb.make_jaxpr(fun)(*args))


def test_values_are_kept() -> None:
    """Through tracing, dead code elimination and lowering; the results are the same."""
    assert names(f, X) == ["sin", "dce_sink", "mul"]
    assert "stablehlo.sine" in tb.jit(f).lower(X).as_text()
    assert_allclose(tb.jit(f)(X), 2 * X)
    assert_allclose(f(X), 2 * X)
    inner = tb.jit(lambda x: tb.jit(f)(x) + 1)
    assert "stablehlo.sine" in inner.lower(X).as_text()
    assert_allclose(inner(X), 2 * X + 1)


def test_under_transformations() -> None:
    """Derivatives, batches, loops, branches and checkpoints."""
    assert_allclose(tb.grad(lambda x: f(x).sum())(X), np.full(3, 2.0))
    assert_allclose(tb.jvp(f, (X,), (X,))[1], 2 * X)
    assert_allclose(tb.vmap(f)(X), 2 * X)
    assert "dce_sink" in names(tb.vmap(f), X)
    assert_allclose(lax.scan(lambda c, _: (f(c), None), X, None, length=3)[0], 8 * X)
    assert_allclose(lax.cond(True, f, lambda x: x, X), 2 * X)
    assert_allclose(tb.grad(lambda x: tb.checkpoint(f)(x).sum())(X), np.full(3, 2.0))
    assert_allclose(
        tb.vmap(lambda x: lax.cond(x > 1, f, lambda x: x, x))(X), np.array([0, 1, 4], "f4")
    )


def test_sinks_take_arrays() -> None:
    """Strings are no arrays."""
    with pytest.raises(UnsupportedDtypeError, match="of type str"):
        lax.dce_sink("a")


def test_stage_makes_values_of_the_trace() -> None:
    """Constants become equations, which are differentiated and batched as any value."""
    assert names(lambda: lax.stage(2.0)) == ["stage"]
    assert isinstance(lax.stage(2.0), tb.Array)
    assert 2.0 == float(tb.jit(lambda: lax.stage(2.0) * lax.stage(1.0))())
    assert lax.stage(2.0).weak_type
    assert_allclose(tb.grad(lambda x: (lax.stage(x) ** 2).sum())(X), 2 * X)
    assert_allclose(tb.vmap(lax.stage, 0, 0)(X), X)
    assert_allclose(lax.stage(X), X)
    with pytest.raises(UnsupportedDtypeError, match=r"stage: got .* of type function"):
        lax.stage(f)
