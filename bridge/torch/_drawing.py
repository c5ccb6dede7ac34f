"""Keys of torch's generators: drawn for each call of a wrapped function that wants one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch.utils import _pytree as torch_trees

import tracebridge.core.lax as lax
from tracebridge._api.args.argnums import names as as_names
from tracebridge._api.args.argnums import positional_names, signature_of
from tracebridge.core.dtypes.dtypes import int32, uint32
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.prng.keys import implementation_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.tree.registry import register_dataclass
from tracebridge.core.tree.tree import flatten
from tracebridge.random._streams import default_implementation
from tracebridge.random.keys import key_data, wrap_key_data

Drawing = tuple[tuple[str, int], ...]
"""Name and position of each argument that gets a key; the position of a keyword is out of reach."""

_NOWHERE = 1 << 30


def draw(generator: torch.Generator | None = None, device: Any = "cpu") -> torch.Tensor:
    """The words of a new key. Signed: with 64 bits beside them programs would compute in 64."""
    return torch.randint(
        -(2**31), 2**31, (2,), dtype=torch.int32, device=device, generator=generator
    )


@final
@dataclass
class OfGenerator:
    """Words of a key that is not of the default generator."""

    words: Any
    name: str  # of the generator, which belongs to the structure of a call


register_dataclass(OfGenerator, ("words",), ("name",))


def as_key(words: Any) -> Any:
    """Words, signed or not, as a key of the default generator; typed keys stay as they are."""
    if isinstance(words, OfGenerator):
        return wrap_key_data(words.words, impl=words.name)
    value = as_value(words, "key")
    if implementation_of(value.aval) is not None:
        return words
    if value.aval.dtype == int32:
        value = lax.bitcast_convert_type(value, uint32)
    n = default_implementation().key_shape[0]
    if value.aval.shape[-1:] == (2,) and n == 4:
        # As such generators are seeded.
        value = lax.concatenate([value, value], value.aval.ndim - 1)
    return wrap_key_data(value)


@final
class Keyed:
    """``fun`` that takes words for the arguments ``drawing``."""

    def __init__(self, fun: Callable[..., Any], drawing: Drawing) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = name_of(fun)
        self.fun = fun
        self.drawing = drawing

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for name, place in self.drawing:
            if kwargs.get(name) is not None:
                kwargs[name] = as_key(kwargs[name])
            elif place < len(given):
                given[place] = as_key(given[place])
        return self.fun(*given, **kwargs)


def drawing_of(call: str, fun: Callable[..., Any], argnames: Any) -> Drawing:
    """The arguments of ``fun`` that get keys.

    Raises:
        ArgumentSpecError: ``fun`` has no such argument.
    """
    found = as_names(call, "rng_argnames", argnames)
    if not found:
        return ()
    signature = signature_of(fun)
    if signature is None:
        return tuple([(name, _NOWHERE) for name in found])
    places = positional_names(signature)
    takes_any = any([p.kind is p.VAR_KEYWORD for p in signature.parameters.values()])
    for name in found:
        if name not in signature.parameters and not takes_any:
            msg = f"{call}: rng_argnames={argnames!r}, but {name_of(fun)}{signature} has no {name}"
            raise ArgumentSpecError(msg, expected="names of arguments of the function")
    return tuple([(n, places.index(n) if n in places else _NOWHERE) for n in found])


def drawn(
    drawing: Drawing, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with words of new keys where none is given.

    Dynamo reads these lines.

    Raises:
        ArgumentSpecError: a key is missing in a function that is being traced: what torch draws
            would be a constant of the program.
    """
    if torch.compiler.is_dynamo_compiling():
        leaves = torch_trees.tree_leaves((args, kwargs))
    else:
        leaves = flatten((args, kwargs))[0]
        if any([isinstance(x, torch.fx.Proxy) for x in leaves]):
            return args, kwargs  # drawn when the graph runs
        args, kwargs = words_of_given(drawing, args, kwargs)
        if any([isinstance(x, Tracer) for x in leaves]):
            _check_given(drawing, args, kwargs)
            return args, kwargs
    device: Any = "cpu"
    for x in leaves:
        if isinstance(x, torch.Tensor):
            device = x.device
            if x.ndim:
                break
    result = dict(kwargs)
    for name, place in drawing:
        if place >= len(args) and result.get(name) is None:
            result[name] = draw(None, device)
    return args, result


def words_of_given(
    drawing: Drawing, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the words of keys and generators that the caller gives."""
    given, named = list(args), dict(kwargs)
    for name, place in drawing:
        if name in named:
            named[name] = _words(named[name])
        elif place < len(given):
            given[place] = _words(given[place])
    return tuple(given), named


def _words(x: Any) -> Any:
    if isinstance(x, torch.Generator):
        return draw(x, x.device)
    implementation = implementation_of(x.aval) if type(x) is Array else None
    if implementation is None:
        return x
    words = key_data(x)
    if implementation is default_implementation():
        return words
    return OfGenerator(words, implementation.name)


def _check_given(drawing: Drawing, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for name, place in drawing:
        if kwargs.get(name) is None and not place < len(args):
            msg = f"wrap: no {name} in a call inside a traced function, where torch draws nothing"
            raise ArgumentSpecError(
                msg, hint=f"pass {name}=, for example one of tracebridge.random.split"
            )
