"""Programs as people see them: equations between variables, made on demand, and back.

The engine keeps a Jaxpr in numbered form (ir/jaxpr.py). Interpreters that users write walk through
``eqns`` and look values up by variable; what they build from variables is brought back by
``numbered_form``.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import JaxprTypeError
from tracebridge.core.ir.equation_context import EquationContext, context_of
from tracebridge.core.ir.name_stack import NamedSource, plain
from tracebridge.core.ir.typeof import register_value_type
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.effects import Effects
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive

_NUMBERS = itertools.count()


@public_path("tracebridge.extend.core")
class Var:
    """A variable of a Jaxpr: an input, a constant or a result of an equation.

    Variables are compared by identity, so that they can be keys of an environment.
    """

    __slots__ = ("aval", "number")

    def __init__(self, aval: ShapedArray, number: int | None = None) -> None:
        self.aval = aval
        self.number = next(_NUMBERS) if number is None else number

    def __repr__(self) -> str:
        return f"Var({self.number}:{self.aval.str_short()})"


@public_path("tracebridge.extend.core")
class DropVar(Var):
    """The place of a result that nothing uses."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


@public_path("tracebridge.extend.core", "Literal")
class LiteralAtom:
    """A scalar constant in the place of a variable; ``val`` is the number.

    >>> import tracebridge as tb
    >>> jaxpr = tb.make_jaxpr(lambda x: x * 2.0)(1.0).jaxpr
    >>> [v.val for v in jaxpr.eqns[0].invars if isinstance(v, tb.extend.core.Literal)]
    [2.0]
    """

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: ShapedArray) -> None:
        self.val = val
        self.aval = aval

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.str_short()}"


Atom = Var | LiteralAtom


def atom_of(literal: Literal) -> LiteralAtom:
    """The view of a literal: Python numbers stay weakly typed, others are scalars of NumPy."""
    aval = literal.aval
    if aval.weak_type:
        return LiteralAtom(literal.value, aval)
    return LiteralAtom(aval.dtype.type(literal.value), aval)


def literal_of(atom: LiteralAtom) -> Literal:
    """The literal of a view."""
    item = getattr(atom.val, "item", None)
    return Literal(atom.val if item is None else item(), atom.aval)


register_value_type(LiteralAtom, literal_of)


class OpenConst:
    """The place of a constant that a program does not have yet; its aval is known."""

    __slots__ = ("aval",)
    _trace = None

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval


@public_path("tracebridge.extend.source_info_util")
class NameStack(tuple[str, ...]):
    """A path of named scopes, outermost first; its text joins them by slashes.

    >>> from tracebridge.extend import source_info_util
    >>> names = source_info_util.new_name_stack("layer") + source_info_util.new_name_stack("norm")
    >>> str(names), len(names)
    ('layer/norm', 2)
    """

    __slots__ = ()

    @property
    def stack(self) -> tuple[str, ...]:
        """The names alone."""
        return tuple(self)

    def extend(self, name: str) -> NameStack:
        """The path of a scope inside of the last one."""
        return NameStack((*self, name))

    def __add__(self, other: Iterable[str]) -> NameStack:  # type: ignore[override]  # paths join paths only
        return NameStack((*self, *other))

    def __str__(self) -> str:
        return "/".join(plain(self))


@public_path("tracebridge.extend.source_info_util")
class SourceInfo(NamedTuple):
    """Where an equation comes from: a stored traceback, and the named scopes around it."""

    traceback: Any = None
    name_stack: NameStack = NameStack()


def source_info_of(source: object) -> SourceInfo:
    """The view of a stored source of an equation."""
    if type(source) is NamedSource:
        return SourceInfo(source.traceback, NameStack(source.names))
    return source if type(source) is SourceInfo else SourceInfo(source)


def _source_of(info: SourceInfo) -> Any:
    return (
        NamedSource(tuple(info.name_stack), info.traceback) if info.name_stack else info.traceback
    )


@public_path("tracebridge.extend.core")
class JaxprEqn:
    """One equation: ``outvars = primitive[params] invars``. Immutable but by ``replace``."""

    __slots__ = ("_app", "_params", "invars", "outvars", "primitive", "source_info")

    def __init__(
        self,
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        primitive: Primitive,
        params: Mapping[str, Any] | None,
        effects: Any = None,
        source_info: Any = None,
        ctx: object = None,
        app: Application | None = None,
    ) -> None:
        del effects, ctx  # the primitive says which effects an equation has
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.primitive = primitive
        self.source_info = source_info_of(source_info)
        self._params = None if params is None else dict(params)
        self._app = app

    @property
    def params(self) -> dict[str, Any]:
        """The static parameters; programs among them are closed Jaxprs."""
        if self._params is None:
            self._params = {k: closed_view(v) for k, v in self.app.params.items()}
        return self._params

    @property
    def app(self) -> Application:
        """The equation as an application of the primitive."""
        if self._app is None:
            avals = tuple([v.aval for v in self.invars])
            self._app = self.primitive.application(avals, self.params)
        return self._app

    @property
    def effects(self) -> Effects:
        return self.app.effects

    @property
    def ctx(self) -> EquationContext:
        """What was in force when it was made; options that it depends on are parameters."""
        return context_of(NamedSource(tuple(self.source_info.name_stack), None))

    def replace(self, **changes: Any) -> JaxprEqn:
        """A copy with some of invars, outvars, primitive, params, source_info replaced."""
        known = ("invars", "outvars", "primitive", "params", "source_info")
        unknown = sorted(changes.keys() - {*known, "effects", "ctx"})
        if unknown:
            msg = f"JaxprEqn.replace: unknown fields {unknown}, expected some of {list(known)}"
            raise ArgumentTypeError(msg)
        return JaxprEqn(**{name: changes.get(name, getattr(self, name)) for name in known})

    def __repr__(self) -> str:
        # The printer builds on the programs that this module is part of.
        return importlib.import_module("tracebridge.core.ir.pretty").equation_text(self)


