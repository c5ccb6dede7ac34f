"""The transformation: programs that also compute the error state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.branches.cond import Choice
from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.custom.linear_call import custom_transpose_call_p, linear_call_p
from tracebridge.core.control.loops.while_primitive import groups, while_p
from tracebridge.core.control.pmap.jaxprs import axis_scope
from tracebridge.core.control.pmap.primitive import pmap_p
from tracebridge.core.control.scan.primitive import scan_p
from tracebridge.core.control.shard_map.places import Place, stacked_over
from tracebridge.core.control.shard_map.primitive import shard_map_p
from tracebridge.core.control.shard_map.rules import axes_scope
from tracebridge.core.control.solve.custom_linear_solve import linear_solve_p
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.check_errors import (
    DivisionByZeroError,
    FailedCheckError,
    NanError,
    OutOfBoundsError,
)
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.ad_util import stop_gradient_p
from tracebridge.core.transforms.checkify.check import CHECK_EFFECT, check_p, first_failure
from tracebridge.core.transforms.checkify.error import Category, Layout
from tracebridge.core.transforms.checkify.rules import CHECKS, check_nan
from tracebridge.core.transforms.checkify.state import CODE, SiteTable, State, lane_aval, merged

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params


Categories = frozenset[Category]
EVERY_CATEGORY: Categories = frozenset(
    {FailedCheckError, NanError, OutOfBoundsError, DivisionByZeroError}
)


@final
class Checked:
    """A transformed program.

    It maps (code, lanes of ``lanes_in``, inputs) to (code, lanes of ``layout``, results).
    """

    __slots__ = ("jaxpr", "lanes_in", "layout")

    def __init__(self, jaxpr: Jaxpr, lanes_in: Layout, layout: Layout) -> None:
        self.jaxpr = jaxpr
        self.lanes_in = lanes_in
        self.layout = layout

    @property
    def is_plain(self) -> bool:
        """Whether nothing in the program can fail."""
        return self.jaxpr.outs[0] == 0


@final
class Checker:
    """Transforms the programs of one function for the kinds of error ``enabled``."""

    __slots__ = ("_memo", "enabled", "table")

    def __init__(self, enabled: Categories) -> None:
        self.enabled = enabled
        self.table = SiteTable()
        self._memo: dict[Any, Checked] = {}

    def checked(
        self, jaxpr: Jaxpr, lanes_in: Layout, line: str = "", wanted: Layout | None = None
    ) -> Checked:
        """The transformed ``jaxpr``, with at least the lanes ``wanted`` among its results."""
        key = (jaxpr, lanes_in, line, wanted)
        cached = self._memo.get(key)
        if cached is not None:
            return cached
        layouts: list[Layout] = []
        n = 1 + len(lanes_in)

        def run(*values: Any) -> list[Any]:
            state = State(self.table, values[0], dict(zip(lanes_in, values[1:n], strict=True)))
            outs = self.run(jaxpr, state, values[n:], line)
            layouts.append(merged([lanes_in, state.layout, wanted or ()]))
            return [*state.values(layouts[0]), *outs]

        avals = [CODE, *[lane_aval(k) for k in lanes_in], *jaxpr.in_avals]
        staged = stage(run, avals, jaxpr.debug, locate=False)
        cached = self._memo[key] = Checked(staged, lanes_in, layouts[0])
        return cached

    def run(self, jaxpr: Jaxpr, state: State, args: Sequence[Any], line: str = "") -> list[Any]:
        """The results of ``jaxpr`` under the current trace; failures go into ``state``.

        ``line`` is that of the equation around, for equations that do not know theirs.
        """
        env: list[Any] = [*args, *jaxpr.consts]
        for k, (app, idx) in enumerate(jaxpr.equations):
            source = jaxpr.sources[k] if jaxpr.sources else None
            where = line if source is None else describe_line(source) or line
            env.extend(self.step(state, app, [env[i] for i in idx], where))
        return [env[i] for i in jaxpr.outs]

    def step(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        """The results of one equation."""
        primitive = app.primitive
        if isinstance(primitive, HigherOrderPrimitive):
            return self._higher_order(state, app, args, line)
        if primitive is check_p:
            self._check(state, app, args, line)
            return []
        cached = CHECKS.get(primitive)
        if cached is not None and cached[0] in self.enabled:
            cached[1](state, app, args, line)
        result = current_trace().process(app, args)
        outs = result if app.multiple else [result]
        if NanError in self.enabled and primitive.makes_nan:
            check_nan(state, app, outs, line)
        return outs

    def _higher_order(
        self, state: State, app: Application, args: list[Any], line: str
    ) -> list[Any]:
        primitive = app.primitive
        if isinstance(primitive, CallPrimitive):
            return self._call(state, app, args, line)
        if isinstance(primitive, Choice):
            return self._choice(state, app, args, line)
        if primitive is scan_p:
            return self._scan(state, app, args, line)
        if primitive is while_p:
            return self._while(state, app, args, line)
        if primitive is pmap_p:
            return self._map(state, app, args, line)
        if primitive is shard_map_p:
            return self._shard_map(state, app, args, line)
        part = BESIDE.get(primitive)
        if part is None:
            return current_trace().process(app, args)
        # The equation keeps its rules and its results; what can fail runs once more beside it, with
        # values of which no derivative is taken. The compiler finds what both have in common.
        jaxpr, inputs = part(app, args)
        stopped = [stop_gradient_p.bind(x) if is_inexact(x.aval.dtype) else x for x in inputs]
        self.run(jaxpr, state, stopped, line)
        return primitive.bind(*args, **without_checks(app.params))

    def _check(self, state: State, app: Application, args: list[Any], line: str) -> None:
        """Checks of enabled kinds go into the state; others are left for another checkify."""
        code, *payload = args
        sites, layout = app.params["sites"], app.params["layout"]
        mine = [s.category in self.enabled for s in sites]
        sites = tuple([s if s.line else s._replace(line=line) for s in sites])
        if not all(mine):
            theirs = code
            for k, is_mine in enumerate(mine, 1):
                if is_mine:
                    theirs = _replaced(theirs, k)
            check_p.bind(theirs, *payload, sites=sites, layout=layout, debug=True)
        if any(mine):
            for k, is_mine in enumerate(mine, 1):
                if not is_mine:
                    code = _replaced(code, k)
            state.record_sites(sites, code, payload, layout)

    def _call(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        jaxpr: Jaxpr = app.params["jaxpr"]
        new = self.checked(jaxpr, state.layout, line)
        if _as_before(new, jaxpr):
            return current_trace().process(app, args)
        primitive: Any = app.primitive
        n = len(new.lanes_in) + 1
        params = dict(app.params)
        if "prevent_cse" in params:
            params["prevent_cse"] = (*[any(params["prevent_cse"])] * n, *params["prevent_cse"])
        params = primitive.with_jaxpr(params, new.jaxpr, "checkify")
        outs = primitive.bind(*state.values(new.lanes_in), *args, **params)
        return state.take(outs, new.layout)

    def _choice(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        branches = app.params["branches"]
        lanes_in = state.layout
        checked_branches = [self.checked(b, lanes_in, line) for b in branches]
        if all([_as_before(f, b) for f, b in zip(checked_branches, branches, strict=True)]):
            return current_trace().process(app, args)
        layout = merged([f.layout for f in checked_branches])
        new = tuple([self.checked(b, lanes_in, line, layout).jaxpr for b in branches])
        # Lanes stand in the order in which a branch found them: bring them into one.
        new = tuple(
            [
                _reordered(j, self.checked(b, lanes_in, line, layout).layout, layout)
                for j, b in zip(new, branches, strict=True)
            ]
        )
        n_lead = app.primitive.n_lead  # pyright: ignore[reportAttributeAccessIssue] - of Choice
        outs = app.primitive.bind(
            *args[:n_lead],
            *state.values(lanes_in),
            *args[n_lead:],
            **{**app.params, "branches": new},
        )
        return state.take(outs, layout)

    def _loop_body(self, body: Jaxpr, lanes_in: Layout, line: str) -> Checked:
        """The transformed body, with the same lanes before and after a step."""
        while True:
            found = self.checked(body, lanes_in, line)
            if found.layout == lanes_in:
                return found
            lanes_in = found.layout

    def _scan(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        params = app.params
        body = self._loop_body(params["jaxpr"], state.layout, line)
        if _as_before(body, params["jaxpr"]):
            return current_trace().process(app, args)
        n_state, n_consts = 1 + len(body.lanes_in), params["num_consts"]
        order = [*range(n_state, n_state + n_consts), *range(n_state)]
        jaxpr = permute_jaxpr(body.jaxpr, [*order, *range(n_state + n_consts, body.jaxpr.n_in)])
        outs = scan_p.bind(
            *args[:n_consts],
            *state.values(body.lanes_in),
            *args[n_consts:],
            **{**params, "jaxpr": jaxpr, "num_carry": params["num_carry"] + n_state},
        )
        return state.take(outs, body.layout)

    def _map(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        """Each element starts without an error; the first one that has one says it."""
        params = app.params
        with axis_scope(params):
            new = self.checked(params["jaxpr"], (), line)
        if _as_before(new, params["jaxpr"]):
            return current_trace().process(app, args)
        n = 1 + len(new.layout)
        in_axes, out_axes = (None, *params["in_axes"]), (*[0] * n, *params["out_axes"])
        derived = pmap_p.derived(params, new.jaxpr, in_axes, out_axes)
        outs = pmap_p.bind(literal(0, np.int32), *args, **derived)
        return _merge_first(state, outs, new.layout)

    def _shard_map(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        """Each device starts without an error; the first one that has one says it."""
        params = app.params
        with axes_scope(params):
            new = self.checked(params["jaxpr"], (), line)
        if _as_before(new, params["jaxpr"]):
            return current_trace().process(app, args)
        n, names = 1 + len(new.layout), params["names"]
        in_places = Place(()), *params["in_places"]
        own = [stacked_over(names, a) for a in new.jaxpr.out_avals[:n]]
        out_places = *own, *params["out_places"]
        derived = shard_map_p.derived(params, new.jaxpr, in_places, out_places)
        outs = shard_map_p.bind(literal(0, np.int32), *args, **derived)
        return _merge_first(state, outs, new.layout)

    def _while(self, state: State, app: Application, args: list[Any], line: str) -> list[Any]:
        params = app.params
        test, body = params["cond_jaxpr"], params["body_jaxpr"]
        lanes_in = state.layout
        while True:
            new_test = self._loop_body(test, lanes_in, line)
            new_body = self._loop_body(body, new_test.lanes_in, line)
            if new_body.lanes_in == new_test.lanes_in:
                break
            lanes_in = new_body.lanes_in
        if _as_before(new_test, test) and _as_before(new_body, body):
            return current_trace().process(app, args)
        layout = new_body.lanes_in
        cond_consts, body_consts, init = groups(params, args)
        if not new_test.is_plain:
            self.run(test, state, [*cond_consts, *init], line)
        loop = _LoopParts(new_test, new_body, len(cond_consts), len(body_consts))
        outs = while_p.bind(
            *cond_consts,
            *cond_consts,
            *body_consts,
            *state.values(layout),
            *init,
            cond_jaxpr=loop.test(without_checks({"test": test})["test"]),
            body_jaxpr=loop.body(),
            cond_nconsts=len(cond_consts),
            body_nconsts=len(cond_consts) + len(body_consts),
        )
        return state.take(outs, layout)


@final
class _LoopParts:
    """Condition and body of a while loop that carries the error state."""

    def __init__(self, test: Checked, body: Checked, n_test: int, n_body: int) -> None:
        self._test = test
        self._body = body
        self._n_test = n_test
        self._n_body = n_body
        self._n_state = 1 + len(body.lanes_in)

    def test(self, plain: Jaxpr) -> Jaxpr:
        """The condition does not look at the state."""
        avals = self._body.jaxpr.in_avals[: self._n_state]
        return permute_jaxpr(
            plain, [*range(self._n_test), *avals, *range(self._n_test, plain.n_in)]
        )

    def body(self) -> Jaxpr:
        """A step, and what can fail in the condition after it."""
        n_test, n_body, n_state = self._n_test, self._n_body, self._n_state
        inner = self._body.jaxpr

        def run(*args: Any) -> list[Any]:
            process = current_trace().process
            consts, body_args = args[:n_test], args[n_test:]
            values, carry = body_args[n_body : n_body + n_state], body_args[n_body + n_state :]
            outs = eval_jaxpr(inner, process, [*values, *body_args[:n_body], *carry])
            if not self._test.is_plain:
                again = [*outs[:n_state], *consts, *outs[n_state:]]
                outs[:n_state] = eval_jaxpr(self._test.jaxpr, process, again)[:n_state]
            return outs

        consts = self._test.jaxpr.in_avals[n_state : n_state + n_test]
        avals = [
            *consts,
            *inner.in_avals[n_state : n_state + n_body],
            *inner.in_avals[:n_state],
            *inner.in_avals[n_state + n_body :],
        ]
        return stage(
            run,
            avals,
            inner.debug,
            locate=False,
        )


def _merge_first(state: State, outs: Sequence[Any], layout: Any) -> list[Any]:
    """Take the first failure among those of all elements or devices; gives the other results."""
    n = 1 + len(layout)
    first = first_failure(outs[0])
    found = [lax.dynamic_index_in_dim(x, first, keepdims=False) for x in outs[:n]]
    state.merge(found[0], found[1:], layout)
    return list(outs[n:])


def _as_before(checked: Checked, jaxpr: Jaxpr) -> bool:
    """Whether a program fails in no enabled way and holds no checks of other kinds."""
    return checked.is_plain and CHECK_EFFECT not in jaxpr.effects


def _reordered(jaxpr: Jaxpr, layout: Layout, wanted: Layout) -> Jaxpr:
    """``jaxpr`` with the lanes among its results in another order."""
    if layout == wanted:
        return jaxpr
    n = 1 + len(layout)
    lanes = [jaxpr.outs[1 + layout.index(lane)] for lane in wanted]
    return permute_jaxpr(jaxpr, None, [jaxpr.outs[0], *lanes, *jaxpr.outs[n:]])


def _replaced(code: Any, k: int) -> Any:
    """``code`` with 0 in the place of ``k``."""
    zero = literal(0, np.int32)
    return lax.select_n(lax.eq(code, literal(k, np.int32)), code, zero)


def _own_jaxpr(app: Application, args: list[Any]) -> tuple[Jaxpr, list[Any]]:
    return app.params["jaxpr"], args


def _call_jaxpr(app: Application, args: list[Any]) -> tuple[Jaxpr, list[Any]]:
    return app.params["call_jaxpr"], args


def _solver(app: Application, args: Sequence[object]) -> tuple[Jaxpr, list[Any]]:
    first, second, third, _ = app.params["const_counts"]
    n = sum(app.params["const_counts"])
    return app.params["solve"], [*args[first + second : first + second + third], *args[n:]]


# Primitives with rules that must be kept: the program in them that can fail, and its inputs.
BESIDE: dict[Primitive, Callable[[Application, list[Any]], tuple[Jaxpr, list[Any]]]] = {
    custom_jvp_call_p: _call_jaxpr,
    custom_vjp_call_p: _call_jaxpr,
    linear_call_p: _own_jaxpr,
    custom_transpose_call_p: _own_jaxpr,
    linear_solve_p: _solver,
}


def without_checks(params: Params) -> dict[str, Any]:
    """Parameters whose programs check nothing."""

    def plain(value: Any) -> Any:
        if not isinstance(value, Jaxpr) or CHECK_EFFECT not in value.effects:
            return value
        checker = Checker(EVERY_CATEGORY)

        def run(*args: Any) -> list[Any]:
            state = State(checker.table, literal(0, np.int32), {})
            return checker.run(value, state, args)

        return stage(run, value.in_avals, value.debug, locate=False)

    return {name: plain(value) for name, value in params.items()}
