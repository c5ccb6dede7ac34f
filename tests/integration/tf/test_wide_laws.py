"""64 bits and options: tensors of 64 bits are computed in 64, and options are part of the key."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.numpy.wide import Calls, chosen, wide_arrays
from tracebridge.tf import save, to_tf

pytestmark = pytest.mark.tf

BIG = 2**40


@pytest.mark.parametrize("part", range(2))
def test_functions_are_exact_at_64_bits(part: int) -> None:
    """Public functions of tracebridge.numpy compute as NumPy does in 64 bits."""
    cases = chosen("fic", part, 12)
    calls = Calls(cases, [wide_arrays(c) for c in cases])

    results = to_tf(calls)(*[tf.constant(x) for x in calls.flat])

    assert [] == calls.wrong([[r.numpy() for r in row] for row in results])


def test_floats_follow_floats_and_integers_follow_integers() -> None:
    """int64 beside float32 makes integers wide, and floats not; alone it makes both wide."""

    def f(*xs: Any) -> Any:
        return tnp.zeros(1), tnp.arange(1), tnp.sqrt(2), tnp.asarray(BIG) if len(xs) > 1 else 0

    def dtypes(*kinds: Any) -> list[str]:
        return [r.dtype.name for r in to_tf(f)(*[tf.ones(2, k) for k in kinds])]

    assert ["float64", "int64", "float64", "int64"] == dtypes(tf.float64)
    assert ["float64", "int64", "float64", "int64"] == dtypes(tf.int64)
    assert ["float32", "int64", "float32", "int64"] == dtypes(tf.int64, tf.float32)
    assert ["float32", "int32", "float32", "int32"] == dtypes(tf.float32)


def test_numbers_are_as_wide_as_the_tensors() -> None:
    """Python numbers lose nothing beside tensors of 64 bits."""
    f = to_tf(lambda x, n: x * n)

    assert f(tf.ones((), tf.float64), 0.1).numpy() == 0.1
    assert f(tf.ones((), tf.int64), BIG).numpy() == BIG
    assert f(tf.ones(()), 0.1).dtype == tf.float32


def test_saved_models_are_wide(tmp_path: pathlib.Path) -> None:
    """A SavedModel and its gradients keep the constants of 64 bits."""
    spec = tf.TensorSpec((None,), tf.float64, name="x")
    save(lambda x: x * tnp.sqrt(2) + np.array(0.1), tmp_path, [spec])
    x = tf.ones(2, tf.float64)

    with tf.GradientTape() as tape:
        tape.watch(x)
        result = tf.saved_model.load(tmp_path).serve(x)

    assert [np.sqrt(2) + 0.1] * 2 == result.numpy().tolist()
    assert [np.sqrt(2)] * 2 == tape.gradient(result, x).numpy().tolist()


@tb.custom_vjp
def _ruled(x: Any) -> Any:
    return x * 2


_ruled.defvjp(
    lambda x: (x * 2, None),
    lambda _, ct: (ct * (1.0 if tb.config.enable_x64 else 3.0),),
)


def test_derivatives_are_of_the_trace() -> None:
    """A gradient that is derived later is derived under the options of the trace."""
    x = tf.ones(())
    f = to_tf(_ruled)

    with tf.GradientTape() as tape:
        tape.watch(x)
        with tb.enable_x64():
            y = f(x)

    assert tape.gradient(y, x).numpy() == 1.0
