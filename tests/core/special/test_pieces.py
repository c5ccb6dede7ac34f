"""Formulas of float64 in pieces where each operation is emulated: TPUs."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.special.pieces import in_pieces

BARRIER = "stablehlo.optimization_barrier"


def text(fun: Any, dtype: Any, *platforms: str, shapes: Any = ((8,), (8,))) -> str:
    """The lowered call of a function with arguments of one dtype."""
    with tb.enable_x64(True):
        args = [tb.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        return tb.jit(fun).lower(*args, lowering_platforms=platforms).as_text()


@pytest.mark.parametrize("fun", [lax.random_gamma_grad, lax.igamma], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shapes", [((8,), (8,)), ((), (8,))], ids=["full", "a number"])
def test_wide_formulas_for_tpus_are_in_pieces(fun: Any, shapes: Any) -> None:
    """No stretch of operations between two barriers is long."""
    function = text(fun, np.float64, "tpu", shapes=shapes).split("func.func private")[1]
    outside = re.sub(r"\bcond \{.*?\n    \}\n", "", function, flags=re.DOTALL)
    # Operations of float32, which rounding takes, stand for themselves.
    stretches = [len(re.findall(r"stablehlo\..*f64>", part)) for part in outside.split(BARRIER)]

    assert len(stretches) > 5
    assert max(stretches) < 120


@pytest.mark.parametrize(
    ("dtype", "platform"), [(np.float32, "tpu"), (np.float64, "cpu"), (np.float64, "cuda")]
)
def test_others_are_whole(dtype: Any, platform: str) -> None:
    """Where the numbers are those of the machine, the compiler may fuse all of a formula."""
    assert BARRIER not in text(lax.random_gamma_grad, dtype, platform)


def test_the_same_program() -> None:
    """Constants stay constants, results used later and unused ones are right."""

    def long(x: Any, y: Any) -> list[Any]:
        total, first = x, x * y
        for n in range(50):
            total = total * y + float(n % 3)
        return [first, total, y, lax.cond(x.sum() > 0, lax.sin, lax.cos, total)]

    with tb.enable_x64(True):
        x, y = tb.numpy.linspace(0.1, 1.0, 8), tb.numpy.linspace(0.5, 0.9, 8)
        whole = stage(long, [x.aval, y.aval], locate=False)
        pieces = in_pieces(whole)
        run = tb.jit(partial(eval_jaxpr, pieces, current_trace().process))
        got, want = run([x, y]), long(x, y)

    names = [app.primitive.name for app, _ in pieces.equations]
    assert names.count("optimization_barrier") == 2
    assert in_pieces(whole) is pieces
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-13)
