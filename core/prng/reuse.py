"""The check of the uses of random keys: each key gives random numbers, or other keys, once.

Every key has an identity, an object that knows where the key was used. An array of keys has an
array of identities of its shape. What moves keys about moves their identities in the same way;
``key_use`` marks them. Programs are followed equation by equation before they run. Where it is not
known which keys a result holds (an index that is computed), it holds new ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import numpy as np

from tracebridge.core.control.branches.cond import cond_p
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.jit.jit import jit_p
from tracebridge.core.control.loops.while_primitive import while_p
from tracebridge.core.control.remat.checkpoint import checkpoint_p
from tracebridge.core.control.scan.primitive import scan_p
from tracebridge.core.errors.filtering import user_frame
from tracebridge.core.errors.transform_errors import KeyReuseError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.elementwise.select import select_n_p
from tracebridge.core.lax.indexing.slice import slice_p
from tracebridge.core.lax.shape.broadcast import broadcast_in_dim_p
from tracebridge.core.lax.shape.concatenate import concatenate_p
from tracebridge.core.lax.shape.reshape import reshape_p, squeeze_p
from tracebridge.core.lax.shape.rev import rev_p
from tracebridge.core.lax.shape.roll import roll_p
from tracebridge.core.lax.shape.split import split_p
from tracebridge.core.lax.shape.stack import stack_p, tile_p, unstack_p
from tracebridge.core.lax.shape.transpose import transpose_p
from tracebridge.core.prng.keys import KeyDType, key_use_p
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.programs.key_watch import KEY_WATCH

# Identities of an array of keys, None for other arrays.
Keys = Any
# Loops of more steps are followed so far only.
_STEPS = 256


@final
class _Identity:
    """One key: where it was used, "" before; ``among``: the keys of which it is one."""

    __slots__ = ("among", "used")

    def __init__(self, used: str = "", among: Sequence[_Identity] = ()) -> None:
        self.used = used
        self.among = among


def _new(aval: ShapedArray, used: str = "") -> Keys:
    """Identities of keys that nobody has seen; None for other arrays."""
    if not isinstance(cast("Any", aval.dtype), KeyDType):
        return None
    shape = tuple([n if isinstance(n, int) else 1 for n in aval.shape])
    out = np.empty(shape, object)
    for place in np.ndindex(shape):
        out[place] = _Identity(used)
    return out


@final
class _Marks:
    """Uses that a program makes; what it was before, until the program runs."""

    __slots__ = ("used",)

    def __init__(self, used: dict[_Identity, str] | None = None) -> None:
        self.used: dict[_Identity, str] = {} if used is None else used

    def of(self, key: _Identity) -> str:
        """Where a key was used, or one of those that it may be."""
        own = self.used.get(key) or key.used
        return own or next(filter(None, map(self.of, key.among)), "")

    def use(self, keys: np.ndarray[Any, Any], by: str, where: str) -> None:
        """Mark keys as used.

        Raises:
            KeyReuseError: one of them was used before.
        """
        # A key that was repeated to several places counts once.
        for key in set(keys.flat):
            first = self.of(key)
            if first:
                msg = f"{by}: the key was used before, by {first}"
                hint = "split it, and use each part once; clone says that a second use is meant"
                raise KeyReuseError(msg, where=where, hint=hint)
            self._mark(key, f"{by} at {where}" if where else by)

    def _mark(self, key: _Identity, used: str) -> None:
        self.used[key] = used
        for other in key.among:
            self._mark(other, used)

    def first_use(self, keys: np.ndarray[Any, Any]) -> str:
        """Where keys were used, if all were."""
        uses = [self.of(key) for key in keys.flat]
        return uses[0] if uses and all(uses) else ""


def _follow(jaxpr: Jaxpr, keys: Sequence[Keys], marks: _Marks, at: str = "") -> list[Keys]:
    """The identities of the results of a program."""
    env: list[Keys] = [*keys, *[_seen(c) for c in jaxpr.consts]]
    for k, (app, idx) in enumerate(jaxpr.equations):
        source = jaxpr.sources[k] if jaxpr.sources else None
        line = at if source is None else describe_line(source) or at
        env.extend(_step(app, [env[i] for i in idx], marks, line))
    return [env[i] for i in jaxpr.outs]


def _step(app: Application, keys: list[Keys], marks: _Marks, line: str) -> list[Keys]:
    """The identities of the results of one equation."""
    primitive, params = app.primitive, app.params
    if primitive is key_use_p:
        (key,) = keys
        if params["use"] == "clone":
            return [_new(a) for a in app.outs]
        if key is not None:
            marks.use(key, params["by"], line)
        return keys
    inner = _PROGRAMS.get(primitive)
    if inner is not None:
        return inner(app, keys, marks, line)
    if all([k is None for k in keys]):
        return [_new(a) for a in app.outs]
    move = _MOVES.get(primitive)
    if move is not None and all([isinstance(n, int) for a in app.avals for n in a.shape]):
        moved = move(params, *keys)
        return list(moved) if app.multiple else [moved]
    if len(keys) == len(app.outs) and all(
        [k is None or o.shape == a.shape for k, a, o in zip(keys, app.avals, app.outs, strict=True)]
    ):
        return [_new(o) if k is None else k for k, o in zip(keys, app.outs, strict=True)]
    used = [marks.first_use(k) for k in keys if k is not None]
    return [_new(a, used[0] if all(used) else "") for a in app.outs]


# programs inside ---------------------------------------------------------------------------------


def _call(app: Application, keys: list[Keys], marks: _Marks, line: str) -> list[Keys]:
    if app.params.get("differentiated"):
        # What a backward pass computes again it uses again, and gives no numbers.
        return [_new(a) for a in app.outs]
    jaxpr = app.params["jaxpr"] if "jaxpr" in app.params else app.params["call_jaxpr"]
    return _follow(jaxpr, keys, marks, line)


def _cond(app: Application, keys: list[Keys], marks: _Marks, line: str) -> list[Keys]:
    """What one branch uses is used; branches do not see each other."""
    branches = app.params["branches"]
    n = len(keys) - branches[0].n_in
    all_marks = [_Marks(dict(marks.used)) for _ in branches]
    results = [_follow(b, keys[n:], own, line) for b, own in zip(branches, all_marks, strict=True)]
    for own in all_marks:
        marks.used.update(own.used)
    outs: list[Keys] = []
    for aval, choices in zip(app.outs, zip(*results, strict=True), strict=True):
        first = choices[0]
        same = first is not None and all([np.all(c == first) for c in choices])
        used = [marks.first_use(c) for c in choices if c is not None]
        outs.append(first if same else _new(aval, next(filter(None, used), "")))
    return outs


def _scan(app: Application, keys: list[Keys], marks: _Marks, line: str) -> list[Keys]:
    """Step by step: constants are the same in each, carries are those of the step before."""
    params = app.params
    n, length = params["num_carry"], params["length"]
    start = params["num_consts"]
    consts, carry, xs = keys[:start], keys[start : start + n], keys[start + n :]
    known = length if isinstance(length, int) else 2
    ys: list[list[Keys]] = []
    order = range(known)
    order = order[::-1] if params["reverse"] else order
    # Without rows of keys, steps after the second one use what it uses.
    rows = any([x is not None for x in xs]) or any([_new(a) is not None for a in app.outs[n:]])
    for i in order[: _STEPS if rows else 2]:
        row = [_row(x, i if isinstance(length, int) else 0) for x in xs]
        outs = _follow(params["jaxpr"], [*consts, *carry, *row], marks, line)
        carry = outs[:n]
        ys.append(outs[n:])
    stacked = [_new(a) for a in app.outs[n:]]
    for y, column in zip(stacked, zip(*ys, strict=True), strict=False):
        if y is not None:
            for i, part in zip(order, column, strict=False):
                y[i : i + 1] = part
    return [*carry, *stacked]


def _while(app: Application, keys: list[Keys], marks: _Marks, line: str) -> list[Keys]:
    """Two steps, since nobody knows how many there are."""
    params = app.params
    first = params["cond_nconsts"]
    second = first + params["body_nconsts"]
    carry = keys[second:]
    for _ in range(2):
        _follow(params["cond_jaxpr"], [*keys[:first], *carry], marks, line)
        carry = _follow(params["body_jaxpr"], [*keys[first:second], *carry], marks, line)
    return carry


_Inner = Callable[[Application, list[Keys], _Marks, str], list[Keys]]
_PROGRAMS: dict[Any, _Inner] = {
    **dict.fromkeys(
        (jit_p, closed_call_p, custom_jvp_call_p, custom_vjp_call_p, checkpoint_p), _call
    ),
    cond_p: _cond,
    scan_p: _scan,
    while_p: _while,
}


# moves -------------------------------------------------------------------------------------------


def _sliced(params: Any, x: Keys) -> Keys:
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * x.ndim
    return x[tuple([slice(*s) for s in zip(starts, limits, strides, strict=True)])]


def _reshaped(params: Any, x: Keys) -> Keys:
    order = params.get("dimensions")
    return (x if order is None else x.transpose(order)).reshape(params["new_sizes"])


def _broadcast(params: Any, x: Keys) -> Keys:
    shape, dims = params["shape"], params["broadcast_dimensions"]
    wide = x.reshape([x.shape[dims.index(i)] if i in dims else 1 for i in range(len(shape))])
    return np.broadcast_to(wide, shape)


def _chosen(params: Any, which: None, *cases: Keys) -> Keys:
    """Keys that are one of several each, nobody knows which: a use of them may be one of any."""
    del params, which
    out = np.empty(cases[0].shape, object)
    for place in np.ndindex(out.shape):
        among = {case[place]: None for case in cases}
        out[place] = next(iter(among)) if len(among) == 1 else _Identity(among=tuple(among))
    return out


def _row(x: Keys, i: int) -> Keys:
    """``x[i]``, an array also where it has one element."""
    return None if x is None else x[i : i + 1].reshape(x.shape[1:])


def _rows(params: Any, x: Keys) -> Keys:
    x = np.moveaxis(x, params["axis"], 0)
    return [_row(x, i) for i in range(x.shape[0])]


def _pieces(params: Any, x: Keys) -> Keys:
    return np.split(x, np.cumsum(params["sizes"])[:-1], params["axis"])


def _joined(join: Callable[..., Keys], axis: int, by: str, arrays: Sequence[Keys]) -> Keys:
    """Arrays in one. A key of several of them would give its numbers for each: it is used."""
    met: set[_Identity] = set()
    distinct: list[Keys] = []
    for keys in arrays:
        spent = {key: _Identity(f"{by}, which got it twice") for key in met & set(keys.flat)}
        met.update(keys.flat)
        own = np.empty(keys.size, object)
        own[:] = [spent.get(key, key) for key in keys.flat]
        distinct.append(own.reshape(keys.shape))
    return join(distinct, axis)


# Primitive -> function of parameters and identities.
_MOVES: dict[Any, Callable[..., Any]] = {
    slice_p: _sliced,
    reshape_p: _reshaped,
    squeeze_p: lambda params, x: x.squeeze(params["dimensions"]),
    transpose_p: lambda params, x: x.transpose(params["permutation"]),
    rev_p: lambda params, x: np.flip(x, params["dimensions"]),
    roll_p: lambda params, x: np.roll(x, params["shift"], params["dimension"]),
    broadcast_in_dim_p: _broadcast,
    concatenate_p: lambda params, *xs: _joined(
        np.concatenate, params["dimension"], "concatenate", xs
    ),
    stack_p: lambda params, *xs: _joined(np.stack, params["axis"], "stack", xs),
    unstack_p: _rows,
    split_p: _pieces,
    tile_p: lambda params, x: np.tile(x, params["reps"]),
    select_n_p: _chosen,
}


# arrays ------------------------------------------------------------------------------------------


@final
class _Known:
    """The identities of arrays that exist, as long as these do."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[int, tuple[weakref.ref[Any], Keys]] = {}

    def put(self, array: Array, keys: Keys) -> None:
        """Note what keys an array holds."""
        number, by_id = id(array), self.by_id
        by_id[number] = weakref.ref(array, lambda _: by_id.pop(number, None)), keys

    def get(self, array: Array) -> Keys:
        """The keys of an array; new ones if it is seen for the first time."""
        found = self.by_id.get(id(array))
        if found is None:
            self.put(array, _new(array.aval))
            found = self.by_id[id(array)]
        return found[1]


