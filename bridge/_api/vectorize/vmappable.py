"""Types of users that vmap takes apart and puts together as they say: register_vmappable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import tracebridge.core.lax as lax
from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.interpreters.batching import BatchTrace
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.prefix import flatten_asking
from tracebridge.core.tree.tree import PyTreeDef, flatten


@final
class _Handlers(NamedTuple):
    """What is known of one type."""

    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]


VMAPPABLES: dict[type, _Handlers] = {}
"""The registered types. They are leaves for vmap; others need not look for them if it is empty."""

SPEC_TYPES: set[type] = set()
"""Types of entries of ``in_axes`` and ``out_axes`` besides int and None."""

_IOTA: dict[type, Callable[..., Any]] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[..., object],
    from_elt: Callable[..., object],
    make_iota: Callable[..., object] | None,
) -> None:
    """Say how vmap maps over objects of a type of yours.

    Args:
        data_type: the type, whose objects then are leaves of arguments and results of vmap.
        spec_type: type of the entries of ``in_axes`` and ``out_axes`` that say how they are mapped.
        axis_size_type: type of sizes of axes for which ``make_iota`` is meant.
        to_elt: ``(part, index, data, spec) -> element`` gives what the mapped function sees:
            ``part(array, axis)`` is the element of an array or of a registered object in
            ``data``, and ``index()`` the number of the element.
        from_elt: ``(whole, axis_size, element, spec) -> data`` puts a result of ``data_type``
            together: ``whole(axis_size, array, axis)`` is the batch of an array in it.
        make_iota: ``size -> array`` of the numbers of the elements; None where sizes are ints.

    The size of the axis is ``axis_size``, or that of objects which have a shape and a number as
    their spec, or that of mapped arrays beside the objects.

    Raises:
        ArgumentTypeError: a type is no class, or a function is none.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.interpreters import batching
    >>> class Columns:
    ...     def __init__(self, array):
    ...         self.array = array
    >>> class Along:
    ...     def __init__(self, axis):
    ...         self.axis = axis
    >>> batching.register_vmappable(
    ...     Columns,
    ...     Along,
    ...     int,
    ...     lambda part, index, data, spec: part(data.array, spec.axis),
    ...     lambda whole, size, element, spec: Columns(whole(size, element.array, spec.axis)),
    ...     None,
    ... )
    >>> matrix = tnp.arange(6.0).reshape(2, 3)
    >>> sums = tb.vmap(lambda column: column.sum(), in_axes=Along(1), axis_size=3)
    >>> print(sums(Columns(matrix)))
    [3. 5. 7.]
    >>> batching.unregister_vmappable(Columns)
    """
    for name, kind in (
        ("data_type", data_type),
        ("spec_type", spec_type),
        ("axis_size_type", axis_size_type),
    ):
        if not isinstance(kind, type):  # pyright: ignore[reportUnnecessaryIsInstance] - unchecked
            msg = f"register_vmappable: {name} is {kind!r}, expected a class"
            raise ArgumentTypeError(msg)
    for name, function in (("to_elt", to_elt), ("from_elt", from_elt)):
        if not callable(function):
            msg = f"register_vmappable: {name} is {function!r}, expected a function"
            raise ArgumentTypeError(msg)
    VMAPPABLES[data_type] = _Handlers(to_elt, from_elt)
    SPEC_TYPES.add(spec_type)
    if make_iota is not None:
        _IOTA[axis_size_type] = make_iota


def unregister_vmappable(data_type: type) -> None:
    """Forget a type: vmap treats its objects as any other again.

    Args:
        data_type: a type that was registered.

    >>> from tracebridge.interpreters import batching
    >>> class Columns: ...
    >>> batching.register_vmappable(Columns, int, int, lambda *_: 0.0, lambda *_: Columns(), None)
    >>> batching.unregister_vmappable(Columns)
    """
    VMAPPABLES.pop(data_type, None)


def is_vmappable(x: object) -> bool:
    """Whether the type of ``x`` is registered."""
    return type(x) in VMAPPABLES


def flatten_for_vmap(tree: object) -> tuple[list[Any], PyTreeDef]:
    """Leaves and structure of a tree in which objects of registered types are leaves."""
    return flatten_asking(tree, is_vmappable) if VMAPPABLES else flatten(tree)


def take_registered(leaves: Sequence[object], dims: list[Any]) -> dict[int, Any]:
    """How the registered ones among the leaves are mapped; vmap itself passes them on as they are.

    Their entries of ``dims`` become None.
    """
    specs = {i: dims[i] for i, leaf in enumerate(leaves) if is_vmappable(leaf)}
    for i in specs:
        dims[i] = None
    return specs


def size_of(leaves: Sequence[Any], specs: Mapping[int, Any]) -> Any:
    """The size of the mapped axis as registered objects know it; None if none of them does.

    One that has a shape and is mapped along an axis that is a number knows it.
    """
    for i, spec in specs.items():
        shape = getattr(leaves[i], "shape", None)
        if type(spec) is int and isinstance(shape, tuple) and -len(shape) <= spec < len(shape):
            return shape[spec]
    return None


def elements(leaves: Sequence[object], specs: Mapping[int, Any], size: Any) -> list[Any]:
    """The leaves as the mapped function sees them; called under the trace of vmap."""
    trace = current_trace()
    assert isinstance(trace, BatchTrace)

    @functools.cache
    def index() -> Any:
        make = _IOTA.get(type(size))
        numbers = lax.iota("int32", size) if make is None else make(size)
        return trace.input(as_value(numbers), 0)

    def part(x: object, spec: Any) -> Any:
        if is_vmappable(x):
            return VMAPPABLES[type(x)].to_elt(part, index, x, spec)
        value = as_value(x)
        return trace.input(value, None if spec is None else spec % value.aval.ndim)

    return [part(leaf, specs[i]) if i in specs else leaf for i, leaf in enumerate(leaves)]


def assembled(
    element: Any, spec: object, size: object, place: Callable[[Any, int | None, Any], Any]
) -> Any:
    """The object of a registered type for a batch; called under the trace of vmap.

    ``place(value, axis, wanted)`` moves the batch axis of a value.
    """
    trace = current_trace()
    assert isinstance(trace, BatchTrace)

    def whole(axis_size: object, x: object, axis: object) -> Any:
        if is_vmappable(x):
            return VMAPPABLES[type(x)].from_elt(whole, axis_size, x, axis)
        value = as_value(x)
        own = getattr(value, "_trace", None) is trace
        return place(value.value if own else value, value.dim if own else None, axis)

    scope = enter_scope(with_trace, trace.parent)
    try:
        return VMAPPABLES[type(element)].from_elt(whole, size, element, spec)
    finally:
        leave_scope(scope)
