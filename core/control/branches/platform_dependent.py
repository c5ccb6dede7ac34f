"""platform_dependent: one of several functions runs, chosen when the program is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.branches.cond import Choice
from tracebridge.core.control.branches.switch import traced_branches
from tracebridge.core.errors.transform_errors import ArgumentSpecError, MissingRuleError

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext

# What the devices that a name stands for may call themselves: those of CUDA say "gpu".
_KINDS = {"gpu": ("gpu", "cuda", "rocm"), "cuda": ("cuda", "gpu")}


@final
class PlatformDependent(Choice):
    """The branch whose entry in ``platforms`` has the platform of the program.

    Each entry is a tuple of names; an empty one fits every platform.
    """

    name = "platform_dependent"
    n_lead = 0

    def is_lowered_on(self, platform: str, params: Params) -> bool:
        return _branch_of(platform, params) is not None

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        branches = [_branch_of(p, params) for p in ctx.platforms or (ctx.platform,)]
        if None not in branches:
            emit = functools.partial(ctx.inline_jaxpr, operands=operands)
            return ctx.by_platform(branches, emit, ctx.avals_out, self.effects(**params))
        known = ", ".join([names[0] for names in params["platforms"]])
        msg = (
            f"platform_dependent: the program is compiled for {ctx.platform!r}, the functions are "
            f"for {known}"
        )
        raise MissingRuleError(
            self.name, "lowering", message=msg, hint="give a function as default"
        )


platform_dependent_p = PlatformDependent()


def _branch_of(platform: str, params: Params) -> Jaxpr | None:
    for names, branch in zip(params["platforms"], params["branches"], strict=True):
        if not names or platform in names:
            return branch
    return None


def platform_dependent(
    *args: Any,
    default: Callable[..., Any] | None = None,
    **per_platform: Callable[..., Any],
) -> Any:
    """Apply the function for the platform that the program is compiled for.

    All functions are traced; only the chosen one becomes part of the program. It is chosen when
    the program is lowered, so that one traced function serves several platforms. Exported programs
    hold those for all platforms, and are for the platforms that have a function.

    Args:
        *args: arguments of the functions, trees of arrays and numbers.
        default: the function for platforms that are not named.
        **per_platform: functions by platform: ``cpu``, ``cuda``, ``rocm``, ``tpu``, or ``gpu``
            for both kinds of GPU. Their results have one structure, and the same types.

    Returns:
        What the chosen function returns.

    Raises:
        ArgumentSpecError: no function is given.
        MissingRuleError: there is none for the platform, and no default.
        TreeMismatchError, ShapeMismatchError, DtypeMismatchError: the results differ in type.

    >>> import tracebridge as tb
    >>> tb.lax.platform_dependent(1.0, cpu=lambda x: x + 1.0, default=lambda x: x - 1.0).item()
    2.0
    """
    functions = list(per_platform.values())
    names = list(per_platform)
    platforms: list[tuple[str, ...]] = [_KINDS.get(name, (name,)) for name in names]
    if default is not None:
        functions.append(default)
        names.append("default")
        platforms.append(())
    if not functions:
        msg = "platform_dependent: got no functions, expected one for a platform, or a default"
        raise ArgumentSpecError(msg)
    for name, fun in zip(names, functions, strict=True):
        if not callable(fun):
            msg = f"platform_dependent: {name} is {fun!r} of type {type(fun).__name__}"
            raise ArgumentSpecError(msg, expected="a function")
    branches = traced_branches("platform_dependent", functions, names, args)
    outs = platform_dependent_p.bind(
        *branches.operands, branches=branches.jaxprs, platforms=tuple(platforms)
    )
    return branches.finish(outs)
