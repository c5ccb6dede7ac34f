"""shard_alike: pairs of values that are split in one way."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.experimental.shard_alike import shard_alike
from tracebridge.testing import assert_allclose

X = np.arange(32, dtype="f4").reshape(8, 4)


@pytest.mark.skipif("tb.local_device_count() < 8", reason="needs 8 devices")
def test_a_value_is_split_as_another() -> None:
    """What nothing else splits follows its partner; a second pair is a group of its own."""
    mesh = tb.make_mesh((4, 2), ("x", "y"), tb.sharding.AxisType.Auto)
    x = tb.device_put(X, tb.NamedSharding(mesh, tb.P("x", "y")))

    @tb.jit
    def f(x: Any) -> Any:
        free = tnp.zeros((8, 4))
        _, y = shard_alike(x, free)
        _, z = shard_alike(x.T, tnp.ones((4, 8)))
        return y, z

    y, z = f(x)

    assert x.sharding.is_equivalent_to(y.sharding, 2)
    assert tb.P("y", "x") == z.sharding.spec
    text = f.lower(x).as_text()
    assert 4 == text.count("sdy.sharding_group")
    assert 2 == len(set(re.findall(r"group_id\s*=\s*(\d+)", text)))


def test_rules() -> None:
    """It is the identity under every transformation; trees go in pairs."""

    def f(a: Any, b: Any) -> Any:
        u, v = shard_alike({"a": a}, {"a": b})
        return tnp.sum(u["a"] * v["a"] ** 2)

    a, b = X[0], X[1]
    assert_allclose(tb.jit(f)(a, b), (a * b**2).sum())
    assert_allclose(tb.grad(f, (0, 1))(a, b), (b**2, 2 * a * b))
    assert_allclose(tb.jvp(f, (a, b), (b, a))[1], (b**3 + 2 * a * a * b).sum())
    assert_allclose(tb.vmap(f, (0, None))(X, b), (X * b**2).sum(1))
    assert_allclose(tb.vmap(f, (None, 1))(X[:, 0], X), (X[:, :1] * X**2).sum(0))
    assert_allclose(tb.vmap(f, (0, 1))(X, X.T), (X**3).sum(1))


def test_errors() -> None:
    """Trees and shapes that differ are refused."""
    with pytest.raises(TreeMismatchError, match="shard_alike: x has the structure"):
        shard_alike([X], (X,))
    with pytest.raises(ShapeMismatchError, match=r"x is f32\[8,4\], that of y f32\[4\]"):
        shard_alike(X, X[0])
