"""Values of types that programs define pass through every transformation."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

sys.path.insert(0, str(Path(__file__).parent))

from high_types import Along, Pair, PairType, dequantize, pair, part, quantize

from tracebridge.errors import AxisSpecError, DtypeMismatchError, RefError
from tracebridge.experimental.hijax import aval_method, aval_property, register_hitype

X = np.arange(3.0, dtype=np.float32)
Y = X + 1


def given():
    return Pair(tnp.asarray(X), tnp.asarray(Y))


def swap(p):
    return pair(part(p, 1), part(p, 0))


def dot(p):
    return (part(p, 0) * part(p, 1)).sum()


def same(expected, got):
    np.testing.assert_array_equal(expected[0], np.asarray(got.first))
    np.testing.assert_array_equal(expected[1], np.asarray(got.second))


@pytest.mark.parametrize(
    "fun",
    [
        swap,
        tb.jit(swap),
        tb.jit(lambda p: tb.jit(swap)(p)),
        tb.checkpoint(swap),
        lambda p: tb.jit(lambda: swap(p))(),
        lambda p: tb.lax.cond(tnp.bool_(True), swap, lambda q: q, p),
        lambda p: tb.lax.scan(lambda c, x: (swap(c), None), p, None, length=3)[0],
        lambda p: tb.lax.fori_loop(0, 3, lambda i, c: swap(c), p),
        tb.vmap(swap, in_axes=Along((0, 0)), out_axes=Along((0, 0)), axis_size=3),
        tb.jit(tb.vmap(tb.jit(swap), in_axes=Along((0, 0)), out_axes=Along((0, 0)), axis_size=3)),
        lambda p: tb.jit(swap).lower(p).compile()(p),
    ],
)
def test_swap(fun):
    """A value goes in and comes out as an object of its class."""
    same((Y, X), fun(given()))


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_references_that_begin_empty(wrap):
    """Their content consists of zeros until something is written."""
    ty = tb.typeof(given())

    def begin():
        ref = tb.empty_ref(ty)
        before = ref[...]
        ref[...] = swap(given())
        return before, tb.freeze(ref)

    before, after = wrap(begin)()
    same((0 * X, 0 * Y), before)
    same((Y, X), after)


def test_references_hold_one_value():
    """Their text shows it; parts of it and values of other types can't be written."""
    ref = tb.new_ref(given())
    assert f"Ref({given()!r})" == repr(ref)
    with pytest.raises(RefError, match="a part of the content"):
        ref[0] = given()
    with pytest.raises(DtypeMismatchError, match="the type of the reference"):
        ref[...] = 1.0


@pytest.mark.parametrize("fun", [dot, tb.jit(dot), tb.checkpoint(dot)])
def test_gradient_is_a_value(fun):
    """The gradient of a pair is a pair."""
    same((Y, X), tb.grad(fun)(given()))
    same((Y, X), tb.jit(tb.grad(fun))(given()))
    value, tangent = tb.jvp(fun, (given(),), (given(),))
    assert (X @ Y, 2 * X @ Y) == (float(value), float(tangent))


def test_gradient_through_loop():
    """Cotangents of carries of types of users are added by their type."""

    def loss(p):
        last, _ = tb.lax.scan(lambda c, _: (pair(part(c, 0) * 2, part(c, 0)), None), p, None, 3)
        return (part(last, 0) + part(last, 1)).sum()

    same((np.full(3, 12.0), np.zeros(3)), tb.grad(loss)(given()))


def test_slices_of_loops():
    """Values of types of users are sliced and stacked as their types say."""

    def step(carry, p):
        return carry + part(p, 0), pair(part(p, 1), carry)

    total, stacked = tb.lax.scan(step, tnp.float32(0), given(), length=3)

    assert X.sum() == float(total)
    same((Y, [0.0, 0.0, 1.0]), stacked)
    with pytest.raises(Exception, match="length"):
        tb.lax.scan(step, tnp.float32(0), given())


def test_while_loop():
    """Carries and what conditions close over."""
    bound = given()
    out = tb.lax.while_loop(
        lambda p: part(p, 0).sum() < part(bound, 1).sum(),
        lambda p: pair(part(p, 0) + 1, X),
        given(),
    )

    same((X + 1, X), out)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit])
def test_tangents_of_another_type(wrap):
    """The tangents of quantized numbers are floats."""
    loss = wrap(lambda x: (dequantize(quantize(x)) ** 2).sum())

    np.testing.assert_allclose(tb.grad(loss)(Y), 2 * Y, rtol=1e-2)
    np.testing.assert_allclose(tb.grad(lambda q: dequantize(q).sum())(quantize(Y)), np.ones(3))


def test_programs_show_the_types():
    """Printed programs name the types, compiled ones have arrays only."""
    assert "PairType" in str(tb.make_jaxpr(swap)(given()))
    assert "PairType" not in tb.jit(swap).lower(given()).as_text()
    assert tb.eval_shape(quantize, Y) == tb.typeof(quantize(tnp.asarray(Y)))


def test_kept_with_other_types():
    """A program is traced again for another type, and not for the same one."""
    traces = []
    fun = tb.jit(lambda p: (traces.append(1), swap(p))[1])
    fun(given())
    fun(given())

    assert 1 == len(traces)
    fun(Pair(tnp.asarray(X), tnp.asarray(X[:2])))
    assert 2 == len(traces)


def test_errors():
    """Numbers are no axes of types of users; tangents have the types that types ask for."""
    with pytest.raises(AxisSpecError, match="non-array type"):
        tb.vmap(swap, axis_size=3)(given())
    with pytest.raises(AxisSpecError, match="out_axes"):
        tb.vmap(swap, in_axes=Along((0, 0)), out_axes=1, axis_size=3)(given())
    with pytest.raises(DtypeMismatchError, match="another type"):
        tb.jvp(swap, (given(),), (Pair(X, X[:1]),))
    assert isinstance(tb.typeof(given()), PairType)


def test_attributes_of_traced_values():
    """Methods and properties of a type are there on traced values of the type, and on no others."""

    class Reversible(PairType):
        reverse = aval_method(swap)
        total = aval_property(dot)
        __add__ = aval_method(swap)

    class Both(Pair):
        """A pair with these."""

    register_hitype(Both, lambda p: Reversible((tb.typeof(p.first), tb.typeof(p.second))))
    both = Both(tnp.asarray(X), tnp.asarray(Y))

    assert X @ Y == tb.jit(lambda p: p.total)(both)
    same((Y, X), tb.jit(lambda p: p.reverse())(both))
    with pytest.raises(AttributeError, match="reverse"):
        tb.jit(lambda x: x.reverse())(X)
    assert 2.0 == tb.jit(lambda x: x + 1)(1.0)
