"""Programs with open numbers: rewritten once for all programs that differ in numbers alone.

Programs in parameters of equations are opened as well. Equations and programs that a rewrite leaves
as they were are, in what a program gets, its own ones; in what a rewrite has made, its numbers are
put.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.content import IS_SHARED, has_arrays
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params
from tracebridge.core.ir.name_stack import in_use, names_of
from tracebridge.core.ir.open_numbers import OpenNumber, is_near_one, number_in
from tracebridge.core.ir.traverse import copy_applications, distinct_applications, primitives_of
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.rewrites.plain_calls import with_others

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Equation
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.values import Value


@final
class Given:
    """What programs of one structure differ in, each in the order in which a program has it.

    ``literals``: with open numbers; ``apps``, ``jaxprs``: equations that have some inside, and the
    programs these are in, at any depth. ``key``: the structure. Of constants that are arrays only
    the type is part of it.
    """

    __slots__ = ("_places", "apps", "jaxprs", "key", "literals")

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.literals: list[Literal] = []
        self.apps: list[Application] = []
        self.jaxprs: list[Jaxpr] = []
        self._places: dict[Application | Jaxpr, int] = {}
        self.key = self._of(jaxpr)

    def _of(self, jaxpr: Jaxpr) -> Hashable:
        consts = tuple([self._of_const(c) for c in jaxpr.consts])
        equations: Hashable = jaxpr.equations
        holding = _holding(jaxpr)
        if holding:
            equations = tuple(
                [
                    (self._of_app(equation[0]), equation[1]) if equation[0] in holding else equation
                    for equation in jaxpr.equations
                ]
            )
        return jaxpr.in_avals, consts, equations, jaxpr.outs

    def _of_const(self, const: Value) -> Hashable:
        if type(const) is not Literal:
            return (const.aval,)
        number = number_in(const)
        if number is None:
            return const.key()
        self.literals.append(const)
        return const.aval, is_near_one(number)

    def _of_app(self, app: Application) -> Hashable:
        known = self._places.get(app)
        if known is not None:
            return known
        self._places[app] = len(self.apps)
        self.apps.append(app)
        params = [(name, self._of_param(value)) for name, value in app.params.items()]
        return app.primitive, app.avals, tuple(params)

    def _of_param(self, value: Any) -> Hashable:
        if type(value) is tuple:
            return tuple([self._of_param(v) for v in value])
        if not _is_opened(value):
            return value
        known = self._places.get(value)
        if known is not None:
            return known
        self._places[value] = len(self.jaxprs)
        self.jaxprs.append(value)
        return self._of(value), tuple(names_of(value) or ()) if in_use[0] else ()

    @property
    def is_kept(self) -> bool:
        """Whether programs in it may be kept: they do not know what arguments are called."""
        return all([jaxpr.debug is NO_DEBUG_INFO for jaxpr in self.jaxprs])

    def own_key(self) -> Hashable:
        """The key, besides the structure, of what it differs in."""
        return tuple([c.key() for c in self.literals]), tuple(self.apps)


Parts = tuple["Sequence[Value]", "Sequence[Equation]"]
"""The constants and equations of a program."""


@final
class Opened:
    """A program whose open numbers are asked for by those who want to know them.

    ``sources``: those that its equations get. ``apps``, ``jaxprs``: places, in `Given`, of what
    stands for the equations and programs there.
    """

    __slots__ = ("_app_places", "_jaxpr_places", "_made", "apps", "jaxprs", "numbers", "program")

    def __init__(self, jaxpr: Jaxpr, sources: Sequence[Any] | None) -> None:
        self.numbers: list[OpenNumber] = []
        self.apps: dict[Application, int] = {}
        self.jaxprs: dict[Jaxpr, int] = {}
        self._made: dict[Application | Jaxpr, Any] = {}
        self._app_places, self._jaxpr_places = itertools.count(), itertools.count()
        self.program = self._of(jaxpr, sources)
        self._made.clear()

    def _of(self, jaxpr: Jaxpr, sources: Sequence[Any] | None) -> Jaxpr:
        consts = [self._of_const(c) for c in jaxpr.consts]
        equations: Sequence[Equation] = jaxpr.equations
        holding = _holding(jaxpr)
        if holding:
            equations = with_others(jaxpr, {app: self._of_app(app) for app in holding})
        # Without the names of arguments, which may refer to the function of the user.
        made = Jaxpr(jaxpr.in_avals, consts, equations, jaxpr.outs, jaxpr.out_avals, sources)
        if not holding:
            copy_applications(jaxpr, made)
        return made

    def _of_const(self, const: Value) -> Value:
        value = number_in(const)
        if value is None:
            return const
        number = OpenNumber(len(self.numbers), float(value))
        self.numbers.append(number)
        return Literal(number, const.aval)

    def _of_app(self, app: Application) -> Application:
        if app not in self._made:
            place = next(self._app_places)
            params = {name: self._of_param(value) for name, value in app.params.items()}
            made = self._made[app] = app.with_params(params)
            self.apps[made] = place
        return self._made[app]

    def _of_param(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple([self._of_param(v) for v in value])
        if not _is_opened(value):
            return value
        if value not in self._made:
            place = next(self._jaxpr_places)
            made = self._made[value] = self._of(value, value.sources)
            self.jaxprs[made] = place
        return self._made[value]


def _calls(jaxpr: Jaxpr) -> set[Primitive]:
    """The primitives of a program that have programs in their parameters."""
    return {p for p in primitives_of(jaxpr) if p.is_higher_order}


def _holding(jaxpr: Jaxpr) -> dict[Application, None]:
    """The applications that have open numbers inside, in order."""
    calls = _calls(jaxpr)
    if not calls:
        return {}
    found = jaxpr.cache.get("holding open numbers")
    if found is None:
        apps = [app for app in distinct_applications(jaxpr) if app.primitive in calls]
        found = dict.fromkeys([app for app in apps if _holds_numbers(app)])
        jaxpr.cache["holding open numbers"] = found
    return found


def _holds_numbers(app: Application) -> bool:
    """Whether there are open numbers in programs in the parameters of an equation."""
    return any([_is_opened(jaxpr) for jaxpr in jaxprs_in_params(app.params)])


def is_like_no_other(jaxpr: Jaxpr) -> bool:
    """Whether no program before was equal, which is known without a key.

    Programs inside are told apart by identity, and were not asked for before: bodies of checkpoints
    are traced again each time. Programs with open numbers or arrays have a key in any case: theirs
    are the same forms when they are met for the first time.
    """
    calls = _calls(jaxpr)
    if not calls or has_arrays(jaxpr) or _holding(jaxpr):
        return False
    if any([number_in(c) is not None for c in jaxpr.consts]):
        return False
    apps = [app for app in distinct_applications(jaxpr) if app.primitive in calls]
    inside = [inner for app in apps for inner in jaxprs_in_params(app.params)]
    new = [inner for inner in inside if IS_SHARED not in inner.cache]
    for inner in new:
        inner.cache[IS_SHARED] = True
    return bool(new)


def _is_opened(value: object) -> bool:
    """Whether a parameter is a program with open numbers, at any depth, and without arrays.

    Others are themselves: equal ones are mostly one object (`control/calls/bodies.py`).
    """
    if type(value) is not Jaxpr:
        return False
    known = value.cache.get("has open numbers")
    if known is None:
        calls = _calls(value)
        apps = distinct_applications(value) if calls else ()
        inside = [app for app in apps if app.primitive in calls]
        known = value.cache["has open numbers"] = not has_arrays(value) and (
            any([number_in(c) is not None for c in value.consts])
            or any([_holds_numbers(app) for app in inside])
        )
    return known


@final
class Form:
    """What a rewrite makes of an opened program: ``of`` gives it to a program of its structure."""

    __slots__ = ("_holds", "_last", "_opened", "_others", "_with_numbers", "jaxpr")

    def __init__(self, jaxpr: Jaxpr, opened: Opened) -> None:
        self.jaxpr, self._opened = jaxpr, opened
        self._holds: dict[Jaxpr, bool] = {}
        # What rewrites have left has open numbers only if it was opened.
        left = set(distinct_applications(opened.program)).difference(opened.apps)
        new = [app for app in distinct_applications(jaxpr) if app not in left]
        self._others = [app for app in new if self._is_other(app)]
        self._with_numbers = any([_number_of(c) is not None for c in jaxpr.consts])
        self._last: tuple[Hashable, Parts] | None = None

    def of(self, given: Given) -> Parts:
        """Constants and equations."""
        if not given.is_kept:
            return self._of(given)
        key, last = given.own_key(), self._last
        if last is None or last[0] != key:
            self._last = last = key, self._of(given)
        return last[1]

    def _of(self, given: Given) -> Parts:
        jaxpr, own = self.jaxpr, _Own(self, given)
        consts: Sequence[Value] = jaxpr.consts
        if self._with_numbers:
            consts = [own.const(c) for c in consts]
        if not self._others:
            return consts, jaxpr.equations
        return consts, with_others(jaxpr, {app: own.app(app) for app in self._others})

    def place_of(self, part: Application | Jaxpr) -> int | None:
        """Where `Given` has what the rewrite has left as it was."""
        opened = self._opened
        return opened.jaxprs.get(part) if type(part) is Jaxpr else opened.apps.get(part)

    def _is_other(self, app: Application) -> bool:
        """Whether an equation is another one in each program."""
        if app in self._opened.apps:
            return True
        return any([self.differs(value) for value in app.params.values()])

    def differs(self, value: object) -> bool:
        """Whether a parameter is another one in each program."""
        if type(value) is tuple:
            # Most are sizes and axes.
            return any([type(v) is not int and self.differs(v) for v in value])
        if type(value) is not Jaxpr:
            return type(value) is OpenNumber
        known = self._holds.get(value)
        if known is None:
            known = self._holds[value] = (
                value in self._opened.jaxprs
                or any([_number_of(c) is not None for c in value.consts])
                or any([self._is_other(app) for app in distinct_applications(value)])
            )
        return known


def _number_of(const: Value) -> OpenNumber | None:
    """The open number of a constant of an opened program."""
    if type(const) is Literal and type(const.value) is OpenNumber:
        return const.value
    return None


@final
class _Own:
    """The parts of a form in one program."""

    __slots__ = ("form", "given", "made")

    def __init__(self, form: Form, given: Given) -> None:
        self.form, self.given = form, given
        self.made: dict[Jaxpr, Jaxpr] = {}

    def const(self, const: Value) -> Value:
        number = _number_of(const)
        return const if number is None else self.given.literals[number.index]

    def app(self, app: Application) -> Application:
        place = self.form.place_of(app)
        if place is not None:
            return self.given.apps[place]
        params = {name: self._param(value) for name, value in app.params.items()}
        return app.primitive.application(app.avals, params)

    def _param(self, value: Any) -> Any:
        if not self.form.differs(value):
            return value
        if type(value) is tuple:
            return tuple([self._param(v) for v in value])
        if type(value) is OpenNumber:
            return self.given.literals[value.index].value
        place = self.form.place_of(value)
        if place is not None:
            return self.given.jaxprs[place]
        if value not in self.made:
            self.made[value] = self._jaxpr(value)
        return self.made[value]

    def _jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        consts = [self.const(c) for c in jaxpr.consts]
        differs = self.form.differs
        others = {
            app: self.app(app)
            for app in distinct_applications(jaxpr)
            if any(map(differs, app.params.values()))
        }
        equations = with_others(jaxpr, others)
        outs, out_avals, sources = jaxpr.outs, jaxpr.out_avals, jaxpr.sources
        made = Jaxpr(jaxpr.in_avals, consts, equations, outs, out_avals, sources, jaxpr.debug)
        if jaxpr.cache.get("rewritten", made) is None:  # it is marked as it is
            made.cache["rewritten"] = None
        return made
