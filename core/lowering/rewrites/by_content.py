"""Rewritten programs, remembered by what the programs compute.

Functions that are made anew for each call, or defined again in another cell of a notebook, trace to
the same program again and again. Where equations stand in the user's files, and what the function
is called, is no part of it: the rewritten program gets it from each program that asks. Nor are most
numbers: a program with another scale or rate gets the same equations with its own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, final

from tracebridge.core.config.values import tracing_key
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.name_stack import NamedSource, in_use, names_of
from tracebridge.core.ir.traverse import holds_functions
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.rewrites.open_forms import Form, Given, Opened, is_like_no_other
from tracebridge.core.lowering.rewrites.plain_calls import without_rules
from tracebridge.core.lowering.rewrites.whole_programs import is_marked, mark
from tracebridge.core.util.caching import BoundedCache, Hashed

Rewrite = Callable[[Jaxpr], "Jaxpr | None"]

_MOST_EQUATIONS = 4096  # of a program that is kept
_MOST_FORMS = 16  # of programs of one structure, for numbers that rewrites have asked for
_UNKNOWN = object()


@final
class _Forms:
    """What programs of one structure become. Most rewrites ask for none of their open numbers."""

    __slots__ = ("asked", "known")

    def __init__(self) -> None:
        self.asked: tuple[int, ...] = ()
        """Numbers that a rewrite has asked for: forms hold for these only."""
        self.known: BoundedCache[Form | None] = BoundedCache("forms", _MOST_FORMS, register=False)

    def of(self, given: Given, make: Callable[[], Opened], rewrite: Rewrite) -> Form | None:
        """The form for the numbers of a program, made if it is not there yet."""
        known = self.known.get(_key(self.asked, given), _UNKNOWN)
        if known is not _UNKNOWN:
            return known
        opened = make()
        made = rewrite(opened.program)
        form = None if made is None else Form(made, opened)
        now = {n.index for n in opened.numbers if n.asked}
        # Another thread may set it at the same time: the key has what this form depends on.
        self.asked = asked = tuple(sorted(now.union(self.asked)))
        self.known.set(_key(asked, given), form)
        return form


def _key(asked: tuple[int, ...], given: Given) -> Hashable:
    return asked, tuple([given.literals[i].key() for i in asked])


_KNOWN: BoundedCache[_Forms] = BoundedCache("rewritten programs by content", 128)


def by_content(jaxpr: Jaxpr, rewrite: Rewrite) -> Jaxpr | None:
    """``rewrite(jaxpr)``, None if nothing changes; done once for all programs of this content.

    What is kept has neither arrays nor functions of the user: rewrites see array constants as
    further inputs, and calls of functions with derivatives of their own as plain ones. Nor has it
    numbers that rewrites do not ask for (`core/ir/open_numbers.py`).
    """
    # What a rewrite has made may be marked as it is.
    if "rewritten" in jaxpr.cache or len(jaxpr.equations) > _MOST_EQUATIONS:
        return rewrite(jaxpr)
    plain = jaxpr
    if holds_functions(jaxpr):
        plain = without_rules(jaxpr)
        if holds_functions(plain):
            return rewrite(jaxpr)
    if is_like_no_other(plain):  # nothing of it would be found again
        return rewrite(jaxpr)
    given, is_main = Given(plain), is_marked(jaxpr)
    key = Hashed((tracing_key(), given.key, _places_of(plain), is_main))
    forms = _KNOWN.get_or_make(key, _Forms)
    form = forms.of(given, lambda: _opened_main(plain) if is_main else _opened(plain), rewrite)
    return None if form is None else _of(form, given, jaxpr)


def _places_of(jaxpr: Jaxpr) -> Hashable:
    """Which equations have sources, and the scopes that they are in: these name what is made."""
    sources = jaxpr.sources
    if sources is None:
        return False
    located: Hashable = tuple([s is not None for s in sources])
    names = names_of(jaxpr) if in_use[0] else None
    return located, None if names is None else tuple(names)


def _arrays_of(jaxpr: Jaxpr) -> list[Any]:
    return [c for c in jaxpr.consts if type(c) is not Literal]


def _opened(jaxpr: Jaxpr) -> Opened:
    """The program without what is of its user: array constants are its last inputs.

    Positions of equations stand in the place of their sources. What the function and its arguments
    are called is left out, for names are asked of the function.
    """
    arrays, sources = _arrays_of(jaxpr), _places(jaxpr.sources)
    if not arrays:
        return Opened(jaxpr, sources)
    n_in, consts = jaxpr.n_in, jaxpr.consts
    order = sorted(range(len(consts)), key=lambda i: type(consts[i]) is Literal)
    place = {n_in + i: n_in + k for k, i in enumerate(order)}
    equations = [(app, tuple([place.get(v, v) for v in vs])) for app, vs in jaxpr.equations]
    outs = [place.get(v, v) for v in jaxpr.outs]
    in_avals = [*jaxpr.in_avals, *[a.aval for a in arrays]]
    numbers = [c for c in consts if type(c) is Literal]
    return Opened(Jaxpr(in_avals, numbers, equations, outs, jaxpr.out_avals), sources)


def _opened_main(jaxpr: Jaxpr) -> Opened:
    """The same of a program that is marked as the outermost one."""
    opened = _opened(jaxpr)
    mark(opened.program)
    return opened


def _places(sources: Sequence[Any] | None) -> Sequence[Any] | None:
    if sources is None:
        return None
    return [
        None if s is None else NamedSource(s.names, k) if type(s) is NamedSource else k
        for k, s in enumerate(sources)
    ]


def _of(form: Form, given: Given, jaxpr: Jaxpr) -> Jaxpr:
    """A form, whose sources are positions, as that of ``jaxpr``."""
    known = form.jaxpr
    places, sources = known.sources, jaxpr.sources
    if places is not None and sources is not None:
        places = [sources[p] if type(p) is int else _source(p, sources) for p in places]
    numbers, equations = form.of(given)
    consts = [*_arrays_of(jaxpr), *numbers]
    outs, out_avals = known.outs, known.out_avals
    return Jaxpr(jaxpr.in_avals, consts, equations, outs, out_avals, places, jaxpr.debug)


def _source(place: Any, sources: Sequence[Any]) -> Any:
    """The source of an equation in scopes; what a called function says of itself stays."""
    if type(place) is NamedSource and type(place.traceback) is int:
        own = sources[place.traceback]
        return NamedSource(place.names, own.traceback if type(own) is NamedSource else own)
    return place
