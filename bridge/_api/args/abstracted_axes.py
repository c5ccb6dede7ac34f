"""abstracted_axes: array axes whose sizes are names while a function is traced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

from tracebridge.core.control.calls.traced_call import Arguments, argument_names
from tracebridge.core.errors.transform_errors import AxisSizeError, AxisSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape
from tracebridge.core.tree.prefix import flatten_axes

# One scope for all, so that equal specifications give the same avals.
_SCOPE = SymbolicScope(strict=True)


@final
class AbstractedAxes:
    """A specification: a tree prefix of the positional arguments.

    A leaf is None, a dict from axes to names, or a tuple with a name or None per axis.
    """

    __slots__ = ("_call", "_spec")

    def __init__(self, call: str, spec: object) -> None:
        self._call = call
        # A list of arguments is as good as a tuple of them.
        self._spec = tuple(spec) if type(spec) is list else spec

    def __call__(
        self, name: str, call: Arguments, avals: Sequence[ShapedArray]
    ) -> tuple[tuple[ShapedArray, ...], dict[str, int]]:
        """The avals with named sizes, and the size of each name.

        Raises:
            TreeMismatchError: the specification is no prefix of the arguments.
            AxisSpecError: an entry names an axis that the argument does not have.
            AxisSizeError: axes of one name have different sizes.
        """
        label = f"{self._call}({name})"
        positional, _ = call.tree.children()
        entries = flatten_axes(
            label,
            positional,
            self._spec,
            is_leaf=_is_entry,
            axes_name="abstracted_axes",
            full_name="args",
            of_arguments=True,
        )
        names = argument_names(call.tree, call.parameters)
        seen: dict[Hashable, tuple[int, str]] = {}
        abstract_avals: list[ShapedArray] = []
        for aval, entry, argument in zip(avals, entries, names, strict=False):
            named = _named_axes(label, entry, aval, argument)
            abstract_avals.append(_with_names(label, aval, named, argument, seen))
        # Keyword arguments come last and keep their sizes.
        abstract_avals += avals[len(abstract_avals) :]
        sizes = {
            str(_variable(key, seen)): size
            for key, (size, _) in seen.items()
            if type(size) is int and size > 0
        }
        return tuple(abstract_avals), sizes


def _is_entry(x: object) -> bool:
    """Whether ``x`` is about one array: what it holds are names, not more structure."""
    if type(x) is dict:
        return all([isinstance(k, int) and not isinstance(k, bool) for k in x])
    return type(x) is tuple and all(
        [v is None or not isinstance(v, tuple | list | dict) for v in x]
    )


def _named_axes(label: str, entry: Any, aval: ShapedArray, argument: str) -> dict[int, Hashable]:
    """The names of one array's axes, by non-negative axis."""
    n = aval.ndim
    if entry is None or (type(entry) is tuple and not any([v is not None for v in entry])):
        return {}
    if type(entry) is tuple:
        if len(entry) != n:
            msg = (
                f"{label}: abstracted_axes has {len(entry)} entries for argument {argument}, "
                f"which is {aval.str_short()}"
            )
            raise AxisSpecError(msg, expected=f"one name or None for each of its {n} axes")
        return {i: name for i, name in enumerate(entry) if name is not None}
    if type(entry) is not dict:
        msg = f"{label}: abstracted_axes is {entry!r} for argument {argument}"
        raise AxisSpecError(msg, expected="None, a dict from axes to names, or a tuple of names")
    for axis in entry:
        if not -n <= axis < n:
            msg = (
                f"{label}: abstracted_axes names axis {axis} of argument {argument}, "
                f"which is {aval.str_short()}"
            )
            raise AxisSpecError(msg, expected=f"an axis from {-n} to {n - 1}" if n else "None")
    return {axis % n: name for axis, name in entry.items() if name is not None}


def _with_names(
    label: str,
    aval: ShapedArray,
    named: dict[int, Hashable],
    argument: str,
    seen: dict[Hashable, tuple[int, str]],
) -> ShapedArray:
    shape = list(aval.shape)
    for axis, name in named.items():
        size = shape[axis]
        place = f"axis {axis} of argument {argument}"
        known = seen.setdefault(name, (size, place))
        if known[0] != size:
            msg = (
                f"{label}: abstracted_axes gives the name {name!r} to {known[1]} of size "
                f"{known[0]} and to {place} of size {size}"
            )
            raise AxisSizeError(msg, hint="give axes of different sizes different names")
        # Variables are sizes of at least 1: programs for no elements are traced on their own.
        if type(size) is int and size > 0:
            shape[axis] = _variable(name, seen)
    return aval.update(shape=tuple(shape))


def _variable(name: Hashable, seen: dict[Hashable, tuple[int, str]]) -> Any:
    """The dimension variable of a name; names that are no identifiers are numbered."""
    text = (
        name if isinstance(name, str) and name.isidentifier() else f"axis_{list(seen).index(name)}"
    )
    (variable,) = symbolic_shape(text, scope=_SCOPE)
    return variable
