"""Forward-mode derivatives: jvp and linearize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.flat import FlatCall
from tracebridge._api.args.tape_tree import TapeStructure, put_together, take_apart
from tracebridge._api.args.values import (
    differentiable,
    fit_scalar,
    name_of_leaf,
    public,
    tangent_or_zeros,
    value_of,
    values_of,
)
from tracebridge.core.control.calls.inline_rules import user_value
from tracebridge.core.control.refs.ref import has_refs
from tracebridge.core.control.refs.tangents import DualRefs, tangent_contents, write_finals
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.interpreters.linearize import Linearized, linearize_flat
from tracebridge.core.interpreters.staged_rules import cotangent_aval
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import typeof
from tracebridge.core.ir.user_type import different_types, is_user_type
from tracebridge.core.ir.values import Value
from tracebridge.core.tree.prefix import check_same_structure
from tracebridge.core.tree.registry import register_pytree_node_class
from tracebridge.core.tree.tree import PyTreeDef, flatten


@api_boundary
def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The value of ``fun`` and its directional derivative.

    Args:
        fun: function of arrays and trees of arrays; with ``has_aux`` it returns a pair
            ``(result, auxiliary data)``.
        primals: tuple or list of the arguments at which ``fun`` is differentiated.
        tangents: the direction: same structure, shapes and dtypes as ``primals``. The tangent of
            an integer or boolean argument has dtype ``float0``. The tangent of a mutable reference
            is a reference, whose content is the tangent of the content before and after.
        has_aux: see ``fun``.

    Returns:
        ``(result, tangent of the result)``, with ``has_aux`` also the auxiliary data.

    Raises:
        TreeMismatchError: ``primals`` and ``tangents`` differ in structure, or are no sequences.
        DtypeMismatchError: a tangent has another dtype than its primal requires.
        ShapeMismatchError: a tangent has another shape than its primal.
        RefError: the tangent of a reference is none, or a reference occurs twice.

    >>> import tracebridge as tb
    >>> value, tangent = tb.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    >>> print(value, tangent)
    6.0 3.0
    """
    check_callable("jvp", fun)
    call = f"jvp({name_of(fun)})"
    for name, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, tuple | list):
            raise TreeMismatchError(
                f"{call}: {name} is a value of type {type(values).__name__}",
                expected="a tuple or list with one entry per argument",
                hint="write jvp(f, (x,), (t,)) for a function of one argument",
            )
    if isinstance(primals, list) != isinstance(tangents, list):
        raise TreeMismatchError(
            f"{call}: primals is a {type(primals).__name__}, tangents a {type(tangents).__name__}",
            expected="two tuples or two lists",
        )
    flat_primals, tree = flatten(tuple(primals))
    flat_tangents, tangent_tree = flatten(tuple(tangents))
    if tree != tangent_tree:
        check_same_structure(call, tangent_tree, tree, "tangents", "primals")
    if has_refs(flat_primals):
        return _jvp_of_refs(call, fun, (flat_primals, flat_tangents), tree, has_aux)
    return _jvp(call, FlatCall(fun, tree, has_aux=has_aux), flat_primals, flat_tangents, has_aux)


def _jvp(
    call: str,
    flat: FlatCall,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool,
    refs: tuple[DualRefs, Sequence[Any]] | None = None,
) -> tuple[Any, ...]:
    """What ``jvp`` gives for leaves; ``refs``: references among them, and their tangents."""
    tree = flat.tree
    values = values_of(call, primals, tree, "primals")
    ts = tangent_values(call, tangents, [v.aval for v in values], tree, ("tangents", "primals"))
    function = flat.call if refs is None else refs[0].function(flat.call)
    primals_for_users = [user_value(v) if t is None else v for v, t in zip(values, ts, strict=True)]
    outs, out_tangents = jvp_flat(function, primals_for_users, ts, call)
    n = flat.n_out
    if refs is not None:
        dual, tangent_refs = refs
        first = len(outs) - sum(dual.written)
        finals = list(zip(outs[first:], out_tangents[first:], strict=True))
        dual.end()
        dual.write_back([o for o, _ in finals])
        changes = [tangent_or_zeros(t, o.aval.tangent) for o, t in finals]
        write_finals(tangent_refs, dual.written, changes)
        outs = outs[:first]
    result = flat.out_tree.unflatten([public(o) for o in outs[:n]])
    tangent = flat.out_tree.unflatten(
        [
            tangent_or_zeros(t, o.aval.tangent)
            for o, t in zip(outs[:n], out_tangents[:n], strict=True)
        ]
    )
    return (result, tangent, flat.aux(outs[n:])) if has_aux else (result, tangent)


