"""Programs compiled ahead of time read and write mutable references."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import debug_nans, enable_x64
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.runtime_errors import ArgumentMismatchError, NonFiniteError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError


def add(ref, x):
    """Add to a reference; the product with what is there then."""
    ref[...] += x
    return ref[...] * x


def scanned(ref, x):
    """The same in the steps of a loop."""

    def step(carry, t):
        ref[...] += t
        return carry + tnp.sum(ref[...]), None

    return tb.lax.scan(step, 0.0 * x[0], x)[0]


def mapped(ref, x):
    """Each element of the reference is written by one element of the map."""
    return tb.vmap(add)(ref, x)


def test_compiled_programs_update_the_references_of_each_call():
    """The caller's reference is read and written at every call, whichever it is."""
    with enable_x64(True):
        first, second = tb.new_ref(np.float64(2.0)), tb.new_ref(np.float64(10.0))
        compiled = tb.jit(add).lower(first, 3.0).compile()
        assert [15.0, 36.0, 11.0] == [
            float(compiled(first, 3.0)), float(compiled(first, 4.0)), float(compiled(second, 1.0)),
        ]  # fmt: skip
        assert (9.0, 11.0) == (float(first[...]), float(second[...]))
        assert np.float64 == first[...].dtype


def test_stand_ins_for_references():
    """A ShapeDtypeStruct may stand for a reference; the program takes one, and writes to it."""
    stand_in = tb.ShapeDtypeStruct((3,), "float32", is_ref=True)
    assert stand_in != stand_in.update(is_ref=False)
    assert "is_ref=True" in repr(stand_in)
    assert stand_in == pickle.loads(pickle.dumps(stand_in))
    compiled = tb.jit(lambda ref, x: ref.set(ref[...] + x)).lower(stand_in, 2.0).compile()
    ref = tb.new_ref(np.ones(3, np.float32))

    compiled(ref, 2.0)

    assert [3.0, 3.0, 3.0] == ref[...].tolist()


def test_lowering_changes_nothing():
    """Tracing, lowering and compiling leave the reference as it is."""
    ref = tb.new_ref(2.0)

    tb.jit(add).trace(ref, 3.0).lower().compile()

    assert 2.0 == float(ref[...])


def test_compiled_programs_close_over_references():
    """References of outside are read and written where the function closes over them."""
    ref, unread = tb.new_ref(2.0), tb.new_ref(tnp.arange(3.0))

    def visit(x):
        unread[0] = x
        ref[...] += x
        return {"now": ref[...]}

    compiled = tb.jit(visit).lower(3.0).compile()
    assert [5.0, 9.0] == [float(compiled(3.0)["now"]), float(compiled(4.0)["now"])]
    ref[...] = 0.0
    assert 1.0 == float(compiled(1.0)["now"])
    assert ([1.0, 1.0, 2.0], 1.0) == (unread[...].tolist(), float(ref[...]))


def test_loops_and_maps_inside():
    """The bodies of loops and maps of a compiled program use the references too."""
    x = tnp.array([1.0, 2.0])
    ref = tb.new_ref(tnp.ones(3))
    loop = tb.jit(scanned).lower(ref, x).compile()
    # Contents 2 and 4, then 5 and 7, three times each.
    assert [18.0, 36.0] == [float(loop(ref, x)) for _ in range(2)]
    assert [7.0, 7.0, 7.0] == ref[...].tolist()

    ref = tb.new_ref(tnp.array([0.0, 1.0]))
    over = tb.jit(mapped).lower(ref, x).compile()
    assert [[1.0, 6.0], [2.0, 10.0]] == [over(ref, x).tolist() for _ in range(2)]
    assert [2.0, 5.0] == ref[...].tolist()


def test_arrays_that_were_read_stay():
    """A program may use the memory of a content only where nobody else holds the array."""
    start = tnp.zeros(3)
    ref = tb.new_ref(start)
    compiled = tb.jit(lambda r: r.addupdate(1.0)).lower(ref).compile()

    seen = []
    for _ in range(3):
        compiled(ref)
        seen.append(ref[...])
    compiled(ref)
    compiled(ref)

    assert [[0.0] * 3, [1.0] * 3, [2.0] * 3, [3.0] * 3] == [a.tolist() for a in (start, *seen)]
    assert [5.0] * 3 == ref[...].tolist()


