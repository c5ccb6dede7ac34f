"""Dimension expressions: integer polynomials over named dimension variables, in normal form.

A dimension is an ``int`` or a ``DimExpr``. An expression is a sum of integer multiples of
products of factors; a factor is a variable, or one of ``floordiv``, ``mod``, ``max`` and ``min``
over expressions. Equal normal forms are equal expressions, so ``==`` and ``hash`` of the engine are
structural and never fail, as the shapes in cache keys need. Ordering, and ``==`` in the lines of
users, ask the bounds of the scope; where the answer depends on the values of the variables,
ordering raises, and so does ``==`` in a strict scope (docs/decisions/0027).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol, TypeGuard, final

import numpy as np

from tracebridge.core.errors.filtering import is_line_of_user
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.symbolic.answers import (
    constraint_hint,
    decide,
    equal_for_user,
    no_hash,
    no_value,
)
from tracebridge.core.symbolic.polynomial import (
    FLOORDIV,
    MAX,
    MIN,
    MOD,
    VAR,
    Factor,
    Monomial,
    Terms,
    add_terms,
    divide_terms,
    monomial_of,
    multiply_terms,
    term_order,
    term_text,
    written_order,
)

Bound = float
"""An int, or plus or minus infinity."""

_NUMBERS = int | float | complex | np.generic | np.ndarray


class Scope(Protocol):
    """What expressions ask of the scope that their variables belong to."""

    strict: bool
    """Whether ``==`` in lines of users raises where the answer depends on the variables."""

    def bounds(self, dim: Dim) -> tuple[Bound, Bound]:
        """The least and the greatest value."""
        ...

    def may_be_zero_only_if_empty(self, dim: DimExpr) -> bool:
        """Whether a dimension that may be 0 is not, where all sizes are at least 1."""
        ...

    def rewritten(self, factor: Factor) -> Dim | None:
        """What a constraint says that the factor equals, if any."""
        ...

    def exact_quotient(self, factor: Factor) -> tuple[int, DimExpr] | None:
        """``(n, x)`` if the factor is ``floordiv(x, n)`` and a constraint says that n divides x."""
        ...


@final
class DimExpr:
    """A size that is known as an expression only. Immutable; made by ``symbolic_shape``."""

    __slots__ = ("_hash", "scope", "terms")

    is_symbolic_dim = True

    def __init__(self, scope: Scope, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.scope = scope
        self.terms = terms
        self._hash = hash((id(scope), terms))

    def __reduce__(self) -> tuple[Any, ...]:
        return DimExpr, (self.scope, self.terms)

    def __copy__(self) -> DimExpr:
        return self

    def __deepcopy__(self, memo: object) -> DimExpr:
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DimExpr):
            if self.terms == other.terms or self.scope is not other.scope:
                return self.scope is other.scope
        elif not isinstance(other, _NUMBERS):
            return NotImplemented
        # The engine asks whether two expressions are the same, its users whether two sizes are.
        return is_line_of_user() and equal_for_user(self, other)

    def __hash__(self) -> int:
        if self.scope.strict and is_line_of_user():
            raise no_hash(self)
        return self._hash

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in sorted(self.terms, key=written_order, reverse=True):
            sign = "- " if coefficient < 0 else "+ "
            text += f" {sign}" if text else sign.replace("+ ", "")
            text += term_text(monomial, abs(coefficient))
        return text

    __repr__ = __str__

    def variables(self) -> frozenset[str]:
        """Names of the dimension variables in the expression."""
        names: set[str] = set()
        for factor in self.factors():
            if factor.kind == VAR:
                names.add(factor.text)
            else:
                for operand in factor.operands:
                    names |= operand.variables() if isinstance(operand, DimExpr) else set()
        return frozenset(names)

    def factors(self) -> frozenset[Factor]:
        """The factors of all terms; not those inside of other factors."""
        return frozenset(factor for monomial, _ in self.terms for factor, _ in monomial)

    # Arithmetic. With other numbers and arrays of NumPy the result is an array; operands of other
    # classes are left to their class.

    __array_ufunc__ = None

    def __add__(self, other: object) -> Any:
        return _add(self, other, 1) if _is_dim(other) else _foreign("+", self, other)

    def __radd__(self, other: object) -> Any:
        return _add(other, self, 1) if _is_dim(other) else _foreign("+", other, self)

    def __sub__(self, other: object) -> Any:
        return _add(self, other, -1) if _is_dim(other) else _foreign("-", self, other)

    def __rsub__(self, other: object) -> Any:
        return _add(-self, other, 1) if _is_dim(other) else _foreign("-", other, self)

    def __neg__(self) -> Dim:
        return _multiply(self, -1)

    def __pos__(self) -> DimExpr:
        return self

    def __abs__(self) -> Dim:
        return max_dim(self, -self)

    def __mul__(self, other: object) -> Any:
        return _multiply(self, other) if _is_dim(other) else _foreign("*", self, other)

    def __rmul__(self, other: object) -> Any:
        return _multiply(other, self) if _is_dim(other) else _foreign("*", other, self)

    def __pow__(self, power: object) -> Any:
        if not isinstance(power, int | np.integer):
            return _foreign("**", self, power)
        if power < 0:
            return NotImplemented
        result: Dim = 1
        for _ in range(int(power)):
            result = result * self
        return result

    def __rpow__(self, base: object) -> Any:
        return _foreign("**", base, self)

    def __floordiv__(self, other: object) -> Any:
        return floordiv(self, other) if _is_dim(other) else _foreign("//", self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return floordiv(other, self) if _is_dim(other) else _foreign("//", other, self)

    def __mod__(self, other: object) -> Any:
        return mod(self, other) if _is_dim(other) else _foreign("%", self, other)

    def __rmod__(self, other: object) -> Any:
        return mod(other, self) if _is_dim(other) else _foreign("%", other, self)

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __truediv__(self, other: object) -> Any:
        return _foreign("/", self, other)

    def __rtruediv__(self, other: object) -> Any:
        return _foreign("/", other, self)

    # Decisions.

    def __ge__(self, other: object) -> bool:
        return decide(self, ">=", other) if _is_dim(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return decide(self, "<=", other) if _is_dim(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return decide(self, ">", other) if _is_dim(other) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return decide(self, "<", other) if _is_dim(other) else NotImplemented

    def __bool__(self) -> bool:
        low, high = self.scope.bounds(self)
        if low > 0 or high < 0:
            return True
        raise InconclusiveDimensionError(
            f"bool({self}): the symbolic dimension may be 0 or not",
            hint=constraint_hint(f"{self} >= 1", self.scope),
        )

    def __index__(self) -> int:
        return self._no_constant("int")

    def __int__(self) -> int:
        return self._no_constant("int")

    def __float__(self) -> float:
        return self._no_constant("float")

    def _no_constant(self, call: str) -> NoReturn:
        raise InconclusiveDimensionError(
            f"{call}({self}): a symbolic dimension has no constant value while a program is "
            f"traced for all values of {', '.join(sorted(self.variables()))}",
            hint="compute with the dimension itself (+, -, *, //, %), or give the argument "
            "a constant size",
        )


Dim = int | DimExpr


def is_symbolic_dim(p: object) -> TypeGuard[DimExpr]:
    """Whether a dimension is an expression; False for ints.

    Args:
        p: one entry of a shape.

    >>> import tracebridge as tb
    >>> tb.export.is_symbolic_dim(tb.export.symbolic_shape("b, 3")[0]), tb.export.is_symbolic_dim(3)
    (True, False)
    """
    return isinstance(p, DimExpr)


def is_static(shape: Iterable[Any]) -> bool:
    """Whether all dimensions of a shape are ints."""
    return not any(isinstance(d, DimExpr) for d in shape)


def _is_dim(x: object) -> bool:
    if isinstance(x, np.ndarray):
        return not x.ndim and x.dtype.kind in "iu"
    return isinstance(x, int | DimExpr | np.integer)


class _ArrayOperation:
    """What makes arrays of dimensions: the composition root (bridge/_install) sets it."""

    apply: Callable[[str, Any, Any], Any] | None = None


def install_array_operation(apply: Callable[[str, Any, Any], Any]) -> None:
    """Hook: ``apply(symbol, left, right)`` computes with dimensions and arrays."""
    _ArrayOperation.apply = staticmethod(apply)


def _foreign(symbol: str, left: object, right: object) -> Any:
    """An operation that gives no dimension: on arrays, or left to the other operand's class."""
    other = right if isinstance(left, DimExpr) else left
    if not isinstance(other, _NUMBERS | DimExpr):
        return NotImplemented
    apply = _ArrayOperation.apply
    if apply is None:
        # The engine alone, without the package's face.
        raise no_value(f"{left!r} {symbol} {right!r}")
    return apply(symbol, left, right)


