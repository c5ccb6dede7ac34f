"""Zeros without elements, and marked primals: what custom rules see on request."""

from __future__ import annotations

from typing import Any, final

from tracebridge.core.control.calls.inline_rules import user_value
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import typeof
from tracebridge.core.lax.ad_util import float0_of, zeros_of
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.custom_derivatives")
@final
class SymbolicZero:
    """A tangent or cotangent that is zero, known by its aval alone.

    >>> import tracebridge as tb
    >>> zero = tb.custom_derivatives.SymbolicZero(tb.typeof(2.0))
    >>> zero.shape, zero.dtype
    ((), dtype('float32'))
    """

    __slots__ = ("__weakref__", "aval")

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(val: Any) -> SymbolicZero:
        """The zero among the tangents of an array, tracer or number.

        >>> import tracebridge as tb
        >>> tb.custom_derivatives.SymbolicZero.from_primal_value(tb.numpy.arange(3)).dtype
        dtype([('float0', 'V')])
        """
        return SymbolicZero(typeof(val).to_tangent_aval())

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the zeros."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """Their dtype."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """Their number of axes."""
        return self.aval.ndim

    @property
    def size(self) -> Any:
        """Their number of elements."""
        return self.aval.size

    @property
    def weak_type(self) -> bool:
        """Whether they are weakly typed."""
        return self.aval.weak_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicZero) and self.aval is other.aval

    def __hash__(self) -> int:
        return hash((SymbolicZero, self.aval))

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.str_short()})"


@public_path("tracebridge.custom_derivatives")
@final
class CustomVJPPrimal:
    """An argument of a forward rule with symbolic zeros: its value, and whether it is perturbed."""

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool) -> None:
        self.value = value
        self.perturbed = perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal({self.value!r}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(tree: object) -> Any:
    """The values of a tree of ``CustomVJPPrimal``.

    >>> import tracebridge as tb
    >>> cd = tb.custom_derivatives
    >>> cd.custom_vjp_primal_tree_values({'x': cd.CustomVJPPrimal(2.0, True)})
    {'x': 2.0}
    """

    def value(leaf: object) -> Any:
        if not isinstance(leaf, CustomVJPPrimal):
            msg = f"custom_vjp_primal_tree_values: got a leaf of type {type(leaf).__name__}"
            raise TypeError(msg)
        return leaf.value

    return tree_map(value, tree)


def concrete_zeros(aval: ShapedArray) -> Any:
    """Zeros of a tangent aval as users get them; float0 arrays of known size are NumPy's."""
    return float0_of(aval.shape) if aval.dtype == float0 else zeros_of(aval)


def zero_from_primal(val: object, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a value, or of each value of a tree.

    Args:
        val: an array or a number, or a tree of them.
        symbolic_zeros: give a ``SymbolicZero`` instead of an array of zeros.

    >>> import tracebridge as tb
    >>> zeros = tb.custom_derivatives.zero_from_primal({"w": 3.0})
    >>> print(zeros["w"])
    0.0
    """

    def zero(x: Any) -> Any:
        aval = typeof(x).tangent
        return SymbolicZero(aval) if symbolic_zeros else user_value(concrete_zeros(aval))

    return tree_map(zero, val)
