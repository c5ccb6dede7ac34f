"""Calls of jitted functions with objects of users that change: their contents go in and come out.

Inside, the function works on new objects, whose contents are traced; afterwards the objects of the
caller get the last contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.ir.typeof import typeof
from tracebridge.core.ir.user_type import is_mutable
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.caching import BoundedCache

MAX_KINDS = 64  # kinds of calls that one function remembers


@final
class _Content:
    """The arrays of contents, and the types of the objects: ``(type, type of the content)``."""

    __slots__ = ("arrays", "kinds")

    def __init__(self, arrays: Sequence[Any], kinds: tuple[Any, ...]) -> None:
        self.arrays = arrays
        self.kinds = kinds


register_pytree_node(_Content, lambda c: (c.arrays, c.kinds), lambda kinds, a: _Content(a, kinds))


@final
class _Place:
    """Stands for an object among the results: its number among the objects that are known."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


register_pytree_node(_Place, lambda p: ((), p.number), lambda number, _: _Place(number))


def _content_of(objects: Sequence[Any]) -> _Content:
    kinds: tuple[Any, ...] = tuple([(typeof(o), o.cur_qdd()) for o in objects])
    pairs = zip(objects, kinds, strict=True)
    return _Content([aval.read_loval(state, o) for o, (aval, state) in pairs], kinds)


def _objects_of(content: _Content) -> list[Any]:
    pairs = zip(content.arrays, content.kinds, strict=True)
    return [aval.new_from_loval(state, *arrays) for arrays, (aval, state) in pairs]


def _number(objects: list[Any], x: Any) -> int:
    """The number of an object, which is appended if it is not known."""
    for i, known in enumerate(objects):
        if known is x:
            return i
    objects.append(x)
    return len(objects) - 1


def take_objects(leaves: Sequence[Any], objects: list[Any]) -> list[Any]:
    """The leaves with a place for each object that changes; the objects are appended."""
    return [_Place(_number(objects, x)) if is_mutable(x) else x for x in leaves]


def put_objects(leaves: Sequence[Any], objects: Sequence[Any]) -> list[Any]:
    """The leaves with the objects in their places."""
    return [objects[x.number] if type(x) is _Place else x for x in leaves]


def call_with_contents(make_jit: Callable[[Any], Any], kinds: BoundedCache[Any], call: Any) -> Any:
    """Call ``call.fun``, some of whose leaves are objects that change.

    ``kinds`` remembers the compiled functions of contents by the structure of calls.
    """
    objects: list[Any] = []
    leaves = take_objects(call.leaves, objects)
    places = tuple([x.number if type(x) is _Place else None for x in leaves])
    key = (call.tree, call.static_key, places)
    compiled = kinds.get(key)
    if compiled is None:
        compiled = make_jit(_of_contents(call.fun, call.tree))
        kinds.set(key, compiled)
    results, content, tree = compiled(leaves, _content_of(objects))
    n = len(objects)
    pairs = zip(objects, content.arrays[:n], content.kinds[:n], strict=True)
    for known, arrays, (aval, state) in pairs:
        aval.update_from_loval(state, known, *arrays)
    made = _objects_of(_Content(content.arrays[n:], content.kinds[n:]))
    return tree.tree.unflatten(put_objects(results, [*objects, *made]))


def shapes_with_contents(
    eval_shape: Callable[..., Any], fun: Callable[..., Any], leaves: Sequence[Any], tree: Any
) -> Any:
    """``eval_shape`` of a function, some of whose arguments are objects that change.

    The objects of the caller stay what they are; a result that is one of them is that object.
    """
    objects: list[Any] = []
    leaves = take_objects(leaves, objects)
    results, content, out = eval_shape(_of_contents(fun, tree), leaves, _content_of(objects))
    n = len(objects)
    made = _objects_of(_Content(content.arrays[n:], content.kinds[n:]))
    return out.tree.unflatten(put_objects(results, [*objects, *made]))


@final
class _Structure:
    """The structure of a result, as a result."""

    __slots__ = ("tree",)

    def __init__(self, tree: Any) -> None:
        self.tree = tree


register_pytree_node(_Structure, lambda s: ((), s.tree), lambda tree, _: _Structure(tree))


def _of_contents(fun: Callable[..., Any], tree: Any) -> Callable[..., Any]:
    def on_contents(leaves: Sequence[Any], content: _Content) -> tuple[Any, _Content, Any]:
        objects = _objects_of(content)
        args, kwargs = tree.unflatten(put_objects(leaves, objects))
        flat, out_tree = flatten(fun(*args, **kwargs))
        return take_objects(flat, objects), _content_of(objects), _Structure(out_tree)

    on_contents.__name__ = getattr(fun, "__name__", "function")
    return on_contents
