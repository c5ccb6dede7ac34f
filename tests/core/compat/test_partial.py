"""Partial evaluation of functions of known and unknown arguments."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.ir.traverse import primitive_names
from tracebridge.errors import UnexpectedTracerError
from tracebridge.extend import linear_util as lu
from tracebridge.interpreters import partial_eval as pe

SCALAR = tb.core.ShapedArray((), "float32")
KNOWN, UNKNOWN = pe.PartialVal.known(1.5), pe.PartialVal.unknown(SCALAR)


def loop(x, y):
    return list(lax.scan(lambda c, _: ((c[0] * 2, c[1] + c[0]), None), (x, y), None, length=3)[0])


FUNCTIONS = {
    "operations": lambda x, y: [tnp.sin(x), tnp.sin(x) * y, y, 3.0],
    "jit": lambda x, y: list(tb.jit(lambda x, y: (tnp.sin(x), x * y))(x, y)),
    "scan": loop,
    "while": lambda x, y: list(
        lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1] * 2), (x, y))
    ),
    "cond": lambda x, y: list(
        lax.cond(x > 1, lambda a, b: (a, b), lambda a, b: (a + 1, 2 * b), x, y)
    ),
    "grad": lambda x, y: [tb.grad(tnp.sin)(x), tb.grad(lambda a: tnp.sin(a) * y)(x)],
    "vmap": lambda x, y: [tb.vmap(lambda a: a * x)(tnp.arange(2.0)), x + y],
    "nothing": lambda x, y: [x, y],
}


def tangent_of(fun):
    """The derivative by the first argument."""
    return lambda x, y: tb.jvp(lambda x: fun(x, y), (x,), (1.0,))[1]


def finished(jaxpr, results, consts, y):
    """All results, those of the program at ``y`` among them."""
    rest = iter(tb.core.eval_jaxpr(jaxpr, consts, y))
    return [r.get_known() if r.is_known() else next(rest) for r in results]


@pytest.mark.parametrize("fun", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("around", [lambda f: f, tb.jit, tangent_of], ids=["", "jit", "jvp"])
def test_known_part_and_program_give_the_function(fun, around):
    """First what is known, then the rest; also where all of it is traced or differentiated."""

    def apart(x, y):
        known = pe.PartialVal.known(x)
        jaxpr, results, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(fun), [known, UNKNOWN])
        seen.append([r.is_known() for r in results])
        return tnp.sum(tnp.hstack(finished(jaxpr, results, consts, y)))

    seen = []
    got = around(apart)(1.5, 2.0)
    expected = around(lambda x, y: tnp.sum(tnp.hstack(fun(x, y))))(1.5, 2.0)
    np.testing.assert_allclose(expected, got, rtol=1e-6)
    assert seen[0][0] is True
    assert False in seen[0]


def test_known_operations_are_computed():
    """The program has none of them."""
    jaxpr, results, consts = pe.trace_to_jaxpr_nounits(FUNCTIONS["operations"], [KNOWN, UNKNOWN])
    assert {"mul"} == primitive_names(jaxpr)
    assert [np.float32(np.sin(1.5))] == pytest.approx([float(c) for c in consts])
    assert [True, False, False, True] == [r.is_known() for r in results]
    assert (3.0, None) == (results[3].get_known(), results[1].get_known())
    assert SCALAR == results[1].get_aval()
    assert results[0].get_aval().weak_type


def test_known_values_steer_python():
    """Branches and loops of Python can look at them."""
    results = pe.trace_to_jaxpr_nounits(
        lambda x, y: [x + 1 if x > 1 else x - 1, x * y], [KNOWN, UNKNOWN]
    )[1]
    assert [2.5, None] == [r.get_known() for r in results]


def test_results_can_be_instantiated():
    """Then the program gives them, known or not."""
    fun = FUNCTIONS["operations"]
    for wanted in (True, [True, False, False, True]):
        jaxpr, results, consts = pe.trace_to_jaxpr_nounits(fun, [KNOWN, UNKNOWN], wanted)
        assert 4 == len(jaxpr.outvars)
        np.testing.assert_allclose(
            [np.sin(1.5), 2 * np.sin(1.5), 2, 3], finished(jaxpr, results, consts, 2.0), rtol=1e-6
        )
    with pytest.raises(ValueError, match="instantiate has 1 entries, expected 4"):
        pe.trace_to_jaxpr_nounits(fun, [KNOWN, UNKNOWN], [True])


def test_values_do_not_leak():
    """Unknown values are of no use outside."""
    kept = []
    pe.trace_to_jaxpr_nounits(lambda y: kept.append(y) or [y], [UNKNOWN])
    with pytest.raises(UnexpectedTracerError):
        tnp.sin(kept[0])


def test_programs_print_at_once():
    """Whatever has been loaded before."""
    code = (
        "from tracebridge.interpreters import partial_eval as pe; import tracebridge as tb;"
        "print(pe.trace_to_jaxpr_dynamic(lambda: [tb.lax.sin(1.0)], [])[0])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sin 1.0" in run.stdout
