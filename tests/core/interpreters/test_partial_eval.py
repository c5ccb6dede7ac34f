"""Partial evaluation of Jaxprs."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tests.equations import primitives_in
from tests.strategies import array, run_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray

F32 = np.dtype("float32")
VECTOR = ShapedArray((3,), F32)


def mixed(x: Any, y: Any) -> list[Any]:
    """A result of x alone, and one of both."""
    s = lax.sin(x)
    return [lax.exp(s), lax.mul(lax.cos(s), y)]


def test_equations_go_where_their_inputs_are() -> None:
    """What depends on known inputs alone is known; one residual connects the halves."""
    split = partial_eval_jaxpr(stage(mixed, [VECTOR, VECTOR]), (False, True))
    assert (False, True) == split.unknown_out
    assert {"sin", "exp", "cos"} == set(primitives_in(split.known))
    assert ["mul"] == primitives_in(split.unknown)
    assert 1 == split.n_residuals


def test_instantiate_makes_known_results_unknown() -> None:
    """A known result that the caller wants from the unknown half travels as a residual."""
    split = partial_eval_jaxpr(stage(mixed, [VECTOR, VECTOR]), (False, True), (True, False))
    assert (True, True) == split.unknown_out
    assert 2 == split.n_residuals
    x, y = array((3,), 1, "float32"), array((3,), 2, "float32")
    got = run_jaxpr(split.unknown, *run_jaxpr(split.known, x), y)
    np.testing.assert_allclose(got[0], np.exp(np.sin(x)), rtol=1e-6)
    np.testing.assert_allclose(got[1], np.cos(np.sin(x)) * y, rtol=1e-6)


def test_all_known_and_all_unknown() -> None:
    """At the ends one half is empty."""
    jaxpr = stage(mixed, [VECTOR, VECTOR])
    known = partial_eval_jaxpr(jaxpr, (False, False))
    assert (False, False) == known.unknown_out
    assert ([], 0) == (primitives_in(known.unknown), known.n_residuals)
    unknown = partial_eval_jaxpr(jaxpr, (True, True))
    assert (True, True) == unknown.unknown_out
    assert [] == primitives_in(unknown.known)
    assert primitives_in(jaxpr) == primitives_in(unknown.unknown)


def test_what_may_not_be_saved_is_computed_again() -> None:
    """With nothing saveable the inputs are the residuals, and the unknown half repeats the work."""

    def nothing(app: Any) -> bool:
        del app
        return False

    split = partial_eval_jaxpr(stage(mixed, [VECTOR, VECTOR]), (False, True), saveable=nothing)
    assert ["sin", "cos", "mul"] == primitives_in(split.unknown)
    assert ["sin", "exp"] == primitives_in(split.known)
    assert [VECTOR] == list(split.unknown.in_avals[: split.n_residuals])
    x, y = array((3,), 1, "float32"), array((3,), 2, "float32")
    _, residual = run_jaxpr(split.known, x)
    np.testing.assert_array_equal(np.asarray(residual), x)
    (got,) = run_jaxpr(split.unknown, residual, y)
    np.testing.assert_allclose(got, np.cos(np.sin(x)) * y, rtol=1e-6)


def test_saveable_values_are_saved() -> None:
    """A policy that saves sin alone makes cos be computed again, from the saved sine."""

    def sines(app: Any) -> bool:
        return app.primitive.name == "sin"

    split = partial_eval_jaxpr(stage(mixed, [VECTOR, VECTOR]), (False, True), saveable=sines)
    assert ["cos", "mul"] == primitives_in(split.unknown)
    x = array((3,), 1, "float32")
    _, residual = run_jaxpr(split.known, x)
    np.testing.assert_allclose(residual, np.sin(x), rtol=1e-6)
