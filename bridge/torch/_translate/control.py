"""Control flow of torch: its higher-order operators over graphs that have been translated.

A graph is a function ``(values, key) -> results``; where it draws random numbers, the key is not
None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

import tracebridge.numpy as tnp
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.control.loops.associative_scan import associative_scan
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.scan.forward import scan
from tracebridge.random.keys import fold_in

Body = Callable[[Sequence[Any], Any], list[Any]]
Values = Sequence[Any]


def _arrays(values: Values) -> list[Any]:
    """Numbers as arrays: a loop carries nothing else."""
    return [tnp.asarray(v) for v in values]


def _like(values: Values, carried: Values) -> list[Any]:
    """The new values of a loop with the dtypes of those before."""
    return [tnp.asarray(v).astype(c.dtype) for v, c in zip(values, carried, strict=True)]


def _at(key: Any, step: Any) -> Any:
    return None if key is None else fold_in(key, step.astype(np.uint32))


def _cond(key: Any, which: Any, yes: Body, no: Body, operands: Values = ()) -> list[Any]:
    if isinstance(which, bool):
        return (yes if which else no)(operands, key)
    return cond(
        tnp.reshape(which, ()),
        lambda *values: yes(values, key),
        lambda *values: no(values, key),
        *_arrays(operands),
    )


def _while(key: Any, test: Body, body: Body, carried: Values, others: Values = ()) -> list[Any]:
    def goes_on(state: Any) -> Any:
        step, values = state
        return tnp.reshape(tnp.asarray(test([*values, *others], _at(key, step))[0]), ())

    def one(state: Any) -> Any:
        step, values = state
        new = body([*values, *others], _at(key, step))
        return step + np.int32(1), _like(new, values)

    start = (tnp.zeros((), np.int32), _arrays(carried))
    return while_loop(goes_on, one, start)[1]


def _scan(key: Any, body: Body, init: Values, xs: Values, others: Values = ()) -> list[Any]:
    n = len(init)

    def one(state: Any, x: Any) -> Any:
        step, values = state
        results = body([*values, *x, *others], _at(key, step))
        return (step + np.int32(1), _like(results[:n], values)), results[n:]

    (_, last), ys = scan(one, (tnp.zeros((), np.int32), _arrays(init)), list(xs))
    return [*last, *ys]


def _map(key: Any, body: Body, xs: Values, others: Values = ()) -> list[Any]:
    return _scan(key, body, [], xs, others)


def _associative(key: Any, body: Body, xs: Values, others: Values = ()) -> list[Any]:
    def joined(a: Values, b: Values) -> list[Any]:
        return body([*a, *b, *others], key)

    return list(associative_scan(vmap(joined), list(xs)))


ROWS: Final[dict[str, Callable[..., list[Any]]]] = {
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative,
}


def control_function(target: Any) -> Callable[..., list[Any]] | None:
    """What runs a higher-order operator: a function of a key and the operator's arguments."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return ROWS.get(target.name())
    return None
