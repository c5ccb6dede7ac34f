"""Known eager calls of converted functions go straight to the operation, and only these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.scopes import scope
from tracebridge.core.util.caching import clear_all
from tracebridge.testing import assert_allclose
from tracebridge.tf import _xla_call_module, to_tf
from tracebridge.tf.convert import _Converted

pytestmark = pytest.mark.tf

X = tf.constant([1.0, 2.0])


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that take the general path."""
    seen: list[Any] = []
    whole = _Converted.__call__

    def counted(self: Any, args: Any, kwargs: Any) -> Any:
        seen.append(args)
        return whole(self, args, kwargs)

    monkeypatch.setattr(_Converted, "__call__", counted)
    return seen


def test_only_the_first_call_of_a_type_takes_the_general_path(general: list[Any]) -> None:
    """Other shapes, dtypes and numbers of tensors are other calls."""
    f = to_tf(lambda x, y=2.0: {"a": tnp.sin(x) * y, "b": (x, x.dtype.itemsize * tnp.ones(3))})
    calls = [(X,), (X, X), (tf.ones((2, 2)),), (tf.cast(X, tf.int32),), (tf.cast(X, tf.float16),)]
    first = [f(*args) for args in calls]
    assert len(general) == 5
    for args, before in zip(calls, first, strict=True):
        again = f(*args)
        tf.nest.assert_same_structure(before, again)
        tf.nest.map_structure(np.testing.assert_array_equal, before, again)
    assert len(general) == 5
    assert_allclose(f(X, y=3.0)["a"].numpy(), 3 * np.sin(X))
    assert_allclose(f(X, 3.0)["a"].numpy(), 3 * np.sin(X))
    assert len(general) == 7


def test_others_see_the_calls_that_concern_them(general: list[Any]) -> None:
    """Tapes, accumulators, graphs, traces, options, and who has emptied the caches."""
    f = to_tf(lambda x: x**3 * (2.0 if tb.config.read("numpy_rank_promotion") == "warn" else 1.0))
    f(X)
    assert_allclose(f(X).numpy(), X**3)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X)
    assert_allclose(tape.gradient(y, X).numpy(), 3 * X**2)
    with tf.autodiff.ForwardAccumulator(X, X) as accumulator:
        y = f(X)
    assert_allclose(accumulator.jvp(y).numpy(), 3 * X**3)
    assert_allclose(tf.function(lambda: f(X))().numpy(), X**3)
    assert_allclose(tb.grad(lambda x: f(x).sum())(X.numpy()), 3 * X**2)
    with scope("numpy_rank_promotion", "warn"):
        assert_allclose(f(X).numpy(), 2 * X**3)
        assert_allclose(f(X).numpy(), 2 * X**3)
    before = len(general)
    f(X)
    assert before == len(general)
    clear_all()
    assert_allclose(f(X).numpy(), X**3)
    assert before + 1 == len(general)


def test_sizes_that_do_not_fit_are_found_in_each_call() -> None:
    """A call that failed is not known, and what broke a rule breaks it again."""
    f = to_tf(lambda x, y: x + y, polymorphic_shapes=("b", "b"))
    f(X, X)
    for _ in range(2):
        with pytest.raises(tb.errors.ShapeMismatchError, match=r"y\.shape\[0\] is 3"):
            f(X, tf.ones(3))


def test_a_program_of_native_operations(general: list[Any]) -> None:
    """It takes the general path."""
    f = to_tf(tnp.sin, native_ops=True)
    for _ in range(2):
        assert_allclose(f(X).numpy(), np.sin(X))
    assert len(general) == 2


def test_attributes_that_are_prepared_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TensorFlow has moved what takes prepared ones, eager calls give the same."""
    big = np.arange(5000.0, dtype=np.float32)[:, None]
    seen: list[Any] = []

    def values() -> Any:
        functions = [
            to_tf(lambda x: {"a": (x * 2, x.astype("int32")), "b": x + big}),
            to_tf(lambda x: x.sum(), polymorphic_shapes="b"),
            to_tf(lambda x: (x[:0], ())),
            to_tf(lambda x: 0 * x, disabled_checks=("platform",), platforms=("tpu",)),
            to_tf(tb.grad(lambda x: tnp.sin(x).sum())),
        ]
        return [f(x) for f in functions for x in (X, X, tf.ones(3))]

    def counted(*args: Any, **attributes: Any) -> Any:
        seen.append(attributes)
        return call(*args, **attributes)

    call, version = _xla_call_module._operation()
    monkeypatch.setattr(_xla_call_module, "_operation", lambda: (counted, version))
    prepared = values()
    assert not seen
    monkeypatch.setattr(_xla_call_module, "_executor", lambda: None)
    tf.nest.map_structure(np.testing.assert_array_equal, prepared, values())
    assert 15 == len(seen)
