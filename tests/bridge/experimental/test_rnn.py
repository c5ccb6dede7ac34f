"""LSTM layers, compared with those of PyTorch step by step in NumPy."""

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.experimental import rnn
from tracebridge.testing import assert_allclose

BATCH, STEPS, INPUTS, HIDDEN = 3, 5, 2, 4
LENGTHS = np.int32([5, 2, 3])


def problem(layers: int, bidirectional: bool):
    rng = np.random.default_rng(0)
    n = layers * (1 + bidirectional)
    x = rng.normal(size=(BATCH, STEPS, INPUTS)).astype(np.float32)
    h, c = rng.normal(size=(2, n, BATCH, HIDDEN)).astype(np.float32)
    size = rnn.get_num_params_in_lstm(INPUTS, HIDDEN, layers, bidirectional)
    weights = rng.uniform(-1, 1, size).astype(np.float32)
    return x, h, c, weights


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def one_direction(x, h, c, W_ih, W_hh, b_ih, b_hh):
    """Hidden states at each step of one sequence."""
    out = []
    for step in x:
        i, f, g, o = np.split(W_ih @ step + b_ih + W_hh @ h + b_hh, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.array(out), h, c


@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_values(layers: int, bidirectional: bool) -> None:
    """Each sequence ends where it ends, also when it is read backwards."""
    x, h_0, c_0, weights = problem(layers, bidirectional)
    options = (INPUTS, HIDDEN, layers, 0.0, bidirectional)

    @tb.jit
    def fun(x, h_0, c_0, weights):
        parts = rnn.unpack_lstm_weights(weights, INPUTS, HIDDEN, layers, bidirectional)
        by_parts = rnn.lstm_ref(x, h_0, c_0, *parts, LENGTHS, *options)
        return parts, by_parts, rnn.lstm(x, h_0, c_0, weights, LENGTHS, *options)

    parts, by_parts, (y, h, c) = fun(x, h_0, c_0, weights)

    directions = 1 + bidirectional
    for b, length in enumerate(LENGTHS):
        rows = x[b, :length]
        for layer in range(layers):
            out = []
            for k in range(layer * directions, (layer + 1) * directions):
                turn = slice(None, None, -1 if k % directions else 1)
                arrays = [np.asarray(part[k]) for part in parts]
                found, last_h, last_c = one_direction(rows[turn], h_0[k, b], c_0[k, b], *arrays)
                out.append(found[turn])
                assert_allclose(h[k, b], last_h, rtol=1e-4, atol=1e-5)
                assert_allclose(c[k, b], last_c, rtol=1e-4, atol=1e-5)
            rows = np.concatenate(out, axis=-1)
        assert_allclose(y[b, :length], rows, rtol=1e-4, atol=1e-5)
        assert not np.any(y[b, length:])
    assert_allclose(by_parts[0], y, rtol=1e-5, atol=1e-6)


def test_gradients_and_gates() -> None:
    """Derivatives in weights and states; exchanging gates twice changes nothing."""
    x, h_0, c_0, weights = problem(1, False)
    options = (INPUTS, HIDDEN, 1, 0.0, False)

    check_grads(
        lambda *arrays: rnn.lstm(x, *arrays, LENGTHS, *options)[0],
        (h_0, c_0, weights),
        1,
        atol=2e-2,
        rtol=2e-2,
    )
    swap = tb.jit(lambda w: rnn.swap_lstm_gates(w, INPUTS, HIDDEN, 1, False))
    assert not np.array_equal(weights, swap(weights))
    assert np.array_equal(weights, swap(swap(weights)))
    drawn = tb.jit(rnn.init_lstm_weight, static_argnums=(1, 2, 3, 4))(
        tb.random.key(1), 2, 4, 1, True
    )
    assert 0.4 < np.max(np.abs(drawn)) <= 0.5


def test_wrong_arguments() -> None:
    """Lengths of another dtype, dropout, and weights of another size are refused."""
    x, h_0, c_0, weights = problem(1, False)

    with pytest.raises(ValueError, match="seq_lengths is f32"):
        rnn.lstm(x, h_0, c_0, weights, LENGTHS.astype("f"), INPUTS, HIDDEN, 1, 0.0, False)
    with pytest.raises(ValueError, match=r"dropout is 0\.5"):
        rnn.lstm(x, h_0, c_0, weights, LENGTHS, INPUTS, HIDDEN, 1, 0.5, False)
    with pytest.raises(TypeError, match="weights has the shape"):
        rnn.lstm(x, h_0, c_0, weights[1:], LENGTHS, INPUTS, HIDDEN, 1, 0.0, False)
