"""From functions of trees to functions of leaves, and what is known of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.aot.abstract import aval_of
from tracebridge.core.compat.linear_util import (
    Store,
    WrappedFun,
    transformation2,
    transformation_with_aux2,
)
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.tracer_errors import NonHashableStaticArgumentError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import (
    DebugInfo,
    Parameters,
    name_of,
    parameter_names,
    where_is,
)
from tracebridge.core.tree.prefix import flatten_axes as spread_axes
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.safe_map import safe_map as map_strictly

if TYPE_CHECKING:
    from collections.abc import Mapping


def debug_info(
    traced_for: str,
    fun: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    result_paths_thunk: object = None,
    sourceinfo: str | None = None,
    signature: inspect.Signature | None = None,
) -> DebugInfo:
    """What a function and its flat arguments are called, for messages.

    Args:
        traced_for: why the function is traced, such as "jit".
        fun: the function.
        args: positional arguments, or examples of them.
        kwargs: keyword arguments, or examples of them.
        static_argnums: positions of arguments that are no inputs of the program.
        static_argnames: names of such arguments.
        result_paths_thunk: a function that gives the names of the flat results; None if nobody
            knows them.
        sourceinfo: the name of the function and where it is, "f at model.py:3"; None to find it.
        signature: the signature of the function; None to find it.

    >>> import tracebridge as tb
    >>> tb.api_util.debug_info("jit", lambda x, y: x, (1, {"a": 2}), {}).arg_names
    ('x', "y['a']")
    """
    known = parameter_names(fun) if signature is None else _parameters(signature)
    n = len(args)
    static = {i % n for i in static_argnums if -n <= i < n}
    static |= {i for i in range(min(n, len(known))) if known[i] in static_argnames}
    positions = [i for i in range(n) if i not in static]
    dynamic = {k: v for k, v in kwargs.items() if k not in static_argnames}
    _, tree = flatten((tuple([args[i] for i in positions]), dynamic))
    names = argument_names(tree, known.only(positions))
    results: Any = result_paths_thunk() if callable(result_paths_thunk) else result_paths_thunk
    name, where = name_of(fun), where_is(fun)
    if sourceinfo is not None:
        name, _, where = sourceinfo.partition(" at ")
    return DebugInfo(name, where, names, tuple(results or ()), traced_for)


def _parameters(signature: inspect.Signature) -> Parameters:
    """The names of the parameters of a signature."""
    kinds = inspect.Parameter
    rows = list(signature.parameters.values())
    positional = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    found = Parameters([p.name for p in rows if p.kind in positional])
    named = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    found.named = frozenset([p.name for p in rows if p.kind in named])
    for p in rows:
        if p.kind is kinds.VAR_POSITIONAL:
            found.rest = p.name
        elif p.kind is kinds.VAR_KEYWORD:
            found.keywords = p.name
    return found


@transformation_with_aux2
def _of_leaves(
    f: Callable[..., object], store: Store, in_tree: PyTreeDef, keywords: bool, *leaves: object
) -> Any:
    given = in_tree.unflatten(leaves)
    args, kwargs = given if keywords else (given, {})
    results, out_tree = flatten(f(*args, **kwargs))
    store.store(out_tree)
    return results


def flatten_fun(fun: WrappedFun, in_tree: PyTreeDef) -> tuple[WrappedFun, Callable[[], PyTreeDef]]:
    """A function of the leaves of ``(args, kwargs)`` that gives the leaves of its result.

    Args:
        fun: what ``linear_util.wrap_init`` gives.
        in_tree: the structure of ``(args, kwargs)``.

    Returns:
        The function, and a function without arguments that gives the structure of the result;
        it can be asked after the call.

    >>> import tracebridge as tb
    >>> from tracebridge.extend import linear_util as lu
    >>> leaves, tree = tb.tree.flatten(((1,), {"scale": 3}))
    >>> fun = lu.wrap_init(lambda x, scale: {"out": x * scale})
    >>> flat, out_tree = tb.api_util.flatten_fun(fun, tree)
    >>> flat.call_wrapped(*leaves), out_tree()
    ([3], PyTreeDef({'out': *}))
    """
    return _of_leaves(fun, in_tree, True)


def flatten_fun_nokwargs(
    fun: WrappedFun, in_tree: PyTreeDef
) -> tuple[WrappedFun, Callable[[], PyTreeDef]]:
    """As ``flatten_fun``, of a function without keyword arguments.

    Args:
        fun: what ``linear_util.wrap_init`` gives.
        in_tree: the structure of the tuple of arguments.

    Returns:
        The function, and a function without arguments that gives the structure of the result.

    >>> import tracebridge as tb
    >>> from tracebridge.extend import linear_util as lu
    >>> leaves, tree = tb.tree.flatten(({"a": 1, "b": 2},))
    >>> flat, out_tree = tb.api_util.flatten_fun_nokwargs(lu.wrap_init(lambda d: d["b"]), tree)
    >>> flat.call_wrapped(*leaves), out_tree()
    ([2], PyTreeDef(*))
    """
    return _of_leaves(fun, in_tree, False)


@transformation2
def _with_fixed(
    f: Callable[..., object],
    n: int,
    fixed: tuple[tuple[int, Any], ...],
    *dynamic: object,
    **kwargs: object,
) -> Any:
    known, others = dict(fixed), iter(dynamic)
    return f(*[known[i] if i in known else next(others) for i in range(n)], **kwargs)


def argnums_partial(
    f: WrappedFun,
    dyn_argnums: int | Sequence[int],
    args: Sequence[object],
    require_static_args_hashable: bool = True,
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """A function of some of its arguments; the others are fixed.

    Args:
        f: what ``linear_util.wrap_init`` gives.
        dyn_argnums: positions of the arguments that stay; negative ones count from the end.
        args: all arguments.
        require_static_args_hashable: whether fixed arguments must be hashable.

    Returns:
        The function, and the arguments that stay, in the order of their positions.

    Raises:
        ArgumentSpecError: there is no such position.
        NonHashableStaticArgumentError: a fixed argument is not hashable.

    >>> import tracebridge as tb
    >>> from tracebridge.extend import linear_util as lu
    >>> fun = lu.wrap_init(lambda x, y: x - y)
    >>> partial, dynamic = tb.api_util.argnums_partial(fun, 1, (10, 3))
    >>> dynamic, partial.call_wrapped(4)
    ((3,), 6)
    """
    n = len(args)
    dynamic = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    for i in dynamic:
        if not -n <= i < n:
            raise ArgumentSpecError(
                f"argnums_partial: dyn_argnums contains {i}, but there are {n} arguments",
                expected=f"positions from {-n} to {n - 1}" if n else "no position at all",
            )
    kept = {i % n for i in dynamic}
    fixed = tuple([(i, a) for i, a in enumerate(args) if i not in kept])
    if require_static_args_hashable:
        for i, value in fixed:
            try:
                hash(value)
            except TypeError as error:
                call = f"argnums_partial({name_of(f.f)})"
                raise NonHashableStaticArgumentError(value, argument=str(i), call=call) from error
    return _with_fixed(f, n, fixed), tuple([a for i, a in enumerate(args) if i in kept])


def donation_vector(
    donate_argnums: Iterable[int],
    donate_argnames: Iterable[str],
    in_tree: PyTreeDef,
    kws: bool = True,
) -> tuple[bool, ...]:
    """Which leaves of the arguments are donated.

    Args:
        donate_argnums: positions of donated arguments.
        donate_argnames: names of donated keyword arguments.
        in_tree: the structure of ``(args, kwargs)``, or of ``args``.
        kws: whether ``in_tree`` is that of ``(args, kwargs)``.

    >>> import tracebridge as tb
    >>> tree = tb.tree.structure(((1, {"a": 2, "b": 3}), {"scale": 1}))
    >>> tb.api_util.donation_vector((1,), ("scale",), tree)
    (False, True, True, True)
    """
    nums, names = set(donate_argnums), set(donate_argnames)
    positional, keywords = in_tree.children() if kws else (in_tree, None)
    marks = [(child, i in nums) for i, child in enumerate(positional.children())]
    if keywords is not None:
        keys = keywords.node_data()[1]
        marks += [(c, k in names) for k, c in zip(keys, keywords.children(), strict=True)]
    return tuple([is_donated for child, is_donated in marks for _ in range(child.num_leaves)])


def rebase_donate_argnums(
    donate_argnums: Iterable[int], static_argnums: Iterable[int]
) -> tuple[int, ...]:
    """Positions of donated arguments among those that are not static.

    Args:
        donate_argnums: positions among all arguments.
        static_argnums: positions of static arguments.

    Returns:
        Sorted positions, each once.

    Raises:
        ArgumentSpecError: an argument is both.

    >>> import tracebridge as tb
    >>> tb.api_util.rebase_donate_argnums((2, 4), (0, 3))
    (1, 2)
    """
    static, donated = set(static_argnums), sorted(set(donate_argnums))
    both = static & set(donated)
    if both:
        raise ArgumentSpecError(
            f"rebase_donate_argnums: argument {min(both)} is both static and donated",
            hint="static arguments are compiled in and have no buffer: donate others",
        )
    return tuple([i - len([s for s in static if s < i]) for i in donated])


def flatten_axes(
    name: str,
    treedef: PyTreeDef,
    axis_tree: object,
    *,
    kws: bool = False,
    tupled_args: bool = False,
) -> list[Any]:
    """A specification such as ``in_axes``, with one entry for each leaf of a structure.

    Args:
        name: what messages call the specification.
        treedef: the structure of what is specified.
        axis_tree: the specification, a prefix of that structure; None counts as a value.
        kws: accepted; messages name the paths of trees with keywords as they are.
        tupled_args: the structure is that of a tuple of arguments, for which a list may stand.

    Raises:
        TreeMismatchError: the specification is no prefix.

    >>> import tracebridge as tb
    >>> tree = tb.tree.structure((1, {"a": 2, "b": 3}))
    >>> tb.api_util.flatten_axes("in_axes", tree, (0, None))
    [0, None, None]
    """
    del kws
    return spread_axes(
        "flatten_axes",
        treedef,
        axis_tree,
        axes_name=name,
        full_name="the tree",
        of_arguments=tupled_args,
    )


def shaped_abstractify(x: object) -> ShapedArray:
    """The type of an array, of a number, or of any object with ``shape`` and ``dtype``.

    Args:
        x: the object; it is not moved to a device.

    Raises:
        UnsupportedDtypeError: it is none of these.

    >>> import tracebridge as tb
    >>> tb.api_util.shaped_abstractify(2.0)
    ShapedArray(float32[], weak_type=True)
    """
    return aval_of(x)


def safe_map(f: Callable[..., object], *args: Iterable[Any]) -> list[Any]:
    """The results of a function of the elements of sequences, which have equal lengths.

    Args:
        f: the function.
        args: one sequence for each of its arguments.

    Raises:
        ArgumentTypeError: there is no sequence.
        ValueError: the lengths differ.

    >>> import tracebridge as tb
    >>> tb.api_util.safe_map(lambda x, y: x + y, [1, 2], [10, 20])
    [11, 22]
    """
    if not args:
        raise ArgumentTypeError("safe_map: got no sequence", expected="at least one")
    return map_strictly(f, *args)