def test_memory_of_numpy_is_not_written():
    """A reference whose content is an ndarray's memory leaves the ndarray as it was."""
    ndarray = np.zeros(64, np.float32)
    ref = tb.new_ref(tnp.asarray(ndarray))

    tb.jit(lambda r: r.set(1.0)).lower(ref).compile()(ref)

    assert (0.0, 64.0) == (float(ndarray.sum()), float(ref[...].sum()))


def test_refused_results_leave_the_content():
    """Where a check refuses the results the reference keeps what it had."""
    ref = tb.new_ref(tnp.ones(2))
    compiled = tb.jit(add).lower(ref, 1.0).compile()
    compiled(ref, 1.0)

    with debug_nans(True), pytest.raises(NonFiniteError):
        compiled(ref, float("nan"))

    assert [2.0, 2.0] == ref[...].tolist()


def test_stages_tell_the_types_of_references():
    """Arguments are references for the stages; last contents are no results."""
    ref = tb.new_ref(tnp.zeros(2))
    compiled = tb.jit(add).lower(ref, tnp.ones(2)).compile()

    (avals, _), (infos, _) = compiled.in_avals, compiled.args_info

    assert ["Ref{float32[2]}", (2,), False] == [repr(avals[0]), infos[0].shape, infos[0].donated]
    assert [(2,), (2,)] == [compiled.out_info.shape, compiled.out_avals.shape]
    assert (2, 1, 1) == tuple(
        len(tb.tree.leaves(t, is_leaf=lambda x: x is not None and not isinstance(x, tuple | dict)))
        for t in (compiled.input_shardings, compiled.output_shardings, compiled.output_formats)
    )
    assert (2,) == tb.jit(add).eval_shape(ref, tnp.ones(2)).shape


def test_one_reference_twice():
    """One write would be lost: an error when it is lowered and when it is called."""

    def both(a, b):
        a[...] += b[...]

    ref, other = tb.new_ref(1.0), tb.new_ref(2.0)
    with pytest.raises(RefError, match="passed twice"):
        tb.jit(both).lower(ref, ref)
    compiled = tb.jit(both).lower(ref, other).compile()
    with pytest.raises(RefError, match="passed twice"):
        compiled(ref, ref)
    closed = tb.jit(lambda a: both(a, other))
    with pytest.raises(RefError, match="passed and closed over"):
        closed.lower(other)
    with pytest.raises(RefError, match="passed and closed over"):
        closed.lower(ref).compile()(other)
    assert (1.0, 2.0) == (float(ref[...]), float(other[...]))


def test_other_arguments_than_compiled_for():
    """An array for a reference, a reference for an array and other shapes are errors."""
    ref, x = tb.new_ref(tnp.zeros(2)), tnp.ones(2)
    compiled = tb.jit(add).lower(ref, x).compile()
    for error, args in (
        (ArgumentMismatchError, (x, x)),
        (RefError, (ref, tb.new_ref(x))),
        (ArgumentMismatchError, (tb.new_ref(tnp.zeros(3)), x)),
    ):
        with pytest.raises(error):
            compiled(*args)
    with pytest.raises(RefError):
        tb.jit(lambda a: a).lower(x).compile()(ref)
    assert [0.0, 0.0] == ref[...].tolist()


def test_compiled_programs_run_on_concrete_contents():
    """Inside a trace the content is not known: an error, and the reference stays."""
    ref = tb.new_ref(1.0)
    compiled = tb.jit(add).lower(ref, 1.0).compile()
    closed = tb.jit(lambda: ref.set(5.0)).lower().compile()
    for use in (lambda: compiled(ref, 1.0), closed):
        with pytest.raises(ArgumentMismatchError):
            tb.jit(use)()
    assert 1.0 == float(ref[...])

    def inside(x):
        own = tb.new_ref(x)
        return tb.jit(lambda: own[...]).lower()

    with pytest.raises(UnexpectedTracerError):
        tb.jit(inside)(1.0)


def test_stages_do_not_keep_arguments():
    """The arrays at which a function was lowered end with their last user."""
    x, ref = tnp.ones(5), tb.new_ref(tnp.zeros(5))
    watched = [weakref.ref(x), weakref.ref(ref)]
    lowered = tb.jit(add).lower(ref, x)
    compiled = lowered.compile()

    del x, ref
    gc.collect()

    assert [None, None] == [w() for w in watched]
    assert [1.0] * 5 == compiled(tb.new_ref(tnp.zeros(5)), tnp.ones(5)).tolist()
