"""Operators of arrays and tracers: every dunder, also reflected, beside NumPy's."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.testing import assert_allclose

ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
BITWISE = ["and_", "or_", "xor", "lshift", "rshift"]
UNARY = ["neg", "pos", "abs"]
# What stands on the other side of the operator.
OTHERS = {
    "array": lambda dtype: tnp.array([[2], [3]], dtype),
    "numpy": lambda dtype: np.array([[2], [3]], dtype),
    "scalar": lambda dtype: 2 if np.dtype(dtype).kind == "i" else 2.5,
    "numpy scalar": lambda dtype: np.dtype(dtype).type(3),
}


def narrow(x):
    return {"float64": np.float32, "int64": np.int32}.get(x.dtype.name, x.dtype)


def check(function, x, y, host_x, host_y):
    """``function`` of arrays and of tracers is NumPy's, in the canonical dtype."""
    expected = np.asarray(function(host_x, host_y))
    plain = function(x, y)
    traced = tb.jit(lambda a: function(a, y))(x) if isinstance(x, tb.Array) else None
    if traced is None:
        traced = tb.jit(lambda a: function(x, a))(y)
    for actual in (plain, traced):
        assert isinstance(actual, tb.Array)
        assert narrow(expected) == actual.dtype
        assert_allclose(actual, expected.astype(narrow(expected)))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_binary_operators(name, dtype, other):
    """Arrays on the left and on the right of every kind of operand."""
    function = getattr(operator, name)
    host = np.array([1, 2, 4], dtype)
    x, y = tnp.array(host), OTHERS[other](dtype)
    host_y = np.asarray(y) if other == "array" else y

    check(function, x, y, host, host_y)
    # A NumPy scalar or array on the left must leave the operation to ours.
    check(function, y, x, host_y, host)


@pytest.mark.parametrize("name", BITWISE)
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_bitwise_operators(name, dtype):
    """Also with Python integers on either side."""
    function = getattr(operator, name)
    host = np.array([1, 2, 4], dtype)
    x = tnp.array(host)

    check(function, x, tnp.array([3, 1, 2], dtype), host, np.array([3, 1, 2], dtype))
    check(function, x, 2, host, 2)
    check(function, 2, x, 2, host)


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_logical_operators_of_masks(name):
    """Truth values have the bitwise operators, also with Python's."""
    function = getattr(operator, name)
    host = np.array([True, False])

    check(function, tnp.array(host), np.array([True, True]), host, np.array([True, True]))
    check(function, tnp.array(host), True, host, True)
    check(function, False, tnp.array(host), False, host)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64"])
def test_unary_operators(name, dtype):
    """They keep dtypes (abs of complex numbers is real)."""
    function = getattr(operator, name)
    host = np.array([1, -2, 0], dtype)

    for actual in (function(tnp.array(host)), tb.jit(function)(host)):
        assert_allclose(actual, function(host), check_dtype=True)


