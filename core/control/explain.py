"""Why a call of a jitted function was traced and compiled again, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracebridge.core.config.options import TRACING_OPTIONS
from tracebridge.core.ir.debug_info import where_is
from tracebridge.core.tree.prefix import equality_errors_of_structures
from tracebridge.core.util.caching import BoundedCache

# A key is (tree, static key, signatures, donated leaves, options, placement, default device, uses
# of references).
Key = tuple[Any, ...]


# Code of the functions whose first call was explained.
_CODES: BoundedCache[bool] = BoundedCache("code of explained functions", 1024)


def explain_miss(
    fun: Any, name: str, key: Key, seen: Sequence[Any], arguments: Sequence[str]
) -> str:
    """One message: the first call, or how the call differs from the most similar earlier one."""
    if not seen:
        code = getattr(fun, "__code__", None)
        if code is None or code not in _CODES:
            _CODES.set(code, True)
            return f"jit({name}): compiled, because this is its first call"
        return (
            f"jit({name}): compiled again, because it is a new function object, made by the same "
            f"lines as an earlier one ({where_is(fun)}); make it once, outside of loops"
        )
    # Of equally similar calls the latest one tells most.
    closest = min(reversed(seen), key=lambda other: len(list(differences(key, other, arguments))))
    found = list(differences(key, closest, arguments))
    return f"jit({name}): compiled again, because of {'; '.join(found)}"


def differences(key: Key, other: Key, arguments: Sequence[str]) -> Iterator[str]:
    """What differs between a call and an earlier one."""
    tree, static, sigs, donated, options, placed, device, *refs = key
    old_tree, old_static, old_sigs, old_donated, old_options, old_placed, old_device, *old = other
    if refs != old:
        yield "the references among its arguments"
    if tree != old_tree:
        for d in equality_errors_of_structures(tree, old_tree):
            yield f"the structure of (args, kwargs): {d.describe('now', 'before')}"
    else:
        # Contents of references that the function closes over follow the arguments.
        for argument, sig, before in zip(arguments, sigs, old_sigs, strict=False):
            if sig is not before:
                yield f"{argument}: {_change(sig, before)}"
    if static != old_static:
        yield f"static arguments: {_shown(static)} instead of {_shown(old_static)}"
    if donated != old_donated and tree == old_tree:
        yield "donated arguments whose memory belongs to others"
    if options != old_options:
        changed = zip(TRACING_OPTIONS, options, old_options, strict=True)
        yield ", ".join([f"option {n}={new!r}" for n, new, old in changed if new != old])
    if placed is not old_placed or device != old_device:
        yield f"the device: {placed or device}"


def _change(sig: Any, old: Any) -> str:
    """How one argument differs from its predecessor."""
    aval, before = sig.aval, old.aval
    if aval.shape != before.shape or aval.dtype != before.dtype:
        return f"{aval.str_short()} instead of {before.str_short()}"
    if aval.weak_type != before.weak_type:
        return (
            "a Python number instead of an array"
            if aval.weak_type
            else ("an array instead of a Python number")
        )
    if sig.sharding is not old.sharding:
        return f"at {sig.sharding} instead of {old.sharding}"
    if sig.committed != old.committed:
        return "committed to its device" if sig.committed else "not committed to a device"
    return "memory of another owner"


def _shown(static: Any) -> str:
    """A key of static arguments as text: ``(number of arguments, value, ...)``."""
    return ", ".join([_value(v) for v in static[1:]]) or "none"


def _value(key: Any) -> str:
    """A static value in the form ``(class, value)``, or ``(name, (class, value))``."""
    if isinstance(key, tuple) and len(key) == 2:
        first, second = key
        if isinstance(first, str):
            return f"{first}={_value(second)}"
        if isinstance(first, type):
            return second if first in (float, complex) else repr(second)
    return f"({', '.join(map(_value, key))})" if isinstance(key, tuple) else repr(key)
