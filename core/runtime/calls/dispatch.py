"""Eager evaluation: each application is compiled once per signature and then dispatched."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.values import mesh_of_computations, on_global_change, option
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.runtime_errors import DeletedArrayError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError, UnexpectedTracerError
from tracebridge.core.interpreters.low import low_results
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive, is_default
from tracebridge.core.ir.trace import Trace, innermost, use_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import array_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.arrays.array import Array, as_stored
from tracebridge.core.runtime.arrays.failures import raise_failure
from tracebridge.core.runtime.arrays.placement import (
    all_at,
    choose_placement,
    moving,
    wishes_inside,
)
from tracebridge.core.runtime.arrays.transfer import move, put_literal
from tracebridge.core.runtime.backends.clients import check_not_forked, on_fork
from tracebridge.core.runtime.backends.guards import check_execution
from tracebridge.core.runtime.calls.execute import LIST, SINGLE, make_run
from tracebridge.core.runtime.programs.compile import compile_jaxpr
from tracebridge.core.runtime.programs.debug import check_finite, culprit, wants_checks
from tracebridge.core.runtime.programs.key_watch import KEY_WATCH, watches_keys
from tracebridge.core.util.caching import clear_all

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tracebridge.core.ir.values import Value


def single_step_jaxpr(app: Application) -> Jaxpr:
    """The program that is just ``app``."""
    n = len(app.avals)
    outs = range(n, n + len(app.outs))
    return Jaxpr(app.avals, (), ((app, tuple(range(n))),), outs, app.outs)


def call_name(app: Application) -> str:
    """What the program of an eager application is called."""
    return str(app.params.get("name") or app.primitive.name)


@final
class EagerTrace(Trace):
    """Executes at once. ``debug`` (thread-scoped options are on) checks options at each call."""

    __slots__ = ("debug",)

    def __init__(self, *, debug: bool = False) -> None:
        super().__init__()
        self.debug = debug

    @property
    def level(self) -> int:
        """Outside of all others, whether it checks or not."""
        return -1

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        if self.debug:
            return self.miss(app, args)
        try:
            run = app.eager[tuple([a._sig for a in args])]
        except (KeyError, AttributeError):
            run = None
        # Outside the handler, so that errors of the slow path have no KeyError as context.
        if run is None:
            return self.miss(app, args)
        try:
            return run(*args)
        except XlaRuntimeError as error:
            raise_for(args, call_name(app), error)
            raise

    def miss(self, app: Application, args: Sequence[Value]) -> Any:
        """The slow path: literals, new signatures, options that need checks, traced values."""
        trace = innermost(args)
        if trace is not None:
            return trace.process(app, args)
        if app.high:
            with use_trace(None):
                return low_results(app, args)
        check_execution(call_name(app))
        arrays = [to_array(a, app) for a in args]
        if watches_keys():
            jaxpr = single_step_jaxpr(app)
            return KEY_WATCH.run(jaxpr, arrays, lambda: self.evaluate(app, arrays))
        return self.evaluate(app, arrays)

    def evaluate(self, app: Application, arrays: list[Array]) -> Any:
        """The results, by a program that is kept unless the primitive needs none."""
        key: Any = tuple([a._sig for a in arrays])
        if self.debug or watches_keys():
            key = (key, option("default_device"), mesh_of_computations())
        run = app.eager.get(key)
        if run is None:
            out = app.primitive.evaluate(arrays, **app.params)
            if out is not NotImplemented:
                return out
            where = app.primitive.destination(*arrays, **app.params)
            if where is not NotImplemented:
                return arrays[0] if where is None else move(arrays[0], where, committed=True)
            check_not_forked()
            run = self.prepare(app, arrays)
            if not self.debug and wants_checks():
                # The next call finds this function and no check.
                run = self.checking(run, app)
            app.eager[key] = run
            app.primitive.keep(app)
            _EXECUTED.add(app)
        try:
            out = run(*arrays)
        except XlaRuntimeError as error:
            raise_for(arrays, call_name(app), error)
            raise
        if self.debug and wants_checks():
            self.check(app, arrays, out)
        return out

    def checking(self, run: Callable[..., object], app: Application) -> Callable[..., Any]:
        """``run`` with the checks of debugging options."""

        def run_checked(*arrays: Any) -> Any:
            out = run(*arrays)
            self.check(app, arrays, out)
            return out

        return run_checked

    def check(self, app: Application, arrays: Sequence[Array], out: Any) -> None:
        """Raise if a result is not finite; looks for the operation inside a call."""
        name = call_name(app)
        find = None
        if is_call(app) or not is_default(app.primitive.by_steps, Primitive.by_steps):
            find = functools.partial(self.find_culprit, app, arrays)
        check_finite(out if app.multiple else [out], name, find)

    def find_culprit(self, app: Application, arrays: Sequence[Array]) -> str:
        """The operation within a call or a loop that gives a forbidden value."""
        jaxpr = app.params["jaxpr"] if is_call(app) else single_step_jaxpr(app)
        return culprit(jaxpr, arrays, self.run_again)

    def run_again(self, app: Application, values: Sequence[object]) -> Sequence[Any]:
        """Apply ``app`` without any check, for the search for an operation."""
        arrays = [to_array(v, app) for v in values]
        out = self.prepare(app, arrays)(*arrays)
        return out if app.multiple else [out]

    def prepare(self, app: Application, arrays: Sequence[Array]) -> Callable[..., Any]:
        """Compile ``app`` for the signatures of ``arrays``."""
        own = app.primitive.prepare(app, arrays)
        if own is not None:
            return own
        sigs = [a._sig for a in arrays]
        name = call_name(app)
        jaxpr = app.params["jaxpr"] if is_call(app) else single_step_jaxpr(app)
        placement, committed = choose_placement(sigs, name, wishes=wishes_inside(jaxpr))
        options = app.params.get("compiler_options", ())
        program = compile_jaxpr(jaxpr, name, placement, compiler_options=options)
        form = LIST if app.multiple else SINGLE
        run = make_run(program, len(arrays), form, committed=committed)
        return run if all_at(sigs, placement) else moving(run, placement)

    def to_array(self, value: object) -> Array:
        """A value as an Array; for constants of programs that users build."""
        return to_array(value)

    def to_numpy(self, value: Any) -> np.ndarray[Any, Any]:
        """The elements of an array constant, for lowering: those that are stored."""
        return (as_stored(value) if is_extended(value.aval.dtype) else value)._to_numpy()


def is_call(app: Application) -> bool:
    """Whether the application does nothing but call its Jaxpr."""
    return app.primitive.inlinable


def to_array(value: object, app: Application | None = None) -> Array:
    """An operand as an Array; literals get their buffer, tracers are leaks here."""
    if type(value) is Array:
        return value
    if type(value) is Literal:
        array = put_literal(value)
        # The buffer first: another thread takes a literal with a signature for an array.
        value._buf = array._buf
        value._sig = array._sig
        return array
    if isinstance(value, Tracer):
        if not value._trace.done:
            what = "An operation" if app is None else f"The operation {app.primitive.name}"
            raise ConcretizationTypeError(
                value,
                f"{what} is evaluated at once here.",
                hint="move the operation out of the ensure_compile_time_eval block",
            )
        raise UnexpectedTracerError(tracer=value, used_by="" if app is None else call_name(app))
    known = array_value(value)
    if known is value:
        msg = f"got {value} of type {type(value).__name__}, expected an array or a Python number"
        raise UnsupportedDtypeError(msg, hint="operations of its own type take it")
    return to_array(known)


def raise_for(args: Sequence[Any], name: str, error: BaseException | None) -> None:
    """Raise DeletedArrayError if an argument is gone, or our error for one of XLA; else return."""
    for i, a in enumerate(args):
        if type(a) is Array and a.is_deleted():
            raise DeletedArrayError(
                f"{a.aval.str_short()} (argument {i} of {name})",
                donated_to=getattr(a, "_donated_to", ""),
            ) from error
    if error is not None:
        raise_failure(name, error)


# Applications with eager executables, so that these can be dropped.
_EXECUTED: weakref.WeakSet[Application] = weakref.WeakSet()


def forget_executables() -> None:
    """Drop the eager executables of all applications."""
    for app in list(_EXECUTED):
        app.eager.clear()
    _EXECUTED.clear()


def _forget_everything() -> None:
    """In a forked child no executable may run: empty every cache that holds one."""
    forget_executables()
    clear_all()


on_fork(_forget_everything)


# Options that a kept executable does not ask for again.
_ASKED_ONCE = frozenset(
    [
        *("debug_infs", "debug_key_reuse", "debug_nans", "default_device", "mesh"),
        *("no_execution", "platforms"),
    ]
)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del value
    if name in _ASKED_ONCE:
        forget_executables()
