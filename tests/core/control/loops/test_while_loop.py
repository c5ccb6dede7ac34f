"""while_loop and fori_loop: values, forward mode, batches, messages."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge.core.config.option_scopes import disable_jit
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    GradientTypeError,
    TreeMismatchError,
)
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace

while_loop, fori_loop = tb.lax.while_loop, tb.lax.fori_loop


def collatz(n):
    """Number of steps to 1."""
    even = lambda n: n % 2 == 0

    def body(c):
        n, steps = c
        return tnp.where(even(n), n // 2, 3 * n + 1), steps + 1

    return while_loop(lambda c: c[0] != 1, body, (n, 0))[1]


def collatz_in_python(n):
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def test_value():
    """The loop runs as often as Python's."""
    assert collatz_in_python(27) == int(collatz(27))
    assert collatz_in_python(27) == int(tb.jit(collatz)(27))
    assert int(collatz(1)) == 0


def test_batch_with_batched_condition():
    """Elements that are done stay as they are while others go on."""
    numbers = np.arange(1, 20)
    expected = [collatz_in_python(int(n)) for n in numbers]

    assert expected == tb.vmap(collatz)(numbers).tolist()
    assert [expected] * 2 == tb.vmap(tb.vmap(collatz))(np.stack([numbers] * 2)).tolist()


def test_batch_of_closed_over_values():
    """What the condition or the body closes over may be batched."""

    def f(limit, factor):
        return while_loop(lambda c: c[0] < limit, lambda c: (c[0] * factor, c[1] + 1), (1.0, 0))

    value, steps = tb.vmap(f, (0, None))(tnp.asarray([1.0, 5.0, 100.0]), 2.0)
    assert value.tolist() == [1.0, 8.0, 128.0]
    assert steps.tolist() == [0, 3, 7]
    value, steps = tb.vmap(f, (None, 0))(10.0, tnp.asarray([2.0, 3.0]))
    assert value.tolist() == [16.0, 27.0]
    assert steps.tolist() == [4, 3]


def test_batch_with_common_condition():
    """If no element can stop alone, carries stay unbatched where they can."""

    def f(x):
        return while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, 1.0))

    jaxpr = tb.make_jaxpr(tb.vmap(f))(tnp.ones(4)).jaxpr
    (app,) = equations_of(jaxpr, "while")

    assert tb.vmap(f)(tnp.asarray([2.0, 3.0]))[1].tolist() == [8.0, 27.0]
    assert sorted([(), (4,)]) == sorted([a.shape for a in app.outs])


def power(x, n):
    return while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, 1.0))[1]


def test_forward_mode():
    """jvp, linearize and jacfwd work, also of jitted loops and batched."""
    cube = lambda x: power(x, 3)

    assert [float(v) for v in tb.jvp(cube, (2.0,), (1.0,))] == [8.0, 12.0]
    assert [float(v) for v in tb.jvp(tb.jit(cube), (2.0,), (1.0,))] == [8.0, 12.0]
    assert float(tb.linearize(cube, 2.0)[1](1.0)) == 12.0
    assert float(tb.jvp(lambda x: tb.jvp(cube, (x,), (1.0,))[1], (2.0,), (1.0,))[1]) == 12.0
    slopes = tb.vmap(lambda x: tb.jvp(cube, (x,), (1.0,))[1])(tnp.asarray([1.0, 2.0]))
    assert slopes.tolist() == [3.0, 12.0]


def test_late_tangents():
    """A carry that becomes differentiable after some steps has a tangent all along."""

    def f(x):
        def body(c):
            i, a, b, d = c
            return i + 1, x, a * 2.0, b + d

        return while_loop(lambda c: c[0] < 5, body, (0, 0.0, 0.0, 0.0))[3]

    assert float(tb.jvp(f, (3.0,), (1.0,))[1]) == 6.0


def test_reverse_mode_is_an_error():
    """The message says what to use instead; loops over integers alone do not matter."""
    for f in (lambda x: power(x, 3), lambda x: tb.jit(power)(x, 3)):
        with pytest.raises(GradientTypeError, match="loop with scan, or with fori_loop between"):
            tb.grad(f)(2.0)
        with pytest.raises(ValueError, match=r"does not work for lax\.while_loop"):
            tb.vjp(f, 2.0)[1](1.0)

    assert float(tb.grad(lambda x: x * collatz(3))(2.0)) == 7.0


def test_promotion_of_the_start():
    """Python numbers take the dtype that the body returns."""
    result = while_loop(lambda x: x < 3, lambda x: x + tnp.float32(1), 0)

    assert result.dtype == np.float32
    assert float(result) == 3.0


