"""References as arguments and closures of jit, vmap, checkpoint and abstract evaluation."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import disable_jit
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError


def zeros(*shape):
    """A reference full of zeros."""
    return tb.new_ref(tnp.zeros(shape))


# jit ---------------------------------------------------------------------------------------------


def test_jit_writes_to_arguments():
    """One trace serves all references of a type; each keeps its own content."""
    traces = []

    @tb.jit
    def step(state, x):
        traces.append(1)
        state["n"][...] += 1
        state["sum"][0] += x
        return state["sum"][...] * 2

    for _ in range(2):
        state = {"n": tb.new_ref(0), "sum": zeros(2)}
        assert [6.0, 0.0] == step(state, 3.0).tolist()
        assert [14.0, 0.0] == step(state, 4.0).tolist()
        assert (2, [7.0, 0.0]) == (int(state["n"][...]), state["sum"][...].tolist())
    assert [1] == traces


def test_jit_writes_to_closures():
    """Contents are read at each call, also after writes outside; the function is traced once."""
    ref, seen, traces = zeros(2), zeros(), []

    @tb.jit
    def step(x):
        traces.append(1)
        ref[1] += x
        return ref[...] + seen[...]

    assert [0.0, 3.0] == step(3.0).tolist()
    ref[...] = 10.0
    seen[...] = 1.0
    assert [11.0, 16.0] == step(5.0).tolist()
    assert [10.0, 15.0] == ref[...].tolist()
    assert [1] == traces


def test_nested_jit():
    """References pass through jit in jit, as arguments and as closures."""
    ref = zeros(3)
    inner = tb.jit(lambda r, i: r.set(r[i] + 1.0, i))

    @tb.jit
    def outer(r):
        inner(r, 0)
        inner(r, 2)
        inner(other, 1)
        return tb.jit(lambda: other[1] + r[0])()

    other = zeros(3)
    assert 2.0 == float(outer(ref))
    assert [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]] == [ref[...].tolist(), other[...].tolist()]


def test_references_made_inside():
    """A function may make references for itself, and freeze them."""

    @tb.jit
    def f(x):
        ref = tb.new_ref(x)
        ref[...] *= 2.0
        ref[0] = 1.0
        return tb.freeze(ref)

    assert [1.0, 4.0] == f(tnp.full(2, 2.0)).tolist()


def test_static_and_keyword_references():
    """A reference may be a static argument (then it is closed over), or a keyword argument."""
    ref = zeros()
    tb.jit(lambda r, x: r.set(x), static_argnums=0)(ref, 2.0)
    assert 2.0 == float(ref[...])
    tb.jit(lambda *, r, x: r.addupdate(x))(r=ref, x=3.0)
    assert 5.0 == float(ref[...])


def test_disable_jit():
    """Without jit the function itself runs."""
    ref = zeros(2)
    with disable_jit():
        tb.jit(lambda r: r.set(4.0, 0))(ref)
        tb.lax.scan(lambda c, r: (c, r.set(1.0)), 0.0, zeros(2))
        tb.lax.cond(True, lambda r: r.set(5.0, 1), lambda r: None, ref)
    assert [4.0, 5.0] == ref[...].tolist()


def test_leaks_are_found():
    """References of a function that has been traced are of no use."""
    kept = []

    @tb.jit
    def f(x, r):
        kept.extend([tb.new_ref(x), r])
        return x

    f(1.0, zeros())
    for ref in kept:
        for use in (lambda ref=ref: ref[...], lambda ref=ref: ref.set(1.0)):
            with pytest.raises(UnexpectedTracerError, match="has leaked"):
                use()
    with tb.checking_leaks():
        tb.jit(lambda r: r.addupdate(1.0))(zeros())


def test_aliases_are_errors():
    """One reference in two places of a call would hide writes."""
    ref = zeros(2)
    with pytest.raises(RefError, match=r"passed twice[^$]*arguments a and b\['k'\]"):
        tb.jit(lambda a, b: a[...] + b["k"][...])(ref, {"k": ref})
    for _ in range(2):
        with pytest.raises(RefError, match="passed and closed over"):
            tb.jit(lambda a: a[...] + ref[...])(ref)
    with pytest.raises(RefError, match="passed twice"):
        tb.vmap(lambda a, b: a[...] + b[...])(ref, ref)
    with pytest.raises(RefError, match="is mapped by vmap"):
        tb.vmap(lambda a: a[...] + ref[0])(ref)
    assert [0.0, 0.0] == ref[...].tolist()


def test_references_are_no_results():
    """Transformed functions return arrays."""
    ref = zeros(2)
    for use in (
        lambda: tb.jit(lambda r: r)(ref),
        lambda: tb.jit(lambda: ref)(),
        lambda: tb.jit(lambda: tb.new_ref(1.0))(),
        lambda: tb.vmap(lambda r: r)(ref),
        lambda: tb.grad(lambda x: tb.new_ref(x))(1.0),
        lambda: tb.lax.scan(lambda c, _: (c, ref), 1.0, None, length=2),
        lambda: tb.lax.scan(lambda c, _: (c, None), ref, None, length=2),
        lambda: tb.lax.while_loop(lambda r: True, lambda r: r, ref),
        lambda: tb.lax.cond(True, lambda: ref, lambda: ref),
    ):
        with pytest.raises(RefError, match="can't be results or carries"):
            use()


def test_freeze_belongs_to_the_maker():
    """A function can't end a reference that it did not make."""
    ref = zeros()
    for use in (
        lambda: tb.jit(lambda r: tb.freeze(r))(ref),
        lambda: tb.jit(lambda: tb.freeze(ref))(),
        lambda: tb.vmap(lambda r: tb.freeze(r))(zeros(2)),
        lambda: tb.lax.scan(lambda c, _: (c, tb.freeze(ref)), 0.0, None, length=1),
    ):
        with pytest.raises(RefError, match="made outside this function"):
            use()
    assert 0.0 == float(ref[...])


