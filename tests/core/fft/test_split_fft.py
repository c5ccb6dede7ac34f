"""Transforms of arrays that are split over axes of type Explicit."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import P
from tracebridge.errors import ShardingTypeError
from tracebridge.sharding import AxisType
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 4", reason="needs 4 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
X = np.arange(16, dtype="f4").reshape(4, 4) % 7


def test_transforms_are_split_as_their_operand() -> None:
    """Also along the axis that is transformed, where both sides have equal parts."""
    mesh = tb.make_mesh(
        (2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2, devices=tb.devices()[:4]
    )
    with tb.set_mesh(mesh):
        x = tb.device_put(X, tb.NamedSharding(mesh, P("x", "y")))
        out = tb.jit(tnp.fft.fft)(x)

        assert "c64[4@x,4@y]" == tb.typeof(out).str_short()
        assert_allclose(out, np.fft.fft(X), rtol=1e-5, atol=1e-5)
        with pytest.raises(ShardingTypeError, match="2 equal parts, which 3 elements do not have"):
            tnp.fft.rfft(x)
