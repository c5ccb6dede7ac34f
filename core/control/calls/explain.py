"""Why a call of a jitted function was traced and compiled again, in words."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.options import TRACING_OPTIONS
from tracebridge.core.ir.debug_info import Parameters, where_is
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.prefix import equality_errors_of_structures
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Mapping


# A key is (tree, static key, signatures, donated leaves, options, placement, default device, uses
# of references). Keys of traces have avals in the place of signatures, no donated leaves and no
# places, and at the end the named axes.
Key = tuple[Any, ...]

# What the values of ``tracing_key`` are.
_CONTEXT = (*[f"option {name}" for name in TRACING_OPTIONS], "the mesh in force")

# (code of a function, "traced" or "compiled") -> the function whose first call it was, weakly.
_CODES: BoundedCache[Any] = BoundedCache("code of explained functions", 1024)


@final
class Names:
    """What the arguments of one call are called.

    ``leaves`` and ``dynamic``: those that are not static, by leaf and by position; ``parameters``:
    all of the function; ``static_nums``: the positions of static ones.
    """

    __slots__ = ("dynamic", "leaves", "parameters", "static_nums")

    def __init__(
        self,
        leaves: Sequence[str],
        dynamic: tuple[str, ...],
        parameters: Parameters,
        static_nums: Sequence[int],
    ) -> None:
        self.leaves = leaves
        self.dynamic = dynamic if isinstance(dynamic, Parameters) else Parameters(dynamic)
        self.parameters = parameters
        self.static_nums = static_nums

    def place(self, path: Sequence[Any]) -> str:
        """A place in ``(args, kwargs)``."""
        if len(path) < 2:
            return "the keyword arguments" if path and path[0].idx else "the arguments"
        in_keywords, first, *rest = path
        known = self.dynamic
        name = known.keyword(str(first.key)) if in_keywords.idx else known.at(first.idx)
        return name + keystr(rest)

    def statics(self, key: Any) -> dict[str, Any]:
        """The parts of a key of static arguments, by name."""
        if not key:
            return {}
        n, *values = key
        places = sorted({i if i >= 0 else i + n for i in self.static_nums if -n <= i < n})
        found = {self.parameters.at(i): v for i, v in zip(places, values, strict=False)}
        return found | dict(values[len(places) :])


def why_again(key: Key, seen: Sequence[Any], names: Names, what: str = "compiled") -> str:
    """How a call differs from the most similar earlier one."""
    if not seen:
        return f"{what} again, because of a call that is forgotten by now"
    # Of equally similar calls the latest one tells most.
    closest = min(reversed(seen), key=lambda other: len(list(differences(key, other, names))))
    found = list(differences(key, closest, names))
    return f"{what} again, because of {'; '.join(found)}"


def why_first(fun: Any, what: str = "compiled") -> str:
    """Why there is nothing to compare a call with; to be asked once, when it happens."""
    code = getattr(fun, "__code__", None)
    known = None if code is None else _CODES.get((code, what))
    if code is not None:
        _CODES.set((code, what), weakref.ref(fun))
    if known is None:
        return f"{what}, because this is its first call"
    if known() is fun:
        return (
            f"{what} again, because its programs were forgotten (clear_cache, clear_caches), or "
            "jit was called on it once more"
        )
    return (
        f"{what} again, because it is a new function object, made by the same lines as an earlier "
        f"one ({where_is(fun)}); make it once, outside of loops"
    )


def differences(key: Key, other: Key, names: Names) -> Iterator[str]:
    """What differs between a call and an earlier one."""
    tree, static, sigs, donated, options, placed, device, *more = key
    old_tree, old_static, old_sigs, old_donated, old_options, old_placed, old_device, *old = other
    if more != old:
        yield _more(more, old)
    if tree != old_tree:
        for d in equality_errors_of_structures(tree, old_tree):
            where = names.place(d.path)
            yield f"the structure of {where}: {d.reason}: now {d.first}, before {d.second}"
    else:
        # Contents of references that the function closes over follow the arguments.
        for argument, sig, before in zip(names.leaves, sigs, old_sigs, strict=False):
            if sig is not before:
                yield f"{argument}: {_change(sig, before)}"
    if static != old_static:
        yield from _static_changes(names.statics(static), names.statics(old_static))
    if donated != old_donated and tree == old_tree:
        yield "donated arguments whose memory belongs to others"
    if options != old_options:
        for label, new, before in zip(_CONTEXT, options, old_options, strict=True):
            if new != before:
                yield f"{label}={new!r} instead of {before!r}"
    if placed is not old_placed or device != old_device:
        yield f"the device: {placed or device}"


def _more(more: Sequence[object], old: Sequence[object]) -> str:
    axes, before = more[-1], old[-1]
    if axes != before and isinstance(axes, dict) and isinstance(before, dict):
        return f"the named axes: {axes} instead of {before}"
    return "the references among its arguments"


def _change(sig: Any, old: Any) -> str:
    """How one argument differs from its predecessor."""
    aval, before = getattr(sig, "aval", sig), getattr(old, "aval", old)
    weak, was_weak = aval.weak_type, before.weak_type
    if aval.shape != before.shape or aval.dtype != before.dtype:
        facts = [
            f"{label} {new} instead of {other}"
            for label, new, other in (
                ("shape", aval.shape, before.shape),
                ("dtype", aval.dtype, before.dtype),
            )
            if new != other
        ]
        if weak != was_weak:
            facts.append(_kind(weak))
        return f"{aval.str_short()} instead of {before.str_short()} ({', '.join(facts)})"
    if weak != was_weak:
        return f"{_kind(weak)} (weak type {weak} instead of {was_weak})"
    if sig is aval:
        return "another type"
    if sig.sharding is not old.sharding:
        return f"at {sig.sharding} instead of {old.sharding}"
    if sig.committed != old.committed:
        return "committed to its device" if sig.committed else "not committed to a device"
    return "memory of another owner"


def _kind(weak: bool) -> str:
    if weak:
        return "a Python number instead of an array"
    return "an array instead of a Python number"


def _static_changes(new: Mapping[str, object], old: Mapping[str, object]) -> Iterator[str]:
    """How the static arguments differ."""
    for name in dict.fromkeys([*new, *old]):
        if name not in old:
            yield f"static argument {name}: {_value(new[name])}, which was left out before"
        elif name not in new:
            yield f"static argument {name} left out, which was {_value(old[name])}"
        elif new[name] != old[name]:
            yield f"static argument {name}: {_value(new[name])} instead of {_value(old[name])}"


def _value(key: object) -> str:
    """A static value in the form ``(class, value)``, or a tuple of such."""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):
        first, second = key
        return second if first in (float, complex) else repr(second)
    if isinstance(key, tuple):
        inner = ", ".join(map(_value, key))
        return f"({inner},)" if len(key) == 1 else f"({inner})"
    return repr(key)