def test_pure_programs_refuse_references():
    """Where a program is taken away it must be pure; the message says so."""
    ref = zeros()
    for use in (
        lambda: tb.xla_computation(lambda: ref.set(1.0))(),
        lambda: tb.xla_computation(lambda r: r[...])(ref),
        lambda: tb.linear_transpose(lambda x: x * ref[...], 1.0),
    ):
        with pytest.raises(RefError):
            use()


def test_abstract_evaluation_changes_nothing():
    """eval_shape and make_jaxpr see contents as arguments and results."""
    ref, other = zeros(2), zeros(3)

    def f(x, r):
        r[0] = x
        other[...] += 1.0
        return r[...] * 2

    assert (2,) == tb.eval_shape(f, 1.0, ref).shape
    jaxpr, shape = tb.make_jaxpr(f, return_shape=True)(1.0, ref)
    assert ([(), (2,), (3,)], [(2,), (2,), (3,)], (2,)) == (
        [a.shape for a in jaxpr.in_avals], [a.shape for a in jaxpr.out_avals], shape.shape
    )  # fmt: skip
    assert [0.0] * 5 == [*ref[...].tolist(), *other[...].tolist()]


def test_jit_writes_in_place():
    """A compiled program writes to the memory of a reference, unless others hold the array."""
    start = tnp.zeros(1000)
    ref = tb.new_ref(start)
    add = tb.jit(lambda r, i: r.addupdate(1.0, i))
    add_closed = tb.jit(lambda i: ref.addupdate(1.0, i))
    add(ref, 0)
    place = ref.unsafe_buffer_pointer()
    add(ref, 1)
    add_closed(1)
    assert place == ref.unsafe_buffer_pointer()

    seen = ref[...]
    pull = tb.vjp(tb.jit(lambda x: (x * ref[...]).sum()), tnp.ones(1000))[1]
    add(ref, 1)
    add_closed(2)
    assert [[0.0] * 3, [1.0, 2.0, 0.0], [1.0, 3.0, 1.0]] == [
        x[:3].tolist() for x in (start, seen, ref[...])
    ]
    assert [1.0, 2.0, 0.0] == pull(1.0)[0][:3].tolist()


def test_arrays_that_pass_through_stay():
    """An array that is written to a reference belongs to its owner still."""
    x, ref = tnp.ones(3), zeros(3)
    keep = tb.jit(lambda r, x: (r.set(x), x)[1])
    scale = tb.jit(lambda r: r.set(2.0 * r[...]))
    y = keep(ref, x)
    scale(ref)
    scale(ref)
    other = zeros(3)
    other[...] = ref[...]
    scale(ref)
    assert [1.0, 1.0, 8.0, 4.0] == [float(a[0]) for a in (x, y, ref, other)]


