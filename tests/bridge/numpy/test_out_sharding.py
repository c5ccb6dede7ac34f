"""Arguments that say where a result is put, and how it is split: device, sharding, out_sharding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.sharding import AxisType, NamedSharding, SingleDeviceSharding
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
P = tb.P
X = np.arange(16, dtype="f4").reshape(4, 4)


def ns(*spec: Any, types: Any = AxisType.Explicit) -> NamedSharding:
    """A sharding over a mesh of four by two devices."""
    return NamedSharding(tb.make_mesh((4, 2), ("x", "y"), types), P(*spec))


SPLIT: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda s: tnp.zeros((4, 4), out_sharding=s),
    "ones": lambda s: tnp.ones((4, 4), "int32", out_sharding=s),
    "empty": lambda s: tnp.empty((4, 4), out_sharding=s),
    "full": lambda s: tnp.full((4, 4), 3.0, out_sharding=s),
    "full of a row": lambda s: tnp.full((4, 4), X[0], out_sharding=s),
    "zeros_like": lambda s: tnp.zeros_like(X, out_sharding=s),
    "ones_like": lambda s: tnp.ones_like(X, out_sharding=s),
    "full_like": lambda s: tnp.full_like(X, 2, out_sharding=s),
    "arange": lambda s: tnp.arange(8, out_sharding=s),
    "array": lambda s: tnp.array(X, out_sharding=s),
    "asarray": lambda s: tnp.asarray(X, out_sharding=s),
    "reshape": lambda s: tnp.reshape(X, (8, 2), out_sharding=s),
    "method reshape": lambda s: tnp.array(X).reshape(8, 2, out_sharding=s),
    "ravel": lambda s: tnp.ravel(X, out_sharding=s),
    "method ravel": lambda s: tnp.array(X).ravel(out_sharding=s),
    "broadcast_to": lambda s: tnp.broadcast_to(X, (4, 4, 4), out_sharding=s),
    "repeat": lambda s: tnp.repeat(X, 2, axis=0, out_sharding=s),
    "dot": lambda s: tnp.dot(X, X, out_sharding=s),
    "matmul": lambda s: tnp.matmul(X, X, precision="highest", out_sharding=s),
    "tensordot": lambda s: tnp.tensordot(X, X, 1, out_sharding=s),
    "einsum": lambda s: tnp.einsum("ij,jk->ik", X, X, out_sharding=s),
    "percentile": lambda s: tnp.percentile(X, 50, axis=0, out_sharding=s),
    "lax.empty": lambda s: lax.empty((4, 4), "float32", out_sharding=s),
    "bincount": lambda s: tnp.bincount(np.arange(8), length=8, out_sharding=s),
    "at get": lambda s: tnp.array(X).at[::-1].get(out_sharding=s),
    "at set": lambda s: tnp.array(X).at[1:3].set(7.0, out_sharding=s),
    "at add": lambda s: tnp.array(X).at[np.array([0, 2, 0])].add(X[0], out_sharding=s),
    "at subtract": lambda s: tnp.array(X).at[0, 1].subtract(2.0, out_sharding=s),
    "at multiply": lambda s: tnp.array(X).at[X > 3].multiply(2.0, out_sharding=s),
    "at divide": lambda s: tnp.array(X).at[0].divide(2.0, out_sharding=s),
    "at power": lambda s: tnp.array(X).at[:, 1].power(2.0, out_sharding=s),
    "at min": lambda s: tnp.array(X).at[0].min(1.0, out_sharding=s),
    "at max": lambda s: tnp.array(X).at[0].max(1.0, out_sharding=s),
    "lax.dot": lambda s: lax.dot(X, X, out_sharding=s),
    "lax.dot_general": lambda s: lax.dot_general(X, X, (((1,), (0,)), ((), ())), out_sharding=s),
    "lax.reshape": lambda s: lax.reshape(X, (8, 2), out_sharding=s),
    "lax.broadcast": lambda s: lax.broadcast(X, (4,), out_sharding=s),
    "lax.broadcast_in_dim": lambda s: lax.broadcast_in_dim(X, (4, 4, 2), (0, 1), out_sharding=s),
    "lax.broadcasted_iota": lambda s: lax.broadcasted_iota("int32", (4, 4), 1, out_sharding=s),
    "lax.reduce_sum": lambda s: lax.reduce_sum(X, (0,), out_sharding=s),
    "lax.rng_bit_generator": lambda s: lax.rng_bit_generator(
        np.zeros(4, "uint32"), (8,), out_sharding=s
    )[1],
}
PUT: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda d: tnp.zeros((4, 4), device=d),
    "full": lambda d: tnp.full((4, 4), 3.0, device=d),
    "ones_like": lambda d: tnp.ones_like(X, device=d),
    "arange": lambda d: tnp.arange(8, device=d),
    "linspace": lambda d: tnp.linspace(0.0, 1.0, 8, device=d),
    "eye": lambda d: tnp.eye(4, device=d),
    "array": lambda d: tnp.array(X, device=d),
    "astype": lambda d: tnp.array(X).astype("int32", device=d),
}
FULL: dict[str, Callable[[Any], Any]] = {
    "lax.full": lambda s: lax.full((4, 4), 3.0, sharding=s),
    "lax.full_like": lambda s: lax.full_like(X, 2, sharding=s),
}


@pytest.mark.parametrize("name", SPLIT)
def test_results_are_split(name: str) -> None:
    """At once and inside jit, by a sharding or by a specification; the values are the same."""
    call, wanted = SPLIT[name], ns("x")
    expected = np.asarray(call(None))

    for f in (call, lambda s: tb.jit(lambda: call(s))()):
        out = f(wanted)
        whole = P("x", *[None] * (out.ndim - 1))
        assert wanted.update(spec=whole) is out.sharding
        assert_allclose(out, expected)
    with tb.set_mesh(wanted.mesh):
        assert whole == call(P("x")).sharding.spec


@pytest.mark.parametrize("name", SPLIT)
def test_out_sharding_is_for_explicit_axes(name: str) -> None:
    """Axes that the compiler decides on are refused, and everything that is no sharding."""
    call = SPLIT[name]

    with pytest.raises(AxisSpecError, match=r"out_sharding .* 'x' has the type AxisType.Auto"):
        call(ns("x", types=AxisType.Auto))
    with pytest.raises(AxisSpecError, match="no mesh is in force"):
        call(P("x"))
    for wrong in (3, tb.devices()[0], SingleDeviceSharding(tb.devices()[0])):
        with pytest.raises(ArgumentTypeError, match=r"out_sharding is .* of type"):
            call(wrong)


def test_under_transformations() -> None:
    """Derivatives and batches of a product whose result is split."""
    f = lambda x: tnp.dot(x, x, out_sharding=ns("x"))

    plain = tb.grad(lambda x: (x @ x).sum())(X)
    assert_allclose(tb.jit(tb.grad(lambda x: f(x).sum()))(X), plain)
    assert_allclose(tb.jit(tb.vmap(f))(np.stack([X, X])), np.stack([X @ X] * 2))


@pytest.mark.parametrize("name", [*PUT, *FULL])
def test_results_are_put(name: str) -> None:
    """On a device, or split in any way; inside jit a sharding is a constraint."""
    call = {**PUT, **FULL}[name]
    expected, device = np.asarray(call(None)), tb.devices()[3]

    for place in (SingleDeviceSharding(device), device):
        if name in FULL and place is device:
            continue
        assert {device} == call(place).devices()
        assert_allclose(call(place), expected)
        assert_allclose(tb.jit(lambda place=place: call(place))(), expected)
    for wanted in (ns("x"), ns("x", types=AxisType.Auto)):
        assert wanted is call(wanted).sharding
        out = tb.jit(lambda wanted=wanted: call(wanted))()
        explicit = wanted.mesh.are_all_axes_explicit
        padded = P("x", *[None] * (out.ndim - 1)) if explicit else P("x")
        assert padded == out.sharding.spec
        assert_allclose(out, expected)


def test_bad_places() -> None:
    """Both arguments at once, and things that are no places."""
    with pytest.raises(ArgumentValueError, match=r"zeros: both device and out_sharding are given"):
        tnp.zeros(4, device=tb.devices()[0], out_sharding=ns("x"))
    for call in PUT.values():
        with pytest.raises(ArgumentTypeError, match="device is a value of type int"):
            call(3)
    for call in FULL.values():
        with pytest.raises(ArgumentTypeError, match="sharding is 3 of type int"):
            call(3)


def test_arrays_like_another_are_where_that_one_was_put() -> None:
    """Zeros for a parameter are split as it is; a device that the user did not choose is free."""
    spread = tb.device_put(X, ns("x", "y"))
    alone = tb.device_put(X, tb.devices()[1])

    for make in (tnp.zeros_like, tnp.ones_like, tnp.empty_like, lambda x: tnp.full_like(x, 2)):
        made = make(spread)
        assert made.sharding == spread.sharding
        assert made.committed
        np.testing.assert_array_equal(made, np.broadcast_to(np.asarray(made)[0, 0], X.shape))
        assert make(alone).devices() == alone.devices()
    with tb.set_mesh(spread.sharding.mesh):
        assert tnp.zeros_like(spread).sharding == spread.sharding
    assert tnp.zeros_like(spread, shape=(3,)).devices() == {tb.devices()[0]}
    assert not tnp.zeros_like(tnp.asarray(X)).committed
    assert tb.jit(lambda x: tnp.zeros_like(x) + tnp.zeros_like(spread))(X).shape == X.shape


def test_parts_are_of_one_size() -> None:
    """In programs, too, a type with uneven parts is an error."""
    for fun in (
        lambda: tnp.arange(5, out_sharding=ns("x")),
        lambda: tnp.arange(70_001, out_sharding=ns("x")),
    ):
        with pytest.raises(ValueError, match="splits axis 0"):
            fun()
        with pytest.raises(ValueError, match="splits axis 0"):
            tb.jit(fun)()


@pytest.mark.parametrize("like", [tnp.zeros_like, tnp.ones_like, tnp.empty_like])
def test_like_what_is_still_to_be_made(like: Callable[..., Any]) -> None:
    """A ShapeDtypeStruct with a sharding says where an array like it goes."""
    place = ns("x", "y", types=AxisType.Auto)
    wanted = tb.ShapeDtypeStruct((4, 4), tnp.float32, sharding=place)
    abstract = NamedSharding(place.mesh.abstract_mesh, place.spec)
    somewhere = tb.ShapeDtypeStruct((4, 4), tnp.float32, sharding=abstract)

    assert place == like(wanted).sharding
    assert place == like(wanted, dtype="int32").sharding
    assert 1 == len(like(wanted, shape=(3,)).devices())
    assert 1 == len(like(somewhere).devices())
    assert 1 == len(tb.jit(lambda: like(wanted))().devices())
