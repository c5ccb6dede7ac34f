"""The Primitive class: an operation with all its rules as methods."""

from __future__ import annotations

import abc
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.effects import Effects, no_effects
from tracebridge.core.ir.jaxpr import jaxprs_in_params
from tracebridge.core.ir.operators import are_of_engine
from tracebridge.core.ir.trace import current_trace, scoped, use_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.varied import differ, joined, together
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.values import Value

_ALL: dict[str, Primitive] = {}
MAX_APPLICATIONS = 4096  # of one primitive; the least recently used ones are dropped


def all_primitives() -> list[Primitive]:
    """Every primitive instance made so far, in the order of their names."""
    return [_ALL[name] for name in sorted(_ALL)]


class Primitive(abc.ABC):
    """An operation that the engine knows how to evaluate and transform.

    A subclass holds every rule; it is either abstract (a family) or final (one primitive, with one
    instance). Rules receive values as positional arguments and static parameters as keywords.
    Rules may depend on avals, parameters and on which arguments are linear or batched, never on
    the numbers in the arrays: they are staged once and replayed (interpreters/staged_rules.py).
    """

    name: ClassVar[str]
    multiple_results: ClassVar[bool] = False
    # What it costs; decides what is kept for backward passes and what is done again.
    cost: ClassVar[Cost] = Cost.OTHER
    # Whether a NaN in the results may be its own: False where it only moves or chooses elements.
    makes_nan: ClassVar[bool] = True
    # Float parameters need keys that keep 0.0 / -0.0 and 1 / 1.0 / True apart.
    exact_keys: ClassVar[bool] = False
    # The transpose rule runs on values each time instead of being staged once (custom_vjp).
    transposes_inline: ClassVar[bool] = False
    # The transpose rule is staged when an application is transposed for the second time. The first
    # time the rule runs on the values, as ``linearize_unstaged`` does for linearization (scan).
    stages_when_repeated: ClassVar[bool] = False
    # It does nothing but call its parameter ``jaxpr``, whose equations may take its place.
    inlinable: ClassVar[bool] = False
    # Whether its parameter ``jaxpr`` may take its place when no more derivatives are taken, as
    # ``called_at_last`` says.
    inlinable_at_last: ClassVar[bool] = False
    # The parameter with what it computes, if only its derivative is something else.
    computes: ClassVar[str | None] = None
    # Whether each element of the result is made of the elements at its place alone (`Elementwise`):
    # asked of each equation of a program, where `isinstance` of an abstract class takes long.
    is_elementwise: ClassVar[bool] = False
    # Whether programs are in its parameters (`HigherOrderPrimitive`), asked instead of `isinstance`
    # for the same reason.
    is_higher_order: ClassVar[bool] = False
    # Programs with it are reduced before they are lowered: unused results have a meaning for it.
    wants_dce: ClassVar[bool] = False
    # Parameters refer to functions of the user: no long-lived cache may hold applications.
    holds_functions: ClassVar[bool] = False
    # Whether it calls or maps a function, which is its first operand then (core/compat).
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False
    # Its parameter ``jaxpr`` is run step by step; under a checkpoint each step keeps its share.
    runs_steps: ClassVar[bool] = False
    # One of the programs in its parameter ``branches`` is run; each keeps its share as well.
    runs_one: ClassVar[bool] = False
    # Whether it moves elements about, whatever they are: arrays of extended dtypes need no rule.
    moves_elements: ClassVar[bool] = False
    # Whether two equations with the same arguments may become one.
    may_merge: ClassVar[bool] = True
    # The rules are functions of the user (core/compat).
    has_rules_of_users: ClassVar[bool] = False
    # Whether results may be split where no operand is: ``split_results`` is always asked.
    decides_splits: ClassVar[bool] = False
    # Whether results may vary along axes of a shard_map where no operand does.
    decides_varying: ClassVar[bool] = False
    # Whether operands have to vary along the same axes of a shard_map (ir/varied.py).
    joins: ClassVar[bool] = True

    @property
    def is_only_evaluated(self) -> bool:
        """Whether it has no lowering, but a function of the user evaluates it (core/compat)."""
        return False

    def __init__(self) -> None:
        self.applications: BoundedCache[Application] = BoundedCache(
            f"applications of {self.name}", MAX_APPLICATIONS
        )
        _ALL[self.name] = self

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return _primitive_named, (self.name,)

    def bind(self, *args: Value, **params: Any) -> Any:
        """Apply the primitive to values (Array, Tracer, Literal) under the current trace.

        Numbers and NumPy arrays, as interpreters that users write pass them, are converted.
        """
        try:
            key = (tuple([a.aval for a in args]), *params.items())
        except AttributeError:
            args = tuple([as_value(a) for a in args])
            key = (tuple([a.aval for a in args]), *params.items())
        app = None if self.exact_keys else self.applications.get(key)
        try:
            if app is None:
                if not are_of_engine(args):
                    # Of another library: what it calls ``aval`` is none of ours.
                    args = tuple([as_value(a, self.name) for a in args])
                    key = (tuple([a.aval for a in args]), *params.items())
                if self.joins and differ(key[0]):
                    return self.bind(*together(args), **params)
                args, app = self.fitted(args, key[0], params)
            return current_trace().process(app, args)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def fitted(
        self, args: tuple[Value, ...], avals: tuple[ShapedArray, ...], params: Params
    ) -> tuple[tuple[Value, ...], Application]:
        """The application at ``avals``, and the values that it takes; families may change them."""
        return args, self.application(avals, params)

    def bind_with_trace(
        self, trace: object, args: Sequence[Any], avals: Any, params: Any = None
    ) -> Any:
        """Apply the primitive under another trace: ``(trace, args[, avals], params)``."""
        with use_trace(scoped(trace)):
            return self.bind(*args, **(avals if params is None else params))

    def get_bind_params(self, params: Params) -> dict[str, Any]:
        """The parameters with which ``bind`` repeats an equation."""
        return dict(params)

    def application(self, avals: tuple[ShapedArray, ...], params: Params) -> Application:
        """The interned application at ``avals`` and ``params``."""
        key: Any = (avals, *params.items())
        if self.exact_keys:
            key = (*key, *map(_exact, params.values()))
        app = self.applications.get(key)
        if app is None:
            app = Application(self, avals, params)
            self.applications.set(key, app)
        return app

    def keep(self, app: Application) -> None:
        """Called when ``app`` gets an executable, so that no cache lets it go."""
        del app  # the cache of applications holds it as it is

    def is_high(self, avals: Sequence[Any], outs: Sequence[Any], params: Params) -> bool:
        """Whether arguments, results or what is inside are values of types of users."""
        del params
        return not _ARRAYS_ONLY.issuperset(map(type, (*avals, *outs)))

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> Any:
        """The results of types ``outs`` by operations on arrays; see interpreters/low.py.

        Asked where ``is_high``; values of types of users are the objects themselves.
        """
        del args, outs, params
        raise MissingRuleError(self.name, "lowering of types that programs define")

    # types and code ------------------------------------------------------------------------------

    @abc.abstractmethod
    def abstract_eval(self, *avals: ShapedArray, **params: object) -> Any:
        """The result aval (a list of avals where ``multiple_results``); checks the arguments."""

    @abc.abstractmethod
    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        """StableHLO for one equation: an ``ir.Value`` (a list of them where multiple_results)."""

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[Any] | None:
        """How each result is split over Explicit axes, where an operand is; None: over none.

        None instead of a sequence: the avals ``outs`` say it. By default nothing is known, and
        XLA chooses.
        """
        del avals, params
        return [None] * len(outs)

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]] | None:
        """The axes of a shard_map along which each result varies, where an operand does.

        None instead of a sequence: the avals ``outs`` say it. By default those of all operands.
        """
        del params
        return [joined(avals)] * len(outs)

    def recipe(self, *avals: ShapedArray, **params: Any) -> tuple[str, Any] | None:
        """Name and attributes of the operation that is all of ``lower``; None: it is more.

        It is asked at static shapes only, and its answer is remembered with the application.
        """
        del avals, params
        return None

    def is_lowered_on(self, platform: str, params: Params) -> bool:
        """Whether programs for several platforms may have ``platform`` among them."""
        del platform, params
        return True

    def effects(self, *avals: ShapedArray, **params: object) -> Effects:
        """The effects of an equation; none by default."""
        del avals, params
        return no_effects

    def names_axis(self, axis_name: object, params: Params) -> bool:
        """Whether this is a collective over the named axis ``axis_name``."""
        del axis_name, params
        return False

    def wanted_sharding(self, params: Params) -> Any:
        """The sharding over whose mesh programs with this equation run; None: any will do."""
        del params
        return None

    def result_memory(self, params: Params) -> str | None:
        """The kind of memory that the result is put in; None: the equation says nothing."""
        del params
        return None

    def replicas(self, params: Params) -> int:
        """How many devices compute one equation, each of them a part of it."""
        del params
        return 1

    def has_devices(self, params: Params) -> bool:
        """Whether an equation says which devices compute it."""
        del params
        return False

    def sharding_callback(self, params: Params) -> Callable[..., None] | None:
        """The function that is told on compilation how XLA splits the operand; None: nobody is."""
        del params
        return None

    # eager evaluation ----------------------------------------------------------------------------

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> Any:
        """The result (a list where ``multiple_results``) without a program of its own.

        ``NotImplemented``, the default: it is lowered, compiled and run.
        """
        del arrays, params
        return NotImplemented

    def destination(self, *arrays: Any, **params: Any) -> Any:
        """Where an operation that does nothing but move its array moves it; None: it stays.

        ``NotImplemented``, the default: it does something else.
        """
        del arrays, params
        return NotImplemented

    def prepare(self, app: Application, arrays: Sequence[Any]) -> Callable[..., Any] | None:
        """A function of arrays like ``arrays`` that runs ``app``; None: the runtime makes it."""
        del app, arrays

    def by_blocks(self, app: Application) -> Any:
        """Of a loop over slices, how these are made block by block (lowering/rewrites/blocks)."""
        del app

    def by_steps(self, walk: Callable[..., Any], arrays: Sequence[Any], **params: Any) -> None:
        """Give what runs inside to ``walk(jaxpr, arrays) -> arrays``, which looks for a NaN.

        By default each Jaxpr in ``params`` that takes and gives what the primitive does.
        """
        app = self.application(tuple([a.aval for a in arrays]), params)
        for jaxpr in jaxprs_in_params(app.params):
            if jaxpr.in_avals == app.avals and jaxpr.out_avals == app.outs:
                walk(jaxpr, arrays)

    # transformations -----------------------------------------------------------------------------

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        """``(result, tangent)``, or two lists; a tangent ``None`` is a symbolic zero, both ways."""
        del primals, tangents, params
        raise MissingRuleError(self.name, "jvp")

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """As ``jvp``, but no equation computes results and tangents together."""
        return self.jvp(primals, tangents, **params)

    def staged_linearize(self, app: Application, mask: int) -> Any:
        """The staged rule ``linearize`` for tangents at the bits of ``mask``.

        None, the default: it is staged from ``linearize`` (interpreters/staged_rules.py).
        """
        del app, mask

    def linearize_unstaged(
        self, trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
    ) -> Any:
        """Results, and the tape nodes of their tangents, the first time that ``trace`` asks.

        Asked where ``stages_when_repeated``. ``NotImplemented``, the default: the rule is staged.
        """
        del trace, primals, tangents, params
        return NotImplemented

    def transpose(self, ct: Any, *args: Value, **params: object) -> Sequence[Value | None]:
        """Cotangents of the linear arguments, which are given as ``LinearInput(aval)``.

        One entry per argument, ``None`` for the nonlinear ones and for zeros. With
        multiple_results ``ct`` is a list, in which ``None`` is a symbolic zero.
        """
        del ct, args, params
        raise MissingRuleError(self.name, "transpose")

    def staged_transpose(self, app: Application, mask: int, ct_mask: int) -> Any:
        """The staged rule ``transpose`` for linear arguments ``mask``, cotangents at ``ct_mask``.

        None, the default: it is staged from ``transpose`` (interpreters/staged_rules.py).
        """
        del app, mask, ct_mask

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        """``(result, dim)``, or two lists; a dim is the position of the new axis, or ``None``."""
        del ctx, args, dims, params
        raise MissingRuleError(self.name, "batch")

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        """Along which named axes each result may differ (interpreters/varying.py)."""
        return walk.by_default(app, ins)

    # parts of equations with several results -----------------------------------------------------

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Application, Sequence[bool], Sequence[bool]]:
        """A smaller application, which arguments it keeps, and which results it keeps.

        It keeps at least the results ``used_outs``; all of them by default.
        """
        del used_outs
        return app, (True,) * len(app.avals), (True,) * len(app.outs)

    def called_at_last(self, **params: Any) -> Any:
        """The Jaxpr that may take its place when no more derivatives are taken, or None."""
        del params
        return None

    def unknown_outs(self, unknown: tuple[bool, ...], **params: Any) -> Sequence[bool] | None:
        """Which results depend on the arguments ``unknown``; None, the default: all."""
        del unknown, params

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> Any:
        """Bind the same computation as several equations, of known and of unknown arguments.

        Results that ``unknown_outs`` calls known depend on the known ones only.
        """
        del unknown
        return self.bind(*args, **params)


_ARRAYS_ONLY = {ShapedArray}


def is_default(rule: Callable[..., Any], default: Callable[..., Any]) -> bool:
    """Whether a rule that was taken from a primitive is the ``default`` of a base class."""
    return isinstance(rule, MethodType) and rule.__func__ is default


def _primitive_named(name: str) -> Primitive:
    return _ALL[name]


def _exact(value: object) -> Any:
    """What tells values apart that Python calls equal."""
    return (type(value), repr(value)) if isinstance(value, float | int | complex) else None
