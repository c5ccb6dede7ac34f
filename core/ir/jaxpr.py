"""The Jaxpr: a traced program in slot form.

``steps`` are ``(application, argument slots)``. The environment is one list: inputs first, then
``consts`` (Literals and Arrays), then the results of the steps in order. Interpreters run it as

    env = [*args, *jaxpr.consts]
    for app, slots in jaxpr.steps:
        result = process(app, [env[i] for i in slots])
        env.extend(result) if app.multiple else env.append(result)

Names of variables exist only in the printed form. ``ClosedJaxpr``, ``JaxprEqn`` and ``Var`` are
views for people and for out-of-tree transformations, made on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.debug_info import NO_DEBUG_INFO, DebugInfo
from tracebridge.core.ir.effects import Effects, no_effects
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.values import Value

Step = tuple["Application", tuple[int, ...]]


@final
class Jaxpr:
    """A program: inputs, constants, steps, results. Immutable but for its memo ``cache``."""

    __slots__ = (
        "__weakref__",
        "cache",
        "consts",
        "debug",
        "effects",
        "in_avals",
        "out_avals",
        "outs",
        "sources",
        "steps",
    )

    def __init__(
        self,
        in_avals: Sequence[ShapedArray],
        consts: Sequence[Value],
        steps: Sequence[Step],
        outs: Sequence[int],
        out_avals: Sequence[ShapedArray],
        sources: Sequence[Any] | None = None,
        debug: DebugInfo = NO_DEBUG_INFO,
    ) -> None:
        self.in_avals = tuple(in_avals)
        self.consts = tuple(consts)
        self.steps = tuple(steps)
        self.outs = tuple(outs)
        self.out_avals = tuple(out_avals)
        self.sources = tuple(sources) if sources else None
        self.debug = debug
        effects: Effects = no_effects
        for app, _ in self.steps:
            if app.effects:
                effects |= app.effects
        self.effects = effects
        # What interpreters derive from this program (its jvp, its lowering, ...): dies with it.
        self.cache: dict[Any, Any] = {}

    @property
    def n_in(self) -> int:
        return len(self.in_avals)

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
    def outvars(self) -> list[Var | Literal]:
        """The variables (or literals) of the results."""
        return _view(self).outvars

    def slot_avals(self) -> list[ShapedArray]:
        """The aval of every slot of the environment."""
        avals = [*self.in_avals, *[c.aval for c in self.consts]]
        for app, _ in self.steps:
            avals.extend(app.outs)
        return avals

    def __str__(self) -> str:
        return PRINTER[0](self)

    __repr__ = __str__


# The pretty printer lives in ir/pretty.py, which imports this module.
PRINTER: list[Any] = [object.__repr__]


@final
class ClosedJaxpr:
    """What ``make_jaxpr`` returns: a Jaxpr with its array constants."""

    __slots__ = ("jaxpr",)

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr

    @property
    def consts(self) -> list[Any]:
        """The array constants (literals stand in the equations)."""
        return [c for c in self.jaxpr.consts if type(c) is not Literal]

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def in_avals(self) -> list[ShapedArray]:
        return list(self.jaxpr.in_avals)

    @property
    def out_avals(self) -> list[ShapedArray]:
        return list(self.jaxpr.out_avals)

    @property
    def effects(self) -> Effects:
        return self.jaxpr.effects

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__


@final
class Var:
    """A variable of a Jaxpr, as a view of one slot."""

    __slots__ = ("aval", "slot")

    def __init__(self, aval: ShapedArray, slot: int) -> None:
        self.aval = aval
        self.slot = slot

    def __repr__(self) -> str:
        return f"Var({self.slot}:{self.aval.str_short()})"


@final
class JaxprEqn:
    """One equation: ``outvars = primitive[params] invars``."""

    __slots__ = ("app", "invars", "outvars", "source_info")

    def __init__(
        self, app: Application, invars: list[Var | Literal], outvars: list[Var], source_info: Any
    ) -> None:
        self.app = app
        self.invars = invars
        self.outvars = outvars
        self.source_info = source_info

    @property
    def primitive(self) -> Primitive:
        return self.app.primitive

    @property
    def params(self) -> dict[str, Any]:
        return self.app.params

    @property
    def effects(self) -> Effects:
        return self.app.effects

    def __repr__(self) -> str:
        return f"{self.outvars} = {self.primitive.name} {self.invars}"


@final
class _View:
    __slots__ = ("constvars", "eqns", "invars", "outvars")

    def __init__(self, jaxpr: Jaxpr) -> None:
        contents: list[Any] = [None] * jaxpr.n_in + list(jaxpr.consts) + _nones(jaxpr)
        slots: list[Any] = [
            c if type(c) is Literal else Var(a, i)
            for i, (a, c) in enumerate(zip(jaxpr.slot_avals(), contents, strict=True))
        ]
        self.invars: list[Var] = slots[: jaxpr.n_in]
        n_fixed = jaxpr.n_in + len(jaxpr.consts)
        self.constvars: list[Var] = [v for v in slots[jaxpr.n_in : n_fixed] if type(v) is Var]
        self.eqns: list[JaxprEqn] = []
        position = n_fixed
        for k, (app, idx) in enumerate(jaxpr.steps):
            outs = slots[position : position + len(app.outs)]
            position += len(app.outs)
            source = jaxpr.sources[k] if jaxpr.sources else None
            self.eqns.append(JaxprEqn(app, [slots[i] for i in idx], outs, source))
        self.outvars: list[Var | Literal] = [slots[i] for i in jaxpr.outs]


def _nones(jaxpr: Jaxpr) -> list[None]:
    return [None] * sum(len(app.outs) for app, _ in jaxpr.steps)


def _view(jaxpr: Jaxpr) -> _View:
    view = jaxpr.cache.get("view")
    if view is None:
        view = jaxpr.cache["view"] = _View(jaxpr)
    return view


def eval_jaxpr(jaxpr: Jaxpr, process: Any, args: Sequence[Value]) -> list[Value]:
    """Run ``jaxpr`` on values by ``process(application, args)`` of a trace."""
    env: list[Any] = [*args, *jaxpr.consts]
    append = env.append
    extend = env.extend
    for app, idx in jaxpr.steps:
        result = process(app, [env[i] for i in idx])
        if app.multiple:
            extend(result)
        else:
            append(result)
    return [env[i] for i in jaxpr.outs]


def jaxprs_in_params(params: dict[str, Any]) -> list[Jaxpr]:
    """The Jaxprs among the parameters of an equation, also inside tuples."""
    found: list[Jaxpr] = []
    for value in params.values():
        if isinstance(value, Jaxpr):
            found.append(value)
        elif isinstance(value, ClosedJaxpr):
            found.append(value.jaxpr)
        elif isinstance(value, tuple):
            found.extend(v for v in value if isinstance(v, Jaxpr))
    return found
