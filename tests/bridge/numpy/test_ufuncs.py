"""frompyfunc, ufunc, vectorize and the methods of universal functions."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.errors import AxisError, UnsupportedArgumentError, UnsupportedDtypeError
from tracebridge.testing import assert_allclose

FLOAT_UFUNCS = ["add", "subtract", "multiply", "maximum", "minimum", "logaddexp", "logaddexp2"]
INT_UFUNCS = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "logical_and",
    "logical_or",
    "logical_xor",
]
UFUNCS = FLOAT_UFUNCS + INT_UFUNCS
ours = tnp.frompyfunc(lambda x, y: 2 * x + y, nin=2, nout=1)
# NumPy's form of `ours` has no traces, so the fold is written out.
X = np.array([[1.0, 2.0, 3.5], [4.0, -5.0, 0.5]], np.float32)
N = np.array([[1, 2, 3], [6, 0, 7]], np.int32)


def operand(name):
    return N if name in INT_UFUNCS else X


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", UFUNCS)
def test_reduce_and_accumulate(name, axis):
    """Folds are NumPy's, eagerly and under jit."""
    x, function, reference = operand(name), getattr(tnp, name), getattr(np, name)

    for keepdims in (False, True):
        assert_allclose(
            tb.jit(functools.partial(function.reduce, axis=axis, keepdims=keepdims))(x),
            reference.reduce(x, axis, keepdims=keepdims),
            rtol=1e-5,
        )
    assert_allclose(function.accumulate(x, axis), reference.accumulate(x, axis), rtol=1e-5)


