"""Decompositions of matrices with infinities: NaN, and an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "svd": tnp.linalg.svd,
    "svd by QR": lambda a: tb.lax.linalg.svd(a, algorithm=tb.lax.linalg.SvdAlgorithm.QR),
    "singular values": lambda a: tnp.linalg.svd(a, compute_uv=False),
    "pinv": tnp.linalg.pinv,
    "lstsq": lambda a: tnp.linalg.lstsq(a, a[..., 0])[0],
    "gradient of det": tb.grad(lambda a: tnp.linalg.det(a).real),
}


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.timeout(60)
def test_infinite_elements(name: str, dtype: str) -> None:
    """LAPACK refuses NaN, and did not return from an infinity."""
    a = np.diag([1.0, np.inf, 1.0, 1.0]).astype(dtype)

    assert all([np.isnan(x).all() for x in tb.tree.leaves(FUNCTIONS[name](a))])


def test_others_of_a_batch_are_finite() -> None:
    """Each matrix is looked at by itself."""
    a = np.stack([np.diag([1.0, -np.inf, 1.0]), np.diag([3.0, 2.0, 1.0])]).astype(np.float32)

    _, s, _ = tnp.linalg.svd(a)

    assert np.isnan(s[0]).all()
    np.testing.assert_allclose(s[1], [3, 2, 1], rtol=1e-6)
