"""Policies of checkpoint: which values a differentiated function may keep for the way back.

A policy is a function ``policy(primitive, *avals, **params)`` that is asked about each first-order
equation. It returns a boolean, ``Saveable``, ``Recompute``, or an ``Offloadable``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params
from tracebridge.core.lax.annotations import name_p
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.primitive import Primitive


Policy = Callable[..., Any]


@final
class SaveableType:
    """Type of ``Saveable``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Saveable"


@final
class RecomputeType:
    """Type of ``Recompute``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Recompute"


Saveable = SaveableType()
"""What a policy returns for values that may be kept; the same as True."""
Recompute = RecomputeType()
"""What a policy returns for values that are computed again; the same as False."""


@public_path("tracebridge.ad_checkpoint")
class Offloadable(NamedTuple):
    """What a policy returns for values that are kept in another memory until they are needed.

    >>> from tracebridge.ad_checkpoint import Offloadable
    >>> Offloadable(src="device", dst="pinned_host").dst
    'pinned_host'
    """

    src: str
    dst: str


Decision = bool | Offloadable


def decide(policy: Policy, app: Application) -> Decision:
    """What ``policy`` says about the results of an equation.

    Raises:
        CustomRuleError: it returned something else.
    """
    answer = policy(app.primitive, *app.avals, **app.params)
    if isinstance(answer, bool | Offloadable):
        return answer
    if answer is Saveable or answer is Recompute:
        return answer is Saveable
    msg = f"checkpoint: policy {name_of(policy)} returned {answer!r} for {app.primitive.name}"
    raise CustomRuleError(msg, expected="a boolean, Saveable, Recompute or an Offloadable")


@final
class Decisions:
    """A policy applied to equations of any kind; equal for the same policy, so it can be a key.

    Results of loops and calls are judged by the equations inside that give them.
    """

    __slots__ = ("policy",)

    def __init__(self, policy: Policy | None) -> None:
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decisions) and self.policy == other.policy

    def __hash__(self) -> int:
        return hash((Decisions, self.policy))

    def __call__(self, app: Application) -> list[bool]:
        """Per result of an equation, whether it may be kept."""
        return [d is not False for d in self.of(app)]

    def of(self, app: Application) -> list[Decision]:
        """The decision for each result of an equation."""
        n = len(app.outs)
        if self.policy is None:
            return [False] * n
        if not isinstance(app.primitive, HigherOrderPrimitive):
            return [decide(self.policy, app)] * n
        inner = [j for j in jaxprs_in_params(app.params) if len(j.outs) == n]
        if not inner:
            return [False] * n
        if len(inner) == 1:
            return self.of_results(inner[0])
        rows = [self._of_computed(j) for j in inner]
        return [_strictest([d for d in each if d is not None]) for each in zip(*rows, strict=True)]

    def _of_computed(self, jaxpr: Jaxpr) -> list[Decision | None]:
        """The decision for each result that the equations of a branch make of its inputs.

        What is only handed on, or filled with zeros because another branch has it, is no reason to
        keep or to forget it.
        """
        fixed = jaxpr.n_in + len(jaxpr.consts)
        decisions: list[Decision | None] = [None] * fixed
        is_filled = [i >= jaxpr.n_in for i in range(fixed)]
        for app, idx in jaxpr.equations:
            filled = all([is_filled[i] for i in idx])
            is_filled.extend([filled] * len(app.outs))
            decisions.extend([None] * len(app.outs) if filled else self.of(app))
        return [decisions[s] for s in jaxpr.outs]

    def of_results(self, jaxpr: Jaxpr) -> list[Decision]:
        """The decision for each result of a Jaxpr."""
        fixed = jaxpr.n_in + len(jaxpr.consts)
        by_variable: list[Decision | None] = [None] * fixed
        for app, _ in jaxpr.equations:
            by_variable.extend(self.of(app))
        found = [by_variable[s] for s in jaxpr.outs]
        # Inputs that are passed on have no equation. In loops these are carries: without them what
        # is kept could not be used.
        rest = any([d is not None and d is not False for d in found])
        return [rest if d is None else d for d in found]


def _strictest(decisions: Sequence[Decision]) -> Decision:
    if not decisions or any([d is False for d in decisions]):
        return False
    moved = [d for d in decisions if isinstance(d, Offloadable)]
    return moved[0] if moved else True


# the policies ------------------------------------------------------------------------------------


def everything_saveable(*_: object, **__: object) -> bool:
    """Keep every value, as if there were no checkpoint.

    >>> import tracebridge as tb
    >>> f = tb.checkpoint(tb.lax.sin, policy=tb.checkpoint_policies.everything_saveable)
    >>> print(tb.grad(f)(0.0))
    1.0
    """
    return True


def nothing_saveable(*_: object, **__: object) -> bool:
    """Keep nothing but the arguments; the default.

    >>> import tracebridge as tb
    >>> f = tb.checkpoint(tb.lax.sin, policy=tb.checkpoint_policies.nothing_saveable)
    >>> print(tb.grad(f)(0.0))
    1.0
    """
    return False


def dots_saveable(prim: Primitive, *_: object, **__: object) -> bool:
    """Keep results of matrix products and convolutions; compute cheap operations again.

    >>> import tracebridge as tb
    >>> policy = tb.checkpoint_policies.dots_saveable
    >>> policy(tb.lax.dot_general_p), policy(tb.lax.sin_p)
    (True, False)
    """
    return prim.cost is Cost.CONTRACTION


checkpoint_dots = dots_saveable


def save_by_cost(prim: Primitive, *_: object, **__: object) -> bool:
    """Keep what is cheapest to keep: of all values together, by a cheapest cut of the program.

    As the policy of a checkpoint it weighs, for the whole function, what writing a value and
    reading it back takes against what computing it again takes. Contractions, reductions, sorts
    and loops are never computed again, elementwise functions where that is cheaper; equal values
    are kept once. Scans inside choose for their steps in the same way.

    Asked about one equation, as within ``save_from_both_policies``, it keeps all results but
    those of cheap elementwise operations and of moves.

    >>> import tracebridge as tb
    >>> policy = tb.checkpoint_policies.save_by_cost
    >>> policy(tb.lax.dot_general_p), policy(tb.lax.mul_p)
    (True, False)
    >>> f = tb.checkpoint(lambda x: tb.lax.exp(x * x) * 2.0, policy=policy)
    >>> print(tb.grad(f)(0.0))
    0.0
    """
    return not prim.cost.is_repeatable


def _has_batch_dims(params: Params) -> bool:
    _, (lhs_batch, rhs_batch) = params["dimension_numbers"]
    return bool(lhs_batch or rhs_batch)


def dots_with_no_batch_dims_saveable(prim: Primitive, *_: object, **params: Any) -> bool:
    """Keep results of matrix products without batch dimensions: those with weights, as a rule.

    >>> import tracebridge as tb
    >>> policy = tb.checkpoint_policies.dots_with_no_batch_dims_saveable
    >>> policy(tb.lax.dot_general_p, dimension_numbers=(((1,), (0,)), ((), ())))
    True
    >>> policy(tb.lax.dot_general_p, dimension_numbers=(((2,), (1,)), ((0,), (0,))))
    False
    """
    return prim is dot_general_p and not _has_batch_dims(params)


checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@final
class _NamePolicy:
    """A policy that is equal to others made of the same names, so that traces are found again."""

    __slots__ = ("__name__", "_kind", "_names", "_offload")

    def __init__(
        self, name: str, kind: str, names: frozenset[str], offload: Any = (frozenset(), None)
    ) -> None:
        self.__name__ = name
        self._kind = kind
        self._names = names
        self._offload: tuple[frozenset[str], Offloadable | None] = offload

    def __call__(self, prim: Primitive, *_: object, **params: Any) -> Decision:
        named = prim is name_p
        if self._kind == "any but":
            return named and params["name"] not in self._names
        if self._kind == "anything except":
            return not named or params["name"] not in self._names
        moved, where = self._offload
        if named and where is not None and params["name"] in moved:
            return where
        return named and params["name"] in self._names

    def _key(self) -> tuple[Any, ...]:
        return self._kind, self._names, self._offload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NamePolicy) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{self.__name__}({', '.join(map(repr, sorted(self._names)))})"


def _names(call: str, option: str, names: Sequence[Any]) -> frozenset[str]:
    for name in [names] if isinstance(names, str) else names:
        if not isinstance(name, str) or isinstance(names, str):
            msg = f"{call}: {option} contains {name!r} of type {type(name).__name__}"
            if isinstance(names, str):
                msg = f"{call}: {option} is the string {names!r}"
            raise ArgumentSpecError(msg, expected="names as strings, in a sequence")
    return frozenset(names)


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Keep values that ``checkpoint_name`` gave one of these names, and nothing else.

    >>> import tracebridge as tb
    >>> tb.checkpoint_policies.save_only_these_names("a", "b")
    save_only_these_names('a', 'b')
    """
    call = "save_only_these_names"
    return _NamePolicy(call, "only", _names(call, "the names", names_which_can_be_saved))


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Keep values with any name except these, and no values without a name.

    >>> import tracebridge as tb
    >>> tb.checkpoint_policies.save_any_names_but_these("a")
    save_any_names_but_these('a')
    """
    call = "save_any_names_but_these"
    return _NamePolicy(call, "any but", _names(call, "the names", names_not_to_save))


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Keep all values, but compute those with these names again.

    A value without a name that is the same as a named one may still be kept.

    >>> import tracebridge as tb
    >>> tb.checkpoint_policies.save_anything_except_these_names("a")
    save_anything_except_these_names('a')
    """
    call = "save_anything_except_these_names"
    return _NamePolicy(call, "anything except", _names(call, "the names", names_not_to_save))


