"""The Jaxpr: a traced program whose variables are numbers.

``equations`` are ``(application, argument variables)``; a variable is its position in the
environment. That is one list: inputs first, then ``consts`` (Literals and Arrays), then the results
of the equations in order. Interpreters run it as

    env = [*args, *jaxpr.consts]
    for app, variables in jaxpr.equations:
        result = process(app, [env[i] for i in variables])
        env.extend(result) if app.multiple else env.append(result)

Names of variables exist only in the printed form. ``eqns``, ``invars`` and so on are views for
people and for interpreters that they write, made on demand (ir/atoms.py).
"""

from __future__ import annotations

import importlib
import weakref
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.atoms import (
    JaxprEqn,
    LiteralAtom,
    OpenConst,
    ProgramView,
    Var,
    numbered_form,
    view_of,
)
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO, DebugInfo
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.effects import Effects, no_effects
from tracebridge.core.ir.name_scopes import enter, leave
from tracebridge.core.ir.name_stack import NAMES, in_use, names_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.trace import Process
    from tracebridge.core.ir.values import Value

Equation = tuple["Application", tuple[int, ...]]


# The path of the class that users ask `isinstance` for; nobody makes these by their path.
@public_path("tracebridge.extend.core")
@final
class Jaxpr:
    """A program: inputs, constants, equations, results. Immutable but for its memo ``cache``."""

    __slots__ = (
        "__weakref__",
        "_effects",
        "cache",
        "consts",
        "debug",
        "equations",
        "in_avals",
        "out_avals",
        "outs",
        "sources",
    )

    def __init__(
        self,
        in_avals: Sequence[ShapedArray],
        consts: Sequence[Value],
        equations: Sequence[Equation],
        outs: Sequence[int],
        out_avals: Sequence[ShapedArray],
        sources: Sequence[Any] | None = None,
        debug: DebugInfo = NO_DEBUG_INFO,
    ) -> None:
        self.in_avals = tuple(in_avals)
        self.consts = tuple(consts)
        self.equations = tuple(equations)
        self.outs = tuple(outs)
        self.out_avals = tuple(out_avals)
        self.sources = tuple(sources) if sources else None
        self.debug = debug
        self._effects: Effects | None = None
        # What interpreters derive from this program (its jvp, its lowering, ...): dies with it.
        self.cache: dict[Any, Any] = {}

    @property
    def n_in(self) -> int:
        return len(self.in_avals)

    @property
    def effects(self) -> Effects:
        """Those of the equations. Most programs are a step to another one, and never asked."""
        found = self._effects
        if found is None:
            found = no_effects
            apps = self.cache.get("applications")  # each once, if somebody has looked
            for app in [app for app, _ in self.equations] if apps is None else apps:
                if app.effects:
                    found |= app.effects
            self._effects = found
        return found

    @property
    def eqns(self) -> list[JaxprEqn]:
        """The equations as objects with variables."""
        return _view(self).eqns

    @property
    def invars(self) -> list[Var]:
        """The variables of the inputs."""
        return _view(self).invars

    @property
    def constvars(self) -> list[Var]:
        """The variables of the array constants."""
        return _view(self).constvars

    @property
    def outvars(self) -> list[Var | LiteralAtom]:
        """The variables (or literals) of the results."""
        return _view(self).outvars

    @property
    def debug_info(self) -> DebugInfo:
        """What the traced function and its arguments are called."""
        return self.debug

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with some of constvars, invars, outvars, eqns, debug_info replaced.

        Variables that stay constants keep their values.
        """
        known = ("constvars", "invars", "outvars", "eqns")
        unknown = sorted(changes.keys() - {*known, "effects", "debug_info"})
        if unknown:
            msg = f"Jaxpr.replace: unknown fields {unknown}, expected some of {list(known)}"
            raise ArgumentTypeError(msg)
        view = ProgramView(*[changes.get(name, getattr(self, name)) for name in known])
        values = dict(zip(self.constvars, _arrays(self.consts), strict=True))
        return jaxpr_of(view, values, changes.get("debug_info", self.debug))

    def as_closed(self) -> ClosedJaxpr:
        """The program with its array constants: one object, by whose id others may keep things."""
        held = self.cache.get("closed")
        closed = None if held is None else held()
        if closed is None:
            closed = ClosedJaxpr(self)
            self.cache["closed"] = weakref.ref(closed)
        return closed

    def pretty_print(self, **_: object) -> str:
        """The text of the program."""
        return str(self)

    def __copy__(self) -> Jaxpr:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Jaxpr:
        del memo
        return self

    def __reduce__(self) -> Any:
        msg = (
            "a Jaxpr cannot be pickled: the rules of its primitives are functions of this process; "
            "tracebridge.export saves programs"
        )
        raise TypeError(msg)

    def variable_avals(self) -> list[ShapedArray]:
        """The aval of every variable."""
        avals = [*self.in_avals, *[c.aval for c in self.consts]]
        for app, _ in self.equations:
            avals.extend(app.outs)
        return avals

    def __str__(self) -> str:
        # The printer imports this module, and is seldom needed.
        return importlib.import_module("tracebridge.core.ir.pretty").jaxpr_text(self)

    __repr__ = __str__


@public_path("tracebridge.extend.core")
@final
class ClosedJaxpr:
    """A Jaxpr with its array constants: what ``make_jaxpr`` returns.

    Args:
        jaxpr: the program.
        consts: values of its ``constvars``; those that it has by default.

    Raises:
        ShapeMismatchError: not one value for each of ``constvars``.
    """

    __slots__ = ("__weakref__", "jaxpr")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] | None = None) -> None:
        self.jaxpr = jaxpr if consts is None else with_consts(jaxpr, consts)

    @property
    def consts(self) -> list[Any]:
        """The array constants (literals stand in the equations)."""
        return _arrays(self.jaxpr.consts)

    literals = consts

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def invars(self) -> list[Var]:
        return self.jaxpr.invars

    @property
    def constvars(self) -> list[Var]:
        return self.jaxpr.constvars

    @property
    def outvars(self) -> list[Var | LiteralAtom]:
        return self.jaxpr.outvars

    @property
    def in_avals(self) -> list[ShapedArray]:
        return list(self.jaxpr.in_avals)

    @property
    def out_avals(self) -> list[ShapedArray]:
        return list(self.jaxpr.out_avals)

    @property
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @property
    def debug_info(self) -> DebugInfo:
        return self.jaxpr.debug

    def replace(
        self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None
    ) -> ClosedJaxpr:
        """A copy with another program, or other constants."""
        return ClosedJaxpr(
            self.jaxpr if jaxpr is None else jaxpr, self.consts if consts is None else consts
        )

    def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """The closed Jaxpr of ``f(jaxpr)`` with the same constants."""
        return ClosedJaxpr(f(self.jaxpr), self.consts)

    def pretty_print(self, **_: object) -> str:
        """The text of the program."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClosedJaxpr) and self.jaxpr is other.jaxpr

    def __hash__(self) -> int:
        return hash(self.jaxpr)

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__


