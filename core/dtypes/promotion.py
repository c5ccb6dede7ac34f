"""Type promotion: a lattice of dtypes and weak kinds, and the join of any number of operands.

Nodes are dtypes and the three weak kinds ``int*``, ``float*``, ``complex*`` that Python scalars
live on. The result of mixing operands is the least node above all of them. Narrow integers and
floats (int4, float8, ...) sit above the weak kinds and below nothing: mixing them is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.config.values import option
from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes.canonicalize import (
    canonicalize,
    default_complex,
    default_float,
    default_int,
    default_uint,
    is_wide,
    narrowed,
)
from tracebridge.core.dtypes.extended import ExtendedDType
from tracebridge.core.dtypes.weak_type import Pair, pair_of, scalar_dtype
from tracebridge.core.errors.dtype_errors import TypePromotionError
from tracebridge.core.util.caching import register_table

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike


Node = Any

INT: Final = "int*"
FLOAT: Final = "float*"
COMPLEX: Final = "complex*"

_WEAK_NODES: Final = (INT, FLOAT, COMPLEX)


def _standard_edges() -> dict[Node, tuple[Node, ...]]:
    """Each node with the nodes directly above it."""
    d = dtypes
    edges: dict[Node, tuple[Node, ...]] = {
        d.bool_: (INT,),
        INT: (d.uint8, d.int8, *d.narrow_integers),
        d.uint8: (d.int16, d.uint16),
        d.uint16: (d.int32, d.uint32),
        d.uint32: (d.int64, d.uint64),
        d.uint64: (FLOAT,),
        d.int8: (d.int16,),
        d.int16: (d.int32,),
        d.int32: (d.int64,),
        d.int64: (FLOAT,),
        FLOAT: (d.bfloat16, d.float16, COMPLEX, *d.narrow_floats),
        d.bfloat16: (d.float32,),
        d.float16: (d.float32,),
        d.float32: (d.float64, d.complex64),
        d.float64: (d.complex128,),
        COMPLEX: (d.complex64,),
        d.complex64: (d.complex128,),
        d.complex128: (),
    }
    return edges | dict.fromkeys(d.narrow_integers | d.narrow_floats, ())


def _strict_edges() -> dict[Node, tuple[Node, ...]]:
    """Only weak kinds move: dtypes never mix."""
    edges: dict[Node, tuple[Node, ...]] = dict.fromkeys(dtypes.all_dtypes, ())
    edges[INT] = (FLOAT, *dtypes.integers)
    edges[FLOAT] = (COMPLEX, *dtypes.floats)
    edges[COMPLEX] = tuple(dtypes.complexes)
    return edges


def _upper_sets(edges: dict[Node, tuple[Node, ...]]) -> dict[Node, frozenset[Node]]:
    """Each node with all nodes at or above it."""
    above: dict[Node, frozenset[Node]] = {}

    def visit(node: Node) -> frozenset[Node]:
        if node not in above:
            above[node] = frozenset({node}).union(*(visit(up) for up in edges[node]))
        return above[node]

    for node in edges:
        visit(node)
    return above


_ABOVE: Final = {
    "standard": _upper_sets(_standard_edges()),
    "strict": _upper_sets(_strict_edges()),
}


@functools.cache
def _join(nodes: frozenset[Node], mode: str) -> Node | None:
    """The least node above all of ``nodes``, or None where there is none."""
    above = _ABOVE[mode]
    common = frozenset.intersection(*(above[node] for node in nodes))
    for node in common:
        if common == above[node]:
            return node
    return None


def lattice_join(nodes: Iterable[Node], mode: str = "standard") -> Node | None:
    """The least upper bound of lattice nodes, or None where they have none.

    Args:
        nodes: dtypes and weak kinds (``INT``, ``FLOAT``, ``COMPLEX``).
        mode: ``"standard"`` or ``"strict"``.
    """
    return _join(frozenset(nodes), mode)


def _weak_node(dtype: DTypeLike) -> Node:
    if dtype in dtypes.integers:
        return INT
    if dtype in dtypes.floats:
        return FLOAT
    return COMPLEX if dtype in dtypes.complexes else dtype


def weak_default(dtype: DTypeLike) -> Any:
    """The dtype that a Python scalar of the kind of ``dtype`` would have."""
    if dtype in dtypes.unsigned:
        return default_uint()
    return _default_of(_weak_node(dtype))


def _default_of(node: Node) -> Any:
    if node is INT:
        return default_int()
    if node is FLOAT:
        return default_float()
    return default_complex() if node is COMPLEX else node


_promoted: dict[tuple[tuple[Pair, ...], bool | str, str], Pair] = register_table(
    "promoted dtypes", {}
)


def promote(pairs: tuple[Pair, ...]) -> Pair:
    """The ``(dtype, weak)`` of an operation on operands of the given ``(dtype, weak)`` pairs.

    The dtype of a result is 64 bits wide only where 64-bit dtypes are enabled or an operand
    already is: promotion never narrows what exists and never widens what does not.

    Raises:
        TypePromotionError: the operands have no common dtype under the current option
            ``numpy_dtype_promotion``.
    """
    key = (pairs, option("enable_x64"), option("numpy_dtype_promotion"))
    found = _promoted.get(key)
    if found is None:
        found = _promoted[key] = _promote(*key)
    return found


def _promote(pairs: tuple[Pair, ...], x64: bool | str, mode: str) -> Pair:
    if not pairs:
        msg = "promotion: got no operands; expected at least one array, scalar or dtype"
        raise ValueError(msg)
    if len(pairs) == 1:
        dtype, weak = pairs[0]
        return dtype, weak and dtype != dtypes.bool_
    all_weak = all(weak for _, weak in pairs)
    kinds = {dtype for dtype, _ in pairs}
    if len(kinds) == 1 and not all_weak:
        # Needs no lattice, and so lets extended dtypes and float0 through.
        return kinds.pop(), False
    for dtype in kinds:
        if dtype not in dtypes.all_dtypes:
            raise _no_promotion(pairs, mode)
    if all_weak and mode != "strict":
        # Operands that are all weak compare by their own widths; the result stays weak.
        nodes, wide = kinds, any(map(is_wide, kinds))
    else:
        nodes = {_weak_node(dtype) if weak else dtype for dtype, weak in pairs}
        wide = any(is_wide(dtype) for dtype, weak in pairs if not weak)
    node = lattice_join(nodes, mode)
    if node is None:
        raise _no_promotion(pairs, mode)
    dtype = _default_of(node)
    if not (x64 or wide):
        dtype = narrowed(dtype)
    return dtype, dtype != dtypes.bool_ and (all_weak or node in _WEAK_NODES)


def _no_promotion(pairs: tuple[Pair, ...], mode: str) -> TypePromotionError:
    names = [f"{dtype}{' (weak)' if weak else ''}" for dtype, weak in pairs]
    hint = "cast the operands to one dtype, as in x.astype('float32')"
    reason = ""
    kinds = [dtype for dtype, _ in pairs]
    if any(dtype not in dtypes.all_dtypes for dtype in kinds):
        reason = "; float0, keys and other extended dtypes mix with nothing"
        hint = "leave these operands out of arithmetic"
    elif mode == "strict":
        reason = "; the option numpy_dtype_promotion is 'strict'"
        hint += ", or set the option numpy_dtype_promotion to 'standard'"
    elif any(dtype in dtypes.narrow_floats or dtype in dtypes.narrow_integers for dtype in kinds):
        reason = "; integers below 8 bits and floats of at most 8 bits are never promoted"
    return TypePromotionError(
        f"the dtypes {', '.join(names)} have no implicit promotion{reason}", hint=hint
    )


_promoted_types: dict[Any, Any] = register_table("promoted types", {})
_NAMED = (np.dtype, type, str)  # what a dtype is called, and hashable


def promote_types(a: Any, b: Any) -> Any:
    """The dtype of an operation on arrays of the two dtypes, whether 64 bits are enabled or not.

    Args:
        a: a dtype; a Python scalar class counts as a weakly typed scalar.
        b: the same.

    Raises:
        TypePromotionError: the two have no common dtype.
    """
    key = a, b, option("numpy_dtype_promotion")
    simple = isinstance(a, _NAMED) and isinstance(b, _NAMED)
    found = _promoted_types.get(key) if simple else None
    if found is None:
        with enable_x64(True):
            found = promote((_pair_of_type(a), _pair_of_type(b)))[0]
        if simple:
            _promoted_types[key] = found
    return found


def dtype_of_product(a: Any, b: Any) -> Any:
    """The dtype of products of elements of the two dtypes, whatever ``numpy_dtype_promotion`` is.

    For operations whose operands may differ in dtype: nothing is promoted there.

    Raises:
        TypePromotionError: the two have no common dtype.
    """
    return _promote((_pair_of_type(a), _pair_of_type(b)), option("enable_x64"), "standard")[0]


def result_type(*args: object, return_weak_type: bool = False) -> Any:
    """The dtype of an operation on the arguments.

    Args:
        *args: arrays, tracers, scalars, dtypes, Python scalar classes (weak), or
            ``(dtype, weak)`` pairs. NumPy values follow the 64-bit rule; dtypes and arrays of
            the engine are taken as they are.
        return_weak_type: return ``(dtype, weak)`` instead of the dtype.

    Raises:
        ValueError: no argument.
        TypePromotionError: the arguments have no common dtype.
    """
    dtype, weak = promote(tuple([_argument_pair(arg) for arg in args]))
    if weak:
        dtype = weak_default(dtype)
    return (dtype, weak) if return_weak_type else dtype


def _argument_pair(arg: object) -> Pair:
    if isinstance(arg, np.dtype | type | str | ExtendedDType):
        return _pair_of_type(arg)
    if type(arg) is tuple and len(arg) == 2 and isinstance(arg[1], bool):
        return dtypes.as_dtype(arg[0]), arg[1]
    return pair_of(arg)


def _pair_of_type(dtype: DTypeLike) -> Pair:
    if isinstance(dtype, type) and dtype in dtypes.PYTHON_SCALARS:
        return scalar_dtype(dtype)
    if isinstance(dtype, ExtendedDType):
        return dtype, False
    found = dtypes.as_dtype(dtype)
    if not dtypes.is_supported(found):
        canonicalize(found)  # raises for what is no dtype of the engine, keeps foreign byte orders
        return dtypes.native(found), False
    return found, False
