"""Traces and tracers that users write, and questions about active traces."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.errors import ConcretizationTypeError
from tracebridge.extend import core

X = np.float32([0.5, 1.0, 1.5])


class CountedTracer(tb.core.Tracer):
    """A value with the number of operations that made it."""

    def __init__(self, trace, value, count):
        super().__init__(trace, tb.typeof(value))
        self.value = value
        self.count = count


class CountingTrace(tb.core.Trace):
    """Evaluates on the trace below and counts."""

    def __init__(self, parent):
        super().__init__()
        self.parent = parent

    def process_primitive(self, primitive, tracers, params):
        mine = [isinstance(t, CountedTracer) and t._trace is self for t in tracers]
        values = [t.value if m else t for t, m in zip(tracers, mine, strict=True)]
        count = 1 + sum(t.count for t, m in zip(tracers, mine, strict=True) if m)
        out = primitive.bind_with_trace(self.parent, tuple(values), params)
        if primitive.multiple_results:
            return [CountedTracer(self, o, count) for o in out]
        return CountedTracer(self, out, count)


def counted(fun):
    """``fun`` with the number of operations that its result needs."""

    def run(x):
        with core.take_current_trace() as parent:
            trace = CountingTrace(parent)
            with core.set_current_trace(trace):
                out = fun(CountedTracer(trace, x, 0))
        return out.value, out.count

    return run


def test_own_trace():
    """A trace of a user sees each operation, alone and below transformations."""

    def f(x):
        return lax.sin(x) * lax.cos(x)

    value, count = counted(f)(X)
    np.testing.assert_allclose(np.sin(X) * np.cos(X), value, rtol=1e-6)
    assert 3 == count
    np.testing.assert_allclose(
        np.sin(X) * np.cos(X), tb.jit(lambda x: counted(f)(x)[0])(X), rtol=1e-6
    )
    np.testing.assert_allclose(
        np.cos(2.0), tb.grad(lambda x: counted(f)(x)[0])(np.float32(1.0)), rtol=1e-5
    )
    assert (3,) == tb.vmap(lambda x: counted(f)(x)[0])(X).shape


def test_own_trace_sees_calls():
    """Calls of compiled functions arrive as one operation with a closed program."""
    assert 1 == counted(lambda x: tb.jit(lambda y: tnp.sin(y) + 1)(x))(X)[1]


def test_states_of_traces():
    """The opaque state is equal inside the same traces, and the engine's classes are known."""
    states = [core.get_opaque_trace_state()]

    def f(x):
        states.append(core.get_opaque_trace_state())
        assert core.unsafe_am_i_under_a_jit_DO_NOT_USE()
        assert isinstance(x, tb.core.Tracer)
        assert isinstance(core.find_top_trace(x), tb.core.Trace)
        return x

    tb.jit(f)(1.0)
    states.append(core.get_opaque_trace_state())
    assert [True, False, True] == [s == states[0] for s in states]
    assert not core.unsafe_am_i_under_a_jit_DO_NOT_USE()


def test_axes_and_batches():
    """Named axes in scope and batches are known."""

    def f(x):
        assert core.unsafe_am_i_under_a_vmap_DO_NOT_USE()
        assert ["i"] == core.unsafe_get_axis_names_DO_NOT_USE()
        assert core.nonempty_axis_env_DO_NOT_USE()
        return x

    tb.vmap(f, axis_name="i")(X)
    assert not core.nonempty_axis_env_DO_NOT_USE()


def test_evaluation_while_tracing():
    """eval_context computes numbers inside a traced function."""

    @tb.jit
    def f(x):
        with tb.core.eval_context():
            n = int(tnp.sum(tnp.ones(3)))
        return x * n

    assert 6.0 == f(2.0)


def test_concrete_or_error():
    """Known values pass, traced ones are refused with the purpose."""
    assert 3 == core.concrete_or_error(int, 3.0)
    assert core.concrete_or_error(None, X) is X
    with pytest.raises(ConcretizationTypeError, match="the number of layers"):
        tb.jit(lambda n: core.concrete_or_error(int, n, "the number of layers"))(3)


