"""isclose and allclose: how many programs are made for how many tolerances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.numpy import closeness

A = np.array([1.0, 2.0, 3.0, np.nan, np.inf], np.float32)
B = np.array([1.001, 2.02, 3.3, np.nan, np.inf], np.float32)
TOLERANCES = [10.0**-k for k in range(1, 8)]


@pytest.mark.parametrize("name", ["isclose", "allclose"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_tolerances_do_not_change_the_program(name: str, dtype: Any) -> None:
    """Of many tolerances, all but the usual ones are given to one program; each counts."""
    tb.clear_caches()
    ours, numpys = getattr(tnp, name), getattr(np, name)
    staged = getattr(closeness, f"_{name}_staged")
    a, b = (tnp.asarray(v.astype(dtype)) for v in (A, B))

    for rtol in TOLERANCES:
        for atol in (1e-8, 1e-3):
            expected = np.asarray(numpys(np.asarray(a), np.asarray(b), rtol, atol))

            assert expected.tolist() == ours(a, b, rtol, atol).tolist()
    assert len(staged.runs) <= 2


def test_tolerances_in_traces_are_constants() -> None:
    """A trace gets the numbers themselves, also after many others."""
    for rtol in TOLERANCES:
        tnp.isclose(A, B, rtol)

    jaxpr = tb.make_jaxpr(lambda a, b: tnp.isclose(a, b, 0.123, 0.0))(A, B)

    assert 2 == len(jaxpr.in_avals)
    assert "0.123" in str(jaxpr)
