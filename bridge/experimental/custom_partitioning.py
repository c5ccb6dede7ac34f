"""Functions that say themselves how they are split over devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

from tracebridge._api.custom.arguments import CustomArguments, method_of_inner
from tracebridge.core.control.calls.inline_rules import check_closed, is_eager_trace, user_value
from tracebridge.core.control.custom.partitioned_call import (
    PartitionedFunction,
    partitioned_call_p,
)
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, UndefinedRuleError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.trace import trace_for
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.sharding.axis_rules import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    parse_rule,
)
from tracebridge.core.tree.tree import flatten

__all__ = [
    "BATCHING",
    "ArrayMapping",
    "CompoundFactor",
    "SdyShardingRule",
    "custom_partitioning",
]


@final
class custom_partitioning:
    """Set up a function that says itself how XLA splits it over the devices of a mesh.

    In programs over several devices the function is one operation. A rule says which axes of its
    arguments and results are split together; when that is settled, ``partition`` gives the program
    of one device. On one device, in calls outside of ``jit``, inside of ``shard_map``, and in
    derivatives and under ``vmap``, it is the plain function.

    Args:
        fun: function of arrays and trees of arrays.
        static_argnums: positions of arguments that are constants of the program; the rules get
            them first.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.custom_partitioning import custom_partitioning
    >>> @custom_partitioning
    ... def total(x):
    ...     return tnp.sum(x, axis=-1)
    >>> def partition(mesh, args, result):
    ...     places = tb.tree.map(lambda a: a.sharding, args)
    ...     return mesh, lambda x: tnp.sum(x, axis=-1), result.sharding, places
    >>> total.def_partition(
    ...     partition, sharding_rule="i j -> i", need_replication_factors=("j",)) is partition
    True
    >>> print(total(tnp.ones((2, 3))))
    [3. 3.]
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: Any = ()) -> None:
        functools.update_wrapper(self, fun)
        self._arguments = CustomArguments("custom_partitioning", fun, static_argnums, kind="static")
        self.fun = fun
        self.static_argnums = self._arguments.nondiff
        self.partition: Callable[..., Any] | None = None
        self.sharding_rule: Any = None

    def def_partition(
        self,
        partition: Callable[..., Any],
        infer_sharding_from_operands: Callable[..., Any] | None = None,
        propagate_user_sharding: Callable[..., Any] | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> Callable[..., Any]:
        """Say how the function is split.

        Args:
            partition: called as ``partition(*static_args, mesh, args, result)`` with trees of
                ``ShapeDtypeStruct`` that have shardings; returns ``(mesh, function, result
                shardings, argument shardings)``, where ``function`` takes and gives the parts
                of one device and may use collectives over the axes of the mesh.
            infer_sharding_from_operands: not called: the rule says it.
            propagate_user_sharding: not called, likewise.
            decode_shardings: not used: shardings name axes of the mesh.
            sharding_rule: which axes are split together: a text such as ``"i j, j k -> i k"``, a
                `SdyShardingRule`, or a function of ``(*static_args, mesh, operand types, result
                types)`` that gives one of these, or a text and a dictionary of the options below.
            reduction_factors: of a text: names along which parts of results are to be summed.
            need_replication_factors: of a text: names of axes that must stay whole.
            permutation_factors: of a text: names of axes along which devices exchange parts.
            factor_sizes: of a text: sizes of names that stand in brackets only.

        Returns:
            ``partition``, so that the method is a decorator.

        Raises:
            ArgumentSpecError: ``partition`` is no function, or options stand beside another rule
                than a text.
            ArgumentValueError: the text is no rule.
        """
        if not callable(partition):
            msg = f"def_partition({name_of(self.fun)}): partition is {partition!r}"
            raise ArgumentSpecError(msg, expected="a function")
        options: dict[str, Any] = dict(factor_sizes)
        kinds = {
            "reduction_factors": reduction_factors,
            "need_replication_factors": need_replication_factors,
            "permutation_factors": permutation_factors,
        }
        options.update({option: factors for option, factors in kinds.items() if factors})
        if isinstance(sharding_rule, str):
            sharding_rule = parse_rule(sharding_rule, **options)
        elif options:
            msg = f"def_partition({name_of(self.fun)}): got {sorted(options)} beside a rule"
            raise ArgumentSpecError(msg, hint="they are for rules that are texts")
        elif not (
            sharding_rule is None
            or callable(sharding_rule)
            or isinstance(sharding_rule, SdyShardingRule)
        ):
            kind = type(sharding_rule).__name__
            msg = f"def_partition({name_of(self.fun)}): sharding_rule is a {kind}"
            raise ArgumentSpecError(msg, expected="a text, an SdyShardingRule, or a function")
        self.partition = partition
        self.sharding_rule = sharding_rule
        self._needs_rule = bool(infer_sharding_from_operands or propagate_user_sharding)
        del decode_shardings
        return partition

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.fun)
        if self.partition is None:
            msg = f"{name}: it is a custom_partitioning function without a rule"
            raise UndefinedRuleError(msg, hint=f"give it one with {name}.def_partition(...)")
        if self.sharding_rule is None and self._needs_rule:
            msg = f"{name}: functions of shardings are given without a sharding_rule"
            raise UnsupportedArgumentError(
                msg, hint="let def_partition have a sharding_rule, such as 'i j -> i j'"
            )
        bound = self._arguments.bind(args, kwargs)
        if any([isinstance(leaf, Tracer) for leaf in flatten(bound.constants)[0]]):
            msg = f"custom_partitioning({name}): a static argument is a traced value"
            raise UnexpectedTracerError(msg)
        leaves, in_tree = flatten(bound.differentiable)
        values = [as_value(leaf) for leaf in leaves]
        fun, trees = bound.function(self.fun), list[Any]()
        if is_eager_trace(trace_for(values)):
            return fun(*in_tree.unflatten([user_value(v) for v in values]))

        def flat(*xs: Any) -> list[Any]:
            results, out_tree = flatten(fun(*in_tree.unflatten(xs)))
            trees.append(out_tree)
            return results

        jaxpr = check_closed(stage(flat, [v.aval for v in values]), name, name)
        function = PartitionedFunction(
            name, self.partition, self.sharding_rule, bound.constants, in_tree, trees[0]
        )
        results = partitioned_call_p.bind(*values, jaxpr=jaxpr, function=function)
        return trees[0].unflatten(results)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return method_of_inner(self, name)

    def __repr__(self) -> str:
        return f"<custom_partitioning {name_of(self.fun)}>"


_shield(globals(), __name__)
