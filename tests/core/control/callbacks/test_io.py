"""io_callback: once each time it is due, in order where asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, lax
from tracebridge.experimental import io_callback


class Log(list[Any]):
    """What callbacks saw, in order."""

    def note(self, *values: Any, ordered: bool = True) -> None:
        """Append numbers when the program runs."""

        def append(*given: Any) -> None:
            self.append(tuple([np.asarray(v).item() for v in given]))

        io_callback(append, None, *values, ordered=ordered)

    def taken(self) -> list[Any]:
        """The entries, which are forgotten."""
        tb.effects_barrier()
        found = list(self)
        self.clear()
        return found


WRAPPERS = {"eager": lambda f: f, "jit": tb.jit, "nested jit": lambda f: tb.jit(tb.jit(f))}


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_runs_once_per_call(log: Log, wrap: Any, ordered: bool) -> None:
    """Each call of the program is one call of the function, also where nothing is returned."""
    f = wrap(lambda x: log.note(x, ordered=ordered))
    f(1)
    f(2)
    assert log.taken() == [(1,), (2,)]


def test_gives_results(log: Log) -> None:
    """What the function returns is an array of the declared type."""
    counter = iter(range(10))

    @tb.jit
    def draw() -> Any:
        return io_callback(lambda: np.int32(next(counter)), tb.ShapeDtypeStruct((), "int32"))

    assert [int(draw()), int(draw())] == [0, 1]
    assert log.taken() == []


def test_order_in_scan_of_100_steps(log: Log) -> None:
    """Ordered calls in a loop come step by step, two in each step in their order."""

    def body(c: Any, x: Any) -> Any:
        log.note(0, c)
        log.note(1, x)
        return c + 1, None

    tb.jit(lambda xs: lax.scan(body, 0, xs)[0])(np.arange(100))

    assert log.taken() == [(kind, k) for k in range(100) for kind in (0, 1)]


@pytest.mark.parametrize("unroll", [1, 3, 7])
def test_order_in_unrolled_scan(log: Log, unroll: int) -> None:
    """Steps that stand in one round keep their order, backwards too."""

    def body(c: Any, x: Any) -> Any:
        log.note(x)
        return c, x

    xs = np.arange(7)
    tb.jit(lambda xs: lax.scan(body, (), xs, unroll=unroll, reverse=True)[1])(xs)
    assert log.taken() == [(k,) for k in reversed(range(7))]


@pytest.mark.parametrize("chosen", [True, False])
def test_order_in_cond(log: Log, chosen: bool) -> None:
    """The calls of the chosen branch stand between those before and after."""

    @tb.jit
    def f(p: Any) -> Any:
        def yes() -> Any:
            log.note(1)
            log.note(2)
            return 1

        def no() -> Any:
            log.note(3)
            return 0

        log.note(0)
        out = lax.cond(p, yes, no)
        log.note(9)
        return out

    f(chosen)

    assert log.taken() == [(0,), *([(1,), (2,)] if chosen else [(3,)]), (9,)]


def test_order_with_an_effect_in_one_branch_only(log: Log) -> None:
    """The other branch passes the token on."""

    @tb.jit
    def f(i: Any) -> Any:
        lax.switch(i, [lambda: None, lambda: log.note(1), lambda: log.note(2)])
        log.note(9)

    for i in range(3):
        f(i)

    assert log.taken() == [(9,), (1,), (9,), (2,), (9,)]


def test_order_in_while(log: Log) -> None:
    """Ordered calls in the condition and in the body alternate."""

    def test(c: Any) -> Any:
        log.note(0, c)
        return c < 3

    def body(c: Any) -> Any:
        log.note(1, c)
        return c + 1

    assert int(tb.jit(lambda: lax.while_loop(test, body, 0))()) == 3
    assert log.taken() == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]


def test_order_in_condition_only(log: Log) -> None:
    """A loop whose condition has the only effect."""

    def test(c: Any) -> Any:
        log.note(c)
        return c < 2

    lax.while_loop(test, lambda c: c + 1, 0)
    assert log.taken() == [(0,), (1,), (2,)]


def test_order_in_nested_calls_and_loops(log: Log) -> None:
    """Functions that are emitted once and called twice thread the tokens of each call."""

    @tb.jit
    def inner(x: Any) -> Any:
        log.note(x)
        return x + 1

    @tb.jit
    def f(x: Any) -> Any:
        log.note(-1)
        x = inner(inner(x))
        x = lax.fori_loop(0, 2, lambda _, c: lax.cond(c > 0, inner, lambda c: c, c), x)
        log.note(-2)
        return inner(x)

    assert int(f(1)) == 6
    assert log.taken() == [(-1,), (1,), (2,), (3,), (4,), (-2,), (5,)]


def test_order_across_calls(log: Log) -> None:
    """Programs that are called one after the other have their effects one after the other."""
    f = tb.jit(lambda x: log.note(0, x))
    g = tb.jit(lambda x: log.note(1, x))
    for k in range(10):
        f(k)
        g(k)
        log.note(2, k)

    assert log.taken() == [(kind, k) for k in range(10) for kind in range(3)]


def test_order_survives_an_exception(log: Log) -> None:
    """After a call that raised, ordered programs run again."""

    def fail() -> None:
        raise ValueError

    with pytest.raises(errors.CallbackError):
        tb.jit(lambda: io_callback(fail, None, ordered=True))()
    tb.jit(lambda: log.note(1))()

    assert log.taken() == [(1,)]


def test_results_and_donation(log: Log) -> None:
    """Tokens do not disturb which result takes the memory of which argument."""

    def f(x: Any, y: Any) -> Any:
        log.note(x[0])
        return y + 1, x * 2

    step = tb.jit(f, donate_argnums=(0, 1))
    x, y = tnp.zeros(64), tnp.ones((8, 8))
    a, b = step(x, y)

    assert (a.shape, b.shape) == ((8, 8), (64,))
    assert x.is_deleted()
    assert y.is_deleted()
    assert log.taken() == [(0.0,)]


def test_many_arguments_and_results(log: Log) -> None:
    """Calls that are too wide for the unrolled path have their effects too."""

    @tb.jit
    def f(xs: Any) -> Any:
        log.note(xs[0])
        return [x + 1 for x in xs]

    out = f([np.float32(k) for k in range(200)])

    assert [float(o) for o in out] == [k + 1.0 for k in range(200)]
    assert log.taken() == [(0.0,)]


def test_hoisted_constants(log: Log) -> None:
    """Large constants of a program stand between the tokens and the arguments."""
    big = tnp.arange(5000.0)

    @tb.jit
    def f(x: Any) -> Any:
        log.note(x)
        return tnp.sum(big) * x

    assert float(f(2.0)) == 5000 * 4999
    assert log.taken() == [(2.0,)]


# transformations ---------------------------------------------------------------------------------


def test_vmap_of_unordered(log: Log) -> None:
    """Each element calls the function; results are stacked."""

    def host(x: Any) -> Any:
        log.append(float(x))
        return np.asarray(x) + 1

    def f(x: Any) -> Any:
        return io_callback(host, tb.ShapeDtypeStruct((), "float32"), x)

    out = tb.vmap(f)(np.arange(3, dtype=np.float32))

    assert out.tolist() == [1.0, 2.0, 3.0]
    assert sorted(log.taken()) == [0.0, 1.0, 2.0]


def test_vmap_of_ordered_is_refused(log: Log) -> None:
    """An ordered call on mapped values is an error; on others it happens once."""
    xs = np.arange(3)
    with pytest.raises(errors.EffectError, match="vmap met an ordered callback"):
        tb.vmap(log.note)(xs)
    tb.vmap(lambda x: (log.note(7), x)[1])(xs)
    assert log.taken() == [(7,)]


@pytest.mark.parametrize("ordered", [False, True])
def test_vmap_of_batched_choices_is_refused(log: Log, ordered: bool) -> None:
    """Branches that run although they were not chosen must not have side effects."""
    xs = np.arange(3)

    def branch(x: Any) -> Any:
        return lax.cond(x > 1, lambda: log.note(1, ordered=ordered), lambda: None)

    def loop(x: Any) -> Any:
        def body(c: Any) -> Any:
            log.note(1, ordered=ordered)
            return c + 1

        return lax.while_loop(lambda c: c < 2, body, x)

    for f in (branch, loop):
        with pytest.raises(errors.EffectError, match="predicate differs"):
            tb.vmap(f)(xs)
    assert log.taken() == []


def test_derivatives(log: Log) -> None:
    """A callback on what is differentiated is refused, on anything else it runs once."""
    with pytest.raises(errors.EffectError, match="custom_jvp or custom_vjp"):
        tb.grad(lambda x: (log.note(x), x)[1])(1.0)

    def f(x: Any) -> Any:
        log.note(tb.lax.stop_gradient(x))
        return x * x

    assert float(tb.grad(f)(3.0)) == 6.0
    assert float(tb.jit(tb.grad(tb.jit(f)))(3.0)) == 6.0
    assert log.taken() == [(3.0,), (3.0,)]


def test_derivative_of_loops_runs_the_effects_once(log: Log) -> None:
    """The primal loop has the effects, the backward one none."""

    def f(x: Any) -> Any:
        def body(c: Any, k: Any) -> Any:
            log.note(k)
            return c * x, None

        return lax.scan(body, 1.0, np.arange(3))[0]

    assert float(tb.grad(f)(2.0)) == 12.0
    assert log.taken() == [(0,), (1,), (2,)]


def test_linearize_of_while_runs_the_effects_once(log: Log) -> None:
    """The loop of the tangents repeats the primal loop without its effects."""

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            log.note(1)
            return c * 2

        return lax.while_loop(lambda c: c < 4, body, x)

    out, push = tb.linearize(f, 1.0)
    assert (float(out), float(push(1.0))) == (4.0, 4.0)
    assert log.taken() == [(1,), (1,)]
    assert [float(v) for v in tb.jvp(f, (1.0,), (1.0,))] == [4.0, 4.0]
    assert log.taken() == [(1,), (1,)]


def test_linearize_of_while_that_needs_its_callbacks_is_refused() -> None:
    """Running a loop twice must not repeat what the world answers."""

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            k = io_callback(lambda: np.float32(2), tb.ShapeDtypeStruct((), "float32"))
            return c * k

        return lax.while_loop(lambda c: c < 4, body, x)

    with pytest.raises(errors.EffectError, match="use jvp"):
        tb.linearize(f, 1.0)
    assert [float(v) for v in tb.jvp(f, (1.0,), (1.0,))] == [4.0, 4.0]


def test_in_custom_rules(log: Log) -> None:
    """Functions with rules, and the rules, may have effects."""

    @tb.custom_vjp
    def f(x: Any) -> Any:
        log.note(0)
        return x

    def forward(x: Any) -> Any:
        log.note(1)
        return x, None

    def backward(_: Any, ct: Any) -> Any:
        log.note(2)
        return (ct * 3,)

    f.defvjp(forward, backward)
    tb.jit(f)(1.0)
    assert log.taken() == [(0,)]
    for g in (tb.grad(f), tb.jit(tb.grad(f)), tb.grad(tb.jit(f))):
        assert float(g(1.0)) == 3.0
        assert log.taken() == [(1,), (2,)]
