"""Staged functions: array functions whose work in Python is done once per kind of argument.

A staged function is a Python function of values, made of engine operations. For each combination
of argument avals and static arguments it is staged once into a body. Under a trace its
equations are replayed into the trace; eagerly the whole body runs as one executable. So deciding
dtypes, axes and broadcasts costs nothing on later calls, and an eager ``mean`` is one dispatch.

Python scalars are keyed by their type: ``x + 1.0`` and ``x + 2.0`` share a body. Where the body
would only convert the scalar, it takes it in the right dtype from the start.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.inner_steps import inner_steps
from tracebridge.core.config.state import settled_state, state, with_trace
from tracebridge.core.config.values import on_global_change, option, tracing_key
from tracebridge.core.errors.argument_errors import IntegerRangeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.interpreters.staged_rules import StagedRule, stage_function
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.trace import innermost
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import array_value
from tracebridge.core.ir.values import scalar_value
from tracebridge.core.runtime.arrays.array import Array, share
from tracebridge.core.runtime.arrays.lent import Room, lending, operand, run_on_loan
from tracebridge.core.runtime.arrays.placement import (
    MeshPlacement,
    all_at,
    choose_placement,
    is_spread,
    moving,
    wishes_inside,
)
from tracebridge.core.runtime.arrays.transfer import move, put_literal
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.runtime.backends.guards import check_execution
from tracebridge.core.runtime.calls.dispatch import raise_for, to_array
from tracebridge.core.runtime.calls.execute import LIST, SINGLE, make_run
from tracebridge.core.runtime.calls.fold_scalars import fold_scalars
from tracebridge.core.runtime.calls.recording import RECORDERS, note, recorded
from tracebridge.core.runtime.calls.scalars import SCALAR_TYPES, SCALARS, coerce, scalar_array
from tracebridge.core.runtime.programs.compile import compile_jaxpr
from tracebridge.core.runtime.programs.debug import check_finite, checked, wants_checks
from tracebridge.core.runtime.programs.key_watch import watched, watches_keys
from tracebridge.core.util.caching import register_cache

MAX_ENTRIES = 8192
_ALL: weakref.WeakSet[StagedFunction] = weakref.WeakSet()


@final
class StagedBody:
    """A staged body with the avals that its scalar arguments are converted to (None for arrays)."""

    __slots__ = ("rule", "scalars", "single")

    def __init__(
        self, rule: StagedRule, scalars: tuple[ShapedArray | None, ...], single: bool
    ) -> None:
        self.rule = rule
        self.scalars = scalars
        self.single = single


@final
class StagedFunction:
    """Function ``fun(*values, *statics)`` with its bodies. Results: one value, or a list.

    ``exact``: the types of statics matter (1, 1.0 and True give different results).
    ``judges``: options of promotion hold for its arguments, which it combines. What it calls is
    never judged.
    """

    __slots__ = ("__weakref__", "bodies", "exact", "fun", "judges", "name", "runs")

    def __init__(
        self,
        fun: Callable[..., Any],
        name: str = "",
        *,
        exact: bool = False,
        judges: bool = True,
    ) -> None:
        self.fun = fun
        self.name = name or fun.__name__.strip("_")
        self.exact = exact
        self.judges = judges
        # (keys of the arguments..., statics) -> StagedBody; a key is an aval or a scalar's type.
        self.bodies: dict[Any, StagedBody] = {}
        # (keys of the arguments..., statics) -> function of the arguments; a key is a signature
        # or a scalar's type. Only for the default state.
        self.runs: dict[Any, Any] = {}
        _ALL.add(self)
        register_cache(self)

    def clear(self) -> None:
        """Forget all bodies and executables."""
        self.bodies.clear()
        self.runs.clear()

    def __len__(self) -> int:
        return len(self.bodies) + len(self.runs)

    def __call__(self, arrays: Sequence[Any], statics: tuple[Any, ...] = ()) -> Any:
        """Apply to array arguments and hashable static arguments."""
        current = state()
        if current is None:
            try:
                # Types of what is no array: an object could forward ``sig`` to one of its own.
                keys: list[Any] = [a._sig if type(a) is Array else type(a) for a in arrays]
                if self.exact:
                    keys.append(repr(statics))
                run = self.runs[(*keys, statics)]
            except (KeyError, AttributeError, TypeError):
                run = None
            # Outside the handler, so that errors of the slow path have no KeyError as context.
            if run is None:
                return self.eager(arrays, statics)
            if RECORDERS:
                return recorded(run, arrays, self.name)
            try:
                return run(*arrays)
            except XlaRuntimeError as error:
                raise_for(arrays, self.name, error)
                raise
        trace = current.trace
        if trace is None:
            return self.eager(arrays, statics)
        if trace.done and settled_state() is not current:
            return self(arrays, statics)
        return self.staged(arrays, statics, current)

    # under a trace -------------------------------------------------------------------------------

    def staged(self, arrays: Sequence[Any], statics: tuple[Any, ...], current: Any) -> Any:
        """Replay the body into the current trace."""
        keys: list[Any] = []
        values: list[Any] = []
        for a in arrays:
            kind = type(a)
            if kind in SCALAR_TYPES:
                keys.append(kind)
                values.append(a)
            else:
                # On the class: objects that forward attributes to an array are no arrays.
                value = a if issubclass(kind, EngineValue) else array_value(a, self.name)
                keys.append(value.aval)
                values.append(value)
        key = (*keys, statics) if not current.key else (*keys, statics, current.key)
        body = None if self.exact else self.bodies.get(key)
        if body is None:
            body = self.make_body(keys, statics, key)
        for i, aval in enumerate(body.scalars):
            if aval is not None:
                values[i] = coerce(values[i], aval)
        results = body.rule.replay(current.trace.process, values)
        return results[0] if body.single else results

    def make_body(self, keys: list[Any], statics: tuple[Any, ...], key: Any) -> StagedBody:
        """Stage the function for these kinds of arguments."""
        if self.exact:
            key = (key, tuple([(type(s), repr(s)) for s in statics]))
            cached = self.bodies.get(key)
            if cached is not None:
                return cached
        scalars = [k in SCALAR_TYPES if isinstance(k, type) else False for k in keys]
        avals = [scalar_value(k()).aval if s else k for k, s in zip(keys, scalars, strict=True)]
        is_list: list[bool] = []

        def flat(*values: Any) -> tuple[list[Any], None]:
            with inner_steps(judges=self.judges):
                out = self.fun(*values, *statics)
            is_list.append(isinstance(out, list | tuple))
            return (list(out) if is_list[-1] else [out]), None

        rule = stage_function(lambda *vs: flat(*vs), avals)
        rule, targets = fold_scalars(rule, scalars)
        cached = StagedBody(rule, targets, not is_list[-1])
        if len(self.bodies) >= MAX_ENTRIES:
            self.bodies.clear()
        self.bodies[key] = cached
        return cached

    # eager ---------------------------------------------------------------------------------------

    def eager(self, arrays: Sequence[Any], statics: tuple[Any, ...]) -> Any:
        """Any kinds of arguments, any options."""
        check_execution(self.name)
        current = state()
        values: list[Any] = []
        taken: list[Room] = []
        for a in arrays:
            if type(a) is Array or type(a) in SCALAR_TYPES:
                values.append(a)
                continue
            if type(a) is np.ndarray and current is None:
                values.append(operand(a, taken))
                continue
            value = array_value(a, self.name)
            if isinstance(value, Tracer):
                whole = [_operand(other, self.name) for other in arrays]
                trace = innermost(whole)
                if trace is not None:
                    return self.staged(whole, statics, with_trace(current, trace))
                # A tracer of a finished trace: the eager trace words the error.
                return to_array(value)
            values.append(to_array(value))
        keys = [v._sig if type(v) is Array else type(v) for v in values]
        key: Any = (*keys, repr(statics), statics) if self.exact else (*keys, statics)
        watching = watches_keys()
        if current is not None or watching:
            key = (key, tracing_key(), option("default_device"))
        run = self.runs.get(key)
        if run is None:
            run = self.make_run(values, keys, statics)
            if watching:
                run = watched(run, self.body(keys, statics).rule.jaxpr)
            if current is None and wants_checks():
                # The next call finds this function and no check.
                run = checked(run, self.name)
            if len(self.runs) >= MAX_ENTRIES:
                self.runs.clear()
            self.runs[key] = run
        try:
            out = run_on_loan(run, values, taken)
        except XlaRuntimeError as error:
            raise_for(values, self.name, error)
            raise
        if RECORDERS:
            note(run, values, out)
        if current is not None and wants_checks():
            check_finite(out if isinstance(out, list) else [out], self.name)
        return out

    def body(self, keys: list[Any], statics: tuple[Any, ...]) -> StagedBody:
        """The body for these signatures."""
        avals = [k if isinstance(k, type) else k.aval for k in keys]
        current = state()
        body_key = (*avals, statics)
        if current is not None and current.key:
            body_key = (*body_key, current.key)
        body = None if self.exact else self.bodies.get(body_key)
        return self.make_body(avals, statics, body_key) if body is None else body

    def make_run(
        self, values: Sequence[Any], keys: list[Any], statics: tuple[Any, ...]
    ) -> Callable[..., Any]:
        """Compile the body for these signatures."""
        body = self.body(keys, statics)
        jaxpr = body.rule.jaxpr
        if body.single and jaxpr.outs[0] < jaxpr.n_in and body.scalars[jaxpr.outs[0]] is None:
            return _pick(jaxpr.outs[0])
        arrays = [
            v if aval is None else scalar_array(v, aval)
            for v, aval in zip(values, body.scalars, strict=True)
        ]
        sigs = [a._sig for a in arrays]
        placement, committed = choose_placement(sigs, self.name, wishes=wishes_inside(jaxpr))
        program = compile_jaxpr(jaxpr, self.name, placement, of_library=True)
        form = SINGLE if body.single else LIST
        run = make_run(program, len(arrays), form, committed=committed)
        has_scalars = any([aval is not None for aval in body.scalars])
        if has_scalars and is_spread(placement):
            return _with_scalars_at(run, body.scalars, sigs, placement)
        if not all_at(sigs, placement):
            run = moving(run, placement)
        return _with_scalars(run, body.scalars) if has_scalars else run


def _operand(x: object, name: str) -> Any:
    """``x`` as a value, or a Python number as it is."""
    return x if type(x) in SCALAR_TYPES else array_value(x, name)


def _pick(index: int) -> Callable[..., Any]:
    """A body that gives one of its arguments back."""

    def run(*values: object) -> Any:
        return values[index]

    return run


def _with_scalars(
    run: Callable[..., object], scalars: tuple[ShapedArray | None, ...]
) -> Callable[..., Any]:
    """``run`` with Python scalars turned into arrays. What has them once reads the attributes."""
    made: Any = lending(_scalars_turned(run, scalars), run)
    made.inner, made.scalars = run, scalars
    return made


def _scalars_turned(
    run: Callable[..., object], scalars: tuple[ShapedArray | None, ...]
) -> Callable[..., Any]:
    if len(scalars) == 2 and scalars[0] is None:
        aval = scalars[1]

        def run_binary(x: object, y: object) -> Any:
            return run(x, scalar_array(y, aval))

        return run_binary

    def run_general(*values: object) -> Any:
        arrays = [
            v if aval is None else scalar_array(v, aval)
            for v, aval in zip(values, scalars, strict=True)
        ]
        return run(*arrays)

    return run_general


def _with_scalars_at(
    run: Callable[..., Any],
    scalars: tuple[ShapedArray | None, ...],
    sigs: Sequence[Any],
    placement: MeshPlacement,
) -> Callable[..., Any]:
    """The same for several devices: scalars are kept where they were copied to."""
    wanted = placement.in_shardings
    moves = any(
        [
            aval is None and sig.sharding is not place
            for aval, sig, place in zip(scalars, sigs, wanted, strict=True)
        ]
    )
    inner = moving(run, placement) if moves else run

    def run_spread(*values: object) -> Any:
        arrays = [
            v if aval is None else _scalar_at(v, aval, place)
            for v, aval, place in zip(values, scalars, wanted, strict=True)
        ]
        return inner(*arrays)

    return run_spread


def _scalar_at(value: Any, aval: ShapedArray, place: Any) -> Array:
    """The scalar of a Python number on the devices of a sharding (bounded cache)."""
    key = (aval, value, place) if value else (aval, repr(value), place)
    found = SCALARS.get(key)
    if found is None:
        found = move(put_literal(coerce(value, aval)), place, committed=True)
        SCALARS.set(key, share(found))
    return found


# fast entries ------------------------------------------------------------------------------------


def unary(staged_function: StagedFunction) -> Callable[[Any], Any]:
    """``f(x)`` of a staged function of one array, with the shortest path to its executable."""
    runs = staged_function.runs

    def call(x: object, /) -> Any:
        try:
            if state() is None:
                try:
                    run = runs[x._sig, ()] if type(x) is Array else None
                except (KeyError, AttributeError, TypeError):
                    run = None
                if run is None:
                    return staged_function.eager((x,), ())
                if RECORDERS:
                    return recorded(run, (x,), staged_function.name)
                try:
                    return run(x)
                except XlaRuntimeError as error:
                    raise_for((x,), staged_function.name, error)
                    raise
            return staged_function((x,))
        except Exception as error:
            hide_internal_frames(error)
            raise

    return call


def unary_with_statics(staged_function: StagedFunction) -> Callable[[Any, tuple[Any, ...]], Any]:
    """``f(x, statics)`` of a staged function of one array, likewise."""
    runs, exact = staged_function.runs, staged_function.exact

    def call(x: object, statics: tuple[Any, ...]) -> Any:
        try:
            if state() is None:
                try:
                    if type(x) is not Array:
                        run = None
                    elif exact:
                        run = runs[x._sig, repr(statics), statics]
                    else:
                        run = runs[x._sig, statics]
                except (KeyError, AttributeError, TypeError):
                    run = None
                if run is None:
                    return staged_function.eager((x,), statics)
                if RECORDERS:
                    return recorded(run, (x,), staged_function.name)
                try:
                    return run(x)
                except XlaRuntimeError as error:
                    raise_for((x,), staged_function.name, error)
                    raise
            return staged_function((x,), statics)
        except Exception as error:
            hide_internal_frames(error)
            raise

    return call


def binary(
    staged_function: StagedFunction, fitted: Callable[[Any], Any] | None = None
) -> Callable[[Any, Any], Any]:
    """``f(x1, x2)`` of a staged function of two arrays or scalars, likewise.

    ``fitted((x1, x2))`` gives the operands to try where a Python integer does not fit the dtype
    of the other one; None if there are none.
    """
    runs = staged_function.runs

    def call(x1: object, x2: Any, /) -> Any:
        try:
            if state() is None:
                try:
                    kind = type(x2)
                    key = x2._sig if kind is Array else kind
                    run = runs[x1._sig, key, ()] if type(x1) is Array else None
                except (KeyError, AttributeError, TypeError):
                    run = None
                if run is None:
                    return staged_function.eager((x1, x2), ())
                if RECORDERS:
                    return recorded(run, (x1, x2), staged_function.name)
                try:
                    return run(x1, x2)
                except XlaRuntimeError as error:
                    raise_for((x1, x2), staged_function.name, error)
                    raise
            return staged_function((x1, x2))
        except Exception as error:
            if fitted is not None and isinstance(error, IntegerRangeError):
                again = fitted((x1, x2))
                if again is not None:
                    return call(*again)
            hide_internal_frames(error)
            raise

    return call


def clear_staged_functions() -> None:
    """Forget the bodies and executables of all staged functions."""
    for staged_function in list(_ALL):
        staged_function.clear()


on_fork(clear_staged_functions)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    clear_staged_functions()
