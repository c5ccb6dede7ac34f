"""Primitives made of functions: each rule does its part, alone and composed."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.errors import (
    ArgumentTypeError,
    ClosedOverValueError,
    CustomRuleError,
    MissingRuleError,
)
from tracebridge.extend.core import Primitive
from tracebridge.interpreters import ad, batching, mlir, xla


def lower_multiply_add(ctx, x, y, z):
    ir = mlir.ir
    (aval,) = ctx.avals_out
    kind = mlir.aval_to_ir_type(aval)
    product = ir.Operation.create("stablehlo.multiply", results=[kind], operands=[x, y]).result
    return [ir.Operation.create("stablehlo.add", results=[kind], operands=[product, z]).result]


def make_multiply_add():
    """The well-known example x * y + z with all rules, each written out."""
    p = Primitive("multiply_add")
    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))

    @p.def_abstract_eval
    def abstract_eval(x, y, z):
        assert x.shape == y.shape == z.shape
        return tb.core.ShapedArray(x.shape, x.dtype)

    mlir.register_lowering(p, lower_multiply_add)

    def jvp(primals, tangents):
        x, y, z = primals
        dx, dy, dz = [lax.full_like(x, 0) if type(t) is ad.Zero else t for t in tangents]
        return p.bind(x, y, z), p.bind(dx, y, p.bind(x, dy, dz))

    def transpose(ct, x, y, z):
        if ad.is_undefined_primal(x):
            return p.bind(ct, y, lax.full_like(y, 0)), None, ct
        assert ad.is_undefined_primal(y)
        return None, p.bind(x, ct, lax.full_like(x, 0)), ct

    ad.primitive_jvps[p] = jvp
    ad.primitive_transposes[p] = transpose
    batching.defbroadcasting(p)
    return p


multiply_add_p = make_multiply_add()


def square_add(a, b):
    return multiply_add_p.bind(a, a, b)


X, Y = np.float32([1.0, 2.0, 3.0]), np.float32([4.0, 5.0, 6.0])


def both(f):
    """A function, and the same compiled."""
    return [f, tb.jit(f)]


@pytest.mark.parametrize("jitted", [False, True])
def test_evaluates(jitted):
    """bind gives the value that the definition says."""
    f = tb.jit(square_add) if jitted else square_add
    assert 14.0 == f(2.0, 10.0)
    np.testing.assert_array_equal(X * X + Y, f(X, Y))


@pytest.mark.parametrize("jitted", [False, True])
def test_differentiates_forward(jitted):
    """jvp uses the registered rule."""
    f = functools.partial(tb.jvp, square_add)
    f = tb.jit(f) if jitted else f
    assert (14.0, 5.0) == tuple(map(float, f((2.0, 10.0), (1.0, 1.0))))


@pytest.mark.parametrize("jitted", [False, True])
def test_differentiates_backward(jitted):
    """grad linearizes by the jvp rule and goes back by the transpose rule."""
    f = tb.grad(square_add, argnums=(0, 1))
    f = tb.jit(f) if jitted else f
    assert (4.0, 1.0) == tuple(map(float, f(2.0, 10.0)))
    assert 2.0 == tb.hessian(square_add)(2.0, 10.0)


@pytest.mark.parametrize("transform", [tb.vmap, lambda f: tb.jit(tb.vmap(f))])
def test_batches(transform):
    """vmap uses the registered rule, also for derivatives."""
    np.testing.assert_array_equal(X * X + Y, transform(square_add)(X, Y))
    np.testing.assert_array_equal(2 * X, transform(tb.grad(square_add))(X, Y))


def test_in_loops_and_branches():
    """The primitive may stand in scan, cond, while_loop and checkpoint, differentiated or not."""

    def loop(c0):
        return lax.scan(lambda c, x: (square_add(c, x), c), c0, Y)[0]

    def unrolled(c):
        for y in Y:
            c = c * c + y
        return c

    np.testing.assert_allclose(unrolled(0.5), loop(0.5), rtol=1e-6)
    np.testing.assert_allclose(tb.grad(unrolled)(0.5), tb.grad(loop)(0.5), rtol=1e-6)
    np.testing.assert_allclose(tb.grad(unrolled)(0.5), tb.grad(tb.checkpoint(loop))(0.5), rtol=1e-6)
    assert 6.0 == lax.cond(True, square_add, lambda a, b: a, 2.0, 2.0)
    assert 5.0 == lax.while_loop(lambda c: c < 4, lambda c: square_add(c, 1.0), 1.0)


def test_types_without_values():
    """make_jaxpr shows one equation, eval_shape asks the abstract rule only."""
    closed = tb.make_jaxpr(square_add)(X, Y)
    assert [multiply_add_p] == [e.primitive for e in closed.eqns]
    assert tb.ShapeDtypeStruct((3,), "float32") == tb.eval_shape(square_add, X, Y)


def test_several_results():
    """With multiple_results every rule gives lists."""
    p = Primitive("sine_and_cosine")
    p.multiple_results = True
    p.def_impl(functools.partial(xla.apply_primitive, p))
    p.def_abstract_eval(lambda x, *, scale: [x, x])
    mlir.register_lowering(
        p, mlir.lower_fun(lambda x, *, scale: [lax.sin(x) * scale, lax.cos(x) * scale])
    )

    def jvp(primals, tangents, *, scale):
        (x,), (t,) = primals, tangents
        sine, cosine = p.bind(x, scale=scale)
        return [sine, cosine], [cosine * t, -sine * t]

    ad.primitive_jvps[p] = jvp
    batching.defvectorized(p)

    def f(x):
        return p.bind(x, scale=2.0)

    for run in both(f):
        np.testing.assert_allclose([2 * np.sin(X), 2 * np.cos(X)], run(X), rtol=1e-6)
    for run in both(tb.vmap(tb.grad(lambda x: f(x)[1]))):
        np.testing.assert_allclose(-2 * np.sin(X), run(X), rtol=1e-6)


def test_transpose_of_several_results_sees_zeros():
    """Cotangents that are zero arrive as Zero, and Zero results count as zeros."""
    p = Primitive("pair")
    p.multiple_results = True
    p.def_impl(lambda x, y: [x, y])
    p.def_abstract_eval(lambda x, y: [x, y])
    seen = []

    def transpose(cts, x, y):
        seen.append([type(ct) is ad.Zero for ct in cts])
        return list(cts)

    ad.deflinear2(p, transpose)
    assert (3.0, 0.0) == tb.grad(lambda x, y: 3 * p.bind(x, y)[0], argnums=(0, 1))(1.0, 2.0)
    assert [[False, True]] == seen


def test_usual_ways_to_make_rules():
    """defjvp sums the terms of arguments; None and deflinear2 are taken as they say."""
    p = Primitive("product_of_powers")
    p.def_impl(lambda x, y, *, n: x**n * y)
    p.def_abstract_eval(lambda x, y, *, n: x)
    ad.defjvp(p, lambda t, x, y, *, n: n * x ** (n - 1) * y * t, None)
    assert (12.0, 0.0) == tb.grad(lambda x, y: p.bind(x, y, n=2), argnums=(0, 1))(2.0, 3.0)


def test_tables_hold_the_engines_rules_too():
    """Rules of built-in primitives can be read and called with the same conventions."""
    assert lax.sin_p in ad.primitive_jvps
    assert lax.sin_p in batching.primitive_batchers
    assert lax.sin_p not in ad.primitive_transposes
    out, tangent = ad.primitive_jvps[lax.sin_p]((0.0,), (2.0,))
    assert (0.0, 2.0) == (out, tangent)
    out, tangent = ad.primitive_jvps[lax.sin_p]((0.0,), (ad.Zero(tb.typeof(0.0)),))
    assert type(tangent) is ad.Zero
    out, dim = batching.primitive_batchers[lax.neg_p]((X,), (0,))
    np.testing.assert_array_equal(-X, out)
    assert 0 == dim
    with pytest.raises(KeyError):
        ad.primitive_jvps[Primitive("without_rules")]


def test_engine_rules_can_be_replaced_and_restored():
    """A rule that is set for a built-in primitive is used until it is deleted."""
    assert 1.0 == tb.jit(tb.grad(lax.sin))(0.0)
    ad.primitive_jvps[lax.sin_p] = lambda p, t, **params: (lax.sin_p.bind(*p, **params), t[0] * 7.0)
    try:
        assert 7.0 == tb.jit(tb.grad(lax.sin))(0.0)
    finally:
        del ad.primitive_jvps[lax.sin_p]
    assert 1.0 == tb.jit(tb.grad(lax.sin))(0.0)


def test_rules_of_primitives_that_stage_themselves_can_be_replaced():
    """Scan stages its linear and backward rules itself; a rule of the user comes first."""

    def total(xs):
        return lax.scan(lambda c, x: (c + x * x, None), 0.0, xs)[0]

    own = lax.scan_p.jvp
    seen = []

    def jvp(primals, tangents, **params):
        seen.append("jvp")
        return own(primals, [ad.instantiate_zeros(t) for t in tangents], **params)

    def transpose(ct, *args, **params):
        seen.append("transpose")
        raise ZeroDivisionError

    xs = np.arange(3.0, dtype=np.float32)
    ad.primitive_jvps[lax.scan_p] = jvp
    ad.primitive_transposes[lax.scan_p] = transpose
    try:
        with pytest.raises(ZeroDivisionError):
            tb.grad(total)(xs)
    finally:
        del ad.primitive_jvps[lax.scan_p]
        del ad.primitive_transposes[lax.scan_p]
    assert ["jvp", "transpose"] == seen
    np.testing.assert_allclose(2 * xs, tb.grad(total)(xs), rtol=1e-6)
    assert ["jvp", "transpose"] == seen


def test_rule_that_changes_is_used_from_then_on():
    """Programs made with an older rule are forgotten."""
    p = Primitive("changing")
    p.def_abstract_eval(lambda x: x)
    f = tb.jit(p.bind)
    for factor in (2.0, 3.0):
        mlir.register_lowering(p, mlir.lower_fun(lambda x, k=factor: x * k, multiple_results=False))
        assert factor == p.bind(1.0)
        assert factor == f(1.0)
        ad.defjvp(p, lambda t, x, k=factor: t * k)
        assert factor == tb.jit(tb.grad(p.bind))(1.0)


@pytest.mark.parametrize(
    ("use", "rule"),
    [
        (lambda p: p.bind(1.0), "evaluation"),
        (lambda p: tb.jit(p.bind)(1.0), "lowering"),
        (lambda p: tb.jvp(p.bind, (1.0,), (1.0,)), "jvp"),
        (lambda p: tb.vmap(p.bind)(X), "batch"),
    ],
)
def test_missing_rules_are_named(use, rule):
    """What a primitive does not define is a NotImplementedError that says how to define it."""
    p = Primitive("bare")
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match=f"(?i){rule}") as caught:
        use(p)
    assert "bare" in str(caught.value)
    assert isinstance(caught.value, MissingRuleError)


def test_missing_transpose_rule():
    """A primitive that occurs in a derivative needs a transpose rule for grad, not for jvp."""
    p = Primitive("bare")
    p.def_impl(lambda x: 2 * x)
    p.def_abstract_eval(lambda x: x)
    ad.defjvp(p, lambda t, x: p.bind(t))
    assert (2.0, 2.0) == tb.jvp(p.bind, (1.0,), (1.0,))
    with pytest.raises(NotImplementedError, match="Transpose rule for 'bare' not impl"):
        tb.grad(p.bind)(1.0)


def test_missing_abstract_evaluation():
    """Evaluation at once needs no abstract rule; tracing does."""
    p = Primitive("untyped")
    p.def_impl(lambda x: x + 1)
    assert 2.0 == p.bind(1.0)
    with pytest.raises(
        MissingRuleError, match="Abstract evaluation rule for 'untyped' not implemented"
    ):
        tb.make_jaxpr(p.bind)(1.0)


def test_wrong_results_of_rules_are_refused():
    """A rule that gives something of the wrong form is named."""
    p = Primitive("wrong")
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: 3)
    with pytest.raises(CustomRuleError, match="expected one aval"):
        tb.make_jaxpr(p.bind)(1.0)
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, lambda ctx, x: [x, x])
    with pytest.raises(CustomRuleError, match="gave 2 values"):
        tb.jit(p.bind)(1.0)
    ad.primitive_jvps[p] = lambda primals, tangents: primals[0]
    with pytest.raises(CustomRuleError, match="jvp rule of wrong"):
        tb.jvp(p.bind, (1.0,), (1.0,))
    batching.primitive_batchers[p] = lambda args, dims: args[0]
    with pytest.raises(CustomRuleError, match="batching rule of wrong"):
        tb.vmap(p.bind)(X)
    with pytest.raises(ArgumentTypeError, match="expected a Primitive"):
        ad.primitive_jvps["wrong"] = lambda primals, tangents: None
    with pytest.raises(MissingRuleError, match="unknown platform 'moon'"):
        mlir.register_lowering(p, lambda ctx, x: [x], platform="moon")


def test_methods_of_a_subclass_are_rules():
    """Evaluation, and types with effects, may be methods; functions given later come first."""

    class Tag(Primitive):
        """Gives some of its arguments back."""

        multiple_results = True

        def impl(self, *args, keep):
            return args[:keep]

        def abstract_eval(self, *avals, keep):
            return avals[:keep], tb.extend.core.no_effects

    p = Tag("tag")
    mlir.register_lowering(p, lambda ctx, *args, keep: args[:keep])
    ad.primitive_jvps[p] = lambda primals, tangents, *, keep: (
        p.bind(*primals, keep=keep),
        tangents[:keep],
    )

    def f(x, y):
        return p.bind(x, y, keep=1)[0] * y

    assert (1.0, 2.0) == p.bind(1.0, 2.0, keep=2)
    for around in (lambda f: f, tb.jit):
        assert 6.0 == around(f)(2.0, 3.0)
        assert 3.0 == around(tb.grad(f))(2.0, 3.0)
    p.def_abstract_eval(lambda *avals, keep: [tb.core.ShapedArray((5,), "float32")] * keep)
    assert (5,) == tb.eval_shape(lambda x: p.bind(x, keep=1)[0], 1.0).shape


def test_is_one_object():
    """Copies are the primitive itself; pickling says why not; builtins are instances."""
    assert multiply_add_p is copy.deepcopy(multiply_add_p)
    with pytest.raises(TypeError, match="multiply_add cannot be pickled"):
        pickle.dumps(multiply_add_p)
    assert isinstance(lax.sin_p, Primitive)
    assert not isinstance(1, Primitive)


def test_axis_rules_get_the_axis():
    """Rules of the two other tables see size and name of the mapped axis."""
    p = Primitive("elements")
    p.def_abstract_eval(lambda x: x)
    batching.fancy_primitive_batchers[p] = lambda axis, args, dims: (
        args[0] + axis.size + len(axis.name),
        dims[0],
    )
    np.testing.assert_array_equal(X + 5, tb.vmap(p.bind, axis_name="ab")(X))
    batching.axis_primitive_batchers[p] = lambda size, name, _, args, dims: (
        args[0] * size,
        dims[0],
    )
    np.testing.assert_array_equal(3 * X, tb.vmap(p.bind)(X))


def test_reducer():
    """defreducer shifts the axes of the reduction past the batch axis."""
    p = Primitive("sum_over")
    p.def_impl(lambda x, *, axes: tnp.sum(x, axes))
    p.def_abstract_eval(lambda x, *, axes: tb.eval_shape(lambda y: tnp.sum(y, axes), x))
    batching.defreducer(p)
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    got = tb.vmap(lambda row: p.bind(row, axes=(0,)), in_axes=1)(x)
    np.testing.assert_array_equal(x.sum(0), got)


def test_evaluation_must_agree_with_types():
    """Under a transformation the results of the evaluation are checked."""
    p = Primitive("disagreeing")
    p.def_abstract_eval(lambda x: x)
    ad.deflinear2(p, lambda ct, x: [ct])
    p.def_impl(lambda x: np.zeros(7, np.float32))
    with pytest.raises(CustomRuleError, match=r"do not agree\s.*f32\[7\]\s.*f32\[\]"):
        tb.jvp(p.bind, (1.0,), (1.0,))
    p.multiple_results = True
    p.def_abstract_eval(lambda x: [x, x])
    for impl in (lambda x: x, lambda x: [x]):
        p.def_impl(impl)
        with pytest.raises(CustomRuleError, match="expected"):
            tb.jvp(p.bind, (1.0,), (1.0,))


def test_integers_have_no_tangents():
    """The tangent of an integer argument is a Zero, whose array has the dtype float0."""
    p = Primitive("entry")
    p.def_impl(lambda x, i: x[i])
    p.def_abstract_eval(lambda x, i: tb.core.ShapedArray(x.shape[1:], x.dtype))
    seen = []

    def jvp(primals, tangents):
        seen.append(ad.instantiate_zeros(tangents[1]).dtype)
        return p.bind(*primals), p.bind(tangents[0], primals[1])

    ad.primitive_jvps[p] = jvp
    ad.primitive_transposes[p] = lambda ct, x, i: [
        tnp.zeros(x.aval.shape, x.aval.dtype).at[i].add(ct),
        None,
    ]
    np.testing.assert_array_equal([0, 1, 0], tb.grad(lambda x: p.bind(x, 1))(X))
    assert [tb.float0] == seen


def test_rules_that_close_over_traced_values():
    """A rule is a function of its arguments; the message says what to do instead."""

    def f(x):
        p = Primitive("closing")
        p.def_impl(lambda y: y)
        p.def_abstract_eval(lambda y: y)
        ad.defjvp(p, lambda t, y: t * x)
        return p.bind(2 * x)

    with pytest.raises(ClosedOverValueError, match="rule of the primitive closing closes over"):
        tb.grad(f)(3.0)


@pytest.mark.parametrize("several", [False, True])
def test_abstract_rule_of_the_wrong_form(several: bool) -> None:
    """One aval, or a list of them where the primitive has several results."""
    p = Primitive("formless")
    p.multiple_results = several
    p.def_abstract_eval(lambda x: x if several else [x])

    with pytest.raises(ValueError, match=r"formless\.abstract_eval\(\) gave .*expected"):
        tb.make_jaxpr(p.bind)(1.0)
