"""cond and switch: each law against a plain Python choice."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.equations import equations_of, primitives_in
from tracebridge.core.config.option_scopes import disable_jit
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSpecError,
    TreeMismatchError,
)
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace

cond, switch = tb.lax.cond, tb.lax.switch
BRANCHES = [
    lambda x, y: (tnp.sin(x) * y, x),
    lambda x, y: (tnp.exp(x) * 2.0, x * 0.0 + 1.0),
    lambda x, y: (y * y * y, tnp.cos(x * y)),
]
INDICES = pytest.mark.parametrize("index", range(3))
X, Y = np.float32(0.7), np.float32(1.3)


def chosen(index, x, y):
    """The choice as one primitive, as a number."""
    a, b = switch(index, BRANCHES, x, y)
    return a + 3.0 * b


def plain(index, x, y):
    """The choice in Python."""
    a, b = BRANCHES[index](x, y)
    return a + 3.0 * b


def close(actual, expected):
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=2e-5, atol=1e-6
    )


@INDICES
def test_value_and_derivatives(index):
    """Values and both modes, first and second order, eager and compiled."""
    close(chosen(index, X, Y), plain(index, X, Y))
    close(tb.jit(chosen)(index, X, Y), plain(index, X, Y))
    both = tb.grad(plain, argnums=(1, 2))(index, X, Y)
    close(tb.grad(chosen, argnums=(1, 2))(index, X, Y), both)
    close(tb.jit(tb.grad(chosen, argnums=(1, 2)))(index, X, Y), both)
    close(tb.grad(tb.jit(chosen), argnums=(1, 2))(index, X, Y), both)
    push = lambda f: tb.jvp(lambda x, y: f(index, x, y), (X, Y), (Y, X))
    close(push(chosen), push(plain))
    close(push(tb.jit(chosen)), push(plain))
    twice = lambda f: tb.grad(lambda x: tb.grad(f, argnums=2)(index, x, Y))(X)
    close(twice(chosen), twice(plain))
    close(
        tb.jit(lambda x: tb.grad(lambda x: tb.grad(chosen, argnums=2)(index, x, Y))(x))(X),
        twice(plain),
    )
    over = lambda f: tb.jvp(lambda x: tb.grad(f, argnums=1)(index, x, Y), (X,), (1.0,))[1]
    close(over(chosen), over(plain))


def test_batched_index():
    """Each element has its own branch; gradients too."""
    xs = np.linspace(0.1, 1.0, 3).astype(np.float32)
    expected = [plain(i, x, Y) for i, x in enumerate(xs)]
    slopes = [tb.grad(plain, argnums=1)(i, x, Y) for i, x in enumerate(xs)]
    batched = tb.vmap(chosen, (0, 0, None))

    close(batched(np.arange(3), xs, Y), expected)
    close(tb.vmap(tb.grad(chosen, argnums=1), (0, 0, None))(np.arange(3), xs, Y), slopes)
    close(tb.grad(lambda xs: batched(np.arange(3), xs, Y).sum())(xs), slopes)


@pytest.mark.parametrize("n", [None, 3])
def test_branches_for_other_elements_give_no_nan(n):
    """A derivative that is infinite where an element takes another branch does not arrive."""
    shape = () if n is None else (n,)
    chosen = lambda x, w: cond(x < 0.1, lambda: w * 0.1, lambda: w * tnp.sqrt(x) + tnp.log(w * x))
    loss = lambda x, w: tb.vmap(chosen, (0, None))(x, w).sum()
    xs = tnp.asarray([0.0, 1.0])
    w = tnp.full(shape, 2.0)

    slopes = tb.grad(loss, argnums=(0, 1))(xs, w)
    close(slopes[0], [0.0, 2.0 * w.size])
    close(slopes[1], np.full(shape, 0.1 + 1.0 + 0.5))
    compiled = tb.jit(tb.grad(loss, argnums=(0, 1)))(xs, w)
    close(compiled[0], slopes[0])
    close(compiled[1], slopes[1])
    close(tb.jacfwd(loss)(xs, w), slopes[0])


def test_large_closed_over_arrays_are_not_copied_for_each_element():
    """What no element has for itself stays one array, whatever the branch does with it."""
    table = tnp.ones((100, 100))
    chosen = lambda i, x: cond(x < 0.1, lambda: table[i].sum(), lambda: x)
    jaxpr = tb.make_jaxpr(tb.vmap(chosen))(np.arange(5), np.ones(5, np.float32)).jaxpr

    assert all([a.size < 5 * table.size for app, _ in jaxpr.equations for a in app.avals])


@INDICES
def test_batched_operands(index):
    """With a common index one branch runs for the whole batch."""
    xs = np.linspace(0.1, 1.0, 3).astype(np.float32)
    batched = tb.vmap(chosen, (None, 0, None))
    slopes = [tb.grad(plain, argnums=1)(index, x, Y) for x in xs]

    close(batched(index, xs, Y), [plain(index, x, Y) for x in xs])
    close(tb.grad(lambda xs: batched(index, xs, Y).sum())(xs), slopes)
    close(tb.vmap(tb.grad(chosen, argnums=1), (None, 0, None))(index, xs, Y), slopes)
    primitives = primitives_in(tb.make_jaxpr(batched)(index, xs, Y))
    assert "cond" in primitives
    assert "select_n" not in primitives


def test_index_is_clamped():
    """Below 0 the first branch, above the last one that one, for any integer dtype."""
    tens = [lambda x, k=k: x * 0 + 10 * k for k in range(3)]
    run = tb.jit(lambda i: switch(i, tens, 1))

    assert [int(run(i)) for i in (-5, 0, 1, 2, 9)] == [0, 0, 10, 20, 20]
    for dtype in (np.uint8, np.int8, np.uint32):
        assert [int(run(dtype(i))) for i in (0, 2, 100)] == [0, 20, 20]


def test_predicates():
    """Bools and numbers decide; anything but a scalar is refused."""
    pick = lambda p: float(cond(p, lambda: 1.0, lambda: 2.0))

    assert [pick(p) for p in (True, False, 5, 0, -0.5)] == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert pick(np.bool_(True)) == 1.0
    with pytest.raises(ArgumentSpecError, match=r"pred is bool\[1\], expected a scalar"):
        pick(tnp.asarray([True]))
    with pytest.raises(ArgumentSpecError, match=r"pred is c64\[\], expected a bool or a real"):
        pick(1j)
    with pytest.raises(ArgumentSpecError, match="pred is None of type NoneType, expected a scalar"):
        pick(None)


def test_forms_of_the_call():
    """One operand by name, none at all, or one for each function."""
    assert float(cond(True, lambda x: 1.0, lambda x: 2.0, operand=None)) == 1.0
    assert float(cond(False, 3.0, lambda x: x, 4.0, lambda x: 2 * x)) == 8.0
    assert float(switch(0, [lambda x: x], 7.0)) == 7.0
    with pytest.raises(ArgumentSpecError, match="by position and one by name"):
        cond(True, lambda x: x, lambda x: x, 1.0, operand=2.0)
    with pytest.raises(ArgumentSpecError, match="false_fun is 2 of type int, expected a function"):
        cond(True, lambda x: x, 2, 1.0)
    with pytest.raises(ArgumentSpecError, match="got no branches"):
        switch(0, [])
    with pytest.raises(ArgumentSpecError, match=r"index is f32\[\], expected an integer scalar"):
        switch(1.0, BRANCHES, X, Y)


def test_closed_over_values():
    """Branches close over different traced values."""

    def f(p, a, b):
        return cond(p, lambda x: x * a, lambda x: x + b * a, 2.0)

    assert [float(tb.jit(f)(p, 3.0, 4.0)) for p in (True, False)] == [6.0, 14.0]
    slopes = [tb.jit(tb.grad(f, argnums=(1, 2)))(p, 3.0, 4.0) for p in (True, False)]
    assert [(float(a), float(b)) for a, b in slopes] == [(2.0, 0.0), (4.0, 3.0)]
    assert tb.vmap(f, (0, None, None))(np.array([True, False]), 3.0, 4.0).tolist() == [6.0, 14.0]


def test_branches_that_ignore_operands():
    """Cotangents of operands that only other branches use are zeros."""
    f = lambda i, x, y: switch(i, [lambda x, y: x, lambda x, y: y, lambda x, y: 5.0], x, y)
    slopes = [tb.grad(f, argnums=(1, 2))(i, 2.0, 3.0) for i in range(3)]

    assert [(float(a), float(b)) for a, b in slopes] == [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]


def test_residuals_share_places():
    """Residuals of one type share memory among the branches; operands are not copied."""
    jaxpr = tb.make_jaxpr(tb.value_and_grad(lambda x, y: chosen(0, x, y), argnums=(0, 1)))(X, Y)
    forward = equations_of(jaxpr, "cond")[0]

    # sin needs sin and cos; exp its result; the third one y*y*y, and sine of the product.
    assert len(forward.outs) - 2 <= 4


def test_weakly_typed_results():
    """A Python number in one branch takes the dtype of the other branch."""
    result = cond(True, lambda x: 1, lambda x: x, np.float32(3.0))

    assert (result.dtype, float(result)) == (np.float32, 1.0)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_the_first_branch_says_what_is_weak(wrap):
    """``false_fun`` and branch 0: a branch for errors changes no type of what follows."""
    weak, strong = tnp.array(1.0), tnp.float32(2.0)

    def chosen(p):
        kept = cond(p, lambda: strong, lambda: weak)
        return kept, cond(p, lambda: weak, lambda: strong), kept * tnp.ones(2, "bfloat16")

    for p in (True, False):
        assert [True, False, False] == [x.weak_type for x in wrap(chosen)(p)]
        assert "bfloat16" == wrap(chosen)(p)[2].dtype
    for k in range(3):
        outs = wrap(lambda k: switch(k, [lambda: (weak, strong), *[lambda: (strong, weak)] * 2]))(k)
        assert [True, False] == [x.weak_type for x in outs]
    grads = tb.grad(lambda x: cond(x > 0, lambda: strong * x, lambda: x))(1.0)
    assert (2.0, True) == (float(grads), grads.weak_type)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_numbers_beside_arrays_of_another_shape(wrap):
    """A weakly typed result takes the dtype of the others, never another shape."""
    mixed = [lambda: 1, lambda: 2.0, lambda: tnp.ones(2)]
    for i, j in ((1, 2), (2, 1)):
        with pytest.raises(ShapeMismatchError, match="different shapes"):
            wrap(lambda p, i=i, j=j: cond(p, mixed[i], mixed[j]))(True)
    with pytest.raises(ShapeMismatchError, match="different shapes"):
        wrap(lambda k: switch(k, mixed))(0)


def test_results_of_different_types():
    """The message shows what each branch returns."""
    with pytest.raises(DtypeMismatchError) as caught:
        cond(True, lambda x: x, lambda x: x.astype("int32"), np.float32(3.0))
    assert str(caught.value).splitlines()[:3] == [
        "cond: the branches return different dtypes",
        "    false_fun <lambda> returns i32[]",
        "    true_fun <lambda>  returns f32[]",
    ]
    with pytest.raises(ShapeMismatchError, match=r"branches\[1\] <lambda> returns f32\[1\]"):
        switch(0, [lambda x: x, lambda x: x[None]], X)
    with pytest.raises(TreeMismatchError, match=r"branches\[1\] <lambda> is a tuple of 1"):
        switch(0, [lambda x: x, lambda x: (x,)], X)


def test_only_one_branch_runs_if_jit_is_disabled():
    """With disable_jit a known predicate is Python's."""
    ran = []
    with disable_jit():
        cond(False, lambda: ran.append(1), lambda: ran.append(2))
        switch(5, [lambda: ran.append(3), lambda: ran.append(4)])

    assert ran == [2, 4]


