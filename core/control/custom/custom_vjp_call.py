"""A call of a custom_vjp function: its rules run, and what they return is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.control.calls.inline_rules import has_tangent, user_value
from tracebridge.core.control.custom.symbolic_zeros import (
    CustomVJPPrimal,
    SymbolicZero,
    concrete_zeros,
)
from tracebridge.core.control.refs.ref import has_refs, hide_refs
from tracebridge.core.dtypes.dtypes import float0, is_complex, is_inexact
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value, is_array_like
from tracebridge.core.lax.elementwise.convert import convert_element_type
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.value import Value


@final
class VjpCall:
    """A function and its two rules, with the arguments that are not differentiated bound.

    ``fun(*args)`` and ``fwd(*args)`` take arguments of structure ``in_tree``; ``fwd`` gives
    ``(result, residuals)``; ``bwd(residuals, cotangent)`` gives a tuple like ``args``. ``owner``
    is the function object of the user; ``memo`` remembers its traces.
    """

    __slots__ = ("bwd", "bwd_name", "fun", "fwd", "fwd_name", "has_refs", "in_tree", "memo", "name",
                 "optimize_remat", "owner", "symbolic_zeros")  # fmt: skip

    def __init__(
        self,
        fun: Callable[..., Any],
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        in_tree: PyTreeDef,
        names: tuple[str, str, str],
        symbolic_zeros: bool,
        owner: object,
        memo: BoundedCache[Any] | None,
    ) -> None:
        self.fun = fun
        self.fwd = fwd
        self.bwd = bwd
        self.in_tree = in_tree
        self.name, self.fwd_name, self.bwd_name = names
        self.symbolic_zeros = symbolic_zeros
        self.owner = owner
        self.memo = memo
        # Whether mutable references are among the arguments; they are part of ``in_tree`` then.
        self.has_refs = False
        # Whether the function itself runs where the forward rule's residuals are not used.
        self.optimize_remat = False

    def run_fwd(
        self, primals: Sequence[Value], perturbed: Sequence[bool]
    ) -> tuple[list[Any], list[Any], PyTreeDef, Any]:
        """Results and residuals as values; the results' structure; the ResidualTree."""
        user_primals = [user_value(p) for p in primals]
        if self.symbolic_zeros:
            user_primals = [
                CustomVJPPrimal(p, f) for p, f in zip(user_primals, perturbed, strict=True)
            ]
        pair = self.fwd(*self.in_tree.unflatten(user_primals))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            msg = (
                f"{self.name}: its forward rule {self.fwd_name} returned {kind_of(pair)}, expected "
                "a pair (result, residuals)"
            )
            raise CustomRuleError(msg, hint="return (result, None) if there are no residuals")
        outs, out_tree = flatten(pair[0])
        residuals, res_tree = flatten(pair[1])
        if has_refs(residuals):
            residuals, res_tree = hide_refs(residuals, res_tree)
        residuals = [_without_axes(r) for r in residuals]
        numbers = {i: r for i, r in enumerate(residuals) if _is_number(r)}
        values = [as_value(r) for i, r in enumerate(residuals) if i not in numbers]
        return [as_value(o) for o in outs], values, out_tree, ResidualTree(res_tree, numbers)

    def run_bwd(
        self,
        residuals: object,
        cotangents: Sequence[object],
        out_avals: Sequence[ShapedArray],
        out_tree: PyTreeDef,
        in_avals: Sequence[ShapedArray],
    ) -> list[Any]:
        """Cotangents of the arguments as values; ``None`` is a zero, both ways."""
        user_cotangents = [
            user_value(self._zeros(a.tangent) if ct is None else ct)
            for ct, a in zip(cotangents, out_avals, strict=True)
        ]
        result = self.bwd(residuals, out_tree.unflatten(user_cotangents))
        leaves = self._like_arguments(result)
        checked_gradients: list[Any] = []
        for i, (leaf, aval) in enumerate(zip(leaves, in_avals, strict=True)):
            if leaf is None or not has_tangent(aval):
                checked_gradients.append(None)
                continue
            if isinstance(leaf, SymbolicZero):
                if leaf.shape != aval.shape:
                    self._wrong_type(i, leaf.aval, aval)
                checked_gradients.append(None)
                continue
            if getattr(leaf, "dtype", None) == float0:
                self._wrong_type(i, ShapedArray(leaf.shape, float0), aval)
            value = as_value(leaf)
            dtype = aval.tangent.dtype
            if value.aval.shape != aval.shape or not _fits(value.aval, dtype):
                self._wrong_type(i, value.aval, aval)
            same = value.aval.dtype == dtype
            checked_gradients.append(value if same else convert_element_type(value, dtype))
        return checked_gradients

    def _zeros(self, aval: ShapedArray) -> Any:
        return SymbolicZero(aval) if self.symbolic_zeros else concrete_zeros(aval)

    def _like_arguments(self, result: object) -> list[Any]:
        """The leaves of what the backward rule returned; None stands for a tree of zeros."""
        n_args = len(self.in_tree.children())
        if not isinstance(result, tuple | list) or len(result) != n_args:
            msg = (
                f"{self.name}: its backward rule {self.bwd_name} returned {kind_of(result)}, "
                f"expected a tuple with one cotangent for each of the {n_args} arguments"
            )
            raise CustomRuleError(
                msg, hint="return (cotangent,) for one argument; None stands for a zero"
            )
        leaves: list[Any] = []
        for i, (entry, child) in enumerate(zip(result, self.in_tree.children(), strict=True)):
            try:
                leaves.extend(up_to(child, entry, spread=True))
            except ValueError as error:
                msg = (
                    f"{self.name}: its backward rule {self.bwd_name} returned a cotangent of "
                    f"argument {i} of another structure than the argument"
                )
                raise CustomRuleError(
                    msg, got=str(flatten(entry)[1]), expected=str(child)
                ) from error
        return leaves

    def _wrong_type(self, index: int, got: ShapedArray, aval: ShapedArray) -> None:
        where = keystr(leaf_paths(self.in_tree)[index])
        msg = (
            f"{self.name}: its backward rule {self.bwd_name} returned a cotangent of args{where} "
            "that does not fit it"
        )
        raise CustomRuleError(msg, got=got.str_short(), expected=aval.tangent.str_short())


