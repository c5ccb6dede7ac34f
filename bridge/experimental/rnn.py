"""LSTM layers over padded sequences, with all weights of all layers in one vector.

The order of the vector is that of cuDNN: the matrices of each pseudo-layer, for its input and for
its state, then the biases of each in the same order. A pseudo-layer is one direction of one layer:
layer 0 forward, layer 0 backward, layer 1 forward, and so on. Each matrix has the rows of four
gates: input, forget, cell, output.

Source: Hochreiter, Schmidhuber (1997), Neural Computation 9(8), with the forget gate of Gers,
Schmidhuber, Cummins (2000), Neural Computation 12(10).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.random.uniform import uniform

__all__ = [
    "get_num_params_in_lstm",
    "init_lstm_weight",
    "lstm",
    "lstm_ref",
    "swap_lstm_gates",
    "unpack_lstm_weights",
]

_GATES = 4


def _shapes(
    input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> list[tuple[int, ...]]:
    """The shapes of the parts of the vector, in their order."""
    directions = 2 if bidirectional else 1
    rows = _GATES * hidden_size
    matrices: list[tuple[int, ...]] = []
    for layer in range(num_layers * directions):
        first = layer < directions
        matrices.append((rows, input_size if first else directions * hidden_size))
        matrices.append((rows, hidden_size))
    return matrices + [(rows,)] * len(matrices)


def _parts(weights: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """The vector cut into arrays."""
    sizes = [math.prod(shape) for shape in shapes]
    if weights.shape != (sum(sizes),):
        msg = f"lstm: weights has the shape {weights.shape}"
        raise ShapeMismatchError(msg, expected=f"{(sum(sizes),)}, see get_num_params_in_lstm")
    ends = np.cumsum(sizes)
    return [
        lax.reshape(weights[end - size : end], shape)
        for end, size, shape in zip(ends.tolist(), sizes, shapes, strict=True)
    ]


def get_num_params_in_lstm(
    input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> int:
    """How many weights an LSTM has.

    Args:
        input_size: features of each step of the input.
        hidden_size: features of the state.
        num_layers: layers on top of each other.
        bidirectional: whether each layer also reads backwards.

    >>> from tracebridge.experimental.rnn import get_num_params_in_lstm
    >>> get_num_params_in_lstm(2, 3, num_layers=1, bidirectional=False)
    84
    """
    return sum(map(math.prod, _shapes(input_size, hidden_size, num_layers, bidirectional)))


def init_lstm_weight(
    rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Any:
    """Random weights, uniform between plus and minus ``hidden_size ** -0.5``.

    Args:
        rng: a random key.
        input_size: as in `get_num_params_in_lstm`, like the others.
        hidden_size: features of the state.
        num_layers: layers on top of each other.
        bidirectional: whether each layer also reads backwards.

    Returns:
        float32 array of shape ``(get_num_params_in_lstm(...),)``.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.rnn import init_lstm_weight
    >>> init_lstm_weight(tb.random.key(0), 2, 3, num_layers=1, bidirectional=True).shape
    (168,)
    """
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    bound = hidden_size**-0.5
    return uniform(rng, (count,), np.dtype(np.float32), minval=-bound, maxval=bound)


def swap_lstm_gates(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Any:
    """The vector with the rows of the cell gate and of the output gate exchanged.

    Some libraries have them in that order; twice gives the vector again.

    Args:
        weights: array of shape ``(get_num_params_in_lstm(...),)``.
        input_size: as in `get_num_params_in_lstm`, like the others.
        hidden_size: features of the state.
        num_layers: layers on top of each other.
        bidirectional: whether each layer also reads backwards.

    Raises:
        ShapeMismatchError: the vector has another length.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.rnn import swap_lstm_gates
    >>> print(swap_lstm_gates(tnp.arange(16), 1, 1, num_layers=1, bidirectional=False))
    [ 0  1  3  2  4  5  7  6  8  9 11 10 12 13 15 14]
    """
    order = np.arange(_GATES * hidden_size).reshape(_GATES, hidden_size)[[0, 1, 3, 2]].ravel()
    parts = _parts(as_value(weights), _shapes(input_size, hidden_size, num_layers, bidirectional))
    return tnp.concatenate([tnp.ravel(part[order]) for part in parts])


def unpack_lstm_weights(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any], dict[int, Any]]:
    """The weights of each pseudo-layer.

    Args:
        weights: array of shape ``(get_num_params_in_lstm(...),)``.
        input_size: as in `get_num_params_in_lstm`, like the others.
        hidden_size: features of the state.
        num_layers: layers on top of each other.
        bidirectional: whether each layer also reads backwards.

    Returns:
        Dictionaries by the number of the pseudo-layer: matrices for the input, of shape
        ``(4 * hidden_size, features)``, matrices for the state, and the biases of both.

    Raises:
        ShapeMismatchError: the vector has another length.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.rnn import unpack_lstm_weights
    >>> matrices, *_ = unpack_lstm_weights(tnp.zeros(84), 2, 3, num_layers=1, bidirectional=False)
    >>> matrices[0].shape
    (12, 2)
    """
    parts = _parts(as_value(weights), _shapes(input_size, hidden_size, num_layers, bidirectional))
    half = len(parts) // 2
    matrices, biases = parts[:half], parts[half:]
    kinds = (matrices[::2], matrices[1::2], biases[::2], biases[1::2])
    W_ih, W_hh, b_ih, b_hh = [dict(enumerate(kind)) for kind in kinds]
    return W_ih, W_hh, b_ih, b_hh


def lstm(
    x: Any,
    h_0: Any,
    c_0: Any,
    weights: Any,
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Any, Any, Any]:
    """Layers of an LSTM over a batch of sequences.

    Args:
        x: floats of shape ``(batch, steps, input_size)``.
        h_0: first hidden states, of shape ``(pseudo-layers, batch, hidden_size)``; there are
            ``num_layers``, or twice as many if ``bidirectional``.
        c_0: first cell states, of the same shape.
        weights: array of shape ``(get_num_params_in_lstm(...),)``.
        seq_lengths: int32 array of shape ``(batch,)``: how many steps each sequence has.
        input_size: features of each step of the input.
        hidden_size: features of the state.
        num_layers: layers on top of each other.
        dropout: 0: no values are dropped between layers.
        bidirectional: whether each layer also reads backwards.
        precision: of the matrix products, as in `lax.dot`.

    Returns:
        Outputs of shape ``(batch, steps, hidden_size)``, or twice as many features, zeros after
        the end of a sequence; hidden states and cell states at the ends, of the shape of ``h_0``.

    Raises:
        ShapeMismatchError: the vector of weights has another length.
        DtypeMismatchError: ``seq_lengths`` has another dtype.
        ArgumentValueError: ``dropout`` is not 0.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.rnn import init_lstm_weight, lstm
    >>> weights = init_lstm_weight(tb.random.key(0), 2, 3, num_layers=1, bidirectional=False)
    >>> state = tnp.zeros((1, 1, 3))
    >>> lengths = tnp.array([3], "int32")
    >>> y, h, c = lstm(tnp.ones((1, 4, 2)), state, state, weights, lengths, 2, 3, 1, 0.0, False)
    >>> y.shape, bool((y[0, 2] == h[0, 0]).all()), float(abs(y[0, 3]).sum())
    ((1, 4, 3), True, 0.0)
    """
    parts = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    sizes = seq_lengths, input_size, hidden_size, num_layers, dropout, bidirectional
    return _layers(x, h_0, c_0, parts, *sizes, precision)


def lstm_ref(
    x: Any,
    h_0: Any,
    c_0: Any,
    W_ih: Mapping[int, Any],
    W_hh: Mapping[int, Any],
    b_ih: Mapping[int, Any],
    b_hh: Mapping[int, Any],
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[Any, Any, Any]:
    """`lstm` with the weights of each pseudo-layer by themselves.

    Args:
        x: as in `lstm`, like all others.
        h_0: first hidden states.
        c_0: first cell states.
        W_ih: matrices for the input, as `unpack_lstm_weights` gives them, like the next three.
        W_hh: matrices for the state.
        b_ih: biases of the input.
        b_hh: biases of the state.
        seq_lengths: how many steps each sequence has.
        input_size: features of each step of the input.
        hidden_size: features of the state.
        num_layers: layers on top of each other.
        dropout: 0.
        bidirectional: whether each layer also reads backwards.

    Returns:
        As `lstm`.

    Raises:
        DtypeMismatchError: ``seq_lengths`` has another dtype.
        ArgumentValueError: ``dropout`` is not 0.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.rnn import lstm_ref, unpack_lstm_weights
    >>> parts = unpack_lstm_weights(tnp.zeros(84), 2, 3, num_layers=1, bidirectional=False)
    >>> state, lengths = tnp.ones((1, 1, 3)), tnp.array([4], "int32")
    >>> _, _, c = lstm_ref(
    ...     tnp.ones((1, 4, 2)), state, state, *parts, lengths, 2, 3, 1, 0.0, False)
    >>> print(c[0, 0])
    [0.0625 0.0625 0.0625]
    """
    parts = W_ih, W_hh, b_ih, b_hh
    sizes = seq_lengths, input_size, hidden_size, num_layers, dropout, bidirectional
    return _layers(x, h_0, c_0, parts, *sizes, None)


def _layers(
    x: Any,
    h_0: Any,
    c_0: Any,
    parts: tuple[Mapping[int, Any], ...],
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any,
) -> tuple[Any, Any, Any]:
    del input_size, hidden_size
    lengths = as_value(seq_lengths)
    if lengths.aval.dtype != np.int32:
        msg = f"lstm: seq_lengths is {lengths.aval.str_short()}"
        raise DtypeMismatchError(msg, expected="int32")
    if dropout != 0:
        msg = f"lstm: dropout is {dropout!r}"
        raise ArgumentValueError(msg, expected="0", hint="drop values between calls for a layer")
    steps = tnp.moveaxis(tnp.asarray(x), 0, 1)
    here = tnp.arange(steps.shape[0], dtype="int32")[:, None] < lengths[None, :]
    directions = 2 if bidirectional else 1
    ends: list[Any] = []
    for layer in range(num_layers):
        outputs: list[Any] = []
        for k in range(directions * layer, directions * (layer + 1)):
            step = functools.partial(_step, [part[k] for part in parts], precision)
            # Read backwards, the padding comes first: the state waits until it is over.
            end, output = scan(step, (h_0[k], c_0[k]), (steps, here), reverse=k % directions == 1)
            ends.append(end)
            outputs.append(output)
        steps = tnp.concatenate(outputs, axis=-1)
    return (
        tnp.moveaxis(steps, 0, 1),
        tnp.stack([h for h, _ in ends]),
        tnp.stack([c for _, c in ends]),
    )


def _step(parts: list[Any], precision: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
    """One step of one direction of one layer; sequences that are over keep their state."""
    x, here = inputs
    h, c = state
    W_ih, W_hh, b_ih, b_hh = parts
    product = functools.partial(tnp.matmul, precision=precision)
    gates = product(x, W_ih.T) + b_ih + product(h, W_hh.T) + b_hh
    entry, keep, cell, output = tnp.split(gates, _GATES, axis=-1)
    new_c = lax.logistic(keep) * c + lax.logistic(entry) * lax.tanh(cell)
    new_h = lax.logistic(output) * lax.tanh(new_c)
    goes_on = here[:, None]
    kept = tnp.where(goes_on, new_h, h), tnp.where(goes_on, new_c, c)
    return kept, tnp.where(goes_on, new_h, 0)


_shield(globals(), __name__)