def two_results(p, x, y):
    return list(cond(p, lambda: (tnp.sin(x), x * y), lambda: (tnp.cos(x), y * 2.0)))


def test_parts():
    """dce drops results and operands; partial evaluation runs known results ahead."""
    args = [tnp.asarray(v) for v in (np.bool_(False), X, Y)]
    jaxpr = stage(two_results, [a.aval for a in args])
    run = lambda j, *xs: [float(v) for v in eval_jaxpr(j, current_trace().process, xs)]
    smaller, used = dce_jaxpr(jaxpr, (True, False))
    parts = partial_eval_jaxpr(jaxpr, (False, False, True))
    known = eval_jaxpr(parts.known, current_trace().process, args[:2])

    close(run(jaxpr, *args), [np.cos(X), 2 * Y])
    assert used == (True, True, False)
    close(run(smaller, *args[:2]), [np.cos(X)])
    assert parts.unknown_out == (False, True)
    close(float(known[0]), np.cos(X))
    close(run(parts.unknown, *known[1:], args[2]), [2 * Y])
    assert partial_eval_jaxpr(jaxpr, (True, False, False)).unknown_out == (True, True)


def test_joint_choice_in_a_rule():
    """A choice that computes primals and tangents together still splits for reverse mode."""
    f = lambda x: cond(x > 0, lambda x: tnp.sin(x), lambda x: x * x, x)
    g = tb.custom_jvp(f)
    g.defjvp(lambda primals, tangents: tb.jvp(tb.jit(f), primals, tangents))

    for x in (0.3, -0.3):
        close(tb.grad(g)(x), tb.grad(f)(x))
        close(tb.jit(tb.grad(g))(x), tb.grad(f)(x))


