"""Objects of other libraries: what they call ``aval`` is none of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.lax import sin_p

HOST = np.array([0.5, 0.25], np.float32)


class NoArray:
    """An attribute of this name, and nothing of an array."""

    aval = None


class Forged:
    """All attributes that arrays of an engine have, but no elements."""

    _trace = None
    _sig = "signature"
    shape, ndim = (2,), 1
    dtype = np.dtype("float32")

    @property
    def aval(self) -> Any:
        return tb.ShapeDtypeStruct((2,), np.float32)


class Traced(Forged):
    """A value that another engine traces."""

    _trace = "another trace"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise ValueError


class WithArray(Forged):
    """An array of another engine."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return HOST if dtype is None else HOST.astype(dtype)


class WithDLPack(Forged):
    """The same, by another protocol."""

    def __dlpack__(self, **options: Any) -> Any:
        return HOST.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return HOST.__dlpack_device__()


X = tnp.ones(2)
CALLS: dict[str, Callable[[Any], Any]] = {
    "asarray": tnp.asarray,
    "operator": lambda v: X + v,
    "reflected operator": lambda v: v + X,
    "operator under jit": lambda v: tb.jit(lambda a: a * v)(X),
    "numpy": tnp.sin,
    "numpy of two": lambda v: tnp.add(X, v),
    "lax": lax.sin,
    "lax of two": lambda v: lax.add(X, v),
    "primitive": lambda v: sin_p.bind(v, accuracy=None),
    "jit": lambda v: tb.jit(lambda a: a * 2)(v),
    "grad": lambda v: tb.grad(lambda a: (a * 2).sum())(v),
    "vmap": lambda v: tb.vmap(lambda a: a * 2)(v),
    "jvp": lambda v: tb.jvp(tnp.sin, (v,), (X,)),
    "tangent": lambda v: tb.jvp(tnp.sin, (X,), (v,)),
    "vjp": lambda v: tb.vjp(tnp.sin, X)[1](v),
    "checkpoint": lambda v: tb.checkpoint(tnp.sin)(v),
    "scan": lambda v: lax.scan(lambda c, y: (c + y, c), 0.0, v),
    "while": lambda v: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, v),
    "cond": lambda v: lax.cond(True, lambda a: a, lambda a: a, v),
    "device_put": tb.device_put,
    "sum": tnp.sum,
    "concatenate": lambda v: tnp.concatenate([X, v]),
    "list": lambda v: tnp.array([v, v]),
    "where": lambda v: tnp.where(X > 0, v, X),
    "update": lambda v: X.at[0:2].set(v),
    "comparison": lambda v: X < v,
    "matmul": lambda v: X @ v,
    "expand_dims": lambda v: tnp.expand_dims(v, 0),
    "full": lambda v: tnp.full(2, v),
    "typeof": tb.typeof,
    "stop_gradient": lax.stop_gradient,
    "select": lambda v: lax.select(X > 0, v, X),
    "linspace": lambda v: tnp.linspace(v, v, 3),
    "result of jit": lambda v: tb.jit(lambda: v)(),
}
# Their answer depends on a shape and a dtype only, which a forged array has.
SHAPES = {"shape": tnp.shape, "ndim": tnp.ndim, "result_type": tnp.result_type}


@pytest.mark.parametrize("kind", [NoArray, Forged, Traced])
@pytest.mark.parametrize("call", sorted(CALLS))
def test_what_has_no_elements_is_refused(call: str, kind: type) -> None:
    """An error of ours, or Python's for operators; never an accident of the engine."""
    with pytest.raises((TracebridgeError, TypeError, ValueError)) as caught:
        CALLS[call](kind())

    assert not isinstance(caught.value, AttributeError)
    # These hand the object to NumPy, and what its own method raises to the caller.
    if call not in {"asarray", "full", "list"}:
        assert kind.__name__ in str(caught.value)


@pytest.mark.parametrize("kind", [WithArray, WithDLPack])
@pytest.mark.parametrize("call", sorted(CALLS))
def test_an_array_of_another_engine_is_converted(call: str, kind: type) -> None:
    """The same result as for the array of NumPy that it is converted to."""
    got, expected = CALLS[call](kind()), CALLS[call](HOST)

    assert tb.tree.structure(expected) == tb.tree.structure(got)
    for a, b in zip(tb.tree.leaves(expected), tb.tree.leaves(got), strict=True):
        assert tb.typeof(a) == tb.typeof(b) if hasattr(a, "_sig") else a == b
        if hasattr(a, "_sig"):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("kind", [NoArray, Traced, WithArray])
@pytest.mark.parametrize("call", sorted(SHAPES))
def test_questions_about_shape_and_dtype(call: str, kind: type) -> None:
    """What another library calls ``aval`` is not asked for them."""
    if kind is NoArray:
        with pytest.raises(TracebridgeError):
            SHAPES[call](kind())
        return
    assert SHAPES[call](HOST) == SHAPES[call](kind())


def test_indices() -> None:
    """An array of another engine is an index like an array of NumPy."""

    class Index(Forged):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return np.array([1, 0], np.int32)

    np.testing.assert_array_equal(np.asarray(tnp.asarray(HOST)[Index()]), HOST[::-1])
