"""Callables with unusual names, and rules over functions that have rules."""

import functools

import pytest

import tracebridge as tb


class NumberNamed:
    """A callable object whose name is no word."""

    __name__ = 5

    def __call__(self, x):
        return x * x


NumberNamed.__annotations__ = None


@pytest.mark.parametrize("transform", [tb.vmap, tb.jit, tb.grad, tb.jacfwd, tb.checkpoint])
def test_names_that_are_no_words_are_left_out(transform):
    transformed = transform(NumberNamed())

    assert isinstance(transformed.__name__, str)
    if transform is not tb.vmap:
        transformed(3.0)


def test_rules_over_a_function_with_rules_keep_their_own_arguments():
    @functools.partial(tb.custom_jvp, nondiff_argnums=(0,))
    def power(n, x):
        return x**n

    power.defjvp(lambda n, primals, tangents: (power(n, *primals), *tangents))
    outer = tb.custom_vjp(power)
    outer.defvjp(lambda n, x: (power(2, x), x), lambda x, ct: (0.0, 5 * x * ct))

    assert outer.nondiff_argnums == ()
    assert tb.grad(outer, 1)(2.0, 3.0) == 15