def _arrays(consts: Sequence[object]) -> list[Any]:
    return [c for c in consts if type(c) is not Literal]


def _view(jaxpr: Jaxpr) -> ProgramView:
    view = jaxpr.cache.get("view")
    if view is None:
        view = jaxpr.cache["view"] = view_of(jaxpr)
    return view


def jaxpr_of(
    view: ProgramView, values: Mapping[Var, Any], debug: DebugInfo = NO_DEBUG_INFO
) -> Jaxpr:
    """The Jaxpr of equations between variables; ``values`` are those of constants."""
    jaxpr = Jaxpr(*numbered_form(view, values), debug)
    jaxpr.cache["view"] = view
    return jaxpr


def with_consts(jaxpr: Jaxpr, consts: Sequence[Any]) -> Jaxpr:
    """``jaxpr`` with other values of its array constants."""
    own = _arrays(jaxpr.consts)
    if len(own) != len(consts):
        msg = f"ClosedJaxpr: got {len(consts)} constants, the program has {len(own)} constvars"
        raise ShapeMismatchError(msg)
    if all([a is b for a, b in zip(own, consts, strict=True)]):
        return jaxpr
    remaining_consts = iter([constant(c) for c in consts])
    values = [c if type(c) is Literal else next(remaining_consts) for c in jaxpr.consts]
    bound = Jaxpr(
        jaxpr.in_avals,
        values,
        jaxpr.equations,
        jaxpr.outs,
        jaxpr.out_avals,
        jaxpr.sources,
        jaxpr.debug,
    )
    bound.cache["view"] = _view(jaxpr)
    return bound