def test_failed_checks_leave_the_content():
    """A program whose result a check refuses has changed nothing."""
    ref = tb.new_ref(tnp.ones(2))
    bad = tb.jit(lambda r: r.set(tnp.log(-r[0]), 0))
    with tb.debug_nans(), pytest.raises(FloatingPointError):
        bad(ref)
    assert [1.0, 1.0] == ref[...].tolist()


# vmap --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vmap_maps_references(axis):
    """Each element reads and writes its slice of the reference."""
    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    ref = tb.new_ref(base)
    xs = np.arange(base.shape[axis], dtype=np.float32)

    def f(r, x):
        old = r[0]
        r[0] = x
        return old

    expected = np.moveaxis(base, axis, 0)[:, 0].copy()
    np.testing.assert_array_equal(expected, tb.vmap(f, in_axes=(axis, 0))(ref, xs))
    np.moveaxis(base, axis, 0)[:, 0] = xs
    np.testing.assert_array_equal(base, ref[...])


def test_vmap_of_jit_and_jit_of_vmap():
    """References pass through both, and an element may write what does not depend on it."""
    for run in (
        tb.jit(tb.vmap(lambda r, x: r.addupdate(x))),
        tb.vmap(tb.jit(lambda r, x: r.addupdate(x))),
    ):
        ref = zeros(3)
        run(ref, tnp.arange(3.0))
        run(ref, tnp.arange(3.0))
        assert [0.0, 2.0, 4.0] == ref[...].tolist()
    ref = zeros(3)
    tb.vmap(lambda r: r.set(7.0))(ref)
    assert [7.0] * 3 == ref[...].tolist()


def test_vmap_with_references_inside_and_outside():
    """Own references take mapped values; outer ones are read, and take values without axis."""
    ref = tb.new_ref(tnp.arange(3.0))

    def own(x):
        mine = tb.new_ref(0.0)
        mine[...] = x * ref[1]
        return mine[...]

    assert [0.0, 1.0, 2.0] == tb.vmap(own)(tnp.arange(3.0)).tolist()
    assert [2.0, 0.0] == tb.vmap(lambda i: ref[i])(tnp.array([2, 0])).tolist()
    xs = tnp.ones(2)
    read = tb.vmap(lambda r, x: r[0] * x, in_axes=(None, 0))
    assert [0.0, 0.0] == read(ref, xs).tolist()
    tb.vmap(lambda x: ref.set(9.0, 0))(xs)
    assert [9.0, 1.0, 2.0] == ref[...].tolist()
    for use in (
        lambda: tb.vmap(lambda x: ref.set(x, 0))(xs),
        lambda: tb.vmap(lambda r, x: r.addupdate(x, 0), in_axes=(None, 0))(ref, xs),
        lambda: tb.vmap(lambda i: ref.set(0.0, i))(tnp.arange(2)),
        lambda: tb.vmap(tb.jit(lambda x: ref.set(x, 0)))(xs),
    ):
        with pytest.raises(RefError, match="mapped by vmap"):
            use()
    assert [9.0, 1.0, 2.0] == ref[...].tolist()


# checkpoint --------------------------------------------------------------------------------------


def test_checkpoint():
    """A checkpointed function may use references of its own and of outside; the primal writes."""
    count = tb.new_ref(0)

    def f(x):
        ref = tb.new_ref(x)
        ref[...] = tnp.sin(ref[...])
        count[...] += 1
        return ref[...] * x

    g = tb.checkpoint(f)
    np.testing.assert_allclose(tb.grad(f)(1.0), tb.grad(g)(1.0), rtol=1e-6)
    assert 2 == int(count[...])

    def scaled(x):
        ref = tb.new_ref(x)
        tb.checkpoint(lambda r, y: r.set(r[...] * y))(ref, x)
        return ref[...]

    assert 6.0 == float(tb.grad(scaled)(3.0))


