"""Checks of results that debugging options ask for, and the search for what went wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.filtering import user_frame
from tracebridge.core.errors.runtime_errors import NonFiniteError
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.runtime.arrays.shards import is_readable

_TESTS = (("debug_nans", np.isnan, "NaN"), ("debug_infs", np.isinf, "infinity"))
# (application, arrays) -> its results, all in a list
Run = Callable[[Any, Sequence[Any]], Sequence[Any]]


def wants_checks() -> bool:
    """Whether debug_nans or debug_infs is on."""
    return option("debug_nans") or option("debug_infs")


def check_finite(
    arrays: Sequence[object], name: str, find_culprit: Callable[[], str] | None = None
) -> None:
    """Raise NonFiniteError if a result of ``name`` has a value that the options forbid.

    ``find_culprit()`` says more about the operation within ``name`` that it came from.
    """
    bad = first_bad(arrays)
    if bad is None:
        return
    index, what, wanted = bad
    inside = "" if find_culprit is None else find_culprit()
    frame = user_frame()
    value = "nan" if wanted == "debug_nans" else "inf"
    msg = f"invalid value ({value}) encountered in {name}: result {index} contains {what} "
    msg += f"(option {wanted} is on)"
    where = "" if frame is None else "{}:{} ({})".format(*frame)
    raise NonFiniteError(f"{msg}{inside}", where=where)


def first_bad(arrays: Sequence[Any]) -> tuple[int, str, str] | None:
    """Which array has a forbidden value, what it is, and the option that forbids it."""
    for i, array in enumerate(arrays):
        if not is_inexact(array.dtype):
            continue
        for host in _elements(array):
            for wanted, test, what in _TESTS:
                if option(wanted) and bool(np.any(test(host))):
                    return i, what, wanted
    return None


def _elements(array: Any) -> Iterator[np.ndarray[Any, Any]]:
    """What this process holds of an array, as numbers that NumPy knows."""
    whole = is_readable(array.sharding)
    for part in [array] if whole else [shard.data for shard in array.addressable_shards]:
        host = part._to_numpy()
        yield host.astype(np.float32) if host.dtype.kind == "V" else host


def checked(run: Callable[..., object], name: str) -> Callable[..., Any]:
    """``run`` with a check of its results, for tables of functions that nobody checks later."""

    def run_checked(*arrays: object) -> Any:
        out = run(*arrays)
        check_finite(out if isinstance(out, list) else [out], name)
        return out

    return run_checked


def culprit(jaxpr: Jaxpr, args: Sequence[Any], run: Run) -> str:
    """The first operation of ``jaxpr`` with a forbidden value, as the end of a sentence.

    The program runs again, equation by equation; not if it has effects.
    """
    if jaxpr.effects or any([a.is_deleted() for a in args]):
        return ""
    given = first_bad(args)
    if given is not None:
        return f"; argument {given[0]} contains {given[1]} already"
    try:
        _walk(run, jaxpr, args)
    except _Found as found:
        return f"; it comes from {found}"
    return "; the same operations one by one give none"


class _Found(Exception):
    """The operation, and where it stands."""


def _walk(run: Run, jaxpr: Jaxpr, args: Sequence[object]) -> list[Any]:
    """Evaluate equation by equation; raises at the first forbidden value."""
    env: list[Any] = [*args, *jaxpr.consts]
    for k, (app, idx) in enumerate(jaxpr.equations):
        values = [env[i] for i in idx]
        outs = run(app, values)
        if first_bad(outs) is not None:
            # Within a call, a loop or the branch that was chosen.
            app.primitive.by_steps(functools.partial(_walk, run), values, **app.params)
            source = jaxpr.sources[k] if jaxpr.sources else None
            line = "" if source is None else describe_line(source)
            raise _Found(f"{app.primitive.name} at {line}" if line else app.primitive.name)
        env.extend(outs)
    return [env[i] for i in jaxpr.outs]
