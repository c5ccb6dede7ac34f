"""Functions with transformations around them, which can hand further results back.

A ``WrappedFun`` is a function with a stack of generators, the outermost first. Each receives the
arguments, yields those for what it wraps, is sent the result, and yields its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable
from typing import Any, final

from tracebridge.core.ir.debug_info import DebugInfo, name_of
from tracebridge.core.util.caching import WeakIdCache
from tracebridge.core.util.public_path import public_path

Transformation = Callable[..., Any]


@public_path("tracebridge.extend.linear_util")
class StoreException(Exception):
    """A store is read before it is filled, or filled twice."""


@public_path("tracebridge.extend.linear_util")
@final
class Store:
    """A place for one further result."""

    __slots__ = ("_filled", "_value")

    def __init__(self) -> None:
        self._filled = False
        self._value: Any = None

    def store(self, value: object) -> None:
        """Fill the place.

        Raises:
            StoreException: it is filled.
        """
        if self._filled:
            msg = "the store is filled already: the function was called twice"
            raise StoreException(msg)
        self._value, self._filled = value, True

    def reset(self) -> None:
        """Empty the place."""
        self._value, self._filled = None, False

    @property
    def val(self) -> Any:
        """What the place holds.

        Raises:
            StoreException: nothing.
        """
        if not self._filled:
            msg = "the store is empty: call the function first"
            raise StoreException(msg)
        return self._value


@public_path("tracebridge.extend.linear_util")
@final
class WrappedFun:
    """A function with transformations; made by ``wrap_init``, called by ``call_wrapped``."""

    __slots__ = ("__weakref__", "debug_info", "f", "in_type", "params", "stores", "transforms")

    def __init__(
        self,
        f: Callable[..., Any],
        transforms: tuple[tuple[Transformation, tuple[Any, ...], bool], ...] = (),
        stores: tuple[Store | None, ...] = (),
        params: tuple[tuple[str, Any], ...] = (),
        debug_info: Any = None,
    ) -> None:
        self.f = f
        self.transforms = transforms
        self.stores = stores
        self.params = params
        self.debug_info = DebugInfo(name_of(f)) if debug_info is None else debug_info
        self.in_type = None

    @property
    def __name__(self) -> str:
        return name_of(self.f)

    def wrap(
        self, gen: Transformation, args: tuple[object, ...], store: Store | None, *, direct: bool
    ) -> WrappedFun:
        """The function with one more transformation around it."""
        transforms = ((gen, args, direct), *self.transforms)
        return WrappedFun(self.f, transforms, (store, *self.stores), self.params, self.debug_info)

    def call_wrapped(self, *args: object, **kwargs: object) -> Any:
        """Call the function through its transformations."""
        return _call(self, 0, args, kwargs)

    def key(self) -> Hashable:
        """What makes two wrapped functions the same."""
        return (self.f, self.transforms, self.params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        names = "".join([f"{name_of(gen)} of " for gen, _, _ in self.transforms])
        return f"WrappedFun({names}{name_of(self.f)})"


def _call(fun: WrappedFun, depth: int, args: Any, kwargs: dict[str, Any]) -> Any:
    if depth == len(fun.transforms):
        return fun.f(*args, **dict(fun.params), **kwargs)
    gen, gen_args, direct = fun.transforms[depth]
    store = fun.stores[depth]
    inner = functools.partial(_call_inner, fun, depth + 1)
    if direct:
        arguments = (*gen_args, *args) if store is None else (store, *gen_args, *args)
        return gen(inner, *arguments, **kwargs)
    generator: Generator[Any, Any, None] = gen(*gen_args, *args, **kwargs)
    inner_args, inner_kwargs = next(generator)
    out = generator.send(inner(*inner_args, **inner_kwargs))
    generator.close()
    if store is None:
        return out
    result, aux = out
    store.store(aux)
    return result


def _call_inner(fun: WrappedFun, depth: int, *args: object, **kwargs: object) -> Any:
    return _call(fun, depth, args, kwargs)


def wrap_init(
    f: Callable[..., object], params: dict[str, Any] | None = None, *, debug_info: object = None
) -> WrappedFun:
    """A function that transformations can be put around.

    Args:
        f: the function.
        params: keyword arguments of every call.
        debug_info: what messages call it.

    >>> from tracebridge.extend import linear_util as lu
    >>> lu.wrap_init(lambda x: x + 1).call_wrapped(1)
    2
    """
    return WrappedFun(f, params=tuple(sorted((params or {}).items())), debug_info=debug_info)


def transformation(gen: Transformation) -> Callable[..., WrappedFun]:
    """A decorator: a generator becomes a transformation of wrapped functions.

    The generator yields ``(args, kwargs)`` for the function, is sent its result, and yields
    its own. The transformation takes the wrapped function first, then what goes before its
    arguments.

    Args:
        gen: the generator function.

    >>> from tracebridge.extend import linear_util as lu
    >>> @lu.transformation
    ... def doubled(x):
    ...     out = yield (2 * x,), {}
    ...     yield 2 * out
    >>> doubled(lu.wrap_init(lambda x: x + 1)).call_wrapped(1)
    6
    """

    def transform(fun: WrappedFun, *gen_args: object) -> WrappedFun:
        return fun.wrap(gen, gen_args, None, direct=False)

    return transform


def transformation_with_aux(gen: Transformation) -> Callable[..., tuple[WrappedFun, Any]]:
    """As ``transformation``, of a generator that yields a pair of the result and something more.

    The transformation gives the wrapped function, and a function that gives what was more.

    Args:
        gen: the generator function.

    >>> from tracebridge.extend import linear_util as lu
    >>> @lu.transformation_with_aux
    ... def with_argument(x):
    ...     out = yield (x,), {}
    ...     yield out, x
    >>> fun, argument = with_argument(lu.wrap_init(lambda x: x + 1))
    >>> fun.call_wrapped(1), argument()
    (2, 1)
    """

    def transform(fun: WrappedFun, *gen_args: object) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        return fun.wrap(gen, gen_args, store, direct=False), lambda: store.val

    return transform


def transformation2(gen: Transformation) -> Callable[..., WrappedFun]:
    """As ``transformation``, of a function that gets the wrapped function as first argument.

    Args:
        gen: the function.

    >>> from tracebridge.extend import linear_util as lu
    >>> @lu.transformation2
    ... def doubled(f, x):
    ...     return 2 * f(2 * x)
    >>> doubled(lu.wrap_init(lambda x: x + 1)).call_wrapped(1)
    6
    """

    def transform(fun: WrappedFun, *gen_args: object) -> WrappedFun:
        return fun.wrap(gen, gen_args, None, direct=True)

    return transform


def transformation_with_aux2(gen: Transformation) -> Callable[..., tuple[WrappedFun, Any]]:
    """As ``transformation2``; the function gets a ``Store`` as second argument, and fills it.

    Args:
        gen: the function.

    >>> from tracebridge.extend import linear_util as lu
    >>> @lu.transformation_with_aux2
    ... def with_argument(f, store, x):
    ...     store.store(x)
    ...     return f(x)
    >>> fun, argument = with_argument(lu.wrap_init(lambda x: x + 1))
    >>> fun.call_wrapped(1), argument()
    (2, 1)
    """

    def transform(fun: WrappedFun, *gen_args: object) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        return fun.wrap(gen, gen_args, store, direct=True), lambda: store.val

    return transform


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether the first of two functions of stores gives something, and what the given one has.

    Args:
        aux1: what a transformation with further results gave.
        aux2: the same of another one.

    Raises:
        StoreException: none of them, or both.

    >>> from tracebridge.extend import linear_util as lu
    >>> first, second = lu.Store(), lu.Store()
    >>> second.store(3)
    >>> lu.merge_linear_aux(lambda: first.val, lambda: second.val)
    (False, 3)
    """
    stored: list[tuple[bool, Any]] = []
    for is_first, aux in ((True, aux1), (False, aux2)):
        try:
            stored.append((is_first, aux()))
        except StoreException:
            continue
    if len(stored) != 1:
        msg = f"merge_linear_aux: {len(stored)} of 2 stores are filled, expected one"
        raise StoreException(msg)
    return stored[0]


def cache(call: Callable[..., object], **_: object) -> Callable[..., Any]:
    """Remember the results of ``call(wrapped function, *args)``, as long as the function lives.

    The further results of the transformations are remembered as well.

    >>> from tracebridge.extend import linear_util as lu
    >>> calls = []
    >>> run = lu.cache(lambda fun, x: calls.append(x) or fun.call_wrapped(x))
    >>> def f(x):
    ...     return x + 1
    >>> run(lu.wrap_init(f), 1), run(lu.wrap_init(f), 1), calls
    (2, 2, [1])
    """
    results: WeakIdCache[Any] = WeakIdCache(f"results of {name_of(call)}")

    def cached(fun: WrappedFun, *args: object) -> Any:
        key = (fun.transforms, fun.params, args)
        entry = results.get(fun.f, key)
        if entry is None:
            answer = call(fun, *args)
            stored = [None if s is None else s.val for s in fun.stores]
            results.set(fun.f, key, (answer, stored))
            return answer
        answer, stored = entry
        for store, value in zip(fun.stores, stored, strict=True):
            if store is not None:
                store.reset()
                store.store(value)
        return answer

    return cached
