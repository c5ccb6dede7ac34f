"""Programs of variables: interpreters of users, programs that users build, and what checks them."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge import lax
from tracebridge.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    JaxprTypeError,
    ShapeMismatchError,
)
from tracebridge.extend import core
from tracebridge.interpreters import mlir
from tracebridge.interpreters import partial_eval as pe

X = np.float32([0.5, 1.0, 1.5])


def evaluate(jaxpr, consts, *args, visit=lambda eqn: None):
    """The interpreter that everybody writes first."""
    env = {}

    def read(var):
        return var.val if type(var) is core.Literal else env[var]

    env.update(zip(jaxpr.invars, args, strict=True))
    env.update(zip(jaxpr.constvars, consts, strict=True))
    for eqn in jaxpr.eqns:
        visit(eqn)
        params = eqn.primitive.get_bind_params(eqn.params)
        outs = eqn.primitive.bind(*map(read, eqn.invars), **params)
        outs = outs if eqn.primitive.multiple_results else [outs]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def with_everything(x):
    """A function with constants, literals, calls, loops, branches and unused results."""
    table = tnp.asarray([1.0, 2.0, 3.0])
    y = tb.jit(lambda a: (a * table, a + 1))(x)[0]
    y = lax.scan(lambda c, t: (c * 2 + t, c), y, table)[0]
    y = lax.cond(y.sum() > 0, tnp.sin, tnp.cos, y)
    y = lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, y)
    return y, x, 3.0, tb.checkpoint(tnp.exp)(x)


def test_interpreter_gives_what_the_function_gives():
    """Evaluation by equations equals the function, also compiled, mapped and differentiated."""
    closed = tb.make_jaxpr(with_everything)(X)
    run = functools.partial(evaluate, closed.jaxpr, closed.literals)
    for got, expected in zip(run(X), with_everything(X), strict=True):
        np.testing.assert_allclose(expected, got, rtol=1e-6)
    for got, expected in zip(tb.jit(run)(X), with_everything(X), strict=True):
        np.testing.assert_allclose(expected, got, rtol=1e-6)
    batch = np.stack([X, 2 * X])
    for got, expected in zip(tb.vmap(run)(batch), tb.vmap(with_everything)(batch), strict=True):
        np.testing.assert_allclose(expected, got, rtol=1e-6)
    exponential = tb.make_jaxpr(lambda x: tb.checkpoint(tnp.exp)(2 * x))(1.0)
    np.testing.assert_allclose(
        2 * np.exp(2.0), tb.grad(lambda x: evaluate(exponential.jaxpr, [], x)[0])(1.0), rtol=1e-6
    )


def test_equations_are_repeated_with_plain_numbers():
    """Inputs and literals that are Python numbers can be operands of every equation."""

    def f(x):
        tb.debug.callback(lambda x, y: None, x, 2.0)
        tb.debug.inspect_array_sharding(x, callback=lambda sharding: None)
        y = tb.pure_callback(lambda x, y: x + y, tb.ShapeDtypeStruct((), "float32"), x, 2.0)
        return lax.sin(y) + x

    closed = tb.make_jaxpr(f)(1.0)

    assert f(1.0) == evaluate(closed.jaxpr, closed.consts, 1.0)[0]
    assert f(1.0) == tb.jit(lambda x: evaluate(closed.jaxpr, closed.consts, x)[0])(1.0)


def test_parameters_may_be_none():
    """An accuracy that is not asked for can be given as None."""
    assert lax.sin(1.0) == lax.sin_p.bind(1.0, accuracy=None)
    assert "accuracy" not in tb.jit(lambda x: lax.exp_p.bind(x, accuracy=None)).lower(1.0).as_text()


def test_functions_with_rules_tell_their_program():
    """It is the parameter call_jaxpr, alone and batched."""
    f, g = tb.custom_jvp(lambda x: 2 * x), tb.custom_vjp(lambda x: 3 * x)
    f.defjvp(lambda primals, tangents: (f(*primals), 7 * tangents[0]))
    g.defvjp(lambda x: (g(x), None), lambda _, ct: (9 * ct,))
    for fun, factor in ((f, 2.0), (g, 3.0)):
        for around, x in ((fun, 1.0), (tb.vmap(fun), tnp.ones(1))):
            (equation,) = tb.make_jaxpr(around)(x).eqns
            assert isinstance(equation.params["call_jaxpr"], core.ClosedJaxpr)
            assert factor == core.jaxpr_as_fun(equation.params["call_jaxpr"])(x)[0]


def test_functions_with_rules_keep_them():
    """custom_jvp and custom_vjp equations are bound again with their rules."""

    @tb.custom_jvp
    def f(x):
        return x * x

    f.defjvp(lambda primals, tangents: (f(*primals), 7.0 * tangents[0]))

    @tb.custom_vjp
    def g(x):
        return x * x

    g.defvjp(lambda x: (g(x), None), lambda _, ct: (5.0 * ct,))
    closed = tb.make_jaxpr(lambda x: (f(x), g(x)))(1.0)
    run = functools.partial(evaluate, closed.jaxpr, closed.consts)
    assert (7.0, 5.0) == tuple(float(tb.grad(lambda x, i=i: run(x)[i])(3.0)) for i in range(2))


def test_programs_in_parameters_are_closed():
    """Inner programs have jaxpr and consts, so that an interpreter can go into them."""
    closed = tb.make_jaxpr(with_everything)(X)
    names = []

    def visit(eqn):
        names.append(eqn.primitive.name)
        for inner in eqn.params.values():
            for one in inner if isinstance(inner, tuple) else (inner,):
                if isinstance(one, core.ClosedJaxpr):
                    assert len(one.consts) == len(one.jaxpr.constvars)
                    for e in one.jaxpr.eqns:
                        visit(e)

    evaluate(closed.jaxpr, closed.consts, X, visit=visit)
    assert {"jit", "scan", "cond", "while", "sin", "cos", "exp"} <= set(names)


def test_inverse_of_a_function():
    """A table keyed by primitives, walked backwards, inverts a chain of unary functions."""
    inverses = {lax.exp_p: tnp.log, lax.tanh_p: tnp.arctanh, lax.neg_p: tnp.negative}

    def inverse(fun):
        def inverted(y):
            jaxpr = tb.make_jaxpr(fun)(y).jaxpr
            env = dict(zip(jaxpr.outvars, [y], strict=True))
            for eqn in jaxpr.eqns[::-1]:
                env[eqn.invars[0]] = inverses[eqn.primitive](env[eqn.outvars[0]])
            return env[jaxpr.invars[0]]

        return inverted

    def f(x):
        return tnp.exp(-tnp.tanh(x))

    np.testing.assert_allclose(X, inverse(f)(f(X)), rtol=1e-5)
    np.testing.assert_allclose(1 / tb.grad(f)(1.0), tb.grad(inverse(f))(f(1.0)), rtol=1e-4)
    assert (3,) == tb.jit(tb.vmap(tb.grad(inverse(f))))(f(X)).shape


def test_parts_of_a_program():
    """Variables, literals, types, sources and effects stand where people expect them."""

    def f(x):
        y, unused = tb.jit(lambda a: (a + 1, a))(x)
        del unused
        return y * 2.0

    closed = tb.make_jaxpr(f)(X)
    jaxpr = closed.jaxpr
    call, product = jaxpr.eqns
    assert isinstance(jaxpr, core.Jaxpr)
    assert isinstance(call, core.JaxprEqn)
    assert ([jaxpr.invars[0]], call.outvars[0]) == (call.invars, product.invars[0])
    assert [core.Var, core.DropVar] == [type(v) for v in call.outvars]
    assert (2.0, "float32", True) == (
        product.invars[1].val,
        product.invars[1].aval.dtype,
        product.invars[1].aval.weak_type,
    )
    assert product.outvars == jaxpr.outvars == closed.outvars
    assert tb.core.ShapedArray((3,), "float32") is jaxpr.invars[0].aval
    assert [closed.in_avals, closed.out_avals] == [[v.aval for v in closed.invars]] * 2
    assert frozenset() == product.effects == closed.effects
    assert product.source_info.traceback is not None
    assert "f" == closed.debug_info.func_name
    assert ["jit", "mul"] == primitives_in(closed)
    assert str(closed) == closed.pretty_print() == str(jaxpr)


def test_strong_literals_keep_their_dtype():
    """The number of a literal that is not weakly typed is a scalar of its dtype."""
    closed = tb.make_jaxpr(lambda x: x * np.float32(2))(np.int32(3))
    values = [v.val for e in closed.eqns for v in e.invars if isinstance(v, core.Literal)]
    assert [np.float32] == [type(v) for v in values]


def test_built_programs_run():
    """A program put together from variables evaluates and transforms like a traced one."""
    new_var = core.gensym()
    aval = tb.core.ShapedArray((3,), "float32")
    c, x, y, z = [new_var(aval) for _ in range(4)]
    half = core.Literal(np.float32(0.5), tb.core.ShapedArray((), "float32"))
    eqns = [
        core.new_jaxpr_eqn([x, c], [y], lax.mul_p, {}, core.no_effects),
        core.new_jaxpr_eqn([y, half], [z], lax.mul_p, {}, core.no_effects),
    ]
    jaxpr = core.Jaxpr([c], [x], [z, half], eqns)
    assert [c] == jaxpr.constvars
    core.check_jaxpr(jaxpr)
    closed = core.ClosedJaxpr(jaxpr, [2 * X])
    assert [c] == closed.jaxpr.constvars
    np.testing.assert_array_equal(2 * X, closed.consts[0])
    run = core.jaxpr_as_fun(closed)
    np.testing.assert_array_equal(X * X, run(X)[0])
    assert 0.5 == run(X)[1]
    np.testing.assert_array_equal(X * X, tb.jit(run)(X)[0])
    np.testing.assert_array_equal(X, tb.grad(lambda v: run(v)[0].sum())(X))
    np.testing.assert_array_equal(
        X * 7 / 2, tb.core.eval_jaxpr(jaxpr, [np.full(3, 7, np.float32)], X)[0]
    )


def test_replaced_parts():
    """replace changes parts of a program or an equation, and keeps constants."""
    table = tnp.asarray(X)
    closed = tb.make_jaxpr(lambda x: tnp.sin(x) + table)(X)
    sine, total = closed.eqns
    cosine = sine.replace(primitive=lax.cos_p)
    changed = closed.map_jaxpr(lambda j: j.replace(eqns=[cosine, total]))
    np.testing.assert_allclose(np.cos(X) + X, core.jaxpr_as_fun(changed)(X)[0], rtol=1e-6)
    other = closed.replace(consts=[np.zeros(3, np.float32)])
    np.testing.assert_allclose(np.sin(X), core.jaxpr_as_fun(other, X)[0], rtol=1e-6)
    np.testing.assert_allclose(np.sin(X) + X, core.jaxpr_as_fun(closed, X)[0], rtol=1e-6)
    with pytest.raises(ArgumentTypeError, match="unknown fields"):
        sine.replace(name="cos")
    with pytest.raises(ArgumentTypeError, match="unknown fields"):
        closed.jaxpr.replace(steps=())


def test_changed_inner_programs_are_used():
    """An equation with another program among its parameters calls that one."""
    closed = tb.make_jaxpr(tb.jit(tnp.sin))(X)
    (call,) = closed.eqns
    inner = call.params["jaxpr"]
    swapped = inner.map_jaxpr(
        lambda j: j.replace(eqns=[e.replace(primitive=lax.cos_p) for e in j.eqns])
    )
    eqn = call.replace(params={**call.params, "jaxpr": swapped})
    changed = closed.map_jaxpr(lambda j: j.replace(eqns=[eqn]))
    np.testing.assert_allclose(np.cos(X), core.jaxpr_as_fun(changed)(X)[0], rtol=1e-6)


def test_programs_that_are_not_well_formed():
    """Undefined variables, wrong types and wrong counts are refused."""
    closed = tb.make_jaxpr(lambda x: tnp.sin(x) * 2)(X)
    jaxpr = closed.jaxpr
    stranger = core.gensym()(jaxpr.invars[0].aval)
    with pytest.raises(JaxprTypeError, match=r"equation 0 \(sin\).*not defined"):
        jaxpr.replace(eqns=[jaxpr.eqns[0].replace(invars=[stranger]), jaxpr.eqns[1]])
    with pytest.raises(JaxprTypeError, match=r"the results.*not defined"):
        jaxpr.replace(outvars=[stranger])
    scalar = core.gensym()(tb.core.ShapedArray((), "float32"))
    with pytest.raises(JaxprTypeError, match=r"gives \['f32\[3\]'\].*declared \['f32\[\]'\]"):
        jaxpr.replace(eqns=[jaxpr.eqns[0].replace(outvars=[scalar])], outvars=[scalar])
    with pytest.raises(ArgumentValueError, match="got 0 arguments, the program has 1 inputs"):
        tb.core.eval_jaxpr(jaxpr, [])
    with pytest.raises(ShapeMismatchError, match="got 1 constants, the program has 0"):
        tb.core.eval_jaxpr(jaxpr, [X], X)
    with pytest.raises(ArgumentTypeError, match="expected a Jaxpr"):
        core.jaxpr_as_fun(tnp.sin)


def test_names_of_functions_and_arguments():
    """They are read from one program and given to another."""
    closed = tb.make_jaxpr(with_everything)(X)
    info = closed.jaxpr.debug_info
    assert isinstance(info, core.DebugInfo)
    assert ("with_everything", ("x",)) == (info.func_name, info.arg_names)
    named = core.DebugInfo(info.traced_for, info.func_src_info, info.arg_names, lambda: ("a", "b"))
    assert ("with_everything", ("x",), ("a", "b")) == (
        named.func_name,
        named.arg_names,
        named.result_paths,
    )
    assert info.func_src_info == named.func_src_info
    assert "checkify" == core.DebugInfo("checkify", "f", None, None).traced_for
    assert closed.jaxpr.replace(debug_info=named).debug_info is named


def test_eval_jaxpr_at_other_shapes():
    """Operations that do not depend on shapes may be evaluated at others."""
    closed = tb.make_jaxpr(lambda x: tnp.sin(x) * 2)(1.0)
    got = tb.core.eval_jaxpr(closed.jaxpr, closed.consts, X)[0]
    np.testing.assert_allclose(2 * np.sin(X), got, rtol=1e-6)


def test_dce_jaxpr():
    """Equations and inputs that wanted results do not need go, others are kept on request."""
    closed = tb.make_jaxpr(lambda x, y: (2 * x, tnp.sin(y)))(X, X)
    smaller, used = pe.dce_jaxpr(closed.jaxpr, [False, True])
    assert ([False, True], ["sin"]) == (used, primitives_in(smaller))
    kept, used = pe.dce_jaxpr(closed.jaxpr, [False, True], instantiate=True)
    assert ([True, True], 2) == (used, len(kept.invars))
    np.testing.assert_allclose(np.sin(X), tb.core.eval_jaxpr(kept, [], 0 * X, X)[0], rtol=1e-6)
    with pytest.raises(ValueError, match="used_outputs has 1 entries, expected 2"):
        pe.dce_jaxpr(closed.jaxpr, [True])


def test_dce_jaxpr_consts():
    """Which constants and which inputs are left; the rest of the constants fit the program."""
    first, second = tnp.arange(3.0), tnp.arange(3.0) + 1
    closed = tb.make_jaxpr(lambda x, y: (x * first, y + second, x * second + 1.0))(X, X)
    for wanted, needed, inputs in (
        ([True, False, False], [first], [True, False]),
        ([False, True, True], [second], [True, True]),
        ([False, False, False], [], [False, False]),
    ):
        consts = [any(c is n for n in needed) for c in closed.consts]
        smaller, used_consts, used_in = pe.dce_jaxpr_consts(closed.jaxpr, wanted)
        assert (consts, inputs) == (used_consts, used_in)
        left = [c for c, used in zip(closed.consts, used_consts, strict=True) if used]
        assert len(left) == len(smaller.constvars)
        got = tb.core.eval_jaxpr(smaller, left, *[X for used in used_in if used])
        every = (X * first, X + second, X * second + 1)
        for g, e in zip(got, [e for e, w in zip(every, wanted, strict=True) if w], strict=True):
            np.testing.assert_allclose(e, g)


def test_unused_marks_stay():
    """Equations of own primitives are kept for interpreters, those of the engine are not."""
    mark = core.Primitive("mark")
    mark.def_impl(lambda x: x)
    mark.def_abstract_eval(lambda x: x)

    def f(x):
        mark.bind(tnp.sin(x))
        tnp.cos(x)
        return 2 * x

    def loops(x):
        return lax.scan(lambda c, _: (f(c), None), tb.jit(f)(x), None, length=2)[0]

    closed = tb.make_jaxpr(f)(1.0)
    assert ["sin", "mark", "mul"] == primitives_in(closed)
    inner = [j for e in tb.make_jaxpr(loops)(1.0).eqns for j in core.jaxprs_in_params(e.params)]
    assert [3, 3] == [len(j.eqns) for j in inner]
    smaller, _ = pe.dce_jaxpr(closed.jaxpr, [True])
    assert ["mul"] == primitives_in(smaller)
    mlir.register_lowering(mark, lambda ctx, x: [x])
    assert 2.0 == f(1.0) == tb.jit(f)(1.0)


def test_names_of_core():
    """The names that other code knows are in tracebridge.core, each loaded on demand."""
    names = [
        "AbstractValue",
        "Atom",
        "ParamDict",
        "ShapedArray",
        "Trace",
        "Tracer",
        "Value",
        "ensure_compile_time_eval",
        "eval_context",
        "eval_jaxpr",
        "CallPrimitive",
        "DebugInfo",
        "Effect",
        "Effects",
        "find_top_trace",
        "get_opaque_trace_state",
        "is_concrete",
        "is_constant_dim",
        "is_constant_shape",
        "no_effects",
        "nonempty_axis_env_DO_NOT_USE",
        "primal_dtype_to_tangent_dtype",
        "pytype_aval_mappings",
        "unsafe_am_i_under_a_jit_DO_NOT_USE",
        "unsafe_am_i_under_a_vmap_DO_NOT_USE",
        "unsafe_get_axis_names_DO_NOT_USE",
        "valid_jaxtype",
        "max_dim",
        "min_dim",
    ]
    assert not [n for n in names if not hasattr(tb.core, n)]
    assert set(names) <= set(dir(tb.core))
    assert isinstance(tb.core.lax, types.ModuleType)
    assert isinstance(tb.typeof(1.0), tb.core.AbstractValue)
    assert isinstance(closed_over_type(), type)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tb.core.nothing  # noqa: B018 - the access is the test


def closed_over_type():
    """The class of a traced value, as isinstance sees it."""
    seen = []
    tb.jit(lambda x: seen.append(isinstance(x, tb.core.Tracer)) or x)(1.0)
    assert [True] == seen
    return tb.core.Tracer


def test_unmapped_aval_of_versions_that_name_the_axis():
    """Libraries ask the version and give the name of the axis before the axis."""
    aval = tb.core.ShapedArray((2,), "float32")

    assert tb.core.ShapedArray((2, 3), "float32") == core.unmapped_aval(3, "name", 1, aval)
    assert aval == core.unmapped_aval(3, "name", None, aval)