def _jvp_of_refs(
    call: str, fun: Any, leaves: tuple[list[Any], list[Any]], tree: PyTreeDef, has_aux: bool
) -> tuple[Any, ...]:
    """``jvp`` where references are among the arguments: primals and tangents are updated."""
    primals, tangents = leaves
    names = _leaf_names(tree, "primals")
    dual = DualRefs(call, primals, names)
    tangents, refs = tangent_contents(
        call, tangents, dual.places, _leaf_names(tree, "tangents"), primals
    )
    flat = FlatCall(fun, tree, has_aux=has_aux)
    try:
        return _jvp(call, flat, dual.contents(primals), tangents, has_aux, (dual, refs))
    finally:
        dual.end()


def _leaf_names(tree: PyTreeDef, root: str) -> list[str]:
    return [name_of_leaf(tree, i, root) for i in range(tree.num_leaves)]


def tangent_values(
    call: str,
    leaves: Sequence[Any],
    avals: Sequence[ShapedArray],
    tree: PyTreeDef,
    names: tuple[str, str],
    *,
    integers: bool = False,
) -> list[Value | None]:
    """Tangents of primals of ``avals`` as values, checked; ``None`` for float0.

    Where a cotangent of dtype float0 is due any array of its shape will do. ``names``: what
    messages call the tangents and the primals. ``integers``: tangents of integers are integers.
    """
    result: list[Value | None] = []
    for i, (leaf, aval) in enumerate(zip(leaves, avals, strict=True)):
        wanted = cotangent_aval(aval) if integers else aval.tangent
        if is_user_type(wanted):
            result.append(_of_users(call, leaf, wanted, name_of_leaf(tree, i, names[0])))
            continue
        primal_aval = leaf.aval if issubclass(type(leaf), EngineValue) else None
        if (
            primal_aval is not None
            and primal_aval.shape == wanted.shape
            and primal_aval.dtype == wanted.dtype
        ):
            result.append(leaf)
            continue
        if is_float0(leaf):
            value, shape, dtype = None, leaf.shape, float0
        else:
            value = fit_scalar(value_of(call, leaf, tree, i, names[0]), wanted)
            shape, dtype = value.aval.shape, value.aval.dtype
        if wanted.dtype == float0 and dtype != float0 and names[0] == "cotangent":
            # As from tree.map(ones_like, result): integer results have no use for it.
            value, dtype = None, float0
        if dtype != wanted.dtype:
            raise _wrong_dtype(call, aval, wanted.dtype, dtype, (tree, i, names))
        if shape != wanted.shape:
            where, of = name_of_leaf(tree, i, names[0]), name_of_leaf(tree, i, names[1])
            raise ShapeMismatchError(
                f"{call}: {where} has shape {shape}, but {of} has shape {wanted.shape}",
                hint=f"give the {names[0]} the shapes of the {names[1]}",
            )
        result.append(value)
    return result


def _of_users(call: str, leaf: Any, wanted: Any, name: str) -> Any:
    """A tangent of a type of users."""
    aval = typeof(leaf)
    if different_types(aval, wanted):
        got, expected = aval.str_short(), wanted.str_short()
        raise DtypeMismatchError(f"{call}: {name} has another type", got=got, expected=expected)
    return leaf


def _wrong_dtype(
    call: str,
    aval: ShapedArray,
    wanted: Any,
    dtype: Any,
    place: tuple[PyTreeDef, int, tuple[str, str]],
) -> DtypeMismatchError:
    tree, i, names = place
    kind = "cotangent" if names[0].startswith("cotangent") else "tangent"
    if wanted == float0:
        hint = f"numpy.zeros(shape, tracebridge.float0) is the {kind} of integers and booleans"
        expected = "float0"
    else:
        hint = f"convert it to {wanted.name}"
        expected = wanted.name
    got = "float0" if dtype == float0 else dtype.name
    return DtypeMismatchError(
        f"{call}: {name_of_leaf(tree, i, names[0])} has dtype {got}, but "
        f"{name_of_leaf(tree, i, names[1])} has dtype {aval.dtype.name}, whose {kind}s have "
        f"dtype {expected}",
        hint=hint,
    )


