"""Rewritten programs, remembered by what the programs compute.

Functions that are made anew for each call, or defined again in another cell of a notebook, trace to
the same program again and again. Where equations stand in the user's files, and what the function
is called, is no part of it: the rewritten program gets it from each program that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tracebridge.core.config.values import tracing_key
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.name_stack import names_of
from tracebridge.core.ir.traverse import holds_functions
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.caching import BoundedCache

_KNOWN: BoundedCache[Jaxpr | None] = BoundedCache("rewritten programs by content", 128)
_MOST_EQUATIONS = 4096  # of a program that is kept
_UNKNOWN = object()


def by_content(jaxpr: Jaxpr, rewrite: Callable[[Jaxpr], Jaxpr | None]) -> Jaxpr | None:
    """``rewrite(jaxpr)``, None if nothing changes; done once for all programs of this content."""
    key = _content(jaxpr)
    if key is None:
        return rewrite(jaxpr)
    known = _KNOWN.get(key, _UNKNOWN)
    if known is _UNKNOWN:
        known = rewrite(_with_places(jaxpr))
        _KNOWN.set(key, known)
    return None if known is None else _of(known, jaxpr)


def _content(jaxpr: Jaxpr) -> Hashable:
    """What the rewritten program depends on; None: it is not to be kept.

    Arrays and functions of the user would be kept alive. Equations in named scopes give their
    names to what is made of them. What a rewrite has made may be marked as it is.
    """
    if "rewritten" in jaxpr.cache:
        return None
    if len(jaxpr.equations) > _MOST_EQUATIONS or holds_functions(jaxpr):
        return None
    if any([type(c) is not Literal for c in jaxpr.consts]) or names_of(jaxpr) is not None:
        return None
    consts = tuple([c.key() for c in jaxpr.consts])
    located: Hashable = jaxpr.sources is not None
    if jaxpr.sources is not None and None in jaxpr.sources:
        located = tuple([s is not None for s in jaxpr.sources])
    return tracing_key(), jaxpr.in_avals, consts, jaxpr.equations, jaxpr.outs, located


def _with_places(jaxpr: Jaxpr) -> Jaxpr:
    """The program with the positions of equations in the place of their sources."""
    sources = jaxpr.sources
    if sources is None:
        return jaxpr
    places = [None if s is None else k for k, s in enumerate(sources)]
    return _copy(jaxpr, places, jaxpr.debug)


def _of(known: Jaxpr, jaxpr: Jaxpr) -> Jaxpr:
    """The program ``known``, whose sources are positions, as that of ``jaxpr``."""
    places, sources = known.sources, jaxpr.sources
    if places is not None and sources is not None:
        # What a called function says of itself stays.
        places = [sources[p] if type(p) is int else p for p in places]
    return _copy(known, places, jaxpr.debug)


def _copy(jaxpr: Jaxpr, sources: Any, debug: Any) -> Jaxpr:
    equations, outs, out_avals = jaxpr.equations, jaxpr.outs, jaxpr.out_avals
    return Jaxpr(jaxpr.in_avals, jaxpr.consts, equations, outs, out_avals, sources, debug)