def test_differentiated_values_may_be_known():
    """They are concrete as long as nothing else traces them."""

    def f(x):
        assert tb.core.is_concrete(x)
        return x * core.concrete_or_error(int, x) + core.concrete_or_error(None, x)

    assert 2.0 == tb.grad(f)(2.0)
    assert (6.0, 2.0) == tb.jvp(f, (2.0,), (1.0,))
    for transform in (tb.jit, tb.vmap):
        with pytest.raises(ConcretizationTypeError):
            transform(tb.grad(lambda x: x * core.concrete_or_error(int, x)))(tnp.ones(2))
    assert not tb.jit(lambda x: tb.core.is_concrete(x))(1.0)


def test_tracers_of_one_transformation_know_each_other():
    """By what their trace calls main; the trace below is the parent."""
    seen = []

    def f(x):
        trace = core.find_top_trace([x])
        seen.append((trace.main, trace.parent_trace.main, x._trace.main))
        return x

    tb.vmap(tb.grad(f))(tnp.ones(2))
    ((inner, outer, own),) = seen
    assert inner is own
    assert outer is not inner
    assert type(outer).__name__.endswith("BatchTrace")


class Seen(tb.core.Tracer):
    """A value that a ``Seeing`` trace follows."""

    def __init__(self, trace, value):
        super().__init__(trace, tb.typeof(value))
        self.value = value


class Seeing(tb.core.Trace):
    """Notes which operations there are; does its own work with operations as well."""

    def __init__(self, parent, notes):
        super().__init__()
        self.parent, self.notes = parent, notes

    def lowered(self, tracers):
        return [t.value if isinstance(t, Seen) and t._trace is self else t for t in tracers]

    def process_primitive(self, primitive, tracers, params):
        assert 2.0 == tnp.add(1.0, 1.0)
        self.notes.append(primitive.name)
        out = primitive.bind(*self.lowered(tracers), **params)
        return tuple(Seen(self, o) for o in out) if primitive.multiple_results else Seen(self, out)


class SeeingCalls(Seeing):
    """And which functions have rules of their own."""

    def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
        values = self.lowered(tracers)
        self.notes.append(
            (primitive.name, fun.debug_info.func_name, *jvp.call_wrapped(*values, *values))
        )
        return [Seen(self, o) for o in fun.call_wrapped(*values)]

    def process_custom_vjp_call(self, primitive, fun, fwd, bwd, tracers, out_trees, symbolic_zeros):
        values = self.lowered(tracers)
        rest = fwd.call_wrapped(*[x for value in values for x in (value, True)])
        self.notes.append((primitive.name, *rest, *bwd.call_wrapped(*rest)))
        return [Seen(self, o) for o in fun.call_wrapped(*values)]


def seen_by(trace_class, fun, notes):
    """``fun`` under a trace of one's own."""

    def run(*args):
        with core.take_current_trace() as parent:
            trace = trace_class(parent, notes)
            with core.set_current_trace(trace):
                out = fun(*[Seen(trace, a) for a in args])
            return out.value if isinstance(out, Seen) else out

    return run


@tb.custom_jvp
def threefold(x):
    return 3 * x


threefold.defjvp(lambda primals, tangents: (threefold(*primals), 7 * tangents[0]))


@tb.custom_vjp
def fivefold(x):
    return 5 * x


fivefold.defvjp(lambda x: (fivefold(x), x + 1), lambda kept, ct: (kept * ct,))

PROGRAMS = {
    "operations": lambda x: lax.sin(x) * 2 + 1,
    "jit": lambda x: tb.jit(lambda y: y * 2)(x),
    "scan": lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, length=2)[0],
    "cond": lambda x: lax.cond(x > 0, lax.sin, lax.cos, x),
    "grad": lambda x: tb.grad(lambda y: lax.sin(y) * x)(x),
    "vmap": lambda x: tb.vmap(lambda y: y * x)(tnp.arange(2.0)).sum(),
    "rules": lambda x: threefold(x) + fivefold(x),
}


