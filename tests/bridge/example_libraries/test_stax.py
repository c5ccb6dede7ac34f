"""Layers as pairs of functions: shapes that they promise, values that they give."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.example_libraries import stax

KEY = tb.random.key(0)
X = np.random.RandomState(0).randn(2, 6, 6, 3).astype(np.float32)
NETWORKS = {
    "dense": (stax.serial(stax.Flatten, stax.Dense(4), stax.LogSoftmax), X),
    "conv": (
        stax.serial(
            stax.Conv(4, (3, 3), padding="SAME"),
            stax.BatchNorm(),
            stax.Relu,
            stax.MaxPool((2, 2), (2, 2)),
            stax.AvgPool((2, 2), padding="SAME"),
            stax.SumPool((2, 2)),
        ),
        X,
    ),
    "transposed": (stax.serial(stax.ConvTranspose(2, (3, 3), (2, 2), "SAME"), stax.Tanh), X),
    "transposed 1d": (stax.Conv1DTranspose(2, (3,), (2,)), X[0]),
    "branches": (
        stax.serial(
            stax.FanOut(2), stax.parallel(stax.Dense(4), stax.Identity), stax.FanInConcat()
        ),
        X[0, 0],
    ),
    "sum of branches": (
        stax.serial(
            stax.FanOut(2),
            stax.parallel(stax.Dense(3), stax.Dropout(0.5)),
            stax.FanInSum,
            stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1])),
        ),
        X[0, 0],
    ),
    "channels first": (stax.MaxPool((2, 2), spec="NCHW"), X),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_have_the_promised_shape(name):
    """The shape is that of the outputs, and the size of the batch stays open."""
    (init, apply), x = NETWORKS[name]
    shape, params = init(KEY, (-1, *x.shape[1:]))
    out = tb.eval_shape(lambda p, x: apply(p, x, rng=KEY), params, x)

    assert shape == (-1, *out.shape[1:])


def test_values_of_dense_pools_and_normalisation():
    """Layers against NumPy."""
    init, apply = stax.Dense(2)
    W, b = init(KEY, (-1, 3))[1]
    np.testing.assert_allclose(apply((W, b), X[0]), X[0] @ np.asarray(W) + b, rtol=1e-5)
    windows = X.reshape(2, 3, 2, 3, 2, 3)
    for layer, reduce in ((stax.MaxPool, np.max), (stax.SumPool, np.sum), (stax.AvgPool, np.mean)):
        out = layer((2, 2), strides=(2, 2))[1]((), X)
        np.testing.assert_allclose(out, reduce(windows, axis=(2, 4)), rtol=1e-4, atol=1e-6)
    init, apply = stax.BatchNorm(axis=(0, 1, 2), scale=False)
    out = apply((tnp.full(3, 2.0), ()), X)
    np.testing.assert_allclose(np.mean(out, (0, 1, 2)), 2.0, rtol=1e-4)


def test_dropout_needs_a_key_and_rests_outside_of_training():
    """Elements stay with the probability `rate`; without a key there is an error."""
    kept = stax.Dropout(0.25)[1]((), np.ones(1000, np.float32), rng=KEY)

    assert set(np.unique(kept)) == {0.0, 4.0}
    assert 0.2 < np.mean(np.asarray(kept) > 0) < 0.3
    assert stax.Dropout(0.25, mode="test")[1]((), X, rng=KEY) is X
    with pytest.raises(ValueError, match="needs a key"):
        stax.Dropout(0.5)[1]((), X)


def test_initializers_have_their_first_names_too():
    """Programs of others say `randn` and `glorot`."""
    assert (stax.normal, stax.glorot_normal) == (stax.randn, stax.glorot)


def test_gradients_reach_all_parameters():
    """A network trains: the gradient of each parameter is there and not zero."""
    (init, apply), x = NETWORKS["dense"]
    params = init(KEY, x.shape)[1]
    grads = tb.grad(lambda p: -tnp.mean(apply(p, x)[:, 0]))(params)

    assert all(bool(tnp.any(g != 0)) for g in tb.tree.leaves(grads))
