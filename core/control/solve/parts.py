"""What functions that call a user's solver share: types of the unknown, traced parts, checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge.core.control.calls.bodies import Body, flatten_values, trace_body
from tracebridge.core.control.calls.inline_rules import describe, has_tangent
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.tree.tree import flatten


def check_functions(call: str, **functions: object) -> None:
    """Raise ArgumentSpecError unless all are callable."""
    for role, fun in functions.items():
        if not callable(fun):
            msg = f"{call}: {role} is {fun!r} of type {type(fun).__name__}"
            raise ArgumentSpecError(msg, expected="a function")


class SolverParts:
    """Traces the functions of one ``call``: each takes, and gives, trees like the one ``model``.

    ``values``: the leaves of the argument ``model``, which have to be floats or complex numbers.
    """

    def __init__(self, call: str, model: str, argument: Any) -> None:
        self.call = call
        self.model = model
        self.values, self.tree = flatten_values(call, model, argument)
        for value in self.values:
            if not has_tangent(value.aval):
                msg = f"{call}: {model} has a leaf {value.aval.str_short()}"
                raise ArgumentSpecError(msg, expected="float or complex arrays")
        self.avals = tuple([v.aval for v in self.values])
        self.in_tree = flatten((self.tree.unflatten(range(len(self.avals))),))[1]

    def part(self, role: str, fun: Callable[..., object], *, aux: bool = False) -> Body:
        """Trace a function; with ``aux`` it gives a pair, whose second part may be anything."""

        def take_apart(result: object) -> tuple[list[Any], Any]:
            further: list[Any] = []
            aux_tree: Any = None
            if aux:
                if not isinstance(result, tuple | list) or len(result) != 2:
                    msg = f"{self.call}: {role} returned {kind_of(result)}"
                    raise ArgumentSpecError(msg, expected="a pair (x, aux), as has_aux is set")
                result, aux_result = result
                further, aux_tree = flatten_values(self.call, "aux", aux_result)
            outs = self.checked(f"{role} returned", f"the result of {role}", result)
            return [*outs, *further], aux_tree

        name = f"{self.call} {role}"
        return trace_body(name, fun, self.in_tree, self.avals, take_apart, (self.call, role))

    def checked(self, event: str, what: str, tree: object) -> list[Any]:
        """The leaves of a tree that must be like ``model``; ``event`` and ``what`` name it."""
        leaves, got = flatten_values(self.call, what, tree)
        avals = [v.aval for v in leaves]
        same = got == self.tree and all(
            [
                a.shape == b.shape and a.dtype == b.dtype
                for a, b in zip(avals, self.avals, strict=True)
            ]
        )
        if not same:
            msg = f"{self.call}: {event} something of another type than {self.model}"
            raise TreeMismatchError(
                msg, got=describe(got, avals), expected=describe(self.tree, self.avals)
            )
        return leaves

    def caller(self, role: str, body: Body) -> Callable[[Any], Any]:
        """A traced part as a function of a tree."""

        def call(x: object) -> Any:
            leaves = self.checked(f"{role} was called with", f"the argument of {role}", x)
            process = current_trace().process
            return self.tree.unflatten(eval_jaxpr(body.jaxpr, process, [*body.hoisted, *leaves]))

        return call
