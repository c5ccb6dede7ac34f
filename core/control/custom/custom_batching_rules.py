"""Batching rules of custom_vmap equations: the user's, and those derived from it.

A rule has ``batched(size, flags)``: the Jaxpr of the batched equation, in which the arguments at
``flags`` have the batch axis in front, and which of its results have it in front too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.inline_rules import describe
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.transform_errors import ClosedOverValueError, CustomRuleError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.debug_info import DebugInfo, where_is
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import broadcast_batch
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]
Batched = tuple[Jaxpr, Flags]


@final
class VmapCall:
    """A function and its rule: ``rule(axis_size, in_batched, *args) -> (result, out_batched)``."""

    __slots__ = ("fun", "in_tree", "memo", "name", "rule", "rule_name")

    def __init__(
        self,
        fun: Callable[..., Any],
        rule: Callable[..., Any],
        in_tree: PyTreeDef,
        names: tuple[str, str],
        memo: BoundedCache[Any],
    ) -> None:
        self.fun = fun
        self.rule = rule
        self.in_tree = in_tree
        self.name, self.rule_name = names
        self.memo = memo

    def run_rule(
        self, size: object, flags: Flags, args: Sequence[Value]
    ) -> tuple[list[Any], Flags, PyTreeDef]:
        """Results as values, which of them are batched, and their structure."""
        in_batched = list(self.in_tree.unflatten(flags))
        pair = self.rule(size, in_batched, *self.in_tree.unflatten(args))
        start = f"{self.name}: its vmap rule {self.rule_name} returned"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            msg = f"{start} {kind_of(pair)}, expected a pair (result, out_batched)"
            raise CustomRuleError(msg)
        outs, tree = flatten(pair[0])
        batched, batched_tree = flatten(pair[1])
        if batched_tree != tree:
            msg = f"{start} a result and an out_batched of different structures"
            raise CustomRuleError(msg, got=str(batched_tree), expected=str(tree))
        values = [as_value(o) for o in outs]
        for i, (value, flag) in enumerate(zip(values, batched, strict=True)):
            where = keystr(leaf_paths(tree)[i])
            if not isinstance(flag, bool):
                msg = f"{start} {flag!r} in out_batched{where}, expected a boolean"
                raise CustomRuleError(msg)
            shape = value.aval.shape
            if flag and (not shape or shape[0] != size):
                msg = f"{start} a result{where} without the batch axis that out_batched says"
                expected = f"an array of {size} elements along its first axis"
                raise CustomRuleError(msg, got=value.aval.str_short(), expected=expected)
        return values, tuple(batched), tree


def closes_over(call: VmapCall) -> ClosedOverValueError:
    """The error for a function or rule that closes over a mapped value."""
    msg = (
        f"{call.name}: the function or its vmap rule {call.rule_name} closes over a traced value "
        "that the rule cannot use: a mapped one, or one of a trace that has ended by then"
    )
    return ClosedOverValueError(msg, hint=f"pass that value to {call.name} as an argument")


@final
class VmapRule:
    """The rule of the user, traced for each set of batched arguments."""

    __slots__ = ("_call", "_jaxpr", "_known", "_n_consts", "_out_tree")

    def __init__(self, call: VmapCall, jaxpr: Jaxpr, n_consts: int, out_tree: PyTreeDef) -> None:
        self._call = call
        self._jaxpr = jaxpr
        self._n_consts = n_consts
        self._out_tree = out_tree
        self._known: dict[Any, Batched] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._call.name})"

    def batched(self, size: object, flags: Flags) -> Batched:
        """(consts, arguments) -> results."""
        return self.for_size(size, flags) if any(flags) else _unchanged(self._jaxpr)

    def for_size(self, size: object, flags: Flags) -> Batched:
        """As ``batched``, by the rule of the user even if no argument is batched."""
        if any(flags[: self._n_consts]):
            raise closes_over(self._call)
        found = self._known.get((size, flags))
        if found is None:
            found = self._known[size, flags] = self._trace(size, flags)
        return found

    def _trace(self, size: Any, flags: Flags) -> Batched:
        call, n = self._call, self._n_consts
        seen: list[Flags] = []

        def run(*args: Any) -> list[Any]:
            outs, batched, tree = call.run_rule(size, flags[n:], args[n:])
            self.check(outs, batched, tree, size)
            seen.append(batched)
            return outs

        debug = DebugInfo(f"{call.rule_name}, vmap rule of {call.name}", where_is(call.rule))
        try:
            jaxpr = stage(run, _avals(self._jaxpr, size, flags), debug)
        except UnexpectedTracerError as error:
            raise closes_over(call) from error
        if any([isinstance(c, Tracer) for c in jaxpr.consts]):
            raise closes_over(call)
        return jaxpr, seen[0]

    def check(self, outs: Sequence[Any], batched: Flags, tree: PyTreeDef, size: object) -> None:
        """The results must be like those of the function, unmapped ones exactly."""
        expected = self._jaxpr.out_avals
        if tree == self._out_tree:
            avals = [
                batched_aval(a, size, 0 if b else None)
                for a, b in zip(expected, batched, strict=True)
            ]
            triples = zip([o.aval for o in outs], avals, batched, strict=True)
            # A batched result of another shape is the rule's own business.
            if all([g.dtype == a.dtype and (b or g.shape == a.shape) for g, a, b in triples]):
                return
            expected = avals
        call = self._call
        msg = (
            f"{call.name}: the result that its vmap rule {call.rule_name} returned is not that of "
            f"{call.name} with a batch axis"
        )
        raise CustomRuleError(
            msg,
            got=describe(tree, [o.aval for o in outs]),
            expected=describe(self._out_tree, expected),
        )


@final
class SomeResults:
    """A rule for some of the results of another one; ``jaxpr`` is that of the equation."""

    __slots__ = ("_base", "_chosen", "_jaxpr")

    def __init__(self, base: Any, jaxpr: Jaxpr, chosen: Flags) -> None:
        self._base = base
        self._jaxpr = jaxpr
        self._chosen = chosen

    def batched(self, size: Any, flags: Flags) -> Batched:
        """As ``VmapRule.batched``."""
        return self._choose(self._base.batched(size, flags))

    def for_size(self, size: Any, flags: Flags) -> Batched:
        """As ``VmapRule.for_size``."""
        return self._choose(self._base.for_size(size, flags))

    def _choose(self, jaxpr_and_tree: Batched) -> Batched:
        jaxpr, out = jaxpr_and_tree
        kept = tuple([o for o, c in zip(out, self._chosen, strict=True) if c])
        return dce_jaxpr(jaxpr, self._chosen, keep_in=True)[0], kept


@final
class DerivativeRule:
    """The rule of a derivative: results, then tangents of those in ``nonzero_out``.

    ``derive`` is jvp_jaxpr or tangent_jaxpr. An argument counts as batched if it or its tangent
    is; results depend on arguments alone, tangents on both. Where no argument is batched together
    with its tangent, the derivative of the rule for single examples is mapped.
    """

    __slots__ = ("_base", "_derive", "_jaxpr", "_nonzero", "_nonzero_out")

    def __init__(
        self, base: Any, jaxpr: Jaxpr, derive: Any, nonzero: Flags, nonzero_out: Flags
    ) -> None:
        self._base = base
        self._jaxpr = jaxpr
        self._derive = derive
        self._nonzero = nonzero
        self._nonzero_out = nonzero_out

    def batched(self, size: Any, flags: Flags) -> Batched:
        """As ``VmapRule.batched``."""
        if not any(flags):
            return _unchanged(self._jaxpr)
        n, n_out = len(self._nonzero), len(self._nonzero_out)
        primal = flags[:n]
        remaining_flags = iter(flags[n:])
        tangent = tuple([nz and next(remaining_flags) for nz in self._nonzero])
        together = zip(primal, tangent, self._nonzero, strict=True)
        if not any([p and (t or not nz) for p, t, nz in together]):
            batched_pair = self._map_single(size, flags)
            if batched_pair is not None:
                return batched_pair
        either = tuple([p or t for p, t in zip(primal, tangent, strict=True)])
        base, out = self._base.batched(size, either)
        whole, present = self._derive(base, self._nonzero, self._nonzero_out)
        alone, primal_out = self._base.batched(size, primal)
        wide = (*either, *[e for e, nz in zip(either, self._nonzero, strict=True) if nz])

        def run(*args: Any) -> list[Any]:
            process = current_trace().process
            results = eval_jaxpr(whole, process, _widened(args, flags, wide, size))
            own_tangents = iter(results[n_out:])
            tangents = [next(own_tangents) if here else None for here in present]
            chosen = [t for t, nz in zip(tangents, self._nonzero_out, strict=True) if nz]
            if either != primal:
                results = eval_jaxpr(alone, process, args[:n])
            return [*results[:n_out], *chosen]

        jaxpr = stage(run, _avals(self._jaxpr, size, flags), whole.debug, locate=False)
        of_tangents = [o for o, nz in zip(out, self._nonzero_out, strict=True) if nz]
        return jaxpr, (*primal_out, *of_tangents)

    def for_size(self, size: Any, flags: Flags) -> Batched:
        """As ``VmapRule.for_size``."""
        if any(flags):
            return self.batched(size, flags)
        base, out = self._base.for_size(size, (False,) * len(self._nonzero))
        whole, present = self._derive(base, self._nonzero, self._nonzero_out)
        of_tangents = [o for o, here in zip(out, present, strict=True) if here]
        return self._wanted(whole, present, (*out, *of_tangents))

    def _map_single(self, size: object, flags: Flags) -> Batched | None:
        """The rule at unmapped arguments, derived and then mapped; None if it is not for those."""
        try:
            jaxpr, out = self.for_size(size, (False,) * len(flags))
        except CustomRuleError:
            return None
        if any(out):
            return None
        dims = tuple([0 if f else None for f in flags])
        mapped, out_dims = batch_jaxpr(jaxpr, size, None, dims)
        return mapped, tuple([d is not None for d in out_dims])

    def _wanted(self, whole: Jaxpr, present: Flags, out: Flags) -> Batched:
        """Without the tangents that are not in ``nonzero_out``."""
        pairs = zip(present, self._nonzero_out, strict=True)
        kept = (*[True] * len(present), *[nz for here, nz in pairs if here])
        chosen = tuple([o for o, keep in zip(out, kept, strict=True) if keep])
        return dce_jaxpr(whole, kept, keep_in=True)[0], chosen


@final
class TransposedRule:
    """The rule of a transpose: (nonlinear arguments, cotangents) -> cotangents at ``present``.

    All linear arguments count as batched, so that each example has a cotangent of its own.
    """

    __slots__ = ("_base", "_ct_in", "_jaxpr", "_linear", "_present")

    def __init__(
        self, base: Any, jaxpr: Jaxpr, linear: Flags, ct_in: Flags, present: Flags
    ) -> None:
        self._base = base
        self._jaxpr = jaxpr
        self._linear = linear
        self._ct_in = ct_in
        self._present = present

    def batched(self, size: Any, flags: Flags) -> Batched:
        """As ``VmapRule.batched``."""
        if not any(flags):
            return _unchanged(self._jaxpr)
        remaining_flags = iter(flags)
        of_base = tuple([is_linear or next(remaining_flags) for is_linear in self._linear])
        base, out = self._base.batched(size, of_base)
        out = tuple([o for o, here in zip(out, self._ct_in, strict=True) if here])
        base = dce_jaxpr(base, self._ct_in, keep_in=True)[0]

        def forced(*args: Any) -> list[Any]:
            results = eval_jaxpr(base, current_trace().process, args)
            return _widened(results, out, (True,) * len(out), size)

        whole = stage(forced, base.in_avals, base.debug, locate=False)
        back, _ = transpose_jaxpr(whole, self._linear)
        n_values = self._linear.count(False)
        wide = (*flags[:n_values], *[True] * len(out))

        def run(*args: Any) -> list[Any]:
            results = eval_jaxpr(back, current_trace().process, _widened(args, flags, wide, size))
            return [r for r, here in zip(results, self._present, strict=True) if here]

        jaxpr = stage(run, _avals(self._jaxpr, size, flags), whole.debug, locate=False)
        return jaxpr, (True,) * len(jaxpr.outs)

    def for_size(self, size: object, flags: Flags) -> Batched:
        """As ``VmapRule.for_size``; transposes have no form of their own for that."""
        return self.batched(size, flags)


def _unchanged(jaxpr: Jaxpr) -> Batched:
    """The batched form where no argument is batched."""
    return jaxpr, (False,) * len(jaxpr.outs)


def _avals(jaxpr: Jaxpr, size: object, flags: Flags) -> list[ShapedArray]:
    """The avals of the arguments of ``jaxpr``, batched at ``flags``."""
    return [
        batched_aval(a, size, 0 if f else None) for a, f in zip(jaxpr.in_avals, flags, strict=True)
    ]


def _widened(args: Sequence[Value], flags: Flags, wanted: Flags, size: object) -> list[Any]:
    """The values with a batch axis in front where it is wanted and not there."""
    return [
        broadcast_batch(a, size, 0) if w and not f else a
        for a, f, w in zip(args, flags, wanted, strict=True)
    ]
