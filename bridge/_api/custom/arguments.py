"""Arguments of functions with rules of their own: which are differentiated, which are constants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.args.argnums import check_callable, resolve, signature_of
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import Parameters, name_of, parameter_names
from tracebridge.core.util.caching import BoundedCache

_MAX_TRACES = 64  # of one function


@final
class BoundArguments:
    """One call: positional arguments by kind. ``constants`` are those not differentiated."""

    __slots__ = ("_n", "_positions", "constants", "differentiable")

    def __init__(self, args: Sequence[Any], positions: tuple[int, ...]) -> None:
        self._n = len(args)
        self._positions = positions
        self.constants = tuple([args[i] for i in positions])
        self.differentiable = (
            tuple([a for i, a in enumerate(args) if i not in positions]) if positions else args
        )

    def function(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """``fun`` as a function of the differentiable arguments."""
        if not self._positions:
            return fun

        def bound(*values: Any) -> Any:
            fixed, free = iter(self.constants), iter(values)
            return fun(*[next(fixed if i in self._positions else free) for i in range(self._n)])

        bound.__wrapped__ = fun  # type: ignore[attr-defined]  # names and places come from there
        free = [i for i in range(self._n) if i not in self._positions]
        names = functools.partial(_names_at, fun, free)
        bound.free_parameters = names  # type: ignore[attr-defined]  # as above
        return bound


def _names_at(fun: Callable[..., Any], positions: Sequence[int]) -> Parameters:
    return parameter_names(fun).only(positions)


@final
class CustomArguments:
    """Binds calls of ``fun`` to positional arguments and splits the constants off."""

    __slots__ = ("_call", "_fun", "_kind", "_signature", "memo", "nondiff")

    def __init__(
        self, call: str, fun: Any, argnums: Any = (), argnames: Any = (), kind: str = "nondiff"
    ) -> None:
        check_callable(call, fun)
        self._call = f"{call}({name_of(fun)})"
        self._fun = fun
        self._signature = signature_of(fun)
        self._kind = kind
        by_number, _ = resolve(call, fun, kind, argnums, ())
        by_name, _ = resolve(call, fun, kind, None, argnames)
        self.nondiff = tuple(sorted({*by_number, *by_name}))
        self.memo: BoundedCache[Any] = BoundedCache(f"traces of {name_of(fun)}", _MAX_TRACES)

    def forget(self) -> None:
        """Drop traces: a rule has changed."""
        self.memo.clear()

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundArguments:
        """The arguments of a call, keywords and defaults put in their positions.

        Raises:
            ArgumentSpecError: the function does not take them, or has keyword-only parameters.
        """
        signature = self._signature
        if signature is not None and (kwargs or len(args) < len(signature.parameters)):
            args = self._positional(signature, args, kwargs)
        elif kwargs:
            msg = f"{self._call}: got keyword arguments {sorted(kwargs)}"
            raise ArgumentSpecError(msg, hint="give them by position")
        beyond = [i for i in self.nondiff if i >= len(args)]
        if beyond:
            msg = (
                f"{self._call}: {self._kind}_argnums contains {beyond[0]}, but the call has "
                f"{len(args)} positional arguments"
            )
            raise ArgumentSpecError(msg)
        return BoundArguments(args, self.nondiff)

    def _positional(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            msg = f"{self._call}: the call does not fit {name_of(self._fun)}{signature}: {error}"
            raise ArgumentSpecError(msg) from error
        bound.apply_defaults()
        # Keyword-only parameters that the caller left alone keep their defaults in the function.
        beyond = sorted(set(bound.kwargs) & set(kwargs))
        if beyond:
            msg = (
                f"{self._call}: parameters {beyond} can be given by keyword only, "
                "so its rule could not get them"
            )
            raise ArgumentSpecError(msg, hint="make them ordinary parameters")
        return bound.args


def method_of_inner(outer: Any, name: str) -> Any:
    """A method like ``defjvp`` of the function that ``outer`` decorates, if it has rules too.

    Decorators for rules of different kinds can be stacked; each rule finds its own.
    """
    if name.startswith("def") and "fun" in outer.__dict__:
        return getattr(outer.fun, name)
    msg = f"{type(outer).__name__!r} object has no attribute {name!r}"
    raise AttributeError(msg)


def check_rule(call: str, rule: Any) -> None:
    """Raise unless ``rule`` is a function or None."""
    if rule is not None and not callable(rule):
        msg = f"{call}: got {rule!r} as a rule, expected a function or None"
        raise ArgumentSpecError(msg)
