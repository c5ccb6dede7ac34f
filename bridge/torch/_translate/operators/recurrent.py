"""Recurrent networks kept whole: loops over time by ``lax.scan``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import tracebridge.lax as public
import tracebridge.nn as nn
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.random.keys import fold_in
from tracebridge.random.transforms import bernoulli
from tracebridge.torch._translate.numbers import Operator, cast

Carry = tuple[Any, ...]
Cell = Callable[[Any, Carry, Any, Any, Any], tuple[Carry, Any]]
"""From the inputs' part of the gates, the state, and weights of the state: the new state."""


def _lstm_cell(
    gates: Value, carry: Carry, weight: Value, bias: Value | None, projection: Value | None
) -> Any:
    h, c = carry
    gates += _affine(h, weight, bias)
    i, f, g, o = tnp.split(gates, 4, axis=-1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * tnp.tanh(g)
    h = nn.sigmoid(o) * tnp.tanh(c)
    if projection is not None:
        h = tnp.matmul(h, projection.T)
    return (h, c), h


def _gru_cell(
    gates: Value, carry: Carry, weight: Value, bias: Value | None, projection: Value | None
) -> Any:
    (h,) = carry
    r, z, n = tnp.split(gates, 3, axis=-1)
    hr, hz, hn = tnp.split(_affine(h, weight, bias), 3, axis=-1)
    z = nn.sigmoid(z + hz)
    n = tnp.tanh(n + nn.sigmoid(r + hr) * hn)
    h = n + z * (h - n)
    return (h,), h


def _simple_cell(activation: Operator) -> Cell:
    def cell(
        gates: Value, carry: Carry, weight: Value, bias: Value | None, projection: Value | None
    ) -> Any:
        h = activation(gates + _affine(carry[0], weight, bias))
        return (h,), h

    return cell


def _affine(x: Value, weight: Value, bias: Value | None) -> Any:
    y = tnp.matmul(x, weight.T)
    return y if bias is None else y + bias


def _direction(
    cell: Cell, x: Value, carry: Carry, weights: Sequence[Any], reverse: bool
) -> tuple[Carry, Any]:
    """One direction of one layer over an input of shape ``(time, ..., size)``."""
    w_in, w_state, b_in, b_state, projection = weights
    gates = _affine(x, w_in, b_in)  # of all steps in one product

    def step(state: Carry, inputs: Any) -> tuple[Carry, Any]:
        return cell(inputs, state, w_state, b_state, projection)

    return public.scan(step, carry, gates, reverse=reverse)


def _layers(
    cell: Cell,
    key: Value,
    x: Value,
    states: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    directions = 2 if bidirectional else 1
    per = len(params) // (num_layers * directions)
    swap = batch_first and x.ndim == 3
    x = tnp.swapaxes(x, 0, 1) if swap else x
    last: list[Carry] = []
    for layer in range(num_layers):
        outs: list[Any] = []
        for d in range(directions):
            row = layer * directions + d
            weights = list(params[row * per : (row + 1) * per])
            projection = weights.pop() if per in {3, 5} else None
            if not has_biases:
                weights += [None, None]
            carry = tuple([s[row] for s in states])
            carry, out = _direction(cell, x, carry, [*weights, projection], d == 1)
            last.append(carry)
            outs.append(out)
        x = tnp.concatenate(outs, axis=-1) if bidirectional else outs[0]
        if train and dropout > 0 and layer + 1 < num_layers:
            kept = bernoulli(fold_in(key, layer), 1 - dropout, x.shape)
            factor = 1 / (1 - dropout) if dropout < 1 else 0
            x = tnp.where(kept, x * cast(factor, x.dtype), cast(0, x.dtype))
    finals = [tnp.stack(s) for s in zip(*last, strict=True)]
    return (tnp.swapaxes(x, 0, 1) if swap else x, *finals)


def _lstm(key: Value, x: Value, states: Sequence[Any], *args: Any) -> tuple[Any, ...]:
    return _layers(_lstm_cell, key, x, states, *args)


def _one_state(cell: Cell) -> Operator:
    return lambda key, x, state, *args: _layers(cell, key, x, [state], *args)


def _lstm_one(
    x: Value,
    states: Sequence[Any],
    w_in: Value,
    w_state: Value,
    b_in: Value | None = None,
    b_state: Value | None = None,
) -> Any:
    gates = _affine(x, w_in, b_in)
    return _lstm_cell(gates, tuple(states), w_state, b_state, None)[0]


def _one(cell: Cell) -> Operator:
    def run(
        x: Value,
        h: Value,
        w_in: Value,
        w_state: Value,
        b_in: Value | None = None,
        b_state: Value | None = None,
    ) -> Any:
        return cell(_affine(x, w_in, b_in), (h,), w_state, b_state, None)[1]

    return run


ROWS: Final[dict[str, Operator]] = {
    "gru_cell.default": _one(_gru_cell),
    "lstm_cell.default": _lstm_one,
    "rnn_relu_cell.default": _one(_simple_cell(nn.relu)),
    "rnn_tanh_cell.default": _one(_simple_cell(tnp.tanh)),
}
KEYED_ROWS: Final[dict[str, Operator]] = {
    "gru.input": _one_state(_gru_cell),
    "lstm.input": _lstm,
    "rnn_relu.input": _one_state(_simple_cell(nn.relu)),
    "rnn_tanh.input": _one_state(_simple_cell(tnp.tanh)),
}


def draws_in_layers(*args: Any, **_: object) -> bool:
    """Whether a call draws numbers: dropout between layers, while training."""
    return bool(args[6]) and args[5] > 0 and args[4] > 1
