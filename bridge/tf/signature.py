"""Signatures of converted functions, as ``tf.function`` reads them.

A ``tf.function`` fills in the defaults of the signature, and passes them like arguments of the
caller. As arguments they would be traced, and the function would do something else than eagerly,
where they stay what they are. So the signature holds stand-ins, which the call leaves out again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.args.argnums import signature_of


@final
class _Default(str):
    """Stands for a default. A string without a dict: TensorFlow compares and saves it by value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def with_stand_ins(fun: Callable[..., object]) -> inspect.Signature | None:
    """The signature of ``fun`` with stand-ins for defaults; None if there are no defaults."""
    signature = signature_of(fun)
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    if all([p.default is p.empty for p in parameters]):
        return None
    changed = [
        p if p.default is p.empty else p.replace(default=_Default(repr(p.default)))
        for p in parameters
    ]
    return signature.replace(parameters=changed)


def without_stand_ins(
    signature: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call that the caller wrote: without what stands for defaults."""
    if not any([type(x) is _Default for x in (*args, *kwargs.values())]):
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    for name in [k for k, v in bound.arguments.items() if type(v) is _Default]:
        del bound.arguments[name]
    return bound.args, bound.kwargs


def input_parameters(fun: Callable[..., object], skip: int, count: int) -> list[inspect.Parameter]:
    """Parameters of a function of ``count`` inputs, named as those of ``fun`` behind ``skip``."""
    signature = signature_of(fun)
    names: list[str] = []
    if signature is not None:
        for p in signature.parameters.values():
            if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}:
                names.append(p.name)
    names = names[skip : skip + count]
    names += [f"args_{i}" for i in range(len(names), count)]
    _, *names = unique(["self", *names])
    return [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]


def unique(names: Sequence[str]) -> list[str]:
    """The names, with underscores behind those that come again."""
    used: set[str] = set()
    found: list[str] = []
    for name in names:
        while name in used:
            name += "_"  # noqa: PLW2901 - the shortest name that is free
        used.add(name)
        found.append(name)
    return found
