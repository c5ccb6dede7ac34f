"""Static arguments: splitting them off a call, and the keys under which calls are remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.errors.tracer_errors import NonHashableStaticArgumentError
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache

_PLAIN = frozenset({int, bool, str, bytes, type(None)})


def static_key(value: Any) -> Any:
    """A hashable key of a static argument; tells 1, 1.0 and True apart, and 0.0 and -0.0."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is tuple:
        return tuple([static_key(v) for v in value])
    if kind is float or kind is complex:
        return kind, repr(value)
    return kind, value


def check_hashable(call: str, argument: str, value: object) -> None:
    """Raise NonHashableStaticArgumentError unless ``value`` can be part of a key."""
    try:
        hash(value)
    except TypeError as error:
        raise NonHashableStaticArgumentError(value, argument=argument, call=call) from error


@final
class Splitter:
    """Splits the static arguments of ``fun`` off a call and finds the donated leaves.

    What depends only on the number of positional arguments, or on the structure of the dynamic
    ones, is computed once. ``any_object``: static arguments need not be hashable.
    """

    __slots__ = ("_any_object", "_donated", "_donated_names", "_donated_nums", "_fun", "_layouts",
                 "call", "names", "nums", "parameters")  # fmt: skip

    def __init__(
        self,
        call: str,
        fun: Callable[..., object],
        nums: tuple[int, ...],
        names: tuple[str, ...],
        donated: tuple[tuple[int, ...], tuple[str, ...]] = ((), ()),
        *,
        any_object: bool = False,
    ) -> None:
        self.call = f"{call}({name_of(fun)})"
        self.nums = nums
        self.names = frozenset(names)
        self.parameters = parameter_names(fun)
        self._fun = fun
        self._any_object = any_object
        self._donated_nums = donated[0]
        self._donated_names = frozenset(donated[1])
        self._layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...], slice | None]] = {}
        self._donated: BoundedCache[tuple[int, ...]] = BoundedCache(
            f"donated arguments of {self.call}", 256
        )

    def layout(self, n: int) -> tuple[tuple[int, ...], tuple[int, ...], slice | None]:
        """Static and dynamic positions of a call with ``n`` positional arguments.

        If the dynamic ones lie side by side also their slice.
        """
        found = self._layouts.get(n)
        if found is None:
            # A position beyond the call belongs to an argument given by keyword or by default.
            static = sorted({i if i >= 0 else i + n for i in self.nums if -n <= i < n})
            dynamic = [i for i in range(n) if i not in static]
            start = dynamic[0] if dynamic else 0
            together = dynamic == list(range(start, start + len(dynamic)))
            part = slice(start, start + len(dynamic)) if together else None
            found = self._layouts[n] = (tuple(static), tuple(dynamic), part)
        return found

    def flat_key(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Sequence[Any], Any]:
        """Dynamic arguments as they are given, and a key of all else.

        Part of the path of a cached call: common cases first.
        """
        n = len(args)
        layout = self._layouts.get(n)
        static, dynamic, part = self.layout(n) if layout is None else layout
        if len(static) == 1:
            value = args[static[0]]
            kind = type(value)
            key: Any = (n, kind, value) if kind in _PLAIN else (n, static_key(value))
        else:
            # The number of arguments tells calls apart whose static values agree.
            key = (n, *[static_key(args[i]) for i in static])
        dynamic_args = [args[i] for i in dynamic] if part is None else args[part]
        if not kwargs:
            return dynamic_args, key
        dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in self.names}
        key = (*key, tuple(dynamic_kwargs), *self._named_key(kwargs))
        return [*dynamic_args, *dynamic_kwargs.values()], key

    def tree_key(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[list[Any], tuple[PyTreeDef, Any]]:
        """Leaves of the dynamic arguments, their structure and the key of the static ones."""
        n = len(args)
        static, dynamic, _ = self.layout(n)
        key = (n, *[static_key(args[i]) for i in static], *self._named_key(kwargs))
        rest = {k: v for k, v in kwargs.items() if k not in self.names} if kwargs else kwargs
        leaves, tree = flatten((tuple([args[i] for i in dynamic]), rest))
        return leaves, (tree, key)

    def _named_key(self, kwargs: dict[str, object]) -> list[Any]:
        names = self.names
        return [(k, static_key(kwargs[k])) for k in sorted(kwargs) if k in names]

    def arguments(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Arguments:
        """The call with its static arguments bound.

        Raises:
            NonHashableStaticArgumentError: names the argument.
        """
        leaves, (tree, key) = self.tree_key(args, kwargs)
        static, dynamic, _ = self.layout(len(args))
        constants = [args[i] for i in static]
        named = {k: v for k, v in kwargs.items() if k in self.names}
        try:
            hash(key)
        except TypeError:
            if not self._any_object:
                self._explain(static, constants, named)
                raise
            # It may change from call to call: no call is like another one.
            key = (object(),)
        fun = bind_statics(self._fun, len(args), static, constants, named)
        parameters = self.parameters.only(dynamic)
        donated = self.donated_leaves(tree, len(args))
        return Arguments(fun, leaves, tree, key, donated, parameters)

    def donated_leaves(self, tree: PyTreeDef, n: int) -> tuple[int, ...]:
        """Which leaves of the dynamic arguments are donated."""
        if not self._donated_nums and not self._donated_names:
            return ()
        found = self._donated.get((tree, n))
        if found is None:
            found = self._find_donated(tree, n)
            self._donated.set((tree, n), found)
        return found

    def _find_donated(self, tree: PyTreeDef, n: int) -> tuple[int, ...]:
        positional, keywords = tree.children()
        wanted = {i if i >= 0 else i + n for i in self._donated_nums}
        marks = [i in wanted for i in self.layout(n)[1]]
        marks += [k in self._donated_names for k in keywords.node_data()[1]]
        result: list[int] = []
        start = 0
        for child, is_donated in zip(
            [*positional.children(), *keywords.children()], marks, strict=True
        ):
            stop = start + child.num_leaves
            if is_donated:
                result.extend(range(start, stop))
            start = stop
        return tuple(result)

    def _explain(
        self, static: tuple[int, ...], constants: list[Any], named: dict[str, object]
    ) -> None:
        for i, value in zip(static, constants, strict=True):
            known = self.parameters
            name = f"{i} ({known[i]!r})" if i < len(known) else str(i)
            check_hashable(self.call, name, value)
        for name, value in named.items():
            check_hashable(self.call, repr(name), value)


def bind_statics(
    fun: Callable[..., object],
    n: int,
    static: tuple[int, ...],
    constants: list[Any],
    named: dict[str, object],
) -> Callable[..., Any]:
    """``fun`` as a function of its other arguments; ``n`` is the number of positional ones."""

    def bound(*dynamic: Any, **kwargs: object) -> Any:
        fixed, free = iter(constants), iter(dynamic)
        args = [next(fixed) if i in static else next(free) for i in range(n)]
        return fun(*args, **named, **kwargs)

    bound.__wrapped__ = fun  # type: ignore[attr-defined]  # names and places come from there
    return bound
