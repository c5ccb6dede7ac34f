"""linear_recurrence, which the derivatives of running reductions are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracebridge import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax import linear_recurrence_p
from tracebridge.core.lax.reduce.prefixes import prefix_scan
from tracebridge.testing import assert_allclose, check_rules

Host = np.ndarray[Any, Any]


def loop(a: Host, b: Host, axis: int, *, reverse: bool) -> Host:
    """The definition, a step at a time."""
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    out, y = np.zeros_like(b), np.zeros_like(b[0])
    for i in reversed(range(len(b))) if reverse else range(len(b)):
        out[i] = y = a[i] * y + b[i]
    return np.moveaxis(out, 0, axis)


def recurrence(axis: int, *, reverse: bool) -> Any:
    """The primitive as a function of two arrays."""
    return lambda a, b: linear_recurrence_p.bind(
        as_value(a), as_value(b), axis=axis, reverse=reverse
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_all_rules_agree(axis: int, reverse: bool) -> None:
    """Value, staging, jit, first and second derivatives, and batching."""
    random = np.random.default_rng(0)
    check_rules(
        recurrence(axis, reverse=reverse),
        random.normal(size=(3, 5)),
        random.normal(size=(3, 5)),
        reference=lambda a, b: loop(a, b, axis, reverse=reverse),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 3), (300, 120)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    """Empty, single and long axes; the last one moves its axis to the front."""
    random = np.random.default_rng(0)
    a, b = random.uniform(-0.9, 0.9, (2, *shape)).astype(np.float32)

    assert_allclose(
        recurrence(1, reverse=False)(a, b),
        loop(a, b, 1, reverse=False) if shape[1] else b,
        rtol=1e-4,
        atol=1e-5,
    )


def test_bad_operands() -> None:
    """Two shapes, two dtypes and integers are refused."""
    run = recurrence(0, reverse=False)

    with pytest.raises(ShapeMismatchError, match="expected one shape"):
        run(np.ones(2, np.float32), np.ones(3, np.float32))
    with pytest.raises(DtypeMismatchError, match="one floating or complex dtype"):
        run(np.ones(2, np.int32), np.ones(2, np.int32))


def test_agrees_with_joined_functions() -> None:
    """The same by an associative scan of affine functions, the form for accelerators."""
    a, b = np.random.default_rng(0).normal(size=(2, 7)).astype(np.float32)

    def join(first: Any, second: Any) -> list[Any]:
        return [
            lax.mul(first[0], second[0]),
            lax.add(lax.mul(first[1], second[0]), second[1]),
        ]

    joined = prefix_scan(join, [as_value(a), as_value(b)], 0, reverse=False)[1]

    assert_allclose(joined, loop(a, b, 0, reverse=False), rtol=1e-5, atol=1e-5)