def constant(x: Any) -> Any:
    """``x`` as an array constant: literals are no variables."""
    value = x if type(x) is OpenConst else as_value(x)
    return EAGER.trace.to_array(value) if type(value) is Literal else value


def eval_jaxpr(jaxpr: Jaxpr, process: Process, args: Sequence[Value]) -> list[Value]:
    """Run ``jaxpr`` on values by ``process(application, args)`` of a trace."""
    names = names_of(jaxpr) if in_use[0] else None
    if names is not None:
        return _eval_in_scopes(jaxpr, names, process, args)
    env: list[Any] = [*args, *jaxpr.consts]
    append = env.append
    extend = env.extend
    for app, idx in jaxpr.equations:
        result = process(app, [env[i] for i in idx])
        if app.multiple:
            extend(result)
        else:
            append(result)
    return [env[i] for i in jaxpr.outs]


def _eval_in_scopes(
    jaxpr: Jaxpr, names: Sequence[tuple[str, ...]], process: Process, args: Sequence[Value]
) -> list[Value]:
    """The same, with each equation in the scopes in which it was made."""
    env: list[Any] = [*args, *jaxpr.consts]
    outer = NAMES.get()
    for (app, idx), path in zip(jaxpr.equations, names, strict=True):
        inside = path[len(outer) :] if path[: len(outer)] == outer else path
        scope = enter(inside) if inside else None
        try:
            result = process(app, [env[i] for i in idx])
        finally:
            if scope is not None:
                leave(scope)
        env.extend(result if app.multiple else (result,))
    return [env[i] for i in jaxpr.outs]


def renumbered(equations: Sequence[Equation], numbers: Sequence[int]) -> list[Equation]:
    """Equations that read other variables: ``numbers`` has one for each."""
    return [
        (app, (numbers[args[0]],))
        if len(args) == 1
        else (app, (numbers[args[0]], numbers[args[1]]))
        if len(args) == 2
        else (app, tuple([numbers[a] for a in args]))
        for app, args in equations
    ]


def _opened(value: object) -> Any:
    if type(value) is tuple:
        return tuple([_opened(v) for v in value])
    return value.jaxpr if type(value) is ClosedJaxpr else value


def open_params(params: Params) -> dict[str, Any]:
    """``params`` with programs in the place of closed Jaxprs, as higher-order primitives have."""
    for value in params.values():
        kind = type(value)
        if kind is ClosedJaxpr or (kind is tuple and ClosedJaxpr in map(type, value)):
            return {name: _opened(v) for name, v in params.items()}
    return params


def jaxprs_in_params(params: Params) -> list[Jaxpr]:
    """The Jaxprs among the parameters of an equation, also inside tuples."""
    jaxprs: list[Jaxpr] = []
    for value in params.values():
        kind = type(value)
        if kind is Jaxpr:
            jaxprs.append(value)
        elif kind is ClosedJaxpr:
            jaxprs.append(value.jaxpr)
        elif kind is tuple:
            for v in value:
                inner = type(v)
                if inner is Jaxpr:
                    jaxprs.append(v)
                elif inner is ClosedJaxpr:
                    jaxprs.append(v.jaxpr)
    return jaxprs