def closed_view(value: object) -> Any:
    """A parameter with closed Jaxprs in the place of programs."""
    if type(value) is tuple:
        return tuple([closed_view(v) for v in value])
    close = getattr(type(value), "as_closed", None)
    return value if close is None else close(value)


class ProgramView:
    """The variables and equations of a program in numbered form."""

    __slots__ = ("constvars", "eqns", "invars", "outvars")

    def __init__(
        self,
        constvars: Iterable[Var],
        invars: Iterable[Var],
        outvars: Iterable[Atom],
        eqns: Iterable[JaxprEqn],
    ) -> None:
        self.constvars = list(constvars)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)


def view_of(jaxpr: Jaxpr) -> ProgramView:
    """The variables and equations of ``jaxpr``."""
    used = {i for _, atoms in jaxpr.equations for i in atoms} | set(jaxpr.outs)
    n_in, n_fixed = jaxpr.n_in, jaxpr.n_in + len(jaxpr.consts)
    avals = jaxpr.variable_avals()
    atoms: list[Any] = [Var(avals[i], i) for i in range(n_in)]
    for i, const in enumerate(jaxpr.consts, n_in):
        atoms.append(atom_of(const) if type(const) is Literal else Var(avals[i], i))
    eqns: list[JaxprEqn] = []
    for k, (app, idx) in enumerate(jaxpr.equations):
        n = len(atoms)
        outs = [(Var if i in used else DropVar)(avals[i], i) for i in range(n, n + len(app.outs))]
        source = jaxpr.sources[k] if jaxpr.sources else None
        eqns.append(
            JaxprEqn([atoms[i] for i in idx], outs, app.primitive, None, None, source, None, app)
        )
        atoms.extend(outs)
    consts = [v for v in atoms[n_in:n_fixed] if type(v) is Var]
    return ProgramView(consts, atoms[:n_in], [atoms[i] for i in jaxpr.outs], eqns)


class NumberedForm(NamedTuple):
    """What makes a Jaxpr besides its debug information."""

    in_avals: list[ShapedArray]
    consts: list[Any]
    equations: list[Any]
    outs: list[int]
    out_avals: list[ShapedArray]
    sources: list[Any] | None


def numbered_form(view: ProgramView, values: Mapping[Var, Any]) -> NumberedForm:
    """The program between variables in numbered form; ``values`` are those of constants.

    Raises:
        JaxprTypeError: a variable is not defined, or an equation gives other results.
    """
    literals = [v for e in view.eqns for v in e.invars if isinstance(v, LiteralAtom)]
    literals += [v for v in view.outvars if isinstance(v, LiteralAtom)]
    consts: list[Any] = [values[v] if v in values else OpenConst(v.aval) for v in view.constvars]
    consts += [literal_of(v) for v in literals]
    number_of: dict[Any, int] = {
        v: i for i, v in enumerate([*view.invars, *view.constvars, *literals])
    }
    position = len(view.invars) + len(consts)
    equations: list[Any] = []
    for k, eqn in enumerate(view.eqns):
        where = f"equation {k} ({eqn.primitive.name})"
        idx = tuple([_number(number_of, v, where) for v in eqn.invars])
        app = eqn.app
        _check_results(eqn, where)
        equations.append((app, idx))
        for var in eqn.outvars:
            number_of[var] = position
            position += 1
    sources = [_source_of(e.source_info) for e in view.eqns]
    return NumberedForm(
        [v.aval for v in view.invars],
        consts,
        equations,
        [_number(number_of, v, "the results") for v in view.outvars],
        [v.aval for v in view.outvars],
        None if any([s is None for s in sources]) else sources,
    )


def _number(number_of: Mapping[Any, int], var: Atom, where: str) -> int:
    found = number_of.get(var)
    if found is None:
        msg = f"Jaxpr: {where}: the variable {var!r} is not defined"
        raise JaxprTypeError(msg, hint="variables are compared by identity: use the same objects")
    return found


def _check_results(eqn: JaxprEqn, where: str) -> None:
    made = [a.str_short() for a in eqn.app.outs]
    declared = [v.aval.str_short() for v in eqn.outvars]
    if made != declared:
        msg = f"Jaxpr: {where} gives {made}, its variables are declared {declared}"
        raise JaxprTypeError(msg, hint="make outvars of the types that the primitive gives")
