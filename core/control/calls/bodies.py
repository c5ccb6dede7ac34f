"""Tracing the functions that users give to control flow: bodies, conditions, branches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, final

from tracebridge.core._jaxlib.pytree import PyTreeDef
from tracebridge.core.config.state import axis_env
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.refs.cells import Captures, note_custom
from tracebridge.core.control.refs.ref import Ref, outer_refs, read_ref
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.shown import shown
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.content import IS_SHARED, content_of, has_arrays
from tracebridge.core.ir.debug_info import (
    DebugInfo,
    Parameters,
    callees,
    name_of,
    parameter_names,
    where_is,
)
from tracebridge.core.ir.float0 import has_float0, hold_float0
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.name_stack import in_use, names_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.traverse import holds_functions
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.programs.debug import wants_checks
from tracebridge.core.tree import treedefs
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten, leaves_with_path
from tracebridge.core.util.caching import BoundedCache, WeakIdCache


@final
class Body:
    """A traced function: closed Jaxpr, the values it closed over (its leading inputs), ``out``.

    ``out`` is what ``take_apart`` said about the structure of the result. ``reads`` are mutable
    references that the function reads: their contents are closed-over values. ``writes`` are
    those that it writes: their contents are the last inputs and results.
    """

    __slots__ = ("custom", "jaxpr", "out", "reads", "values", "writes")

    def __init__(
        self,
        jaxpr: Jaxpr,
        hoisted: list[Any],
        out: Any,
        reads: Sequence[Ref] = (),
        writes: Sequence[Ref] = (),
    ) -> None:
        self.jaxpr = jaxpr
        self.values = hoisted
        self.out = out
        self.reads = reads
        self.writes = writes
        # Whether it lacks the rule of a function that takes references.
        self.custom = False

    @property
    def hoisted(self) -> list[Any]:
        """The values of the leading inputs."""
        reads = self.reads
        return [*self.values, *[read_ref(r) for r in reads]] if reads else self.values


_BODIES: WeakIdCache[Body] = WeakIdCache("traced bodies", per_function=32)
# Closures that are made anew for each call trace to the same program again and again. Giving them
# the same Jaxpr object lets them share what is remembered on it, executables above all.
_SAME: BoundedCache[Jaxpr] = BoundedCache("bodies by content", 256)


@final
class Wrapped:
    """How a loop calls the function of the user: ``step(fun, *args)``.

    ``view(*args)`` are the positional arguments that the function gets, whatever ``args`` hold.
    """

    __slots__ = ("step", "view")

    def __init__(self, step: Callable[..., Any], view: Callable[..., tuple[Any, ...]]) -> None:
        self.step = step
        self.view = view

    def __call__(self, fun: Callable[..., Any], *args: Any) -> Any:
        return self.step(fun, *args)


def trace_body(
    call: str,
    fun: Callable[..., object],
    in_tree: Any,
    avals: tuple[Any, ...],
    take_apart: Callable[[Any], tuple[list[Any], Any]],
    key: object,
    apply: Callable[..., Any] | None = None,
    *,
    writes: bool = False,
    role: str = "",
) -> Body:
    """Trace ``fun(*args)``, where the tuple ``args`` has structure ``in_tree``.

    ``take_apart(result)`` gives the flat results and anything about their structure; it may raise.
    ``apply(fun, *args)`` is called instead of ``fun(*args)`` if given. ``key`` tells apart uses of
    the same function with different ``take_apart`` or ``apply``. ``writes``: the caller handles
    ``Body.writes`` and ``custom``; without it a function that writes to references of the outside
    is an error. ``role``: what the function is for, if ``call`` does not say it.
    """
    memo = (key, in_tree, avals, tracing_key(), axis_env())
    cached = _BODIES.get(fun, memo)
    if cached is not None:
        if cached.custom and not writes:
            note_custom(call)
        return cached
    structures: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        args = in_tree.unflatten(values)
        outs, structure = take_apart(fun(*args) if apply is None else apply(fun, *args))
        structures.append(structure)
        return outs

    # Must not refer to the function: programs outlive it, and what it closes over.
    names = functools.partial(positional_names, parameter_names(fun), in_tree, apply)
    debug = DebugInfo(name_of(fun), where_is(fun), names, traced_for=role or call)
    captures = Captures()
    hoisted: list[Any] = []
    jaxpr = stage(flat, avals, debug, captures=captures, hoisted=hoisted)
    out_trees = _trees_of(structures[0])
    debug.name_results(functools.partial(names_of_results, out_trees))
    trees = (in_tree, *out_trees)
    if captures.refs:
        body = _with_refs(jaxpr, hoisted, structures[0], captures, trees, callees(fun))
        if body.writes and not writes:
            msg = f"{call}: {name_of(fun)} writes to a reference that was made outside of it"
            raise RefError(msg, hint="return the value, and write it outside")
    else:
        body = Body(shared(jaxpr, trees, callees(fun)), hoisted, structures[0])
    body.custom = captures.custom
    if body.custom and not writes:
        note_custom(call)
    if not any([isinstance(h, Tracer) for h in hoisted]) and outer_refs(captures.refs):
        _BODIES.set(fun, memo, body)
    return body


def _with_refs(
    jaxpr: Jaxpr,
    hoisted: list[Any],
    out: object,
    captures: Captures,
    trees: Sequence[PyTreeDef],
    called: Hashable,
) -> Body:
    """The body with contents that are only read among the closed-over values."""
    n = jaxpr.n_in - len(captures.refs)
    read = [i for i, written in enumerate(captures.written) if not written]
    kept = [i for i, written in enumerate(captures.written) if written]
    n_const = len(hoisted)
    order = [*range(n_const), *[n + i for i in read], *range(n_const, n), *[n + i for i in kept]]
    refs = captures.refs
    return Body(
        shared(permute_jaxpr(jaxpr, order), trees, called),
        hoisted,
        out,
        [refs[i] for i in read],
        [refs[i] for i in kept],
    )


def positional_names(
    parameters: Parameters, in_tree: Any, apply: Callable[..., Any] | None = None
) -> tuple[str, ...]:
    """What the flat arguments are called, after the parameters of the function of the user."""
    args = in_tree.unflatten(range(in_tree.num_leaves))
    names = [f"args{keystr(path)}" for path, _ in leaves_with_path(args)]
    if apply is None or isinstance(apply, Wrapped):
        seen = args if apply is None else apply.view(*args)
        for path, index in leaves_with_path(seen):
            if type(index) is not int:  # a reference, which is no argument
                continue
            names[index] = f"{parameters.at(path[0].idx)}{keystr(path[1:])}"
    return tuple(names)


def _trees_of(structure: object) -> tuple[PyTreeDef, ...]:
    """The tree of the flat results, or those of a pair, if they are known."""
    if isinstance(structure, PyTreeDef):
        return (structure,)
    pair: tuple[Any, ...] = structure[:2] if isinstance(structure, tuple) else ()
    return pair if all([isinstance(tree, PyTreeDef) for tree in pair]) else ()


def names_of_results(trees: Sequence[PyTreeDef]) -> tuple[str, ...]:
    """What the flat results are called, if a tree of them, or trees of a pair, are known."""
    if not trees:
        return ()
    whole = trees[0] if len(trees) == 1 else treedefs.treedef_tuple(trees)
    return tuple(["result" + keystr(path) for path in treedefs.leaf_paths(whole)])


def shared(jaxpr: Jaxpr, trees: Sequence[PyTreeDef], called: Hashable) -> Jaxpr:
    """An equal Jaxpr that was seen before, or ``jaxpr`` itself.

    ``trees``: of the arguments, and of the results as far as they are known; by them messages name
    arguments and results. ``called``: what else tells functions of one line apart.
    """
    if has_arrays(jaxpr) or holds_functions(jaxpr):
        return jaxpr
    if wants_checks():
        # Equal programs come from different lines, which messages are to name.
        return jaxpr
    names = tuple(names_of(jaxpr) or ()) if in_use[0] else ()
    debug = jaxpr.debug
    # Nodes of classes of users hold objects of theirs, which would live as long as the program.
    forms = tuple(trees) if all(map(treedefs.is_plain, trees)) else debug.settled_names()
    # Of equal functions at other lines messages would give the names of the first one.
    key = content_of(jaxpr), tracing_key(), names, debug.traced_for, debug.func_src_info, forms
    same = _SAME.get_or_make((*key, called), lambda: jaxpr)
    same.cache[IS_SHARED] = True
    return same


def flatten_values(call: str, role: str, tree: object) -> tuple[list[Any], Any]:
    """The leaves of ``tree`` as values, and its structure; ``role`` names it in messages."""
    return leaf_values(call, role, tree, *flatten(tree))


def leaf_values(
    call: str, role: str, tree: object, leaves: Sequence[object], treedef: object
) -> tuple[list[Any], Any]:
    """The ``leaves`` of ``tree`` as values, and its structure with float0 arrays held in it."""
    try:
        return [as_value(leaf) for leaf in leaves], treedef
    except UnsupportedDtypeError:
        if has_float0(leaves):
            leaves, treedef = hold_float0(leaves, treedef)
        return [_leaf_value(call, role, tree, i, leaf) for i, leaf in enumerate(leaves)], treedef


def _leaf_value(call: str, role: str, tree: object, index: int, leaf: object) -> Any:
    """One leaf as a value; the message of a failure says where it is."""
    try:
        return as_value(leaf)
    except UnsupportedDtypeError as error:
        path = leaf_paths(tree)[index]
        msg = (
            f"{call}: {role}{path} is {shown(leaf)} of type {type(leaf).__name__}; "
            "expected an array, a number, or a tree of them"
        )
        raise UnsupportedDtypeError(msg, hint=way_out_of(leaf)) from error


def leaf_paths(tree: object) -> list[str]:
    """Where each leaf sits: ``['w'][0]``, or nothing for a tree that is one leaf."""
    return [keystr(path) for path, _ in leaves_with_path(tree)]


def closed_over_tracers(values: Sequence[object]) -> bool:
    """Whether a traced function closed over values of an enclosing trace."""
    return any([isinstance(v, Tracer) for v in values])
