"""Structures of trees as JSON, and the classes that may be nodes in it."""

from __future__ import annotations

import base64
import collections
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.ir.float0 import Float0Node
from tracebridge.core.tree.registry import make_treedef
from tracebridge.core.tree.tree import PyTreeDef, flatten

T = TypeVar("T")


class _Kind(NamedTuple):
    """How nodes of a class are written and read."""

    name: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    build: Callable[[Any, Any], Any] | None


_BY_TYPE: dict[type, _Kind] = {}
_BY_NAME: dict[str, tuple[type, _Kind]] = {}
_LEAF = "leaf"
_SEQUENCES: dict[type, str] = {tuple: "tuple", list: "list"}


def register_pytree_node_serialization(
    nodetype: type[T],
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Any], Any] | None = None,
) -> type[T]:
    """Let nodes of a class be part of the structures of exported functions that are saved.

    Args:
        nodetype: the class, registered as a pytree node.
        serialized_name: what files call it. It must stay the same as long as there are files.
        serialize_auxdata: gives the auxiliary data of a node as bytes.
        deserialize_auxdata: gives them back.
        from_children: ``from_children(auxiliary data, children)`` makes a node; None is the
            function that the class is registered with.

    Returns:
        ``nodetype``.

    Raises:
        ArgumentValueError: the class or the name is registered already.

    >>> import tracebridge as tb
    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> tb.tree_util.register_pytree_node(
    ...     Pair, lambda p: ((p.x, p.y), None), lambda _, xs: Pair(*xs)
    ... )
    >>> _ = tb.export.register_pytree_node_serialization(
    ...     Pair,
    ...     serialized_name="mine.Pair",
    ...     serialize_auxdata=lambda aux: b"",
    ...     deserialize_auxdata=lambda data: None,
    ... )
    >>> exported = tb.export.export(tb.jit(lambda x: Pair(x, x * 2)))(1.0)
    >>> print(tb.export.deserialize(exported.serialize()).call(2.0).y)
    4.0
    """
    kind = _Kind(serialized_name, serialize_auxdata, deserialize_auxdata, from_children)
    _register("register_pytree_node_serialization", nodetype, kind)
    return nodetype


def register_namedtuple_serialization(nodetype: type[T], *, serialized_name: str) -> type[T]:
    """Let a named tuple be part of the structures of exported functions that are saved.

    Args:
        nodetype: the class.
        serialized_name: what files call it. It must stay the same as long as there are files.

    Returns:
        ``nodetype``.

    Raises:
        ArgumentTypeError: it is no named tuple.
        ExportError: when a file is read that was written by a class with other fields.
        ArgumentValueError: the class or the name is registered already.

    >>> import collections
    >>> import tracebridge as tb
    >>> Point = collections.namedtuple("Point", ["x", "y"])
    >>> tb.export.register_namedtuple_serialization(Point, serialized_name="mine.Point") is Point
    True
    """
    call = "register_namedtuple_serialization"
    if not is_namedtuple(nodetype):
        raise ArgumentTypeError(
            f"{call}: got {nodetype!r}",
            expected="a class made by collections.namedtuple or typing.NamedTuple",
            hint="register_pytree_node_serialization, for other classes",
        )
    fields = list(getattr(nodetype, "_fields", ()))

    def read(data: bytes) -> None:
        saved = json.loads(data)
        if saved != fields:
            raise ExportError(
                f"the saved structure has a {serialized_name} with the fields {saved}",
                expected=f"{fields}, those of {nodetype.__qualname__} now",
            )

    kind = _Kind(
        serialized_name,
        lambda _: json.dumps(fields).encode(),
        read,
        lambda _, children: nodetype(*children),
    )
    _register(call, nodetype, kind)
    return nodetype


def is_namedtuple(nodetype: object) -> bool:
    """Whether this is a class of named tuples."""
    return (
        isinstance(nodetype, type) and issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")
    )


