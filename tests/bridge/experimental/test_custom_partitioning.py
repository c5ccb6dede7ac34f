"""Functions that say themselves how they are split over devices."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import P, lax
from tracebridge.errors import CompileError, UndefinedRuleError, UnexpectedTracerError
from tracebridge.experimental.custom_partitioning import custom_partitioning
from tracebridge.sharding import AxisType, NamedSharding
from tracebridge.testing import assert_allclose

several = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
X = np.random.default_rng(0).normal(size=(8, 16)).astype("f4")
Y = np.random.default_rng(1).normal(size=(16, 4)).astype("f4")


def mesh() -> Any:
    return tb.make_mesh((2, 4), ("x", "y"), AxisType.Auto)


def product() -> tuple[Any, list[Any]]:
    """A matrix product that adds up parts by itself, and what its rules were given."""
    seen: list[Any] = []

    @partial(custom_partitioning, static_argnums=(2,))
    def f(a, b, scale=2.0):
        z = scale * a @ b
        return {"z": z, "rows": z.sum(1)}

    def partition(scale, mesh, args, result):
        ins, outs = tb.tree.map(lambda s: s.sharding, (args, result))
        seen.append((scale, [s.spec for s in ins], outs["z"].spec))
        axis = ins[1].spec[0]

        def one_device(a, b):
            n = b.shape[0]
            part = lax.dynamic_slice_in_dim(a, lax.axis_index(axis) * n, n, 1)
            z = scale * lax.psum(part @ b, axis)
            return {"z": z, "rows": z.sum(1)}

        return mesh, one_device, outs, (NamedSharding(mesh, P(ins[0].spec[0])), ins[1])

    rule = "i j, j k -> i, i k"
    f.def_partition(partition, sharding_rule=rule, need_replication_factors=("k",))
    return f, seen


@several
def test_parts_are_computed_as_the_rule_says() -> None:
    """XLA settles the shardings by the rule, and each device runs the function for one."""
    f, seen = product()
    m = mesh()
    x = tb.device_put(X, NamedSharding(m, P("x")))
    y = tb.device_put(Y, NamedSharding(m, P("y")))

    found = tb.jit(f)(x, y)

    assert (2.0, [P("x", None), P("y", None)], P("x", None)) == seen[0]
    assert_allclose(found["z"], 2 * X @ Y, rtol=1e-4, atol=1e-4)
    assert_allclose(found["rows"], (2 * X @ Y).sum(1), rtol=1e-4, atol=1e-4)
    assert NamedSharding(m, P("x")) == found["z"].sharding


@several
def test_what_does_not_fit_is_said() -> None:
    """Parts of other shapes; wrong shardings; a rule of other arrays."""
    m = mesh()
    x = tb.device_put(X, NamedSharding(m, P("x")))
    whole = NamedSharding(m, P())
    for partition, words in (
        (lambda mesh, a, r: (mesh, lambda x: x[:1], whole, (whole,)), "Mismatch in result shapes"),
        (lambda mesh, a, r: (mesh, lambda x: x, 3, (whole,)), "sharding of a result"),
        (lambda mesh, a, r: 1 / 0, "division by zero"),
    ):
        f = custom_partitioning(lambda x: x)
        f.def_partition(partition, sharding_rule=lambda *_: "i j -> i j")
        with pytest.raises(CompileError, match=words):
            tb.jit(f)(x)
    f = custom_partitioning(lambda x: x)
    f.def_partition(lambda *_: None, sharding_rule=lambda *_: 3)
    with pytest.raises(TypeError, match="returned int"):
        tb.jit(f)(x)


def test_elsewhere_it_is_the_function() -> None:
    """On one device, outside of `jit`, in derivatives and batches."""
    f, seen = product()
    expected = 2 * X @ Y

    assert_allclose(f(X, Y)["z"], expected, rtol=1e-5)
    assert_allclose(tb.jit(f)(X, b=Y)["z"], expected, rtol=1e-5)
    grads = tb.jit(tb.grad(lambda x, y: f(x, y, 3.0)["z"].sum(), argnums=1))(X, Y)
    assert_allclose(grads, np.broadcast_to(3 * X.sum(0)[:, None], Y.shape), rtol=1e-4)
    rows = tb.jit(tb.vmap(lambda x: f(x[None], Y)["z"][0]))(tnp.asarray(X))
    assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    assert not seen


def test_incomplete_definitions() -> None:
    """Calls without a partition or a rule, traced static arguments, wrong options."""
    f = custom_partitioning(lambda x: x)
    with pytest.raises(UndefinedRuleError, match="without a rule"):
        f(1.0)
    f.def_partition(lambda *_: None, infer_sharding_from_operands=lambda *_: None)
    with pytest.raises(NotImplementedError, match="without a sharding_rule"):
        f(1.0)
    g, _ = product()
    with pytest.raises(UnexpectedTracerError, match="static argument"):
        tb.jit(lambda s: g(X, Y, s))(1.0)
    with pytest.raises(TypeError, match="beside a rule"):
        f.def_partition(lambda *_: None, sharding_rule=lambda *_: "", i=3)
    with pytest.raises(TypeError, match="partition is 3"):
        f.def_partition(3)
