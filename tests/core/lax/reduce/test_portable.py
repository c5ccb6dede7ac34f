"""What other platforms get, compiled for the CPU: the same results as by the CPU's own rules."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tracebridge import lax
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.runtime.arrays.placement import choose_placement
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.calls.execute import LIST, make_run
from tracebridge.core.runtime.programs.compile import compile_lowered
from tracebridge.testing import assert_allclose

Host = np.ndarray[Any, Any]


def run_portable(fun: Any, *arrays: Host) -> list[Host]:
    """Run ``fun`` lowered without rules of a platform."""
    values = [put_numpy(a) for a in arrays]
    jaxpr = stage(lambda *xs: [fun(*xs)], [v.aval for v in values])
    placement, _ = choose_placement([v._sig for v in values], "portable")
    lowered = lower_module(jaxpr, "portable", "portable", embed_constants=True)
    program = compile_lowered(lowered, placement, jaxpr.out_avals)
    return [np.asarray(r) for r in make_run(program, len(values), LIST)(*values)]


CASES = {
    **{f"{f.__name__}{axis}{reverse}": (lambda x, f=f, a=axis, r=reverse: f(x, a, r))
       for f in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)
       for axis in (0, 1) for reverse in (False, True)},
    **{f"{f.__name__}{axis}": (lambda x, f=f, a=axis: f(x, a, np.int32))
       for f in (lax.argmax, lax.argmin) for axis in (0, 1)},
    **{f"{f.__name__}{axes}": (lambda x, f=f, a=axes: f(x, a))
       for f in (lax.reduce_max, lax.reduce_min) for axes in ((0,), (1,), (0, 1))},
    "many_small_products": lambda x: lax.dot(x, lax.slice(x, (0, 0), (40, 3))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_same_results(name: str, dtype: Any) -> None:
    """The general lowering and that of the CPU agree."""
    x = np.random.default_rng(0).normal(size=(600, 40)).astype(np.float32) * 0.1 + 1
    if name.startswith("cumprod"):
        x = np.sign(x)
    x = x.astype(dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {}

    (result,) = run_portable(CASES[name], x)

    assert_allclose(result, CASES[name](x), check_dtype=True, **tolerance)
