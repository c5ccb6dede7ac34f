"""Argument structures as nested tuples of plain constants, in Python that Dynamo can trace.

The engine's own flatten is C++, which torch.compile cannot look into. ``describe`` takes a tree
apart in the same order and gives its structure as text-like constants, from which ``rebuild``
makes the tree again. Handles contain the text of a structure, so that a graph that was saved in
one process can be called in another.
"""

from __future__ import annotations

import ast
import enum
import itertools
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import torch

from tracebridge._derived.names import by_import_path
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.tree.registry import DATACLASSES, path_of_dataclass
from tracebridge.torch._crossing.in_graphs import constant_in_graphs

NONE = "None"
# What stands for a leaf tells how it enters: as a tensor or as a Python number.
TENSOR, BOOL, INT, FLOAT, COMPLEX = "*", "b", "i", "f", "c"
_SYMBOLIC = torch.SymBool, torch.SymInt, torch.SymFloat


def describe(x: Any, leaves: list[Any]) -> Any:
    """The structure of ``x``; appends its leaves in the order of the engine's flatten."""
    if isinstance(x, torch.Tensor | np.ndarray):
        leaves.append(x)
        return TENSOR
    if x is None:
        return NONE
    if isinstance(x, bool | torch.SymBool):
        leaves.append(x)
        return BOOL
    if isinstance(x, int | torch.SymInt):
        leaves.append(x)
        return INT
    if isinstance(x, float | torch.SymFloat):
        leaves.append(x)
        return FLOAT
    if isinstance(x, complex):
        leaves.append(x)
        return COMPLEX
    if isinstance(x, OrderedDict):
        return ("OrderedDict", tuple([(k, describe(v, leaves)) for k, v in x.items()]))
    if isinstance(x, dict):
        return ("dict", tuple([(k, describe(x[k], leaves)) for k in sorted(x)]))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        kind = type(x)
        children = tuple([describe(v, leaves) for v in x])
        module, name = namedtuple_path(kind)
        return ("namedtuple", module, name, children)
    if isinstance(x, tuple):
        return ("tuple", tuple([describe(v, leaves) for v in x]))
    if isinstance(x, list):
        return ("list", tuple([describe(v, leaves) for v in x]))
    path, data, meta = dataclass_fields(type(x))
    # The values of meta fields belong to the structure, as constants.
    values = tuple([constant(getattr(x, name)) for name in meta])
    children = tuple([describe(getattr(x, name), leaves) for name in data])
    return ("dataclass", path, values, children)


@constant_in_graphs
def dataclass_fields(kind: type) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Where a registered dataclass is in ``DATACLASSES``, its data fields and its meta fields."""
    path = path_of_dataclass(kind)
    if path is not None:
        _, data, meta = DATACLASSES[path]
        return path, data, meta
    msg = f"a value of type {kind.__name__} cannot be passed into a graph"
    raise ExchangeError(
        msg,
        expected="tensors, numbers, None and trees of them made of tuples, lists, dicts and "
        "registered dataclasses",
        hint="mark it static (static_argnums, static_argnames) if it is a constant",
    )


def constant(x: Any) -> Any:
    """A value that a graph is made for: numbers that torch would leave open become known."""
    if isinstance(x, enum.Enum | np.generic):
        return x  # numbers of other kinds, which torch takes as they are
    in_graph = torch.compiler.is_dynamo_compiling()  # where sizes are of Python's types
    if isinstance(x, _SYMBOLIC) or (in_graph and isinstance(x, bool | int | float)):
        return torch.fx.experimental.symbolic_shapes.guard_scalar(x)  # pyright: ignore[reportAttributeAccessIssue] - see in_graphs.py
    if isinstance(x, tuple) and not hasattr(x, "_fields"):
        return tuple([constant(v) for v in x])
    return x


def rebuild(structure: Any, leaves: Any) -> Any:
    """The tree of a structure; takes its leaves from an iterator."""
    if isinstance(structure, str):
        return None if structure == NONE else next(leaves)
    kind = structure[0]
    if kind == "dict":
        return {k: rebuild(s, leaves) for k, s in structure[1]}
    if kind == "OrderedDict":
        return OrderedDict([(k, rebuild(s, leaves)) for k, s in structure[1]])
    if kind == "list":
        return [rebuild(s, leaves) for s in structure[1]]
    if kind == "tuple":
        return tuple([rebuild(s, leaves) for s in structure[1]])
    children = [rebuild(s, leaves) for s in structure[3]]
    if kind == "dataclass":
        made, data, meta = DATACLASSES[structure[1]]
        named = dict(zip(data, children, strict=True))
        named.update(zip(meta, structure[2], strict=True))
        return made(**named)
    # Dynamo cannot call a class that it was given as a constant, but this it can.
    return tuple.__new__(namedtuple_class(structure[1], structure[2]), children)


# Classes of named tuples that cannot be imported, by module and name. Whatever uses them, such as
# the structure of a call, keeps them alive.
_LOCAL: weakref.WeakValueDictionary[tuple[str, str], type] = weakref.WeakValueDictionary()
_PATHS: weakref.WeakKeyDictionary[type, tuple[str, str]] = weakref.WeakKeyDictionary()
_NUMBERS = itertools.count(1)


@constant_in_graphs
def namedtuple_path(kind: type) -> tuple[str, str]:
    """Module and name of a class of named tuples; a name of this process if it has no path."""
    module, name = kind.__module__, kind.__qualname__
    if by_import_path(module, name) is kind:
        return module, name
    found = _PATHS.get(kind)
    if found is None:
        found = _PATHS[kind] = module, f"{name}#{next(_NUMBERS)}"
        _LOCAL[found] = kind
    return found


@constant_in_graphs
def namedtuple_class(module: str, name: str) -> Any:
    """The class of a named tuple that ``namedtuple_path`` tells.

    Raises:
        ExchangeError: it is a local class of another process.
    """
    found = _LOCAL.get((module, name)) or by_import_path(module, name)
    if found is None:
        msg = f"a torch graph holds named tuples of the class {module}.{name}, which is not there"
        raise ExchangeError(msg, hint="define the class at the top level of a module")
    return found


def to_text(structure: Any) -> str:
    """A structure as part of a handle, where colons separate other things."""
    return repr(structure).replace("%", "%25").replace(":", "%3A")


def from_text(text: str) -> Any:
    """The structure that ``to_text`` wrote.

    Raises:
        ValueError: it holds values that are no literals.
    """
    return ast.literal_eval(text.replace("%3A", ":").replace("%25", "%"))
