"""Errors about transformations: differentiation, vectorization, named axes, trees, rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError


class GradientTypeError(TracebridgeError, TypeError, ValueError):
    """A function or argument cannot be differentiated as asked (dtype, not a scalar, a loop)."""


class ArgumentSpecError(TracebridgeError, ValueError, TypeError):
    """An option names arguments that the function or the call does not have (argnums, ...)."""


class FormatFieldError(ArgumentSpecError, KeyError, IndexError):
    """A format string names values that are not given."""


class AxisSpecError(TracebridgeError, ValueError, TypeError):
    """An axis specification (in_axes, out_axes, in_specs, ...) does not fit the arguments."""


class AxisSizeError(TracebridgeError, ValueError):
    """Axes that are mapped together have different sizes, or no size can be found."""


class UnboundAxisNameError(TracebridgeError, NameError):
    """A collective names an axis that no surrounding transformation binds."""

    def __init__(self, axis_name: Any = "", *, call: str = "", bound: Sequence[Any] = ()) -> None:
        names = ", ".join(map(repr, bound)) if bound else "none"
        super().__init__(
            f"{call + ': ' if call else ''}unbound axis name {axis_name!r}; "
            f"axis names bound here: {names}",
            hint="call it inside vmap, pmap or shard_map with that axis_name",
        )


class TreeMismatchError(TracebridgeError, ValueError, TypeError):
    """Two pytrees that must have the same structure do not."""


class CustomRuleError(TracebridgeError, TypeError, ValueError):
    """A custom derivative or batching rule returned something of the wrong form."""


class UndefinedRuleError(CustomRuleError, AttributeError):
    """A function that is to have a rule of its own was called before it got one."""


class ClosedOverValueError(CustomRuleError, UnexpectedTracerError):
    """A function with a rule of its own, or the rule, uses a traced value it cannot reach.

    Rules work for arguments: what is differentiated or mapped must be one of them.
    """

    def __init__(self, message: str = "", **fields: str) -> None:
        TracebridgeError.__init__(self, message, **fields)


class MissingRuleError(TracebridgeError, TypeError, NotImplementedError):
    """A primitive defines no rule for a transformation or platform."""

    def __init__(
        self, primitive: str = "", rule: str = "", *, message: str = "", hint: str = ""
    ) -> None:
        self.primitive = primitive
        self.rule = rule
        super().__init__(
            message or f"primitive {primitive!r} defines no {rule} rule",
            hint=hint
            or "define the rule on the primitive, or wrap the computation in "
            "tb.custom_jvp or tb.custom_vjp",
        )


class LinearityError(TracebridgeError, TypeError, NotImplementedError):
    """A function that must be linear in its arguments is not."""

    def __init__(self, message: str = "", *, primitive: str = "", **fields: str) -> None:
        self.primitive = primitive
        super().__init__(message, **fields)


class JaxprTypeError(TracebridgeError, TypeError):
    """A Jaxpr is not well formed; found by the checks that `enable_checks` turns on."""


class EffectError(TracebridgeError, ValueError, NotImplementedError):
    """A transformation met a callback, or another effect, that it cannot carry out there."""


class KeyReuseError(TracebridgeError, TypeError):
    """A random key was consumed twice; found by the key reuse checker."""