@pytest.mark.parametrize(
    ("cond", "message"),
    [
        (lambda x: x, r"returned f32\[\], expected a scalar bool"),
        (lambda x: x[None] < 3, r"returned bool\[1\], expected a scalar bool"),
        (lambda x: (x < 3,), r"returned a tree PyTreeDef\(\(\*,\)\), expected a scalar bool"),
        (3, "cond_fun is 3 of type int, expected a function"),
    ],
)
def test_wrong_conditions(cond, message):
    """A condition is a function to a scalar bool."""
    with pytest.raises(ArgumentSpecError, match=message):
        while_loop(cond, lambda x: x + 1, 0.0)


def test_wrong_bodies():
    """A body keeps the type of its value."""
    with pytest.raises(TreeMismatchError, match="while_loop: the carry changes its structure"):
        while_loop(lambda x: x < 3, lambda x: (x, x), 0.0)
    with pytest.raises(ShapeMismatchError, match="while_loop: the carry changes its type"):
        while_loop(lambda x: x.sum() < 3, lambda x: x[None], tnp.zeros(2))


def test_python_loop_if_jit_is_disabled():
    """With disable_jit the functions see numbers."""
    seen = []
    with disable_jit():
        result = while_loop(lambda n: n < 10, lambda n: seen.append(int(n)) or n * 2, 1)
        total = fori_loop(0, 3, lambda i, s: s + float(i), 0.0)

    assert (result, seen, total) == (16, [1, 2, 4, 8], 3.0)


@pytest.mark.parametrize("loop", ["while", "fori", "scan"])
def test_python_loop_leaves_numpy_arrays_alone(loop):
    """With disable_jit a body that adds in place changes no array of the caller."""

    def body(carry):
        x, y = carry
        x += 1.0
        return x, y + x

    def run(value):
        start = value, value
        if loop == "while":
            return while_loop(lambda c: c[0] < 4.0, body, start)
        if loop == "fori":
            return fori_loop(0, 4, lambda _, c: body(c), start)
        return tb.lax.scan(lambda c, _: (body(c), None), start, None, length=4)[0]

    value = np.array(0.0, np.float32)
    expected = run(value)
    with disable_jit():
        result = run(value)

    assert value == 0.0
    assert [float(r) for r in result] == [float(r) for r in expected] == [4.0, 10.0]


def test_batched_loop_if_jit_is_disabled():
    """A condition that has no single answer makes it a loop of the batch after all."""
    with disable_jit():
        result = tb.vmap(lambda x: while_loop(lambda x: x < 10, lambda x: x + 1, x))(
            np.arange(3) * 6
        )

    assert result.tolist() == [10, 10, 12]


def carries(a, b, n):
    """``a`` alone, ``b`` fed by ``a``, a counter that decides."""

    def body(c):
        i, a, b = c
        return i + 1, a * 2.0, b + a

    return list(while_loop(lambda c: c[0] < n, body, (0, a, b)))


def test_parts():
    """dce drops carries, partial evaluation runs known ones ahead."""
    args = [tnp.asarray(np.float32(v)) for v in (1.0, 10.0)] + [tnp.asarray(np.int32(3))]
    jaxpr = stage(carries, [a.aval for a in args])
    run = lambda j, *xs: [float(v) for v in eval_jaxpr(j, current_trace().process, xs)]
    smaller, used = dce_jaxpr(jaxpr, (False, True, False))
    parts = partial_eval_jaxpr(jaxpr, (False, True, False))
    known = eval_jaxpr(parts.known, current_trace().process, [args[0], args[2]])

    assert run(jaxpr, *args) == [3.0, 8.0, 17.0]
    assert used == (True, False, True)
    assert run(smaller, args[0], args[2]) == [8.0]
    assert parts.unknown_out == (False, False, True)
    assert [float(k) for k in known[:2]] == [3.0, 8.0]
    assert run(parts.unknown, *known[2:], args[1]) == [17.0]
    # If the condition depends on something unknown, everything does.
    assert partial_eval_jaxpr(jaxpr, (False, False, True)).unknown_out == (True, True, True)


# fori_loop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lower", "upper"), [(0, 4), (2, 7), (-2, 2), (3, 3), (5, 1)])
@pytest.mark.parametrize("unroll", [None, 1, 3, True])
def test_fori_is_range(lower, upper, unroll):
    """The body sees the integers of ``range``, with known and with traced bounds."""
    body = lambda i, c: (c[0] * 3 + i, c[1] + 1)
    expected = (1, 0)
    for i in range(lower, upper):
        expected = body(i, expected)

    known = fori_loop(lower, upper, body, (1, 0), unroll=unroll)
    traced = tb.jit(lambda a, b: fori_loop(a, b, body, (1, 0)))(lower, upper)

    assert expected == tuple([int(v) for v in known])
    assert expected == tuple([int(v) for v in traced])


