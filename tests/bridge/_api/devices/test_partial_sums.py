"""shard_map with P(unreduced=...) and P(reduced=...): blocks that are parts of a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import P, lax
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.sharding import AxisType
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
RNG = np.random.default_rng(7)
A = RNG.normal(size=(2, 4)).astype("f4")
B = RNG.normal(size=(4, 6)).astype("f4")
KINDS = [AxisType.Auto, AxisType.Explicit]
CHECKS = [True, False]


def grid(kind: AxisType) -> Any:
    """Four devices in two rows."""
    return tb.make_mesh((2, 2), ("x", "y"), (kind, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS)
def test_parts_sum_to_the_whole(kind: AxisType, check: bool) -> None:
    """What psum makes of an unreduced argument is the argument, of any dtype."""
    with tb.set_mesh(grid(kind)):
        total = tb.shard_map(
            lambda x: lax.psum(x, "x"),
            in_specs=P(unreduced={"x"}), out_specs=P(), check_vma=check,
        )  # fmt: skip
        for x in (A, A.astype(np.int32), A.astype(np.complex64), np.float32([np.nan, np.inf, 1])):
            assert_allclose(total(x), x)
            assert_allclose(tb.jit(total)(x), x)
        both = tb.shard_map(
            lambda x: lax.psum(x, ("x", "y")),
            in_specs=P(unreduced={"x", "y"}), out_specs=P(), check_vma=check,
        )  # fmt: skip
        assert_allclose(both(A), A)
        assert_allclose(tb.grad(lambda x: (both(x) ** 2).sum())(A), 2 * A)


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_parts(kind: AxisType) -> None:
    """A product over a divided axis, whose parts are added at the end; and its derivatives."""
    with tb.set_mesh(grid(kind)):
        product = tb.shard_map(
            lambda a, b: lax.pcast(a @ b, "y", to="unreduced"),
            in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None, unreduced={"y"}),
        )  # fmt: skip
        assert_allclose(product(A, B), A @ B, rtol=1e-5)
        scattered = tb.shard_map(
            lambda c: lax.psum_scatter(c, "y", scatter_dimension=1, tiled=True),
            in_specs=P("x", None, unreduced={"y"}), out_specs=P("x", "y"),
        )  # fmt: skip
        assert_allclose(scattered(A @ B), A @ B, rtol=1e-5)

        def loss(a: Any, b: Any) -> Any:
            return tnp.sin(scattered(product(a, b))).sum()

        found = tb.jit(tb.grad(loss, argnums=(0, 1)))(A, B)
        expected = tb.grad(lambda a, b: tnp.sin(a @ b).sum(), argnums=(0, 1))(A, B)
        assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS)
def test_cotangents_of_reduced_arguments_are_summed(kind: AxisType, check: bool) -> None:
    """Devices compute parts of the cotangent of an argument that all of them have."""
    with tb.set_mesh(grid(kind)):
        product = tb.shard_map(
            lambda a, b: a @ b,
            in_specs=(P("x"), P(reduced={"x"})), out_specs=P("x"), check_vma=check,
        )  # fmt: skip

        def loss(a: Any, b: Any) -> Any:
            return tnp.sin(product(a, b)).sum()

        assert_allclose(product(A, B), A @ B, rtol=1e-5)
        found = tb.jit(tb.grad(loss, argnums=(0, 1)))(A, B)
        expected = tb.grad(lambda a, b: tnp.sin(a @ b).sum(), argnums=(0, 1))(A, B)
        assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("check", CHECKS)
def test_gathered_as_reduced(check: bool) -> None:
    """all_gather with to="reduced": its transpose adds the parts, each of them once."""
    with tb.set_mesh(grid(AxisType.Explicit)):
        gathered = tb.shard_map(
            lambda b: lax.all_gather(b, "x", tiled=True, to="reduced"),
            in_specs=P("x"), out_specs=P(reduced={"x"}), check_vma=check,
        )  # fmt: skip
        assert_allclose(gathered(B), B)
        assert_allclose(tb.grad(lambda b: tnp.sin(gathered(b)).sum())(B), np.cos(B), rtol=1e-5)
        assert_allclose(tb.jit(tb.grad(lambda b: (gathered(b) ** 2).sum()))(B), 2 * B, rtol=1e-5)
        product = tb.shard_map(
            lambda a, b: a @ b, in_specs=(P("x"), P(reduced={"x"})), out_specs=P("x"),
            check_vma=check,
        )  # fmt: skip
        found = tb.grad(lambda a, b: tnp.sin(product(a, gathered(b))).sum(), argnums=1)(A, B)
        expected = tb.grad(lambda a, b: tnp.sin(a @ b).sum(), argnums=1)(A, B)
        assert_allclose(found, expected, rtol=1e-4)


def test_cast_to_reduced() -> None:
    """pcast with to="reduced", on the way in and out; a batch of such calls."""
    with tb.set_mesh(grid(AxisType.Explicit)):
        marked = tb.shard_map(
            lambda a: lax.pcast(a, "x", to="reduced"), in_specs=P(), out_specs=P(reduced={"x"})
        )
        product = tb.shard_map(
            lambda a, b: a @ b, in_specs=(P(reduced={"x"}), P(None, "x")), out_specs=P(None, "x")
        )

        def loss(a: Any, b: Any) -> Any:
            return tnp.sin(product(marked(a), b)).sum()

        expected = tb.grad(lambda a, b: tnp.sin(a @ b).sum(), argnums=(0, 1))(A, B)
        assert_allclose(tb.grad(loss, argnums=(0, 1))(A, B), expected, rtol=1e-4)
        rows = tnp.stack([A, 2 * A])
        assert_allclose(tb.vmap(marked)(rows), rows)
        assert_allclose(tb.vmap(tb.grad(loss), (0, None))(rows, B)[0], expected[0], rtol=1e-4)


def test_trees_and_arguments_without_arrays() -> None:
    """Specifications of trees; arguments that are passed as they are."""
    with tb.set_mesh(grid(AxisType.Explicit)):

        def body(how: str, ab: Any) -> Any:
            assert how == "sum"
            return {"s": lax.psum(ab["a"], "x"), "b": ab["b"]}

        f = tb.shard_map(
            body, in_specs=(None, {"a": P(unreduced={"x"}), "b": P("x")}),
            out_specs={"s": P(), "b": P("x")},
        )  # fmt: skip
        out = f("sum", {"a": A, "b": B})
        assert_allclose(out, {"s": A, "b": B})


def test_what_is_refused() -> None:
    """Sums of what all devices share; values that differ as reduced; unknown axes."""
    with tb.set_mesh(grid(AxisType.Explicit)):
        shared = tb.shard_map(lambda a: a * 2, in_specs=P("x"), out_specs=P("x", unreduced={"y"}))
        with pytest.raises(AxisSpecError, match=r"out_specs.*unreduced.*same on all devices"):
            shared(A)
        differs = tb.shard_map(lambda a: a * 2, in_specs=P("x"), out_specs=P(reduced={"x"}))
        with pytest.raises(AxisSpecError, match="reduced"):
            differs(A)
        wrong = tb.shard_map(
            lambda a: a, in_specs=P(unreduced={"z"}), out_specs=P(), axis_names={"x"}
        )
        with pytest.raises(AxisSpecError, match="'z'"):
            wrong(A)


def test_places_of_arguments_that_are_parts() -> None:
    """Where in_specs is left out, arrays say themselves that they are parts of sums."""
    with tb.set_mesh(grid(AxisType.Explicit)):
        a = tb.reshard(tnp.asarray(A), P(unreduced={"x"}))
        f = tb.shard_map(lambda x: lax.psum(x, "x"), out_specs=P())
        assert_allclose(f(a), A)


def test_one_function_with_several_specifications() -> None:
    """What is traced for one specification is not taken for another."""

    def total(x: Any) -> Any:
        return lax.psum(x, "x")

    def same(x: Any) -> Any:
        return x

    with tb.set_mesh(grid(AxisType.Explicit)):
        whole = tb.shard_map(total, in_specs=P(), out_specs=P())
        parts = tb.shard_map(total, in_specs=P(unreduced={"x"}), out_specs=P())
        summed = tb.shard_map(same, in_specs=P("x"), out_specs=P(unreduced={"x"}))
        apart = tb.shard_map(same, in_specs=P("x"), out_specs=P("x"))
        pairs = tb.shard_map(
            lambda x: (x, lax.psum(x, "x")), in_specs=P("x"), out_specs=(P(unreduced={"x"}), P())
        )
        for _ in range(2):
            assert_allclose(whole(A), 2 * A)
            assert_allclose(parts(A), A)
            assert_allclose(apart(A), A)
            assert_allclose(summed(A), A[:1] + A[1:])
            assert_allclose(tb.jit(lambda x: (parts(x), whole(x)))(A), (A, 2 * A))
        assert_allclose(pairs(A), (A[:1] + A[1:],) * 2)
