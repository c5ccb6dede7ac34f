"""Forward-mode derivatives of functions with references among their arguments.

The tangent of a reference is a reference too: its content is the tangent of the content. The
function is differentiated as one of contents, with the last contents behind its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.control.refs.ref import (
    Ref,
    check_distinct,
    final_of,
    lend,
    make_ref,
    take_back,
    write_ref,
)
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.ir.float0 import is_float0


@final
class DualRefs:
    """A differentiated call whose arguments ``leaves``, called ``names``, hold references.

    ``places``: where they are. ``written``: for each whether the function wrote to it.
    """

    __slots__ = ("_lent", "_refs", "places", "written")

    def __init__(self, call: str, leaves: Sequence[Any], names: Sequence[str]) -> None:
        self._lent: list[Ref] = []
        self.places = tuple([i for i, x in enumerate(leaves) if type(x) is Ref])
        self._refs: list[Ref] = [leaves[i] for i in self.places]
        self.written: tuple[bool, ...] = ()
        check_distinct(call, [(names[i], leaves[i]) for i in self.places], ())

    def contents(self, leaves: Sequence[object]) -> list[Any]:
        """``leaves`` with contents; the references can't be used until ``end``."""
        given = list(leaves)
        try:
            for i, ref in zip(self.places, self._refs, strict=True):
                given[i] = lend(ref, "is being differentiated: use the argument of the function")
                self._lent.append(ref)
        except RefError:
            self.end()
            raise
        return given

    def end(self) -> None:
        """End ``contents``."""
        for ref in self._lent:
            take_back(ref)
        self._lent = []

    def function(self, fun: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """``fun`` of contents; the last contents of what it writes follow its results."""

        def of_contents(*xs: object) -> Sequence[Any]:
            given = list(xs)
            inner = [make_ref(given[i], entered=True) for i in self.places]
            for i, ref in zip(self.places, inner, strict=True):
                given[i] = ref
            outs = fun(*given)
            finals = [final_of(ref) for ref in inner]
            self.written = tuple([f is not None for f in finals])
            return [*outs, *[f for f in finals if f is not None]]

        return of_contents

    def write_back(self, finals: Sequence[object]) -> None:
        """Write the last contents to the references."""
        write_finals(self._refs, self.written, finals)


def tangent_contents(
    call: str,
    leaves: Sequence[object],
    places: Sequence[int],
    names: Sequence[str],
    primals: Sequence[Any] = (),
) -> tuple[list[Any], list[Ref | None]]:
    """Tangents with contents in place of references, and these; None for float0.

    ``primals``: arguments that the same call writes, which are other references then.

    Raises:
        RefError: the tangent of a reference is none, or one occurs twice.
    """
    contents, refs = list(leaves), list[Ref | None]()
    for i in places:
        tangent = leaves[i]
        if type(tangent) is Ref:
            contents[i] = tangent[...]
            refs.append(tangent)
        elif is_float0(tangent):
            refs.append(None)
        else:
            raise RefError(
                call=call,
                got=f"{type(tangent).__name__} as {names[i]}, the tangent of a reference",
                expected="a reference whose content is the tangent of the content",
                hint="make it with tracebridge.new_ref(tangent)",
            )
    named = [(names[i], ref) for i, ref in zip(places, refs, strict=True) if ref is not None]
    taken = [("primals", x) for x in primals if type(x) is Ref]
    check_distinct(call, [*taken, *named], ())
    return contents, refs


def write_finals(
    refs: Sequence[Ref | None], written: Sequence[bool], finals: Sequence[object]
) -> None:
    """Write the last contents, or their tangents, to those of ``refs`` that were written."""
    targets = [ref for ref, changed in zip(refs, written, strict=True) if changed]
    for ref, value in zip(targets, finals, strict=True):
        if ref is not None:
            write_ref(ref, value)
