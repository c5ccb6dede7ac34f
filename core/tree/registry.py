"""The registry of pytree nodes, and how classes join it.

The registry is an own instance of the C++ class: the process-wide one of jaxlib belongs to
others, and registering a class there twice is an error. Built in are tuple, list, dict (by sorted
keys), None and named tuples; ``OrderedDict``, ``defaultdict`` and ``Partial`` are added here.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

from tracebridge.core._jaxlib.pytree import DictKey, GetAttrKey, PyTreeDef, PyTreeRegistry
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.util.public_path import public_path

T = TypeVar("T")
Class = TypeVar("Class", bound=type[Any])

_ON_FORWARDING: list[Callable[[], None]] = []

default_registry = PyTreeRegistry()
# A tree definition pickles its registry by name: these two say where to find ours again.
default_registry.__module__ = __name__
default_registry.__name__ = "default_registry"


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> None:
    """Make ``nodetype`` a pytree node.

    Args:
        nodetype: the class; subclasses are not included.
        flatten_func: gives ``(children, aux_data)``; ``aux_data`` is compared and hashed.
        unflatten_func: takes ``(aux_data, children)``. It must accept any children, also objects
            that are no arrays, because transformations rebuild trees of their own.
        flatten_with_keys_func: the same as ``flatten_func`` with ``(key, child)`` pairs.

    Raises:
        ValueError: the class is registered already.

    >>> from tracebridge import tree, tree_util
    >>> class Box:
    ...     def __init__(self, content):
    ...         self.content = content
    >>> tree_util.register_pytree_node(
    ...     Box, lambda box: ((box.content,), None), lambda _, children: Box(*children)
    ... )
    >>> tree.map(lambda x: x + 1, Box(1)).content
    2
    """
    _check_class("register_pytree_node", nodetype)
    with _once("register_pytree_node", nodetype):
        default_registry.register_node(
            nodetype, flatten_func, unflatten_func, flatten_with_keys_func
        )


def register_pytree_node_class(cls: Class) -> Class:
    """Class decorator: a pytree node by its methods ``tree_flatten`` and ``tree_unflatten``.

    >>> from tracebridge import tree, tree_util
    >>> @tree_util.register_pytree_node_class
    ... class Named:
    ...     def __init__(self, value, name):
    ...         self.value, self.name = value, name
    ...     def tree_flatten(self):
    ...         return (self.value,), self.name
    ...     @classmethod
    ...     def tree_unflatten(cls, name, children):
    ...         return cls(*children, name)
    >>> tree.structure(Named(1, "weight"))
    PyTreeDef(CustomNode(Named[weight], [*]))
    """
    _check_methods("register_pytree_node_class", cls, "tree_flatten", "tree_unflatten")
    register_pytree_node(cls, lambda node: node.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Make ``nodetype`` a pytree node whose children have key path entries.

    Args:
        nodetype: the class; subclasses are not included.
        flatten_with_keys: gives ``([(key, child), ...], aux_data)``.
        unflatten_func: takes ``(aux_data, children)``.
        flatten_func: a faster way to ``(children, aux_data)``; derived if absent.

    Raises:
        ValueError: the class is registered already.

    >>> from tracebridge import tree, tree_util
    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> tree_util.register_pytree_with_keys(
    ...     Pair,
    ...     lambda p: ([(tree_util.GetAttrKey("x"), p.x), (tree_util.GetAttrKey("y"), p.y)], None),
    ...     lambda _, children: Pair(*children),
    ... )
    >>> [tree_util.keystr(path) for path, _ in tree.leaves_with_path(Pair(1, 2))]
    ['.x', '.y']
    """

    def without_keys(node: T) -> tuple[Iterable[Any], Hashable]:
        children, aux_data = flatten_with_keys(node)
        return [child for _, child in children], aux_data

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Class) -> Class:
    """Class decorator: a node by ``tree_flatten_with_keys`` and ``tree_unflatten``.

    A method ``tree_flatten`` is used where there is one, because it is faster.

    >>> from tracebridge import tree, tree_util
    >>> @tree_util.register_pytree_with_keys_class
    ... class Single:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten_with_keys(self):
    ...         return [(tree_util.GetAttrKey("x"), self.x)], None
    ...     @classmethod
    ...     def tree_unflatten(cls, _, children):
    ...         return cls(*children)
    >>> tree.leaves_with_path([Single(1)])
    [((SequenceKey(idx=0), GetAttrKey(name='x')), 1)]
    """
    name = "register_pytree_with_keys_class"
    _check_methods(name, cls, "tree_flatten_with_keys", "tree_unflatten")
    plain = (lambda node: node.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(
        cls, lambda node: node.tree_flatten_with_keys(), cls.tree_unflatten, plain
    )
    return cls


def register_static(cls: Class) -> Class:
    """Class decorator: a node without leaves. Instances are part of the tree's structure.

    They must be hashable and comparable: two trees have the same structure only where the static
    objects in them are equal.

    >>> from tracebridge import tree, tree_util
    >>> @tree_util.register_static
    ... class Mode(str):
    ...     pass
    >>> tree.leaves((1, Mode("train")))
    [1]
    """
    register_pytree_with_keys(cls, lambda node: ((), node), lambda node, _: node)
    return cls


def register_dataclass(
    nodetype: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Make a dataclass (or a class like one) a pytree node. Usable as a class decorator.

    Args:
        nodetype: the class; its constructor takes the data and meta fields by keyword.
        data_fields: names of the children. By default all constructor fields of the dataclass
            that are not marked by ``tree.static()``.
        meta_fields: names of the fields that belong to the structure: hashable, comparable.
        drop_fields: names of fields that are left out; the constructor must set them.

    Raises:
        TypeError: not a dataclass and no field lists, or only one of the two lists.
        ValueError: the lists do not cover the constructor fields once each.
        ArgumentTypeError: only one of the two lists of fields is given.

    >>> import dataclasses
    >>> from tracebridge import tree, tree_util
    >>> @tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = tree.static(default="dense")
    >>> tree.map(lambda x: 2 * x, Layer(1.5))
    Layer(weight=3.0, name='dense')
    """
    _check_class("register_dataclass", nodetype)
    if (data_fields is None) != (meta_fields is None):
        msg = "register_dataclass: give both data_fields and meta_fields, or neither of them"
        raise ArgumentTypeError(msg)
    if data_fields is None or meta_fields is None:
        data_fields, meta_fields = _infer_fields(nodetype, drop_fields)
    else:
        _check_fields(nodetype, data_fields, meta_fields, drop_fields)
    with _once("register_dataclass", nodetype):
        default_registry.register_dataclass_node(nodetype, list(data_fields), list(meta_fields))
    path = _free_path(nodetype)
    DATACLASSES[path] = nodetype, tuple(data_fields), tuple(meta_fields)
    return nodetype


# Import path -> class, data fields and meta fields, for who has nothing but text. Local classes of
# one path are numbered.
DATACLASSES: dict[str, tuple[type, tuple[str, ...], tuple[str, ...]]] = {}


def path_of_dataclass(nodetype: type) -> str | None:
    """Where a registered dataclass is in ``DATACLASSES``; None if it is not registered."""
    for path in _paths(nodetype):
        found = DATACLASSES.get(path)
        if found is None or found[0] is nodetype:
            return None if found is None else path
    return None


def _free_path(nodetype: type) -> str:
    return next(path for path in _paths(nodetype) if path not in DATACLASSES)


def _paths(nodetype: type) -> Generator[str]:
    base = f"{nodetype.__module__}:{nodetype.__qualname__}"
    yield base
    yield from (f"{base}#{n}" for n in itertools.count(2))


def static(**kwargs: Any) -> Any:
    """A dataclass field that belongs to the structure of the tree; takes what ``field`` takes.

    >>> import dataclasses
    >>> from tracebridge import tree
    >>> @dataclasses.dataclass
    ... class Config:
    ...     size: int = tree.static(default=3)
    >>> Config().size
    3
    """
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return dataclasses.field(**kwargs, metadata=metadata)


def _infer_fields(nodetype: type, drop: Sequence[str]) -> tuple[list[str], list[str]]:
    if not dataclasses.is_dataclass(nodetype):
        msg = (
            f"register_dataclass: got {nodetype.__name__}, which is no dataclass; give "
            f"data_fields and meta_fields, or decorate the class with @dataclass first"
        )
        raise ArgumentTypeError(msg)
    data: list[str] = []
    meta: list[str] = []
    for field in dataclasses.fields(nodetype):
        if field.init and field.name not in drop:
            (meta if field.metadata.get("static") else data).append(field.name)
    return data, meta


def _check_fields(
    nodetype: type, data: Sequence[str], meta: Sequence[str], drop: Sequence[str]
) -> None:
    for name, fields in (("data_fields", data), ("meta_fields", meta), ("drop_fields", drop)):
        if isinstance(fields, str):
            msg = f"register_dataclass: {name} is the string {fields!r}, expected a list of names"
            raise ArgumentTypeError(msg)
    all_fields = [*data, *meta, *drop]
    twice = sorted(name for name, n in collections.Counter(all_fields).items() if n > 1)
    if twice:
        msg = f"register_dataclass: fields {twice} of {nodetype.__name__} are listed twice"
        raise ArgumentValueError(msg)
    if not dataclasses.is_dataclass(nodetype):
        return
    known = {field.name: field.init for field in dataclasses.fields(nodetype)}
    needed = {name for name, init in known.items() if init}
    missing, unknown = sorted(needed - set(all_fields)), sorted(set(all_fields) - set(known))
    if missing or unknown:
        msg = (
            f"register_dataclass: the field lists do not fit {nodetype.__name__}: "
            f"missing {missing}, unknown {unknown}; list each constructor field once, in "
            f"data_fields, meta_fields or drop_fields"
        )
        raise ArgumentValueError(msg)


def _check_class(call: str, nodetype: object) -> None:
    if not isinstance(nodetype, type):
        msg = f"{call}: got {nodetype!r}, expected a class"
        raise ArgumentTypeError(msg)


@contextlib.contextmanager
def _once(call: str, nodetype: type) -> Generator[None]:
    """Raise our error if the class is registered already.

    Asking beforehand would not do: named tuples are nodes without being registered.
    """
    try:
        yield
    except ValueError as error:
        if "Duplicate" not in str(error):
            raise
        msg = (
            f"{call}: {nodetype.__module__}.{nodetype.__qualname__} is a pytree node already; "
            f"a class can be registered once. Register a subclass for another behaviour"
        )
        raise ArgumentValueError(msg) from error
    if _answers_any_attribute(nodetype):
        for listener in _ON_FORWARDING:
            listener()


# Where attributes of classes written in C are looked up in the plain way.
_PLAIN_MODULES = frozenset(["builtins", "collections", "functools"])


def _answers_any_attribute(nodetype: type) -> bool:
    """Whether objects of the class may have attributes that neither class nor object lists.

    Containers of Python have a ``__getattribute__`` each, and it is that of ``object`` in all but
    name.
    """
    owner = next(base for base in nodetype.__mro__ if "__getattribute__" in vars(base))
    return hasattr(nodetype, "__getattr__") or owner.__module__ not in _PLAIN_MODULES


def on_forwarding_node(listener: Callable[[], None]) -> Callable[[], None]:
    """Call ``listener`` when a class is registered whose objects may answer any attribute.

    They may hand on what they are asked for to an array inside, and look like that array.
    """
    _ON_FORWARDING.append(listener)
    return listener


def _check_methods(call: str, cls: object, *names: str) -> None:
    missing = [name for name in names if not callable(getattr(cls, name, None))]
    if missing:
        msg = f"{call}: {getattr(cls, '__name__', cls)} has no method {' and no '.join(missing)}"
        raise ArgumentTypeError(msg)


@public_path("tracebridge.tree_util")
class Partial(functools.partial[Any]):
    """``functools.partial`` as a pytree: the bound arguments are children.

    The function is part of the structure and compared by equality, so make a Partial of a
    function that lives longer than the call. Bound arguments of a plain ``functools.partial``
    that is wrapped stay part of the structure; those of a wrapped Partial become children.

    >>> from tracebridge import tree, tree_util
    >>> power = tree_util.Partial(pow, 2)
    >>> power(3), tree.leaves(power)
    (8, [2])
    """

    def __new__(cls, func: Callable[..., object], /, *args: object, **kw: object) -> Self:
        if isinstance(func, functools.partial) and not isinstance(func, Partial):
            # functools would merge the two and turn static arguments into children.
            func = _Opaque(func)
        return super().__new__(cls, func, *args, **kw)


class _Opaque:
    """A callable that ``functools.partial`` cannot see into.

    It is equal to another one with the same function and arguments, and to the object inside. What
    holds arguments that have no hash, such as arrays, is only equal to itself.
    """

    __slots__ = ("_function", "_key")

    def __init__(self, function: functools.partial[Any]) -> None:
        self._function = function
        self._key: tuple[Any, ...] = (
            function.func,
            function.args,
            tuple(sorted(function.keywords.items())),
        )
        try:
            hash(self._key)
        except TypeError:
            self._key = (_Opaque, id(function))

    def __call__(self, *args: object, **kw: object) -> Any:
        return self._function(*args, **kw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Opaque):
            return self._key == other._key
        return other is self._function

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self._function)


def _flatten_partial(p: Partial) -> tuple[tuple[Any, Any], Hashable]:
    return (p.args, p.keywords), p.func


def _partial_with_keys(p: Partial) -> tuple[tuple[Any, Any], Hashable]:
    return ((GetAttrKey("args"), p.args), (GetAttrKey("keywords"), p.keywords)), p.func


def _unflatten_partial(func: Callable[..., Any], children: Sequence[Any]) -> Partial:
    args, keywords = children
    return Partial(func, *args, **keywords)


def _dict_values(node: dict[Any, Any], keys: Iterable[Any]) -> list[Any]:
    return [node[key] for key in keys]


def _dict_items(node: dict[Any, Any], keys: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(DictKey(key), node[key]) for key in keys]


def _default_aux(node: collections.defaultdict[Any, Any]) -> tuple[Any, tuple[Any, ...]]:
    return node.default_factory, tuple(sorted(node))


def _unflatten_defaultdict(aux: tuple[Any, tuple[Any, ...]], children: Iterable[Any]) -> Any:
    factory, keys = aux
    return collections.defaultdict(factory, zip(keys, children, strict=True))


register_pytree_node(
    collections.OrderedDict,
    lambda node: (tuple(node.values()), tuple(node)),
    lambda keys, children: collections.OrderedDict(zip(keys, children, strict=True)),
    lambda node: (_dict_items(node, node), tuple(node)),
)
register_pytree_node(
    collections.defaultdict,
    lambda node: (_dict_values(node, sorted(node)), _default_aux(node)),
    _unflatten_defaultdict,
    lambda node: (_dict_items(node, sorted(node)), _default_aux(node)),
)
register_pytree_node(Partial, _flatten_partial, _unflatten_partial, _partial_with_keys)


def make_treedef(node: tuple[type, Any] | None, children: Iterable[PyTreeDef]) -> PyTreeDef:
    """A tree definition from ``node_data()`` and the definitions of its children."""
    return PyTreeDef.from_node_data_and_children(default_registry, node, children)