# --- normal form ------------------------------------------------------------------------------


def common_scope(*dims: object) -> Scope:
    """The scope of the expressions among the dimensions.

    Raises:
        ValueError: they belong to different scopes, or there is none.
    """
    scopes = {id(d.scope): d for d in dims if isinstance(d, DimExpr)}
    if len(scopes) != 1:
        texts = " and found ".join(f"{d}{_stated(d.scope)}" for d in scopes.values())
        msg = (
            f"Invalid mixing of symbolic scopes: expected one, got {texts}. Make all shapes "
            f"of a program in one scope, as in symbolic_shape(..., scope=scope)"
        )
        raise ValueError(msg)
    return next(iter(scopes.values())).scope


def _stated(scope: Any) -> str:
    known = getattr(scope, "constraints", ())
    return f" with constraints {', '.join(known)}" if known else ""


def terms_of(d: Any) -> Terms:
    """The polynomial as a new dict from monomials to coefficients."""
    if isinstance(d, DimExpr):
        return dict(d.terms)
    return {(): int(d)} if d else {}


def from_terms(scope: Scope, terms: Terms) -> Dim:
    """The dimension of a polynomial: an int where nothing but the constant is left."""
    terms = _with_exact_quotients(scope, terms)
    kept = sorted(((m, c) for m, c in terms.items() if c), key=term_order)
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    return DimExpr(scope, tuple(kept))


