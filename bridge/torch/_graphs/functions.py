"""Functions that are wrapped inside of compiled code: made as Python objects, and guarded.

While Dynamo reads code, functions and what they close over are its own descriptions of values. Our
engine needs the values. What they are made of may change between calls, which Dynamo does not see,
because it does not read the functions: graphs guard on their content.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, final

import torch
from torch._dynamo.guards import install_guard
from torch._dynamo.source import GlobalStateSource, NumpyTensorSource
from torch._dynamo.variables import (
    NestedUserFunctionVariable,
    TensorVariable,
    UserDefinedObjectVariable,
    UserFunctionVariable,
    UserMethodVariable,
)
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.functions import FunctoolsPartialVariable, PolyfilledFunctionVariable
from torch._dynamo.variables.lists import ListVariable, TupleVariable
from torch._dynamo.variables.tensor import NumpyNdarrayVariable, SymNodeVariable

from tracebridge._api.derivatives.checkpoint import checkpoint
from tracebridge._api.derivatives.grad import grad, value_and_grad
from tracebridge._api.derivatives.jacobian import hessian, jacfwd, jacrev
from tracebridge._api.programs.jit import jit
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.torch._graphs.content import token


def function_at(context: Any) -> Any:
    """The function that the line in the place of which Dynamo calls this has as ``fun``.

    Raises:
        ExchangeError: ``fun`` closes over tensors, or other things that only the run knows.
    """
    tx = context._i_will_not_complain_if_bc_breaks_InstructionTranslator()
    tracker = context.get_local("fun")._i_will_not_complain_if_bc_breaks_VariableTracker()
    values = _Values(tx)
    fun = values.of(tracker, "the function")
    # What is in functions of ours is not looked at, so that all parts are listed.
    parts = [fun, *values.made.values(), *values.found]
    install_guard(GlobalStateSource().make_guard(_content_guard(parts, _name(fun))))
    return fun


def _content_guard(value: Any, name: str, *, of_source: bool = False) -> Callable[[Any, Any], None]:
    """What adds the guard that ``value``, or what its source gives, has the content of now."""

    def add_guard(builder: Any, guard: Any) -> None:
        # When the function has been traced: it may count in a list how often it was.
        before = token(value)

        def unchanged(_: Any) -> bool:
            return token(value) == before

        def is_equal(content: Any) -> bool:
            return content is value or token(content) == before  # in place: see ``unchanged``

        what = [f"{name}, which tracebridge.torch.wrap got, or what it refers to has changed"]
        if of_source:
            builder.get_guard_manager(guard).add_lambda_guard(is_equal, what, guard.user_stack)
        else:
            builder.guard_manager.root.add_lambda_guard(unchanged, what, guard.user_stack)

    return add_guard


def _name(x: Any) -> str:
    return getattr(x, "__qualname__", type(x).__qualname__)


@final
class _Values:
    """Python objects of Dynamo's descriptions of them."""

    def __init__(self, tx: Any) -> None:
        self.output = tx.output
        self.made: dict[int, Any] = {}
        self.found: list[Any] = []

    def of(self, tracker: Any, what: str) -> Any:
        """The object; ``what`` it is for messages."""
        tracker = tracker.realize()
        if isinstance(tracker, SymNodeVariable):
            return tracker.evaluate_expr()
        if isinstance(tracker, NumpyNdarrayVariable):
            return self.of_source(tracker, f"{what}, a NumPy array that is computed in the graph")
        if isinstance(tracker, TensorVariable):
            raise _closes_over(f"{what}, a tensor")
        if isinstance(tracker, NestedUserFunctionVariable):
            return self.function(tracker)
        if isinstance(tracker, FunctoolsPartialVariable):
            args = [self.of(x, what) for x in tracker.args]
            named = {k: self.of(x, f"{what} ({k})") for k, x in tracker.keywords.items()}
            return functools.partial(self.of(tracker.func, what), *args, **named)
        if isinstance(tracker, UserMethodVariable):
            return types.MethodType(tracker.fn, self.of(tracker.obj, "self"))
        if isinstance(tracker, ListVariable | TupleVariable) and type(tracker) in (
            ListVariable,
            TupleVariable,
        ):
            items = [self.of(x, f"{what}[{i}]") for i, x in enumerate(tracker.items)]
            return items if isinstance(tracker, ListVariable) else tuple(items)
        if type(tracker) is ConstDictVariable:
            pairs = [(self.of(k.vt, what), v) for k, v in tracker.items.items()]
            return {k: self.of(v, f"{what}[{k!r}]") for k, v in pairs}
        return self.other(tracker, what)

    def other(self, tracker: Any, what: str) -> Any:
        if isinstance(tracker, UserFunctionVariable | PolyfilledFunctionVariable):
            if tracker.source is None:
                return tracker.fn
            return self.of_source(tracker, what)
        if isinstance(tracker, UserDefinedObjectVariable):
            if self.output.side_effects.has_pending_mutation(tracker):
                kind = type(tracker.value).__qualname__
                raise _closes_over(f"{what}, an object of {kind} that the compiled code changes")
            if tracker.source is not None:
                return self.of_source(tracker, what)
        try:
            return tracker.as_python_constant()
        except NotImplementedError as error:
            if tracker.source is not None:
                return self.of_source(tracker, what)
            kind = tracker.python_type().__qualname__
            raise _closes_over(f"{what}, an object of {kind} made by the compiled code") from error

    def of_source(self, tracker: Any, what: str) -> Any:
        """An object that was there before, which the graph is for as long as it is the same."""
        source = tracker.source
        if source is None:
            raise _closes_over(what)
        if isinstance(source, NumpyTensorSource):
            source = source.base
        # As OutputGraph.resolve_source_value, which torch has since 2.12.
        frame = self.output.root_tx
        value = source.get_value({"G": frame.f_globals, "L": frame.f_locals}, {}, {})
        if isinstance(value, torch.Tensor):
            raise _closes_over(f"{what}, a tensor")
        self.found.append(value)
        install_guard(source.make_guard(_content_guard(value, what, of_source=True)))
        return value

    def function(self, tracker: Any) -> Any:
        """A function that the compiled code has made."""
        cached = self.made.get(id(tracker))
        if cached is not None:
            return cached
        code = tracker.get_code()
        trackers = tracker.closure.items if tracker.closure else []
        cells = tuple([types.CellType() for _ in trackers])
        name = tracker.fn_name.as_python_constant()
        made = types.FunctionType(code, tracker.f_globals, name, None, cells)
        self.made[id(tracker)] = made
        if tracker.defaults:
            items = tracker.defaults.items
            made.__defaults__ = tuple([self.of(x, f"a default of {name}") for x in items])
        if tracker.kwdefaults:
            made.__kwdefaults__ = self.of(tracker.kwdefaults, f"a default of {name}")
        for cell, described, free in zip(cells, trackers, code.co_freevars, strict=True):
            content = self.output.side_effects.load_cell(described)
            cell.cell_contents = self.of(content, free)
        return made


def _closes_over(what: str) -> ExchangeError:
    return ExchangeError(
        f"wrap: a function that is wrapped inside compiled code closes over {what}",
        hint="pass it to the function as an argument, or make the function outside of the "
        "compiled code",
    )


# Transformations ------------------------------------------------------------------------------

_TRANSFORMS: dict[str, Any] = {
    f.__name__: f for f in (checkpoint, grad, hessian, jacfwd, jacrev, jit, value_and_grad, vmap)
}


def _transformed(name: str, options: Any, fun: Any, args: Any, kwargs: Any) -> Any:
    more, named = options
    return _TRANSFORMS[name](fun, *more, **named)(*args, **kwargs)


def _later(name: str) -> None:
    """Let compiled code transform functions, when they are traced by us: Dynamo need not look."""

    def transform(fun: Any, *more: Any, **named: Any) -> Any:
        options = more, named

        def transformed(*args: Any, **kwargs: Any) -> Any:
            return _transformed(name, options, fun, args, kwargs)

        return transformed

    torch.compiler.substitute_in_graph(_TRANSFORMS[name], skip_signature_check=True)(transform)


for _each in _TRANSFORMS:
    _later(_each)
