"""Arrays joined along an axis: the rows of one array."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 1, 2), (2, 3, 1, 2)])
def test_rows_of_one_array_are_joined(shape: tuple[int, ...]) -> None:
    """As those of a list of them, in a program whose length does not depend on their number."""
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    calls = [(name, {}) for name in ("vstack", "hstack", "dstack", "column_stack")]
    calls += [("stack", {"axis": k}) for k in range(-len(shape), len(shape))]
    calls += [("concatenate", {"axis": k}) for k in (None, *range(1 - len(shape), len(shape) - 1))]
    for name, kwargs in calls:
        joined = functools.partial(getattr(tnp, name), **kwargs)
        expected = getattr(np, name)(list(x), **kwargs) if name != "concatenate" else (
            x.ravel() if kwargs["axis"] is None else np.concatenate(x, **kwargs)
        )  # fmt: skip

        np.testing.assert_array_equal(expected, joined(x))
        assert 3 >= len(tb.make_jaxpr(joined)(x).jaxpr.equations)


def test_rows_of_one_array_are_converted() -> None:
    """To the dtype that is asked for; numbers and no rows are refused as in lists."""
    x = tnp.ones((2, 3), np.float32)
    assert np.int32 == tnp.hstack(x, dtype=np.int32).dtype
    with pytest.raises(ValueError, match="without axes"):
        tnp.concatenate(x[0])
    with pytest.raises(ValueError, match="empty sequence"):
        tnp.vstack(x[:0])
    with pytest.raises(ValueError, match="axis"):
        tnp.stack(x, axis=2)