@final
class _EitherPolicy:
    """Keeps what either of two policies keeps."""

    __slots__ = ("__name__", "_policies")

    def __init__(self, first: Policy, second: Policy) -> None:
        self.__name__ = "save_from_both_policies"
        self._policies = first, second

    def __call__(self, prim: Primitive, *avals: object, **params: Any) -> Any:
        first, second = self._policies
        answer = first(prim, *avals, **params)
        keeps = answer is not False and answer is not Recompute
        return answer if keeps else second(prim, *avals, **params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _EitherPolicy) and self._policies == other._policies

    def __hash__(self) -> int:
        return hash(self._policies)


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Keep what at least one of two policies keeps.

    Raises:
        ArgumentSpecError: one of them is no function.

    >>> import tracebridge as tb
    >>> p = tb.checkpoint_policies
    >>> policy = p.save_from_both_policies(p.dots_saveable, p.save_only_these_names("a"))
    >>> policy(tb.lax.dot_general_p), policy(tb.lax.sin_p)
    (True, False)
    """
    for policy in (policy_1, policy_2):
        if not callable(policy):
            msg = f"save_from_both_policies: got {policy!r} of type {type(policy).__name__}"
            raise ArgumentSpecError(msg, expected="two policies, which are functions")
    return _EitherPolicy(policy_1, policy_2)


@final
class _OffloadDots:
    """Offloads matrix products without batch dimensions."""

    __slots__ = ("__name__", "_where")

    def __init__(self, where: Offloadable) -> None:
        self.__name__ = "offload_dot_with_no_batch_dims"
        self._where = where

    def __call__(self, prim: Primitive, *_: object, **params: Any) -> Decision:
        return self._where if dots_with_no_batch_dims_saveable(prim, **params) else False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OffloadDots) and self._where == other._where

    def __hash__(self) -> int:
        return hash((_OffloadDots, self._where))


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Keep matrix products without batch dimensions in another memory.

    Args:
        offload_src: memory that they come from and return to: ``"device"``.
        offload_dst: memory that they wait in: ``"pinned_host"``. On CPU, which has one memory
            only, they stay where they are.

    >>> import tracebridge as tb
    >>> policy = tb.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    >>> policy(tb.lax.dot_general_p, dimension_numbers=(((1,), (0,)), ((), ())))
    Offloadable(src='device', dst='pinned_host')
    """
    return _OffloadDots(_memories("offload_dot_with_no_batch_dims", offload_src, offload_dst))


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Keep values with some names, in place or in another memory.

    Args:
        names_which_can_be_saved: names of values that stay in place.
        names_which_can_be_offloaded: names of values that are moved.
        offload_src: memory that they come from and return to: ``"device"``.
        offload_dst: memory that they wait in: ``"pinned_host"``. On CPU, which has one memory
            only, they stay where they are.

    Raises:
        ArgumentSpecError: a name is in both lists, or no string.

    >>> import tracebridge as tb
    >>> tb.checkpoint_policies.save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"],
    ...     offload_src="device", offload_dst="pinned_host")
    save_and_offload_only_these_names('a')
    """
    call = "save_and_offload_only_these_names"
    saved = _names(call, "names_which_can_be_saved", names_which_can_be_saved)
    moved = _names(call, "names_which_can_be_offloaded", names_which_can_be_offloaded)
    if saved & moved:
        msg = (
            f"{call}: {sorted(saved & moved)} are to be saved in place and to be offloaded. The "
            "names should be exclusive and should not intersect"
        )
        raise ArgumentSpecError(msg, hint="give each name to one of the two lists")
    return _NamePolicy(call, "only", saved, (moved, _memories(call, offload_src, offload_dst)))


_KINDS = ("device", "pinned_host", "unpinned_host")


def _memories(call: str, src: Any, dst: Any) -> Offloadable:
    for option, kind in (("offload_src", src), ("offload_dst", dst)):
        if kind not in _KINDS:
            msg = f"{call}: {option} is {kind!r}"
            raise ArgumentSpecError(msg, expected=f"one of {', '.join(map(repr, _KINDS))}")
    return Offloadable(src, dst)