def _with_exact_quotients(scope: Scope, terms: Terms) -> Terms:
    """Replace ``n*floordiv(x, n)`` by ``x`` where a constraint says that n divides x."""
    for monomial, coefficient in terms.items():
        for factor, power in monomial:
            found = scope.exact_quotient(factor) if factor.kind == FLOORDIV else None
            if found is None or coefficient % found[0]:
                continue
            n, x = found
            rest = monomial_of({**dict(monomial), factor: power - 1})
            terms = {m: c for m, c in terms.items() if m != monomial}
            replaced = multiply_terms({rest: coefficient // n}, terms_of(x))
            return _with_exact_quotients(scope, add_terms(terms, replaced, 1))
    return terms


def of_factor(scope: Scope, factor: Factor) -> Dim:
    """The dimension that is one factor, or what a constraint says that it equals."""
    found = scope.rewritten(factor)
    return DimExpr(scope, ((((factor, 1),), 1),)) if found is None else found


def _add(a: Any, b: Any, scale: int) -> Dim:
    if not isinstance(a, DimExpr) and not isinstance(b, DimExpr):
        return int(a) + scale * int(b)
    return from_terms(common_scope(a, b), add_terms(terms_of(a), terms_of(b), scale))


def _multiply(a: object, b: object) -> Dim:
    return from_terms(common_scope(a, b), multiply_terms(terms_of(a), terms_of(b)))


def floordiv(a: Any, b: Any) -> Dim:
    """``a // b`` of dimensions; exact multiples are divided out: ``(4*b + 6)//4 == b + 1``.

    Raises:
        ZeroDivisionError: the divisor is 0.
    """
    if not isinstance(b, DimExpr):
        b = int(b)
        if not isinstance(a, DimExpr):
            return int(a) // b
        if b == 0:
            msg = f"{a} // 0: integer division of a symbolic dimension by zero"
            raise ZeroDivisionError(msg)
        if b < 0:
            a, b = -a, -b
    scope = common_scope(a, b)
    if scope.bounds(b)[1] < 0:
        a, b = -a, -b
    quotient, remainder = divide_terms(terms_of(a), terms_of(b))
    return from_terms(scope, quotient) + _floordiv_rest(scope, from_terms(scope, remainder), b)


def _floordiv_rest(scope: Scope, remainder: Dim, b: Dim) -> Dim:
    """``remainder // b`` of a remainder of division: 0, or a floordiv factor in lowest terms."""
    if _is_remainder(scope, remainder, b):
        return 0
    if isinstance(b, int) and isinstance(remainder, DimExpr):
        divisor = math.gcd(b, *(c for m, c in remainder.terms if m))
        if divisor > 1:
            # floor((g*x + k) / (g*n)) == floor((x + floor(k/g)) / n) for g, n > 0.
            terms = {m: c // divisor for m, c in remainder.terms}
            return floordiv(from_terms(scope, terms), b // divisor)
        inner = _operands_of(FLOORDIV, remainder)
        if inner is not None:
            return floordiv(inner[0], inner[1] * b)
    return of_factor(scope, Factor(FLOORDIV, (remainder, b)))


def single_factor(d: object) -> Factor | None:
    """The factor, if the dimension is exactly one factor."""
    if isinstance(d, DimExpr) and len(d.terms) == 1:
        monomial, coefficient = d.terms[0]
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return monomial[0][0]
    return None


def _operands_of(kind: str, d: DimExpr) -> tuple[DimExpr, int] | None:
    """``(x, n)`` if the expression is exactly ``kind(x, n)`` with an int n."""
    factor = single_factor(d)
    if factor is not None and factor.kind == kind and isinstance(factor.operands[1], int):
        return factor.operands
    return None


def _is_remainder(scope: Scope, remainder: Dim, b: Dim) -> bool:
    """Whether ``0 <= remainder < b`` holds for all values."""
    return scope.bounds(remainder)[0] >= 0 and scope.bounds(b - remainder)[0] >= 1


def mod(a: Any, b: Any) -> Dim:
    """``a % b`` of dimensions, with the sign of the divisor as in Python.

    Raises:
        ZeroDivisionError: the divisor is 0.
    """
    if not isinstance(b, DimExpr):
        b = int(b)
        if not isinstance(a, DimExpr):
            return int(a) % b
        if b == 0:
            msg = f"{a} % 0: integer modulo of a symbolic dimension by zero"
            raise ZeroDivisionError(msg)
        if b < 0:
            return -mod(-a, -b)
    scope = common_scope(a, b)
    if scope.bounds(b)[1] < 0:
        return -mod(-a, -b)
    remainder = from_terms(scope, divide_terms(terms_of(a), terms_of(b))[1])
    if _is_remainder(scope, remainder, b):
        return remainder
    if isinstance(b, int) and isinstance(remainder, DimExpr):
        divisor = math.gcd(b, *(c for _, c in remainder.terms))
        if divisor > 1:
            terms = {m: c // divisor for m, c in remainder.terms}
            return divisor * mod(from_terms(scope, terms), b // divisor)
        inner = _operands_of(MOD, remainder)
        if inner is not None and inner[1] % b == 0:
            return mod(inner[0], b)
    return of_factor(scope, Factor(MOD, (remainder, b)))


def max_dim(*dims: object) -> Dim:
    """The greatest of dimensions, as an expression where it depends on the variables."""
    return _extremum(MAX, dims)


def min_dim(*dims: object) -> Dim:
    """The least of dimensions, as an expression where it depends on the variables."""
    return _extremum(MIN, dims)


def _extremum(kind: str, dims: tuple[Any, ...]) -> Dim:
    if not any(isinstance(d, DimExpr) for d in dims):
        return max(map(int, dims)) if kind == MAX else min(map(int, dims))
    scope = common_scope(*dims)
    sign = 1 if kind == MAX else -1
    kept: list[Dim] = []
    for d in _flattened(kind, dims):
        # Drop what another operand always reaches, and operands that this one makes useless.
        if any(scope.bounds(sign * (other - d))[0] >= 0 for other in kept):
            continue
        kept = [other for other in kept if scope.bounds(sign * (d - other))[0] < 0]
        kept.append(d)
    if len(kept) == 1:
        return kept[0]
    # The number comes last, as people write ``max(b - 2, 0)``.
    kept.sort(key=lambda d: (isinstance(d, int), str(d)))
    return of_factor(scope, Factor(kind, tuple(kept)))


def _flattened(kind: str, dims: Iterable[Any]) -> Iterable[Dim]:
    for d in dims:
        factor = single_factor(d)
        if factor is not None and factor.kind == kind:
            yield from factor.operands
        else:
            yield d if isinstance(d, DimExpr) else int(d)