def _register(call: str, nodetype: type, kind: _Kind) -> None:
    known = _BY_TYPE.get(nodetype)
    if known is not None:
        raise ArgumentValueError(f"{call}: {nodetype!r} is registered already, as {known.name!r}")
    if kind.name in _BY_NAME:
        other = _BY_NAME[kind.name][0]
        raise ArgumentValueError(f"{call}: serialized_name={kind.name!r} is the name of {other!r}")
    _BY_TYPE[nodetype] = kind
    _BY_NAME[kind.name] = nodetype, kind


_register(
    "register_pytree_node_serialization",
    collections.OrderedDict,
    _Kind(
        "collections.OrderedDict",
        lambda keys: json.dumps([_key(k) for k in keys]).encode(),
        lambda data: tuple([_read_key(k) for k in json.loads(data)]),
        lambda keys, children: collections.OrderedDict(zip(keys, children, strict=True)),
    ),
)


# writing -----------------------------------------------------------------------------------------


def tree_to_json(tree: PyTreeDef) -> Any:
    """What JSON can hold of a structure.

    Raises:
        ExportError: a node is of a class that is not registered, or has keys of such classes.
    """
    data = tree.node_data()
    if data is None:
        return _LEAF
    kind, aux = data
    children = [tree_to_json(child) for child in tree.children()]
    if kind is type(None):
        return ["none"]
    if kind in _SEQUENCES:
        return [_SEQUENCES[kind], *children]
    if kind is dict:
        return ["dict", [_key(k) for k in aux], *children]
    if kind is Float0Node:
        return ["float0", list(aux)]
    known = _BY_TYPE.get(kind)
    if known is None:
        way = "namedtuple" if is_namedtuple(kind) else "pytree_node"
        raise ExportError(
            f"serialize: the arguments or results have nodes of {kind!r}, whose class another "
            "process cannot know",
            hint=f"call tracebridge.export.register_{way}_serialization for it, here and there",
        )
    text = base64.b64encode(bytes(known.write(aux))).decode()
    return ["node", known.name, text, *children]


def _key(key: object) -> list[Any]:
    if type(key) in (str, int, bool):
        return [type(key).__name__, key]
    raise ExportError(
        f"serialize: a dict among the arguments or results has the key {key!r} of type "
        f"{type(key).__name__}",
        expected="strings, integers and bools as keys of what is saved",
    )


# reading -----------------------------------------------------------------------------------------


def tree_from_json(written: Any) -> PyTreeDef:
    """The structure of what ``tree_to_json`` gave.

    Raises:
        ExportError: a class is not registered in this process.
    """
    return flatten(_template(written))[1]


def _template(written: Any) -> Any:
    """A tree of the structure."""
    if written == _LEAF:
        return 0
    kind, *rest = written
    if kind == "none":
        return None
    if kind == "float0":
        return Float0Node(tuple(rest[0]))
    if kind == "dict":
        keys, *children = rest
        return dict(zip(map(_read_key, keys), map(_template, children), strict=True))
    if kind == "node":
        return _node(*rest)
    made = {"tuple": tuple, "list": list}[kind]
    return made(map(_template, rest))


def _node(name: str, text: str, *written: Any) -> Any:
    found = _BY_NAME.get(name)
    if found is None:
        raise ExportError(
            f"deserialize: the saved structure has nodes {name!r}, unknown to this process",
            hint="call tracebridge.export.register_pytree_node_serialization or "
            f"register_namedtuple_serialization with serialized_name={name!r} first",
        )
    nodetype, kind = found
    aux = kind.read(base64.b64decode(text))
    children: Sequence[Any] = tuple(map(_template, written))
    if kind.build is not None:
        return kind.build(aux, children)
    leaf_trees = [flatten(child)[1] for child in children]
    tree = make_treedef((nodetype, aux), leaf_trees)
    return tree.unflatten([0] * tree.num_leaves)


def _read_key(written: Sequence[Any]) -> Any:
    kind, key = written
    return {"str": str, "int": int, "bool": bool}[kind](key)