@final
class ResidualTree:
    """The structure of residuals, and those that are Python or NumPy numbers.

    Numbers are no operands of equations: the backward rule gets them as they were returned, also
    where it is traced, so that it may branch on them.
    """

    __slots__ = ("_numbers", "_tree")

    def __init__(self, tree: PyTreeDef, numbers: dict[int, Any]) -> None:
        self._tree = tree
        self._numbers = numbers

    def unflatten(self, values: Sequence[object]) -> Any:
        """The residuals of the user, from the values among them."""
        if not self._numbers:
            return self._tree.unflatten(values)
        rest = iter(values)
        known = self._numbers
        n = len(values) + len(known)
        return self._tree.unflatten([known[i] if i in known else next(rest) for i in range(n)])


def _without_axes(x: object) -> Any:
    """A NumPy array without axes as the number that it holds."""
    return x[()] if type(x) is np.ndarray and x.ndim == 0 else x


def _is_number(x: object) -> bool:
    return isinstance(x, bool | int | float | complex | np.generic) and is_array_like(x)


def _fits(got: ShapedArray, dtype: DTypeLike) -> bool:
    """Whether a cotangent may be converted to ``dtype``.

    Rules for low precision often compute in higher precision; a number may stand for an array.
    Integers and booleans, as of a mask, are real numbers.
    """
    if got.dtype == dtype or not is_inexact(got.dtype):
        return True
    return is_complex(got.dtype) == is_complex(dtype) or (got.weak_type and is_complex(dtype))


def up_to(
    treedef: PyTreeDef, tree: object, *, spread: bool = False, loose: bool = False
) -> list[Any]:
    """The parts of ``tree`` at the leaves of ``treedef``; None may replace any subtree.

    With ``spread`` a leaf may replace a subtree too and stands for each of its leaves; with
    ``loose`` lists and tuples may replace each other.

    Raises:
        ValueError: the structures differ.
    """
    if tree is None:
        return [None] * treedef.num_leaves
    try:
        return treedef.flatten_up_to(tree)
    except ValueError:
        children = treedef.children()
        parts, level = flatten(tree, lambda x: x is not tree)
        if spread and children and level.node_data() is None and len(parts) == 1:
            return parts * treedef.num_leaves
        swapped = loose and isinstance(tree, list | tuple) and _is_sequence(treedef)
        if not children or not (swapped or level.node_data() == treedef.node_data()):
            raise
        if len(parts) != len(children):
            raise
        return [
            leaf
            for child, part in zip(children, parts, strict=True)
            for leaf in up_to(child, part, spread=spread, loose=loose)
        ]


def _is_sequence(treedef: PyTreeDef) -> bool:
    data = treedef.node_data()
    return data is not None and data[0] in (list, tuple)