@pytest.mark.parametrize("place", ["directly", "jit", "scan"])
def test_checkpoint_keeps_rules_that_use_references(place):
    """The rule of a custom_vjp function in a checkpointed one writes to its reference."""
    seen = tb.custom_vjp(lambda ref, x: x)

    def backward(ref, ct):
        ref[...] = ct
        return None, ct

    seen.defvjp(lambda ref, x: (x, ref), backward)

    def f(ref, x):
        body = tb.checkpoint(lambda c, _: (tnp.sin(seen(ref, tnp.sin(c))), None))
        if place == "scan":
            return tb.lax.scan(body, x, None, length=1)[0]
        return body(x, None)[0]

    ref = tb.new_ref(0.0)
    slope = tb.grad(tb.jit(f) if place == "jit" else f, argnums=1)(ref, 1.0)

    np.testing.assert_allclose(ref[...], np.cos(np.sin(1.0)), rtol=1e-6)
    np.testing.assert_allclose(slope, np.cos(np.sin(1.0)) * np.cos(1.0), rtol=1e-6)


def test_passed_twice_to_branches_and_rules():
    """One reference twice among the operands of cond or of a custom_vjp function is an error."""
    ref = zeros()
    f = tb.custom_vjp(lambda a, b: a[...] + b[...])
    f.defvjp(lambda a, b: (f(a, b), None), lambda _, ct: (None, None))

    with pytest.raises(RefError, match=r"passed twice[^$]*arguments a and b"):
        tb.lax.cond(True, lambda a, b: 1, lambda a, b: 2, ref, ref)
    for call in (f, tb.jit(f)):
        with pytest.raises(RefError, match="passed twice"):
            call(ref, ref)
    same = tb.custom_vjp(lambda r: r)
    same.defvjp(lambda r: (r, None), lambda _, ct: (None,))
    with pytest.raises(RefError, match="returned a reference"):
        same(ref)


def test_cotangents_added_to_references():
    """A pullback adds cotangents to references, outside of jit and inside."""
    total = tb.new_ref(10.0)
    _, pullback = tb.vjp(lambda x, y: x * y, 2.0, 3.0)
    x_bar, y_bar = pullback.with_refs(total, 0)(1.0)
    assert (x_bar, float(y_bar), float(total[...])) == (tb.ad.GradRef(), 2.0, 13.0)

    @tb.jit
    def step(x, r):
        tb.vjp(lambda p: p["w"] ** 2, {"w": x})[1].with_refs({"w": r})(1.0)

    step(3.0, total)
    step(4.0, total)
    assert float(total[...]) == 27.0
    with pytest.raises(tb.errors.TreeMismatchError, match="with_refs"):
        pullback.with_refs(total)(1.0)


def test_cotangents_that_nobody_wants():
    """They are no leaves of the result, and compiled programs have no product for them."""
    matrix, vector = tnp.ones((3, 3)), tnp.ones(3)
    _, pullback = tb.vjp(lambda w, x: w @ x, matrix, vector)
    chosen = pullback.with_refs(tb.ad.GradValue(), tb.ad.DontWant())
    w_bar, x_bar = tb.jit(chosen)(vector)
    assert ((3, 3), tb.ad.DidntWant()) == (w_bar.shape, x_bar)
    products = [str(tb.make_jaxpr(f)(vector)).count("dot_general") for f in (pullback, chosen)]
    assert products[1] < products[0]


@pytest.mark.parametrize("index", [slice(1, 3), 1, (..., 1), tnp.array([2, 0])])
def test_parts_of_references_as_arguments_of_jit(index):
    """A write to the part writes to the reference, whatever the index; the part stays a part."""
    expected = np.arange(6.0).reshape(3, 2)
    expected[index] *= 2
    ref = tb.new_ref(tnp.arange(6.0).reshape(3, 2))

    @tb.jit
    def double(args, scale):
        assert not isinstance(args["part"], tb.Array)
        args["part"][...] *= scale
        return args["part"][...] * 1

    result = tb.jit(lambda s: double({"part": ref.at[index]}, s))(2.0)

    np.testing.assert_array_equal(expected, ref[...])
    np.testing.assert_array_equal(expected[index], result)
    double({"part": ref.at[1:].at[0]}, 0.0)
    assert not np.any(ref[1])
    with pytest.raises(RefError, match="part of a reference"):
        tb.vmap(lambda part: part[...])(ref.at[1:])