def test_in_loops():
    """A choice in each step of a loop."""

    def f(x, pick):
        body = lambda c, i: (pick(i > 1, tnp.sin, lambda c: c * c, c), None)
        return tb.lax.scan(body, x, np.arange(4))[0]

    select = lambda p, f, g, c: tnp.where(p, f(c), g(c))

    close(f(1.3, cond), f(1.3, select))
    close(tb.grad(f)(1.3, cond), tb.grad(f)(1.3, select))
    xs = np.linspace(0.5, 1.5, 4).astype(np.float32)
    close(tb.vmap(tb.grad(lambda x: f(x, cond)))(xs), tb.vmap(tb.grad(lambda x: f(x, select)))(xs))


def test_operands_that_all_branches_hand_on_stay_unbatched():
    """A result that is one operand in every branch is that operand, whatever the predicate."""

    def f(p, shared, x):
        return tb.lax.cond(p, lambda s, x: (s, x + 1, s, x), lambda s, x: (s, x, x, x), shared, x)

    p, x = tnp.array([True, False, True]), tnp.arange(3.0)
    given, chosen, mixed, same = tb.vmap(f, (0, None, 0), (None, 0, 0, 0))(p, 5.0, x)

    assert 5.0 == given
    assert [1.0, 1.0, 3.0] == chosen.tolist()
    assert [5.0, 1.0, 5.0] == mixed.tolist()
    assert [0.0, 1.0, 2.0] == same.tolist()
    for wrong in (1, 2, 3):
        out_axes = [None if i == wrong else 0 for i in range(4)]
        with pytest.raises(AxisSpecError, match="out_axes is None"):
            tb.vmap(f, (0, None, 0), tuple(out_axes))(p, 5.0, x)
    gradients = tb.vmap(tb.grad(lambda s, p, x: sum(f(p, s, x))), (None, 0, 0))(5.0, p, x)
    assert [2.0, 1.0, 2.0] == gradients.tolist()