@pytest.mark.parametrize("name", UFUNCS)
def test_reduceat_and_outer(name):
    """Segments that overlap, single elements, and all pairs."""
    x, function, reference = operand(name)[0], getattr(tnp, name), getattr(np, name)
    wide = np.tile(x, 3)
    starts = np.array([0, 4, 2, 8])

    assert_allclose(
        tb.jit(function.reduceat)(wide, starts), reference.reduceat(wide, starts), rtol=1e-5
    )
    assert_allclose(function.outer(x, operand(name)), reference.outer(x, operand(name)), rtol=1e-5)
    assert_allclose(
        function.reduceat(operand(name), np.array([1, 0]), axis=1),
        reference.reduceat(operand(name), np.array([1, 0]), axis=1),
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", UFUNCS)
def test_at_counts_repetitions(name):
    """Positions that come twice are updated twice."""
    x, function, reference = operand(name)[0], getattr(tnp, name), getattr(np, name)
    places, values = np.array([0, 2, 0]), operand(name)[1]
    expected = x.copy()
    reference.at(expected, places, values)

    for actual in (
        function.at(x, places, values, inplace=False),
        tb.jit(lambda v, i: function.at(v, i, values, inplace=False))(x, places),
    ):
        assert_allclose(actual, expected, rtol=1e-5)


def test_unary_at():
    """A function of one argument needs no operand."""
    assert [1.0, -2.0] == tnp.negative.at(
        tnp.array([1.0, 2.0]), tnp.array([0, 0, 1]), inplace=False
    ).tolist()


def masked_arguments(name):
    """Operands, one without axes, and a mask with an axis more."""
    x = operand(name)
    return ((x,) if name == "negative" else (x, x[0, 1])), np.stack([x > 1, x < 1])


@pytest.mark.parametrize("name", [*UFUNCS, "negative"])
def test_masked_calls(name):
    """Elements outside of the mask are 0, where NumPy's would be those of ``out``."""
    function, reference = getattr(tnp, name), getattr(np, name)
    args, mask = masked_arguments(name)
    plain = function(*args)
    expected = np.zeros(mask.shape, plain.dtype)
    reference(*args, out=expected, where=mask)

    for made in (function, tb.jit(function), tb.jit(lambda *a, where: function(*a, where=where))):
        actual = made(*args, out=None, where=mask) if made is function else made(*args, where=mask)
        assert_allclose(actual, expected, rtol=1e-5)
        assert plain.dtype == actual.dtype
    assert_allclose(function(*args, out=None, where=None), plain)
    assert_allclose(tb.vmap(lambda m: function(*args, where=m))(mask), expected, rtol=1e-5)
    assert (2, 0) == function(*[np.ones((2, 0), a.dtype) for a in args], where=True).shape


def test_masked_calls_keep_weak_types():
    """A mask changes neither the dtype nor its weakness, and takes part in broadcasting."""
    assert tnp.add(1.0, 2, where=np.array([True, False])).tolist() == [3.0, 0.0]
    assert tnp.add(1.0, 2, where=True).weak_type
    assert "bfloat16" == str(tnp.multiply(tnp.ones(2, "bfloat16"), 2.5, where=True).dtype)


def test_masked_elements_have_no_derivatives():
    """Not even those that are infinite or undefined there."""
    x, y = np.array([np.inf, 2.0, np.nan], np.float32), np.array([3.0, 5.0, 7.0], np.float32)
    mask = np.array([False, True, False])
    for name in ("multiply", "logaddexp", "subtract"):
        f = getattr(tnp, name)
        dx, dy = tb.grad(lambda a, b, f=f: f(a, b, where=mask).sum(), (0, 1))(x, y)
        ex, ey = tb.grad(lambda a, b, f=f: f(a, b), (0, 1))(2.0, 5.0)

        assert_allclose((dx, dy), (np.array([0, ex, 0]), np.array([0, ey, 0])))
    inverse = tnp.frompyfunc(lambda v: (1 / v, v), 1, 2)
    assert [[0.0, 0.5], [0.0, 2.0]] == np.asarray(
        inverse(tnp.array([0.0, 2.0]), where=np.array([False, True]))
    ).tolist()
    assert_allclose(
        tb.grad(lambda v: inverse(v, where=v > 0)[0].sum())(tnp.array([0.0, 2.0])),
        np.array([0, -0.25]),
    )


@pytest.mark.parametrize("name", [*UFUNCS, "negative"])
def test_attributes(name):
    """nin, nout and identity are NumPy's; plain functions are no universal ones."""
    function, reference = getattr(tnp, name), getattr(np, name)

    assert (reference.nin, reference.nout) == (function.nin, function.nout)
    if name not in ("bitwise_and", "subtract"):
        assert reference.identity == function.identity
    assert isinstance(function, tnp.ufunc)
    assert not isinstance(tnp.sum, tnp.ufunc)


def test_frompyfunc_maps_elements():
    """Operands are broadcast; several results make a tuple."""
    assert_allclose(ours(X, 1.0), 2 * X + 1)
    assert_allclose(tb.jit(ours)(X, X[:1]), 2 * X + X[:1])
    low, high = tnp.frompyfunc(lambda x: (x - 1, x + 1), 1, 2)(X)
    assert_allclose((low, high), (X - 1, X + 1))
    assert "<ufunc '<lambda>'>" == repr(ours)
    assert (2, 1, 2, None) == (ours.nin, ours.nout, ours.nargs, ours.identity)
    assert isinstance(ours, tnp.ufunc)


def test_frompyfunc_folds():
    """Elements are taken in order: ((x0, x1), x2), ..."""
    a, b, c = X.T
    first = 2 * a + b

    assert_allclose(ours.reduce(X, 1), 2 * first + c)
    assert_allclose(ours.accumulate(X, 1), np.stack([a, first, 2 * first + c], 1))
    assert_allclose(ours.reduce(X, None), ours.reduce(X.ravel()))
    assert_allclose(ours.reduce(X, 0, initial=1.0), 2 * (2 * 1.0 + X[0]) + X[1])
    assert_allclose(
        ours.reduce(X, 0, initial=0.0, where=X > 0),
        np.where(X[1] > 0, 2 * np.where(X[0] > 0, X[0], 0) + X[1], np.where(X[0] > 0, X[0], 0)),
    )
    assert_allclose(ours.outer(a, b), 2 * a[:, None] + b)
    assert [[2.0]] == ours.reduce(tnp.zeros((0, 1)), initial=2.0, keepdims=True).tolist()
    assert 0 == tnp.frompyfunc(lambda x, y: x + y, 2, 1, identity=0).reduce(tnp.ones(0)).tolist()
    assert "float16" == str(ours.reduce(X, dtype="float16").dtype)


def test_folds_have_derivatives_and_batches():
    """vmap and grad go through."""
    assert_allclose(tb.vmap(ours.reduce)(X), ours.reduce(X, 1))
    check_grads(ours.reduce, (X.astype(np.float64),), order=1)
    check_grads(ours.accumulate, (X.astype(np.float64),), order=1)
    check_grads(lambda x: ours.at(x, N[0], x[1], inplace=False)[0], (X.astype(np.float64),), 1)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_xor", "logical_xor", "logaddexp"])
def test_functions_with_an_identity_reduce_over_several_axes(name):
    """In any order, with an initial value and a mask, as NumPy's."""
    f, reference = getattr(tnp, name), getattr(np, name)
    x = np.arange(24).reshape(3, 4, 2) % 7
    x = x / 2 if name == "logaddexp" else x
    for axis in ((0, 2), (-1, 1), (1,), ()):
        for options in ({}, {"keepdims": True, "initial": 1, "where": x > 1}):
            expected = reference.reduce(x, axis, **options)
            assert_allclose(f.reduce(x, axis, **options), expected)
    assert_allclose(ours.reduce(X, (1,)), ours.reduce(X, 1))


def test_keywords_of_the_class_replace_methods():
    """What is given is used instead of the general way."""
    made = tnp.ufunc(
        lambda x, y: x + y, 2, 1, name="plus", call=tnp.add, reduce=tnp.sum, identity=0
    )

    assert "plus" == made.__name__
    assert_allclose(made.reduce(X, (0, 1)), X.sum())
    assert_allclose(made(X, 1), X + 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ours(X), TypeError, "got 1 arguments, expected 2"),
        (lambda: ours(X, X, out=X), UnsupportedArgumentError, "out="),
        (lambda: ours(X, X, where=X), UnsupportedDtypeError, r"where=.*f32.*bool"),
        (lambda: tnp.add(X, X, out=X), UnsupportedArgumentError, "add: out="),
        (lambda: tnp.add(X, X, where=1), UnsupportedDtypeError, "add: where=.*i32.*bool"),
        (lambda: tnp.add(X, X, where=X[:, :2] > 0), ValueError, "add got incompatible shapes"),
        (lambda: ours.reduce(X, (0, 1)), ValueError, r"axis=\(0, 1\), expected one axis"),
        (lambda: ours.reduce(X, 2), AxisError, "axis 2"),
        (lambda: ours.reduce(X[:0]), ValueError, "no identity"),
        (lambda: ours.reduce(X, where=X > 0), ValueError, "where= needs initial="),
        (lambda: ours.at(X, 0, 1.0), ValueError, "inplace=False"),
        (lambda: ours.at(X, 0, inplace=False), ValueError, "no second operand"),
        (lambda: ours.reduceat(X, np.array([0.5])), ValueError, "vector of integers"),
        (lambda: tnp.negative.reduce(X), ValueError, r"negative.reduce.*1 arguments"),
        (lambda: tnp.add.accumulate(X, None), ValueError, "add.accumulate.*axis=None"),
        (lambda: tnp.frompyfunc(3, 1, 1), TypeError, "callable.*int"),
        (lambda: tnp.frompyfunc(abs, "a", 1), TypeError, "nin must be an integer.*str"),
    ],
)
def test_bad_calls(call, error, text):
    """The message names the method, what was got and what is expected."""
    with pytest.raises(error, match=text):
        call()


