"""Forward-mode derivatives by references, and derivatives of functions that only read them."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.ref_errors import RefError


def add(ref, x):
    """Writes a differentiated value: the last content is r + x, the result (r + x) x."""
    ref[...] += x
    return ref[...] * x


def read(ref, x):
    """Only reads."""
    return ref[...] * x


def scanned(ref, x):
    """The same as ``add``, in the step of a loop."""
    return tb.lax.scan(lambda c, t: (add(ref, t), None), x, x[None])[0]


FUNCTIONS = {
    "plain": (add, 1.0),
    "jit": (tb.jit(add), 1.0),
    "scan": (scanned, 1.0),
    "read": (read, 0.0),
    "jit read": (tb.jit(read), 0.0),
}


@pytest.mark.parametrize(("fun", "writes"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_jvp_updates_the_reference_and_its_tangent(fun, writes):
    """The content after the call is that of a plain call, its tangent the derivative of it."""
    with enable_x64(True):
        r, x, dr, dx = 2.0, 3.0, 5.0, 0.5
        ref, tangent = tb.new_ref(np.float64(r)), tb.new_ref(np.float64(dr))

        value, direction = tb.jvp(fun, (ref, np.float64(x)), (tangent, np.float64(dx)))

        last, dlast = r + writes * x, dr + writes * dx
        assert (last * x, dlast * x + last * dx) == (float(value), float(direction))
        assert (last, dlast) == (float(ref[...]), float(tangent[...]))
        assert np.float64 == tangent[...].dtype


@pytest.mark.parametrize(("fun", "writes"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_linearize_updates_the_reference_and_each_call_a_tangent(fun, writes):
    """The reference is written once, the tangents of the linear function at each call."""
    r, x, dx = 2.0, 3.0, 0.5
    ref, tangent = tb.new_ref(r), tb.new_ref(5.0)

    value, linear = tb.linearize(fun, ref, tnp.asarray(x))
    again = tb.tree.unflatten(tb.tree.structure(linear), tb.tree.leaves(linear))

    last, dlast = r + writes * x, 5.0
    for f in (linear, again):
        dlast += writes * dx
        assert dlast * x + last * dx == float(f(tangent, tnp.asarray(dx)))
        assert dlast == float(tangent[...])
    assert (last * x, last) == (float(value), float(ref[...]))


def test_auxiliary_data_and_references_of_integers():
    """Auxiliary data stay apart from last contents; integers have tangents of float0."""
    ref, count = tb.new_ref(2.0), tb.new_ref(7)

    def fun(refs, x):
        refs["count"][...] += 1
        refs["sum"][...] += x
        return refs["sum"][...] * x, {"seen": x * 10, "note": "text"}

    tangents = {"count": np.zeros((), tb.float0), "sum": tb.new_ref(1.0)}
    refs = {"count": count, "sum": ref}
    value, tangent, aux = tb.jvp(fun, (refs, 3.0), (tangents, 1.0), has_aux=True)
    assert (15.0, 11.0, 30.0, "text") == (
        float(value), float(tangent), float(aux["seen"]), aux["note"],
    )  # fmt: skip
    assert (8, 5.0, 2.0) == (int(count[...]), float(ref[...]), float(tangents["sum"][...]))

    value, linear, aux = tb.linearize(fun, refs, 1.0, has_aux=True)
    assert (6.0, 10.0, 9) == (float(value), float(aux["seen"]), int(count[...]))
    assert 6.0 + 2.0 + 1.0 == float(linear(tangents, 1.0))
    assert 3.0 == float(tangents["sum"][...])


def test_below_jit_and_vmap():
    """References that jit passes and that vmap maps are differentiated within these."""

    def both(ref, tangent, x):
        return tb.jvp(add, (ref, x), (tangent, 1.0))

    ref, tangent = tb.new_ref(2.0), tb.new_ref(0.0)
    assert [15.0, 8.0] == [float(v) for v in tb.jit(both)(ref, tangent, 3.0)]
    assert (5.0, 1.0) == (float(ref[...]), float(tangent[...]))

    refs, tangents = tb.new_ref(tnp.array([2.0, 3.0])), tb.new_ref(tnp.zeros(2))
    values, directions = tb.vmap(both)(refs, tangents, tnp.array([3.0, 4.0]))
    assert ([15.0, 28.0], [8.0, 11.0]) == (values.tolist(), directions.tolist())
    assert ([5.0, 7.0], [1.0, 1.0]) == (refs[...].tolist(), tangents[...].tolist())


def test_what_is_refused():
    """Tangents that are no references, one reference twice, closures over an argument."""
    ref, tangent = tb.new_ref(2.0), tb.new_ref(1.0)
    linear = tb.linearize(read, ref, 1.0)[1]
    for use in (
        lambda: tb.jvp(add, (ref, 1.0), (1.0, 1.0)),
        lambda: tb.jvp(add, (ref, 1.0), (ref, 1.0)),
        lambda: tb.jvp(lambda a, b: a[...] * b[...], (ref, ref), (tangent, tb.new_ref(1.0))),
        lambda: tb.jvp(lambda a: a[...] * ref[...], (ref,), (tangent,)),
        lambda: tb.linearize(lambda a, b: a[...] * b[...], ref, ref),
        lambda: linear(1.0, 1.0),
        lambda: linear(tangent, tangent),
        lambda: tb.vjp(add, ref, 1.0),
        lambda: tb.grad(read)(ref, 1.0),
    ):
        with pytest.raises(RefError):
            use()
    assert (2.0, 1.0) == (float(ref[...]), float(tangent[...]))
    ended = tb.new_ref(1.0)
    tb.free_ref(ended)
    with pytest.raises(RefError, match="was freed"):
        tb.jvp(read, (ended, 1.0), (tangent, 1.0))
    with pytest.raises(RefError, match="was freed"):
        ended[...]


# functions that only read ------------------------------------------------------------------------


def readers(r, s):
    """Functions of a number that read references of outside; their value and derivative at x."""

    def rule(x):
        return x * r[...]

    by_rule = tb.custom_vjp(rule)
    by_rule.defvjp(lambda x: (rule(x), None), lambda _, ct: (ct * r[...],))
    branch = lambda x: tb.lax.cond(x > 0, lambda y: y * r[...], lambda y: y + s[...], x)
    return {
        "product": (rule, lambda x: 2 * x, 2.0),
        "only read": (lambda x: r[...], lambda x: 2.0, 0.0),
        "two": (lambda x: r[...] * x + s[...], lambda x: 2 * x + 3, 2.0),
        "argument of jit": (lambda x: tb.jit(read)(r, x), lambda x: 2 * x, 2.0),
        "made inside": (lambda x: tb.jit(read)(tb.new_ref(x), 2.0), lambda x: 2 * x, 2.0),
        "scan": (
            lambda x: tb.lax.scan(lambda c, _: (c * r[...], s[...]), x, None, length=2)[0],
            lambda x: 4 * x, 4.0,
        ),
        "cond": (branch, lambda x: 2 * x, 2.0),
        "while": (
            lambda x: x * tb.lax.while_loop(lambda i: i < r[...], lambda i: i + s[...], 0.0),
            lambda x: 3 * x, 3.0,
        ),
        "custom_vjp": (by_rule, lambda x: 2 * x, 2.0),
    }  # fmt: skip


WRAPPERS = {
    "jit": tb.jit,
    "jit of jit": lambda f: tb.jit(tb.jit(f)),
    "checkpoint of jit": lambda f: tb.checkpoint(tb.jit(f)),
}


CASES = [(name, "jit") for name in readers(None, None)]
CASES += [(name, w) for name in ("two", "only read") for w in WRAPPERS if w != "jit"]


@pytest.mark.parametrize(("name", "wrapper"), CASES)
def test_derivatives_of_compiled_functions_that_only_read(name, wrapper):
    """vjp (called twice), grad, second order and vmap of vjp; the references stay."""
    r, s, x = tb.new_ref(2.0), tb.new_ref(3.0), 1.5
    fun, value, slope = readers(r, s)[name]
    f = WRAPPERS[wrapper](fun)

    y, pullback = tb.vjp(f, x)

    assert (value(x), [slope, 2 * slope]) == (float(y), [float(pullback(c)[0]) for c in (1.0, 2.0)])
    assert (value(x), slope) == tuple(float(v) for v in tb.value_and_grad(f)(x))
    assert 0.0 == float(tb.grad(tb.grad(f))(x))
    mapped = tb.vmap(lambda t: tb.vjp(f, t)[1](1.0)[0])(tnp.ones(2))
    assert [slope, slope] == mapped.tolist()
    assert (2.0, 3.0) == (float(r[...]), float(s[...]))