_KNOWN = _Known()


def _seen(value: Any) -> Keys:
    """The identities of an array of keys, None for anything else."""
    if type(value) is not Array or not isinstance(cast("Any", value.aval.dtype), KeyDType):
        return None
    return _KNOWN.get(value)


@final
class _ReuseCheck:
    """Follows programs before they run."""

    __slots__ = ()

    def before(self, jaxpr: Jaxpr, args: Sequence[Any]) -> Sequence[Any]:
        """The identities of the results.

        Raises:
            KeyReuseError: a key is used twice.
        """
        marks = _Marks()
        frame = user_frame()
        line = "" if frame is None else "{}:{} ({})".format(*frame)
        outs = _follow(jaxpr, [_seen(a) for a in args], marks, line)
        for key, used in marks.used.items():
            key.used = used
        return outs

    def after(self, notes: Sequence[Any], outs: Sequence[Any]) -> None:
        """Note what keys the results hold."""
        for keys, out in zip(notes, outs, strict=True):
            if keys is not None and type(out) is Array:
                _KNOWN.put(out, keys)


# From the first import on: what is done with keys before their first use counts, too.
KEY_WATCH.observer = _ReuseCheck()


def marked(key: Value, use: str, by: str) -> Any:
    """A key that the function ``by`` uses."""
    return key_use_p.bind(key, use=use, by=by)