def test_vectorize():
    """Signatures, excluded arguments, broadcasting."""
    matvec = tnp.vectorize(lambda m, v: m @ v, signature="(n,m),(m)->(n)")
    scaled = tnp.vectorize(lambda x, factor: x * factor, excluded=(1,))

    assert_allclose(matvec(np.ones((2, 4, 3)), X), np.einsum("bij,bj->bi", np.ones((2, 4, 3)), X))
    assert (2, 4, 2) == matvec(np.ones((4, 2, 3)), X[:, None]).shape
    assert_allclose(scaled(X, 3), X * 3)
    with pytest.raises(TypeError, match="wrong number of positional arguments: got 1 arrays"):
        matvec(X)
    with pytest.raises(ValueError, match=r"signature|vectorize"):
        tnp.vectorize(abs, signature="nonsense")


def test_operands_have_no_names() -> None:
    """Operands are given by position, as in NumPy, so that signatures tell the same."""
    for f, operands in ((tnp.sin, ("x",)), (tnp.add, ("x1", "x2")), (tnp.less, ("x1", "x2"))):
        with pytest.raises(TypeError, match="positional-only"):
            f(**dict.fromkeys(operands, 1.0))
    assert str(inspect.signature(tnp.cos)).startswith("(x")
    assert inspect.signature(tnp.cos).parameters["x"].kind is inspect.Parameter.POSITIONAL_ONLY


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "bitwise_or"])
def test_reductions_keep_a_dtype_that_was_asked_for(name: str) -> None:
    """Small integers too, which sums otherwise widen."""
    numbers = np.asarray([[1, 2, 3], [3, 2, 4]], np.int32)
    function = getattr(tnp, name)
    expected = getattr(np, name).reduce(numbers, axis=1, dtype=np.int16)

    found = function.reduce(numbers, axis=1, dtype=np.int16)
    assert ("int16", expected.tolist()) == (found.dtype.name, found.tolist())