def test_invert():
    """Integers and masks."""
    for host in (np.array([0, 5, -1], np.int32), np.array([True, False])):
        np.testing.assert_array_equal(~host, ~tnp.array(host))
        np.testing.assert_array_equal(~host, tb.jit(operator.invert)(host))


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (3, 4)), ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,))]
)
def test_matmul(left, right):
    """Both orders of array and NumPy array."""
    a, b = (np.random.standard_normal(s).astype(np.float32) for s in (left, right))

    for actual in (tnp.array(a) @ tnp.array(b), tnp.array(a) @ b, a @ tnp.array(b)):
        assert isinstance(actual, tb.Array)
        assert_allclose(actual, a @ b, rtol=1e-5, atol=1e-5)
    assert_allclose(tb.jit(lambda x: a @ x)(b), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_divmod(dtype):
    """Quotient and remainder, both ways."""
    host = np.array([7, -7, 5], dtype)
    for function in (lambda x: divmod(x, 3), lambda x: divmod(20, x)):
        for actual in (function(tnp.array(host)), tb.jit(function)(host)):
            assert_allclose(actual, tuple(function(host)))


def test_round_and_conversions():
    """round, int, float, complex, bool, index, len, iter, contains, format, hash."""
    x = tnp.array([1.25, -2.5, 3.0])

    assert_allclose(round(x, 1), np.round(np.asarray(x), 1))
    assert (2, 2.5, 2.5 + 0j, True) == (
        int(tnp.array(2.0)), float(tnp.array(2.5)), complex(tnp.array(2.5)), bool(tnp.array(2)),
    )  # fmt: skip
    assert "b" == ["a", "b"][tnp.array(1)]
    assert 3 == len(x)
    assert [1.25, -2.5, 3.0] == [float(v) for v in x]
    assert 3.0 in x
    assert 9.0 not in x
    assert "1.50" == f"{tnp.array(1.5):.2f}"
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"])
def test_augmented_assignment_makes_new_arrays(name):
    """x += 1 binds a new array; the old one stays as it is."""
    x = tnp.array([4.0, 6.0])
    y = getattr(operator, name)(x, 2.0)

    assert [4.0, 6.0] == x.tolist()
    assert_allclose(y, getattr(operator, name)(np.array([4.0, 6.0]), 2.0))


def test_tracers_iterate_and_unpack():
    """The leading axis is known while tracing."""
    assert 6.0 == float(tb.jit(lambda x: sum(list(x)))(np.array([1.0, 2.0, 3.0])))
    assert 3.0 == float(tb.jit(lambda x: operator.sub(*x))(np.array([4.0, 1.0])))


@pytest.mark.parametrize("other", ["text", object(), None, {}])
@pytest.mark.parametrize("name", ["add", "mul", "truediv", "lt", "matmul"])
def test_foreign_operands_are_refused(name, other):
    """Python's own TypeError, or ours with the type in it."""
    # A sequence times something asks for a number of repetitions, so it speaks of the array.
    text = "array" if (name, other) == ("mul", "text") else type(other).__name__
    with pytest.raises(TypeError, match=text):
        getattr(operator, name)(tnp.ones(2), other)


def test_equality_with_foreign_objects_is_python_s():
    """An array does not equal a string or None; no array comes of it."""
    assert (tnp.ones(2) == "a") is False
    assert (tnp.ones(2) != None) is True  # noqa: E711 - the operator is tested


def test_foreign_classes_may_take_over():
    """An operand with the reflected method gets its turn."""

    class Wrapper:
        def __radd__(self, other):
            return "mine"

    assert "mine" == tnp.ones(2) + Wrapper()


@pytest.mark.parametrize("sequence", [[1, 2], (1, 2), "ab"])
def test_an_integer_array_is_no_count_of_repetitions(sequence):
    """``x * [1, 2]`` is an error, as ``x + [1, 2]`` is."""
    for x in (tnp.array(2), tnp.array(2.0)):
        with pytest.raises(TypeError, match="multiply"):
            _ = x * sequence


@pytest.mark.parametrize("divisor", [0.0, -0.0])
def test_floor_of_a_division_by_zero(divisor):
    """An infinity with the sign of the quotient, and NaN for zeros, as in NumPy; no gradient."""
    x = np.array([0.5, -0.5, 0.0, np.inf, np.nan], np.float32)
    y = np.full_like(x, divisor)
    with np.errstate(all="ignore"):
        expected = np.floor_divide(x, y)

    np.testing.assert_array_equal(expected, tnp.array(x) // tnp.array(y))
    np.testing.assert_array_equal(np.divmod(3.0, 2.0), divmod(tnp.array(3.0), 2.0))
    assert 0.0 == tb.grad(lambda v: v // 2.0)(3.0)


NUMBERS = [5, -1, 300, -300, 2**40, -(2**40)]


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_comparisons_with_integers_outside_the_dtype(dtype, name):
    """As in NumPy the result is what it is in mathematics; arithmetic would not fit."""
    compare = getattr(operator, name)
    host = np.array([0, 1, 100], dtype)
    x = tnp.array(host)
    for n in NUMBERS:
        assert compare(host, n).tolist() == compare(x, n).tolist()
        assert compare(n, host).tolist() == compare(n, x).tolist()
        assert compare(host, n).tolist() == tb.jit(lambda x, n=n: compare(x, n))(x).tolist()
        assert compare(n, host).tolist() == tb.vmap(lambda x, n=n: compare(n, x))(x).tolist()
    with pytest.raises(OverflowError, match="does not fit"):
        x + 2**40


def test_errors_of_comparisons_name_the_function():
    """Not the operation of the engine."""
    with pytest.raises(ValueError, match=r"^less got incompatible shapes .*: \(2,\), \(3,\)"):
        tnp.less(tnp.ones(2), tnp.ones(3))
    with pytest.raises(OverflowError, match=r"^greater: Python integer"):
        tnp.greater(2**40, 3)


def test_numbers_that_an_integer_array_cannot_hold():
    """Negative powers of integers and complex numbers in real arrays are refused."""
    with pytest.raises(TypeError, match=r"^power: integers have no negative powers, got -1"):
        tnp.arange(3) ** -1
    with pytest.raises(TypeError, match=r"^array: a complex number does not fit float32"):
        tnp.array(1 + 1j, "float32")


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
@pytest.mark.parametrize("other", [[1.0, 2.0], (1.0, 2.0), {1.0}, {}])
def test_equality_with_containers_is_refused(compare, other):
    """NumPy would convert a list, Python would compare identities: neither happens silently."""
    for x in (tnp.array([1.0, 2.0]), np.float32(1) * tnp.ones(())):
        for f in (compare, lambda a, b: compare(b, a)):
            with pytest.raises(TypeError, match="convert it"):
                f(x, other)
            with pytest.raises(TypeError, match="convert it"):
                tb.jit(lambda v, f=f: f(v, other))(x)


def test_equality_with_what_is_no_number():
    """None, strings and objects are other things than arrays: False, as for all of Python."""
    x = tnp.ones(2)
    assert [False] * 3 == [x == other for other in (None, "a", object())]
    assert [True] * 3 == [x != other for other in (None, "a", object())]
