"""Random dimension expressions, each with the function of ints that it stands for."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tracebridge.core.symbolic.dims import floordiv, max_dim, min_dim, mod
from tracebridge.core.symbolic.scope import SymbolicScope

NAMES = ("a", "b", "c")
SCOPE = SymbolicScope()

environments = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})


class Expression(NamedTuple):
    """A dimension and its meaning."""

    dim: object
    value: object
    """Takes an environment, gives an int."""


def variable(name, scope=SCOPE):
    """A variable."""
    return Expression(scope.variable(name), lambda env: env[name])


def constant(n):
    """An int."""
    return Expression(n, lambda _: n)


def combine(symbol, x, y):
    """An operation on two expressions."""
    of_dims, of_ints = OPERATIONS[symbol]
    return Expression(of_dims(x.dim, y.dim), lambda env: of_ints(x.value(env), y.value(env)))


OPERATIONS = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "//": (floordiv, lambda x, y: x // y),
    "%": (mod, lambda x, y: x % y),
    "max": (max_dim, max),
    "min": (min_dim, min),
}

variables = st.sampled_from(NAMES).map(variable)
constants = st.integers(-9, 9).map(constant)
# Divisors that are never 0, of both signs, ints and expressions.
divisors = (
    st.integers(-6, 6).filter(bool).map(constant)
    | variables
    | st.builds(lambda x, n: combine("+", x, constant(n)), variables, st.integers(0, 3))
    | st.builds(lambda x, n: combine("*", x, constant(n)), variables, st.sampled_from([2, 3, -2]))
)


def _grow(children):
    ring = st.builds(combine, st.sampled_from("+-*"), children, children)
    extrema = st.builds(combine, st.sampled_from(["max", "min"]), children, children)
    quotients = st.builds(combine, st.sampled_from(["//", "%"]), children, divisors)
    return ring | extrema | quotients


expressions = st.recursive(variables | constants, _grow, max_leaves=7)