def test_fori_gradients():
    """Between known integers both modes work, else forward mode."""
    f = lambda x, n: fori_loop(0, n, lambda i, y: y * x + i, 1.0)

    assert float(tb.grad(f)(2.0, 3)) == float(tb.jvp(lambda x: f(x, 3), (2.0,), (1.0,))[1])
    assert float(tb.jvp(lambda x: tb.jit(f)(x, 3), (2.0,), (1.0,))[1]) == float(tb.grad(f)(2.0, 3))
    with pytest.raises(GradientTypeError, match="a fori_loop whose number of steps is computed"):
        tb.grad(lambda x: tb.jit(f)(x, 3))(2.0)


def test_loops_in_rules_that_carry_tangents():
    """A loop over a known counter and a tangent is linear as a whole; its reverse is an error."""

    @tb.custom_jvp
    def f(x):
        return 8.0 * x

    def rule(primals, tangents):
        double = lambda c: (c[0] + 1, 2.0 * c[1])
        return f(*primals), while_loop(lambda c: c[0] < 3, double, (0, *tangents))[1]

    f.defjvp(rule)
    push = lambda x: tb.linearize(f, x)[1](1.0)

    assert [8.0] * 4 == [float(g(1.0)) for g in (push, tb.jit(push), tb.jacfwd(f), tb.jit(f))]
    for g in (f, tb.jit(f)):
        with pytest.raises(GradientTypeError, match=r"does not work for lax\.while_loop"):
            tb.grad(g)(1.0)


def test_fori_index_dtype():
    """Between known bounds the index is a Python integer, else it has the dtype of the bounds."""
    seen = []
    body = lambda i, x: seen.append((i.dtype.name, i.aval.weak_type)) or x
    fori_loop(0, 2, body, 0.0)
    fori_loop(np.int8(0), np.int8(2), body, 0.0)
    fori_loop(0.0, 2.0, body, 0.0)
    run = tb.jit(lambda n: fori_loop(n - n, n, body, 0.0))
    run(tnp.asarray(np.uint32(2)))
    run(2.0 * tnp.ones(()))

    assert seen == [("int32", True), ("uint32", False), ("float32", False)]


def test_fori_float_bounds():
    """Floats of integral value count as integers; others are counted up by one."""
    count = lambda a, b: int(fori_loop(a, b, lambda i, c: c + 1, 0))

    assert [count(1.0, 4.0), count(0.5, 3.6), count(0.5, 3.5)] == [3, 4, 3]
    assert int(tb.jit(lambda a, b: fori_loop(a, b, lambda i, c: c + 1, 0))(0.5, 3.6)) == 4
    with pytest.raises(DtypeMismatchError, match=r"lower is f32\[\] and upper is i32\[\]"):
        count(0.0, 3)


def test_fori_bounds_that_are_differentiated():
    """Their values are known outside of jit, so that reverse mode works."""
    f = lambda x: fori_loop(x, x + 2.0, lambda i, c: c * x, x)

    assert float(tb.grad(f)(2.0)) == 12.0
    assert float(tb.linearize(f, 2.0)[1](1.0)) == 12.0
    assert float(tb.jvp(tb.jit(f), (2.0,), (1.0,))[1]) == 12.0


def test_fori_traces_once():
    """Repeated calls with one body trace it once."""
    traced = []
    body = lambda i, x: traced.append(1) or x + i
    for _ in range(3):
        fori_loop(0, 5, body, tnp.asarray(0))

    assert len(traced) == 1


def test_fori_wrong_arguments():
    """Bounds are integers of one dtype; unrolling needs known ones."""
    body = lambda i, x: x
    with pytest.raises(DtypeMismatchError, match=r"lower is bool\[\], expected an integer scalar"):
        fori_loop(False, 3, body, 0.0)
    with pytest.raises(DtypeMismatchError, match=r"lower is i8\[\] and upper is i16\[\]"):
        fori_loop(np.int8(0), np.int16(3), body, 0.0)
    with pytest.raises(ArgumentSpecError, match="unroll=2 needs known bounds"):
        tb.jit(lambda n: fori_loop(0, n, body, 0.0, unroll=2))(3)
    assert float(tb.jit(lambda n: fori_loop(0, n, body, 0.0, unroll=1))(3)) == 0.0
    with pytest.raises(ArgumentSpecError, match="body_fun is 3 of type int"):
        fori_loop(0, 3, 3, 0.0)
    with pytest.raises(ShapeMismatchError, match="fori_loop: the carry changes its type"):
        fori_loop(0, 3, lambda i, x: x[None], tnp.zeros(2))


def test_unchanged_numbers_become_arrays():
    """A number that no step changes comes back as an array, as every result does."""
    results = [
        fori_loop(0, 3, lambda i, c: c, 2.0),
        while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, 2.0))[1],
        tb.lax.scan(lambda c, x: (c, x), 2.0, tnp.ones(2))[0],
    ]
    function, hoisted = tb.closure_convert(lambda x: x, 2.0)
    results.append(function(2.0, *hoisted))

    assert [type(tnp.ones(()))] * 4 == [type(r) for r in results]
    assert [2.0] * 4 == [float(r) for r in results]