@pytest.mark.parametrize("fun", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("trace", [Seeing, SeeingCalls])
@pytest.mark.parametrize("around", [lambda f: f, tb.jit, tb.vmap], ids=["", "jit", "vmap"])
def test_operations_in_a_rule_are_evaluated(fun, trace, around):
    """They do not come back to the trace; values of outer transformations stay theirs."""
    notes = []
    x = tnp.array([0.5, 2.0]) if around is tb.vmap else 0.5

    got = around(seen_by(trace, fun, notes))(x)

    np.testing.assert_allclose(around(fun)(x), got, rtol=1e-6)
    assert notes


def test_functions_with_rules_under_an_own_trace():
    """The methods for them get the function and its rules."""
    notes = []
    assert 10.0 == seen_by(SeeingCalls, threefold, notes)(2.0) + seen_by(
        SeeingCalls, lambda x: fivefold(x) - 6, notes
    )(2.0)
    assert ("custom_jvp_call", "threefold", 6.0, 14.0) == notes[0]
    assert ("custom_vjp_call", 3.0, 10.0, 30.0) == notes[1]
    assert ["sub"] == notes[2:]
    notes.clear()
    assert 6.0 == seen_by(Seeing, threefold, notes)(2.0)
    assert ["custom_jvp_call"] == notes


def test_derivatives_through_an_own_trace():
    """An outer transformation sees the operations that the trace hands on."""
    for fun in (PROGRAMS["operations"], PROGRAMS["rules"]):
        got = tb.grad(seen_by(Seeing, fun, []))(0.5)
        np.testing.assert_allclose(tb.grad(fun)(0.5), got, rtol=1e-6)


def test_options_are_not_part_of_the_opaque_state():
    """Scopes of options, meshes and names do not count, in and out of a trace."""
    everywhere = [
        lambda: tb.named_scope("part"),
        lambda: tb.default_matmul_precision("highest"),
        lambda: tb.default_device(tb.devices()[0]),
    ]
    outside = [
        lambda: tb.set_mesh(tb.make_mesh((1,), ("x",))),
        tb.enable_x64,
        tb.disable_jit,
        lambda: tb.debug_nans(True),
    ]

    def check(x, scopes=everywhere):
        state = core.get_opaque_trace_state()
        for scope in scopes:
            with scope():
                assert state == core.get_opaque_trace_state()
        return x

    check(1.0, everywhere + outside)
    tb.vmap(check)(tb.numpy.ones(2))
    tb.jit(check)(1.0)


def test_numbers_of_programs_reach_own_traces_as_arrays():
    """What a program holds as a literal is an array with its dtype; a trace may give it back."""

    class Second(Seeing):
        def process_primitive(self, primitive, tracers, params):
            return Seen(self, self.lowered(tracers)[1])

    got = seen_by(Second, lambda x: x + 1, [])(2.0)

    assert isinstance(got, tb.Array)
    assert (got.dtype, float(got)) == (np.float32, 1.0)


def test_full_raise_gives_the_value_itself():
    """Values of any trace are taken as they are."""
    assert X is Seeing(None, []).full_raise(X)


def test_called_programs_are_the_same_objects():
    """Libraries remember what they made of a program as long as it lives, by its id."""
    shown = []

    class Watching(CountingTrace):
        def process_primitive(self, primitive, tracers, params):
            programs = [p for p in params.values() if isinstance(p, core.ClosedJaxpr)]
            shown.extend(map(weakref.ref, programs))
            return super().process_primitive(primitive, tracers, params)

    f = tb.jit(lambda x: lax.sin(x) + 1.0)
    for _ in range(2):
        with core.take_current_trace() as parent:
            trace = Watching(parent)
            with core.set_current_trace(trace):
                f(CountedTracer(trace, X, 0))

    assert 2 == len(shown)
    assert shown[0]() is shown[1]() is not None
