"""Calls of traced functions that use mutable references: contents in, last contents out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.control.refs.cells import Captures
from tracebridge.core.control.refs.ref import (
    Ref,
    RefView,
    check_distinct,
    content_to_consume,
    content_to_pass,
    final_of,
    lend,
    make_ref,
    read_ref,
    take_back,
    write_ref,
)
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.ir.typeof import as_value


@final
class RefUses:
    """Which references a traced function uses, and which of them it writes.

    Its inputs are the arguments, with contents in place of references, then the contents of
    ``captured``. Its results are followed by the last contents of the arguments ``written``,
    then of the captured references ``captured_written``.
    """

    __slots__ = ("_captures", "_inner", "arguments", "written")

    def __init__(self, captures: Captures, arguments: tuple[int, ...]) -> None:
        self._captures = captures
        self._inner: list[Ref] = []
        self.arguments = arguments
        self.written: list[bool] = []

    @property
    def custom(self) -> bool:
        """Whether the traced program lacks the rule of a function that takes references."""
        return self._captures.custom

    @property
    def captured(self) -> list[Ref]:
        """The references that the function closes over."""
        return self._captures.refs

    @property
    def captured_written(self) -> list[Ref]:
        """Those of them that it writes."""
        pairs = zip(self._captures.refs, self._captures.written, strict=True)
        return [ref for ref, written in pairs if written]

    def enter(self, xs: Sequence[Any]) -> list[Any]:
        """The arguments of the function, with references of its own in place of contents."""
        args = list(xs)
        for i in self.arguments:
            args[i] = make_ref(args[i], entered=True)
            self._inner.append(args[i])
        return args

    def leave(self, outs: Sequence[object]) -> list[Any]:
        """The results with the last contents of the references among the arguments."""
        finals = [final_of(ref) for ref in self._inner]
        self._inner = []
        self.written = [f is not None for f in finals]
        return [*outs, *[f for f in finals if f is not None]]


@final
class RefCall:
    """One call of such a function: ``passed`` are the references among its arguments."""

    __slots__ = ("_passed", "_uses")

    def __init__(self, call: str, uses: RefUses | None, passed: Sequence[tuple[str, Ref]]) -> None:
        self._uses = RefUses(Captures(), ()) if uses is None else uses
        check_distinct(call, passed, self._uses.captured)
        self._passed = [ref for _, ref in passed]

    @property
    def targets(self) -> list[Ref]:
        """The references that the call writes, in the order of the further results."""
        uses = self._uses
        pairs = zip(self._passed, uses.written, strict=True) if self._passed else ()
        return [*[ref for ref, written in pairs if written], *uses.captured_written]

    def contents(self) -> list[Any]:
        """The contents of the captured references: further arguments of an equation."""
        for ref in self._passed:
            read_ref(ref)
        return [read_ref(ref) for ref in self._uses.captured]

    def consumed(self, values: Sequence[object]) -> tuple[list[Any], list[int]]:
        """All arguments of a compiled program, and which of them it may write to.

        ``values`` are the arguments with the contents of references among them.
        """
        uses, n = self._uses, len(values)
        given = [*values, *[content_to_pass(ref) for ref in uses.captured]]
        refs = dict(zip(uses.arguments, self._passed, strict=True)) if self._passed else {}
        refs.update({n + k: ref for k, ref in enumerate(uses.captured)})
        written = {id(ref) for ref in self.targets}
        places = [i for i, ref in refs.items() if id(ref) in written]
        for i in places:
            given[i] = content_to_consume(refs[i])
        return given, places

    def write_back(self, outs: Sequence[object], *, fresh: bool = False) -> Sequence[Any]:
        """Write the last contents that follow the results; gives the results."""
        targets = self.targets
        if not targets:
            return outs
        n = len(outs) - len(targets)
        for ref, value in zip(targets, outs[n:], strict=True):
            write_ref(ref, value, fresh=fresh)
        return outs[:n]


def ref_arguments(args: Any, call: str, names: Sequence[str]) -> list[tuple[str, Ref]]:
    """The references among the leaves and their names; their contents take their places."""
    found: list[tuple[str, Ref]] = []
    places: list[int] = []
    leaves = list(args.leaves)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Ref):
            found.append((names[i], leaf))
            places.append(i)
            leaves[i] = content_to_pass(leaf)
    check_distinct(call, found, ())
    args.leaves = leaves
    args.refs = tuple(places)
    return found


@final
class MappedRefs:
    """A call of ``fun`` mapped over axes of references: their contents are mapped instead.

    ``leaves`` are those of ``(args, kwargs)`` of structure ``tree``, ``dims`` their axes.
    """

    __slots__ = ("_fun", "_kept", "_leaves", "_places", "_tree", "dims")

    def __init__(
        self, call: str, fun: Any, leaves: Sequence[Any], dims: Sequence[int | None], tree: Any
    ) -> None:
        self._fun = fun
        self._leaves = leaves
        self._tree = tree
        self._places = [
            i for i, (x, d) in enumerate(zip(leaves, dims, strict=True))
            if d is not None and isinstance(x, Ref)
        ]  # fmt: skip
        if any(
            [isinstance(x, RefView) and d is not None for x, d in zip(leaves, dims, strict=True)]
        ):
            msg = f"{call}: an argument is a part of a reference (ref.at[...])"
            raise RefError(msg, hint="map over the reference itself, or over the array ref[...]")
        self._kept = [isinstance(x, Ref) and i not in self._places for i, x in enumerate(leaves)]
        check_distinct(call, [(f"leaf {i}", leaves[i]) for i in self._places], ())
        self.dims = [dims[i] for i in self._places]

    def call(self, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The result for one element, and the last contents."""
        given = [b if h else a for a, b, h in zip(leaves, self._leaves, self._kept, strict=True)]
        inner = [make_ref(given[i], entered=True) for i in self._places]
        for i, ref in zip(self._places, inner, strict=True):
            given[i] = ref
        args, kwargs = self._tree.unflatten(given)
        out = self._fun(*args, **kwargs)
        return out, [read_ref(ref) for ref in inner]

    def run(self, mapped: Callable[..., Any]) -> Any:
        """The result of ``mapped``, which is ``call`` for all elements; writes contents back."""
        refs = [self._leaves[i] for i in self._places]
        # The others are not among the arguments: they need no mapping.
        mapped_leaves = [None if h else a for a, h in zip(self._leaves, self._kept, strict=True)]
        lent: list[Ref] = []
        try:
            for i, ref in zip(self._places, refs, strict=True):
                mapped_leaves[i] = lend(ref, "is mapped by vmap: use the argument of the function")
                lent.append(ref)
            out, finals = mapped(mapped_leaves)
        finally:
            for ref in lent:
                take_back(ref)
        for ref, value in zip(refs, finals, strict=True):
            write_ref(ref, as_value(value))
        return out