def test_choices_of_tangents_go_back_under_vmap():
    """A rule whose tangent depends on a condition: reverse mode of a batch of them."""

    @tb.custom_jvp
    def f(x):
        return tnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return f(x), cond(x > 0, lambda d: d * 2.0, lambda d: d / (x + 1.0), dx)

    x = tnp.asarray([-1.0, 2.0, -0.5])
    expected = [np.inf, 2.0, 2.0]
    total = lambda x: tb.vmap(f)(x).sum()
    for g in (tb.vmap(tb.grad(f)), tb.grad(total), tb.jit(tb.grad(total)), tb.grad(tb.jit(total))):
        np.testing.assert_array_equal(expected, g(x))


def test_gradients_stop_in_values_not_in_tangents():
    """Stopping the gradient of a tangent leaves a linear function, whose transpose is as it is."""

    @tb.custom_jvp
    def f(x):
        return 3.0 * x

    f.defjvp(lambda primals, tangents: (f(*primals), tb.lax.stop_gradient(tangents[0]) * 3.0))

    assert 3.0 == tb.jvp(f, (1.0,), (1.0,))[1] == tb.grad(f)(1.0) == tb.jit(tb.grad(f))(1.0)


@pytest.mark.parametrize(
    "run",
    [
        lambda f: tb.lax.cond(True, f, lambda x, y: x, 1.0, 2.0),
        lambda f: tb.lax.scan(f, 1.0, tnp.ones(2)),
        lambda f: tb.lax.while_loop(lambda c: True, lambda weight: f(weight, None), 1.0),
    ],
)
def test_errors_call_arguments_by_their_names(run):
    """In branches and bodies of loops as in other functions."""
    with pytest.raises(tb.errors.TracerBoolConversionError, match="argument weight of"):
        run(lambda weight, _: weight if weight > 0 else -weight)


def test_results_of_different_structures() -> None:
    """The message has the words by which it is looked for."""
    words = "branch outputs must have the same pytree structure"
    with pytest.raises(TreeMismatchError, match=f"cond {words}"):
        cond(True, lambda: (1, 2), lambda: 1)
    with pytest.raises(TreeMismatchError, match=f"switch {words}"):
        switch(0, [lambda: (1, 2), lambda: 1])
