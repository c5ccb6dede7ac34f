"""Programs with primitives made of functions: platforms, parameters, effects, what they keep."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.ir.traverse import primitive_names
from tracebridge.extend.core import Primitive, primitives
from tracebridge.interpreters import mlir


def test_rules_of_platforms():
    """A rule for the platform of the program is preferred; gpu means cuda and rocm."""
    p = Primitive("placed")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x, multiple_results=False))
    here = tb.default_backend()
    mlir.register_lowering(
        p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False), platform=here
    )
    mlir.register_lowering(
        p, mlir.lower_fun(lambda x: 3 * x, multiple_results=False), platform="gpu"
    )
    assert 2.0 == tb.jit(p.bind)(1.0)
    assert {None, here, "cuda", "rocm"} == set(p.lowerings)


def test_parameters_need_not_be_keys():
    """Lists, arrays, functions and programs are parameters as well."""
    p = Primitive("parametrized")
    p.def_abstract_eval(lambda x, **params: x)

    def run(x, *, steps, table, f, program):
        x = f(x) + table.sum() + sum(steps)
        return tb.core.eval_jaxpr(program.jaxpr, program.consts, x)[0]

    mlir.register_lowering(p, mlir.lower_fun(run, multiple_results=False))
    program = tb.make_jaxpr(lambda x: 10 * x)(1.0)

    def f(x):
        return p.bind(x, steps=[1, 2], table=np.ones(3), f=lambda v: v + 1, program=program)

    assert 80.0 == f(1.0)
    assert 80.0 == tb.jit(f)(1.0)


def test_numbers_that_python_calls_equal_are_different_parameters():
    """1, 1.0 and True make different programs."""
    p = Primitive("typed_parameter")
    p.def_abstract_eval(lambda x, *, k: x)
    mlir.register_lowering(
        p, mlir.lower_fun(lambda x, *, k: x + len(type(k).__name__), multiple_results=False)
    )
    assert [3.0, 5.0, 4.0] == [float(p.bind(0.0, k=k)) for k in (1, 1.0, True)]


def test_effects_keep_an_equation():
    """An equation with effects stays, though nothing uses its result."""

    class Noted(tb.extend.core.Effect):
        pass

    p = Primitive("noted")
    p.def_effectful_abstract_eval(lambda x: (x, {Noted()}))

    def f(x):
        p.bind(x)
        return x

    closed = tb.make_jaxpr(f)(1.0)
    assert {"noted"} == primitive_names(closed.jaxpr)
    assert {Noted()} == closed.effects


def test_callback_from_a_lowering_rule():
    """emit_python_callback calls a host function of arrays."""
    p = Primitive("on_host")
    p.def_abstract_eval(lambda x: x)

    def rule(ctx, x):
        values, _, _ = mlir.emit_python_callback(
            ctx, lambda a: (np.sort(a),), None, [x], ctx.avals_in, ctx.avals_out
        )
        return values

    mlir.register_lowering(p, rule)
    np.testing.assert_array_equal([1, 2, 3], tb.jit(p.bind)(np.float32([3, 1, 2])))


def test_objects_live_as_long_as_the_program():
    """A rule can keep what its program needs; the program of another rule is not taken for it."""

    class Thing:
        """Something that can be watched."""

    p = Primitive("keeping")
    p.def_abstract_eval(lambda x, *, number: x)
    seen = []

    def rule(ctx, x, *, number):
        thing = Thing()
        seen.append(weakref.ref(thing))
        ctx.module_context.add_keepalive(thing)
        assert thing is ctx.module_context.keepalives[-1]
        assert "main" in ctx.module_context.symbol_table
        return [x]

    mlir.register_lowering(p, rule)
    first, second = [tb.jit(lambda x, n=n: p.bind(x, number=n)) for n in (1, 2)]
    assert 3.0 == first(3.0) == second(3.0)
    gc.collect()
    assert [True, True] == [ref() is not None for ref in seen]
    del first, second
    tb.clear_caches()
    gc.collect()
    assert [None, None] == [ref() for ref in seen]


def test_names_may_occur_twice():
    """A primitive named as one of the engine's leaves that one alone."""
    p = Primitive("sin")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: 0 * x + 9, multiple_results=False))
    assert (9.0, 0.0) == tb.jit(lambda x: (p.bind(x), lax.sin(x)))(0.0)


CALLS = {"plain": lambda f: f, "jit": tb.jit, "grad": tb.grad, "vmap": tb.vmap}


@pytest.mark.parametrize("how", CALLS)
def test_primitives_take_the_parameters_of_other_interpreters(how):
    """Interpreters of programs of the same API say that a stride or a split is not given."""

    def f(x):
        part = primitives.slice_p.bind(x, start_indices=(1,), limit_indices=(3,), strides=None)
        return primitives.reduce_sum_p.bind(part * part, axes=(0,), out_sharding=None)

    x = np.arange(4.0, dtype=np.float32)
    expected = {"grad": [0, 2, 4, 0], "vmap": [5.0, 5.0]}.get(how, 5.0)
    given = np.stack([x, x]) if how == "vmap" else x

    np.testing.assert_allclose(CALLS[how](f)(given), expected)
