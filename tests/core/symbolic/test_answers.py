"""What ``==`` of sizes says in lines of users: an answer for all values, a warning, or an error."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.symbolic.dim_strategies import SCOPE, environments, expressions
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.symbolic.answers import decide_equal
from tracebridge.core.symbolic.scope import SymbolicScope

a, b = map(SymbolicScope(least=2, strict=True).variable, "ab")


@given(expressions, expressions, environments)
def test_answers_hold_for_all_values(x, y, env):
    """Equal or different means so of every environment."""
    answer = decide_equal(x.dim, y.dim)

    assert answer is None or answer == (x.value(env) == y.value(env))


DECIDED = {
    "same": (lambda: b + 1 == 1 + b, True),
    "no normal form": (lambda: b // 2 * 2 + b % 2 == b, True),
    "below": (lambda: b == 1, False),
    "below, the other way round": (lambda: 1 != b, True),
    "in": (lambda: b in (0, 1), False),
    "shape": (lambda: (b, 3) == (b, 4), False),
    "rank": (lambda: (b,) == (b, 4), False),
    "fraction": (lambda: b == 4.5, False),
    "complex": (lambda: b == 4 + 1j, False),
    "not finite": (lambda: b == math.inf, False),
    "not a number": (lambda: b == math.nan, False),  # noqa: PLW0177 - the same
    "text": (lambda: b == "b", False),
    "none": (lambda: b == None, False),  # noqa: E711 - the comparison is the subject
    "another scope": (lambda: b == SCOPE.variable("b"), False),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_is_decided(name):
    """By the bounds of sizes, and by what can be no size."""
    question, answer = DECIDED[name]

    assert answer is question()


def matched(x):
    match x:
        case 4:
            return True
    return False


ASKED = {
    "==": lambda: b == 4,
    "!=": lambda: b % 2 != 0,
    "the other way round": lambda: b == 4,
    "two sizes": lambda: a == b,
    "float": lambda: b == 4.0,
    "scalar of NumPy": lambda: np.int64(4) == b,
    "array of rank 0": lambda: b == np.array(4),
    "array": lambda: np.arange(4) == b,
    "shape": lambda: (b, 3) == (4, 3),
    "list": lambda: [b] == [4],
    "in": lambda: b in (1, 2, 4),
    "index": lambda: [4, 5].index(b),
    "match": lambda: matched(b),
    "set": lambda: b in {1, 2, 4},
    "dict": lambda: {4: "four"}.get(b, "other"),
    "shape in a dict": lambda: {(4, 3): "four"}.get((b, 3), "other"),
    "cache": lambda: functools.lru_cache(lambda n: n)(b),
    "truth": lambda: bool(b % 2),
    "int": lambda: int(b),
    "gcd": lambda: math.gcd(b, 4),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_strict_scope_raises(name):
    """Whatever the question is asked by, and with the way out."""
    with pytest.raises(InconclusiveDimensionError, match=r"(?s)[ab].*way out"):
        ASKED[name]()


def test_the_engine_asks_for_expressions():
    """Programs of strict scopes are traced, cached and compared; our functions do not raise."""
    struct = tb.ShapeDtypeStruct((b, 3), "float32")
    inner = tb.jit(lambda x, n: tnp.concatenate([x, x]) / n, static_argnums=1)

    def fun(x):
        return inner(x, x.shape[0]) @ tnp.ones((3, 1)) + tnp.broadcast_to(1.0, (2 * x.shape[0], 1))

    for _ in range(2):
        assert (2 * b, 1) == tb.eval_shape(fun, struct).shape
    with pytest.raises(tb.errors.TracebridgeError, match="broadcast"):
        tb.eval_shape(tnp.add, struct, tb.ShapeDtypeStruct((a, 3), "float32"))


def test_arrays_answer_elementwise():
    """A size compared with a traced array is an array, on both sides."""
    struct = tb.ShapeDtypeStruct((b,), "float32")

    for fun in (lambda x: x.shape[0] == tnp.argmax(x), lambda x: tnp.argmax(x) == x.shape[0]):
        assert tb.eval_shape(fun, struct) == tb.ShapeDtypeStruct((), "bool")


def test_exports_warn():
    """They count as different, once said at the user's line; not outside of a trace."""
    (n,) = tb.export.symbolic_shape("n")
    struct = tb.ShapeDtypeStruct((n,), "float32")

    with pytest.warns(UserWarning, match=r"n == 4 counts as False.*values of n") as caught:
        exported = tb.export.export(tb.jit(lambda x: x * 2 if x.shape == (4,) else x))(struct)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exported.in_avals[0].shape != (4,)
        assert {4: "four"}.get(n, "other") == "other"
        tb.eval_shape(lambda x: x if x.shape == (n,) else None, struct)


def test_empty_arrays_are_asked_for():
    """Where sizes may be 0 and that alone decides, it is an error: at least 1 has an answer."""
    (n,) = (SymbolicScope(["n <= 9"], least=0).variable("n"),)

    for question in (lambda: n == 0, lambda: 2 * n == n, lambda: (n, 3) == (0, 3)):
        with pytest.raises(InconclusiveDimensionError, match=r'constraints=\["\w*\*?n >= 1"'):
            question()
    assert n != 4