@final
class LinearFunction:
    """The linear function that ``linearize`` gives; see there. A pytree of its residuals."""

    __slots__ = (
        "__weakref__",
        "_in_avals",
        "_in_tree",
        "_linear",
        "_n_out",
        "_name",
        "_out_tree",
        "_refs",
    )

    def __init__(
        self,
        name: str,
        linear: Linearized,
        in_avals: Sequence[ShapedArray],
        in_tree: PyTreeDef,
        out_tree: PyTreeDef,
        n_out: int,
        refs: tuple[tuple[int, ...], tuple[bool, ...]] = ((), ()),
    ) -> None:
        # Which arguments are references, and for each whether its last content is a result.
        self._refs = refs
        self._name = name
        self._linear = linear
        self._in_avals = in_avals
        self._in_tree = in_tree
        self._out_tree = out_tree
        self._n_out = n_out

    @api_boundary
    def __call__(self, *tangents: Any) -> Any:
        """The tangent of the result for tangents of the arguments."""
        call = f"the linearization of {self._name}"
        leaves, tree = flatten(tangents)
        if tree != self._in_tree:
            check_same_structure(call, tree, self._in_tree, "tangents", "primals")
        places, written = self._refs
        refs: list[Any] = []
        if places:
            leaves, refs = tangent_contents(call, leaves, places, _leaf_names(tree, "tangents"))
        values = tangent_values(call, leaves, self._in_avals, tree, ("tangents", "primals"))
        # Integers are no inputs of the tape.
        values = [v for v in values if v is not None]
        linear = self._linear
        outs = linear.forward(current_trace().process, values)
        if places:
            first = len(outs) - sum(written)
            finals = zip(outs[first:], linear.out_avals[first:], strict=True)
            write_finals(refs, written, [tangent_or_zeros(t, a) for t, a in finals])
        outs = outs[: self._n_out]
        return self._out_tree.unflatten(
            [
                tangent_or_zeros(t, a)
                for t, a in zip(outs, linear.out_avals[: self._n_out], strict=True)
            ]
        )

    def __repr__(self) -> str:
        return f"<linearization of {self._name}>"

    def tree_flatten(self) -> tuple[list[Any], TapeStructure]:
        """Residuals and structure."""
        facts = (self._name, tuple(self._in_avals), self._in_tree, self._out_tree, self._n_out)
        return take_apart(self._linear, (*facts, self._refs))

    @classmethod
    def tree_unflatten(cls, structure: TapeStructure, residuals: Sequence[Any]) -> LinearFunction:
        """The linear function of a structure and residuals."""
        name, *rest = structure.facts
        return cls(name, put_together(structure, residuals), *rest)


register_pytree_node_class(LinearFunction)


@api_boundary
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of ``fun`` and its derivative at ``primals`` as a linear function.

    ``fun`` runs once; the linear function can be called many times.

    Args:
        fun: function of arrays and trees of arrays; with ``has_aux`` it returns a pair
            ``(result, auxiliary data)``.
        *primals: the arguments.
        has_aux: see ``fun``.

    Returns:
        ``(result, f_jvp)``, with ``has_aux`` also the auxiliary data. ``f_jvp(*tangents)`` takes
        tangents of the structure, shapes and dtypes of ``primals`` and gives the tangent of the
        result. Mutable references among the arguments have references as tangents, which
        ``f_jvp`` reads, and writes where ``fun`` writes.

    Raises:
        UnsupportedDtypeError: an argument is no array or number.
        RefError: a reference occurs twice.

    >>> import tracebridge as tb
    >>> value, f_jvp = tb.linearize(lambda x: x * x, 3.0)
    >>> print(value, f_jvp(1.0), f_jvp(2.0))
    9.0 6.0 12.0
    """
    check_callable("linearize", fun)
    name = name_of(fun)
    call = f"linearize({name})"
    leaves, tree = flatten(primals)
    flat = FlatCall(fun, tree, has_aux=has_aux)
    refs: tuple[tuple[int, ...], tuple[bool, ...]] = ((), ())
    if has_refs(leaves):
        dual = DualRefs(call, leaves, _leaf_names(tree, "primals"))
        try:
            values = values_of(call, dual.contents(leaves), tree, "primals")
            function = dual.function(flat.call)
            outs, linear = linearize_flat(function, values, differentiable(values), call)
        finally:
            dual.end()
        first = len(outs) - sum(dual.written)
        dual.write_back(outs[first:])
        outs, refs = outs[:first], (dual.places, dual.written)
    else:
        values = values_of(call, leaves, tree, "primals")
        outs, linear = linearize_flat(flat.call, values, differentiable(values), call)
    n = flat.n_out
    result = flat.out_tree.unflatten([public(o) for o in outs[:n]])
    f_jvp = LinearFunction(name, linear, [v.aval for v in values], tree, flat.out_tree, n, refs)
    return (result, f_jvp, flat.aux(outs[n:])) if has_aux else (result, f_jvp)
