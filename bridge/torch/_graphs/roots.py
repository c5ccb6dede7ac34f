"""What handles say of a call of a wrapped function, and the family that such a handle means.

A graph that another process has made names families by handles: the function is looked up by its
path, and the call is made of the structures in the handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge._derived import families
from tracebridge._derived.families import TWIN, Family
from tracebridge._derived.names import UNNAMED, WRAPPED, parts_of, wrapped_at
from tracebridge.core.errors.exchange_errors import ExchangeError, ProgramMismatchError
from tracebridge.core.tree.tree import flatten
from tracebridge.torch._crossing.structure import NONE, describe, from_text, rebuild
from tracebridge.torch._graphs.call_family import CallFamily

STATIC = "="


def call_structure(
    tree: Any, kinds: Sequence[str], args: Sequence[Any], static: Sequence[int], named: Any
) -> Any:
    """What a handle says of a call: the structures of its arguments, the values of statics."""
    positional, keywords = tree.unflatten(kinds)
    dynamic = iter(positional)
    described = [
        (STATIC, args[i]) if i in static else _lettered(next(dynamic)) for i in range(len(args))
    ]
    others = [(k, _lettered(v)) for k, v in keywords.items()]
    others += [(k, (STATIC, v)) for k, v in named.items()]
    return tuple(described), tuple(sorted(others, key=lambda pair: pair[0]))


def _lettered(tree: Any) -> Any:
    """The structure of a tree whose leaves are letters of kinds."""
    leaves, treedef = flatten(tree)
    try:
        structure = describe(treedef.unflatten([0.0] * len(leaves)), [])
    except ExchangeError:
        # A node type that only this process knows.
        return ("opaque", str(treedef), tuple(leaves))
    letters = iter(leaves)

    def fill(s: Any) -> Any:
        if isinstance(s, str):
            return s if s == NONE else next(letters)
        *head, children = s
        if s[0] in ("dict", "OrderedDict"):
            return (*head, tuple([(k, fill(c)) for k, c in children]))
        return (*head, tuple([fill(c) for c in children]))

    return fill(structure)


def family_of(root: str, positional: tuple[Any, ...], keywords: tuple[Any, ...]) -> CallFamily:
    """The family of a described call; leaves of the structures are letters of kinds."""
    wrapped = WRAPPED[root]

    def tree(structure: Any) -> Any:
        if type(structure) is tuple and structure[0] == STATIC:
            return structure[1]
        return rebuild(structure, iter(letters_of(structure)))

    args = tuple([tree(s) for s in positional])
    kwargs = {k: tree(s) for k, s in keywords}
    letters, key = wrapped.key_of(args, kwargs)
    return wrapped.family(args, kwargs, key, tuple(letters))


def letters_of(structure: Any) -> list[str]:
    """The letters at the leaves of a structure, in order."""
    if isinstance(structure, str):
        return [] if structure == NONE else [structure]
    children = structure[-1]
    if structure[0] in ("dict", "OrderedDict"):
        children = [s for _, s in children]
    return [letter for s in children for letter in letters_of(s)]


def resolve(handle: str) -> Family:
    """The family of a handle, of this process or of a graph of another one; errors as there."""
    return families.resolve(handle, _root)


def _root(handle: str) -> Family | None:
    """The family of a handle that another process has written, or None.

    Raises:
        ProgramMismatchError: functions of that name compute something else, or the name says
            nothing in another process.
    """
    parts = parts_of(handle)
    if any([word in parts.path for word in UNNAMED]):
        raise ProgramMismatchError(
            f"a torch graph of another process calls {parts.path}, and nothing tells which of the "
            "functions that may be called so it was",
            hint="wrap a function that is defined by def at the top level of a module, and save "
            "or compile the graph again",
        )
    try:
        positional, keywords = from_text(parts.structure.rstrip(TWIN))
    except (ValueError, SyntaxError):
        return None
    candidates = wrapped_at(parts.path)
    for wrapped in candidates:
        family = family_of(wrapped.root, positional, keywords)
        if not parts.digest or family.is_program(parts.digest, parts.types):
            return family
    if not candidates:
        return None
    raise ProgramMismatchError(
        f"a torch graph calls {parts.path} as it was when the graph was made; what has that name "
        "in this process computes something else",
        hint="the function, a constant in it, a static argument or an option such as enable_x64 "
        "has changed since: undo that, or make the graph again",
    )
