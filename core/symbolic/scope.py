"""The scope of dimension variables: names, constraints, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, final

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.symbolic.bounds import INFINITY, Interval, bounds_of
from tracebridge.core.symbolic.dims import (
    Bound,
    Dim,
    DimExpr,
    from_terms,
    of_factor,
    single_factor,
    terms_of,
)
from tracebridge.core.symbolic.evaluate import DimOps, dims_evaluate
from tracebridge.core.symbolic.parse import parse_constraint, parse_shape
from tracebridge.core.symbolic.polynomial import FLOORDIV, MOD, VAR, Factor, Terms
from tracebridge.core.util.public_path import public_path

_MEMO_SIZE = 4096


class Condition(NamedTuple):
    """A constraint as it must hold of actual sizes."""

    text: str
    difference: DimExpr
    """At least 0, in the normal form before this constraint."""
    is_equality: bool
    """The difference is 0."""


@public_path("tracebridge.symbolic_shapes")
@final
class SymbolicScope:
    """The variables of a family of shapes and the constraints on them.

    Dimensions are at least 1 unless a constraint says more, or ``least`` another number.
    Expressions of different scopes cannot be mixed: the same name may mean different sizes.

    Args:
        constraints_str: constraints such as ``"b >= 4"``, ``"mod(b, 8) == 0"``, ``"a == 2*b"``.
        least: what each variable is at least; 0 where arrays may be empty.
        strict: whether a line ``a == b`` of a function raises where it depends on the sizes. By
            default it gives False, with a warning.

    Raises:
        ValueError: a syntax error, or constraints that contradict each other.

    >>> from tracebridge.symbolic_shapes import SymbolicScope, symbolic_shape
    >>> scope = SymbolicScope(["b >= 4"])
    >>> (b,) = symbolic_shape("b", scope=scope)
    >>> b >= 4
    True
    """

    __slots__ = (
        "_exact",
        "_inequalities",
        "_memo",
        "_rewrites",
        "_stated",
        "assumed",
        "conditions",
        "constraints",
        "least",
        "note",
        "strict",
    )

    def __init__(
        self, constraints_str: Sequence[str] = (), *, least: int = 1, strict: bool = False
    ) -> None:
        if isinstance(constraints_str, str):
            msg = (
                "SymbolicScope: the constraints should be a sequence of strings, got the string "
                f"{constraints_str!r}"
            )
            raise ArgumentValueError(msg)
        self.least = least
        self.strict = strict
        # What messages add where a size is less than that.
        self.note = ""
        self.constraints: tuple[str, ...] = ()
        self.conditions: tuple[Condition, ...] = ()
        # What operations need of sizes, where nobody could say while they were traced.
        self.assumed: dict[DimExpr, str] = {}
        self._rewrites: dict[Factor, Dim] = {}
        self._exact: dict[Factor, tuple[int, DimExpr]] = {}
        self._inequalities: list[Terms] = []
        self._stated: dict[Factor, Interval] = {}
        self._memo: dict[DimExpr, Interval] = {}
        for text in constraints_str:
            self._add(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _scope, (self.constraints, self.least, self.strict)

    def __repr__(self) -> str:
        least = "" if self.least == 1 else f", least={self.least}"
        strict = ", strict=True" if self.strict else ""
        return f"SymbolicScope({list(self.constraints)}{least}{strict})"

    def variable(self, name: str) -> Dim:
        """The dimension of a name: an expression, or what an equality constraint says it is."""
        return of_factor(self, Factor(VAR, (name,)))

    # What expressions and bounds ask of a scope.

    def rewritten(self, factor: Factor) -> Dim | None:
        """What an equality constraint says that the factor equals."""
        return self._rewrites.get(factor)

    def exact_quotient(self, factor: Factor) -> tuple[int, DimExpr] | None:
        """``(n, x)`` if the factor is ``floordiv(x, n)`` and n is known to divide x."""
        return self._exact.get(factor)

    def stated_bounds(self, factor: Factor) -> Interval:
        """What constraints say of a factor; variables are at least ``least``."""
        default = (self.least if factor.kind == VAR else -INFINITY, INFINITY)
        return self._stated.get(factor, default)

    def assume(self, difference: DimExpr, text: str) -> None:
        """Remember that a program needs ``difference >= 0``: it is checked when the program runs.

        No decision rests on it, unlike on a constraint.
        """
        self.assumed.setdefault(difference, text)

    def least_sizes(self) -> dict[str, int]:
        """The least size that is allowed, for variables of which something says so by itself."""
        found = {f.text: int(low) for f, (low, _) in self._stated.items()
                 if f.kind == VAR and low > self.least}  # fmt: skip
        for difference in self.assumed:
            terms = dict(difference.terms)
            constant = terms.pop((), 0)
            ((monomial, coefficient),) = list(terms.items())[:1]
            ((factor, power),) = monomial[:1]
            if len(terms) == len(monomial) == power == 1 and factor.kind == VAR and coefficient > 0:
                low = -(constant // coefficient)
                found[factor.text] = max(found.get(factor.text, self.least), low)
        return found

    def constrained_factors(self) -> Iterable[Factor]:
        """The factors that constraints speak of."""
        yield from self._stated
        for terms in self._inequalities:
            for monomial in terms:
                for factor, _ in monomial:
                    yield factor

    def inequalities(self) -> Iterable[Terms]:
        """Polynomials that are never negative."""
        return self._inequalities

    def bounds(self, dim: Dim) -> Interval:
        """Least and greatest value of a dimension; correct, not always tight."""
        if not isinstance(dim, DimExpr):
            return dim, dim
        found = self._memo.get(dim)
        if found is None:
            if len(self._memo) >= _MEMO_SIZE:
                self._memo.clear()
            found = self._memo[dim] = bounds_of(self, dim)
        return found

    def may_be_zero_only_if_empty(self, dim: DimExpr) -> bool:
        """Whether a dimension that may be 0 is not, where all sizes are at least 1."""
        if self.least > 0:
            return False
        full = SymbolicScope(self.constraints)
        values = {name: full.variable(name) for name in dim.variables()}
        low, high = full.bounds(dims_evaluate(dim, values, DimOps))
        return low > 0 or high < 0

    # Constraints.

    def _add(self, text: str) -> None:
        left, relation, right = parse_constraint(text, self.variable, "constraint")
        difference = right - left if relation in {"<=", "<"} else left - right
        if relation in {"<", ">"}:
            difference = difference - 1
        self._check_possible(text, relation, difference)
        self.constraints += (text,)
        if isinstance(difference, int):
            return
        self.conditions += (Condition(text, difference, relation == "=="),)
        if relation == "==":
            self._add_equality(left, right)
            self._add_inequality(-difference)
        self._add_inequality(difference)
        self._memo.clear()
        if any(low > high for low, high in self._stated.values()):
            raise self._unsatisfiable(text)

    def _check_possible(self, text: str, relation: str, difference: Dim) -> None:
        low, high = self.bounds(difference)
        if high < 0 or (relation == "==" and low > 0):
            raise self._unsatisfiable(text)

    def _unsatisfiable(self, text: str) -> ArgumentValueError:
        others = [known for known in self.constraints if known != text]
        together = f" together with {others}" if others else ""
        return ArgumentValueError(
            f"Unsatisfiable constraint {text}: no sizes of at least {self.least} satisfy "
            f"it{together}"
        )

    def _add_equality(self, left: Dim, right: Dim) -> None:
        """Rewrite a single factor on the left (or right) side wherever it appears later."""
        for one, other in ((left, right), (right, left), (-left, -right), (-right, -left)):
            factor = single_factor(one)
            if factor is None or _mentions(other, factor):
                continue
            self._rewrites[factor] = other
            self._renormalize()
            if factor.kind == MOD and other == 0 and isinstance(factor.operands[1], int):
                x, n = factor.operands
                self._exact[Factor(FLOORDIV, (x, n))] = (n, x)
            return

    def _renormalize(self) -> None:
        """Bring what earlier constraints said into the normal form with the new one."""
        self._memo.clear()
        for factor, dim in self._rewrites.items():
            self._rewrites[factor] = self._rebuilt(dim)
        known, self._inequalities = self._inequalities, []
        for terms in known:
            self._add_inequality(self._rebuilt(from_terms(self, terms)))

    def _rebuilt(self, dim: Dim) -> Dim:
        if not isinstance(dim, DimExpr):
            return dim
        values = {name: self.variable(name) for name in dim.variables()}
        return dims_evaluate(dim, values, DimOps)

    def _add_inequality(self, dim: Dim) -> None:
        """Keep ``dim >= 0``, as a bound where it is about one factor."""
        if not isinstance(dim, DimExpr):
            return
        terms = terms_of(dim)
        constant = terms.pop((), 0)
        if len(terms) == 1:
            ((monomial, coefficient),) = terms.items()
            if len(monomial) == 1 and monomial[0][1] == 1:
                self._narrow(monomial[0][0], coefficient, constant)
                return
        self._inequalities.append(terms_of(dim))
        for monomial, coefficient in terms.items():
            if len(monomial) == 1 and monomial[0][1] == 1:
                rest = from_terms(self, {m: c for m, c in dim.terms if m != monomial})
                greatest = self.bounds(rest)[1]
                if greatest < INFINITY:
                    self._narrow(monomial[0][0], coefficient, int(greatest))

    def _narrow(self, factor: Factor, coefficient: int, constant: int) -> None:
        """Keep ``coefficient * factor + constant >= 0``."""
        low, high = self.stated_bounds(factor)
        bound: Bound
        if coefficient > 0:
            bound = -(constant // coefficient)
            self._stated[factor] = (max(low, bound), high)
        else:
            bound = constant // -coefficient
            self._stated[factor] = (low, min(high, bound))


def _scope(constraints: Sequence[str], least: int, strict: bool) -> SymbolicScope:
    return SymbolicScope(constraints, least=least, strict=strict)


def _mentions(d: Dim, factor: Factor) -> bool:
    if not isinstance(d, DimExpr):
        return False
    names = {factor.text} if factor.kind == VAR else set()
    return factor in d.factors() or bool(names & d.variables())


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[Any] | None = None,
) -> tuple[Dim, ...]:
    """A shape with named sizes, for programs that are traced once for all sizes.

    Args:
        shape_spec: sizes separated by commas: numbers, names, expressions such as ``2*b + 1``,
            ``floordiv(b, 2)``, ``mod(b, 3)``, ``max(a, b)``; ``_`` and a last ``...`` take
            sizes from ``like``. None takes all of them.
        constraints: what is known of the sizes, such as ``"b >= 4"``; for a new scope.
        scope: where the names belong; by default a new scope.
        like: sizes, or an array with a shape.

    Returns:
        A tuple of ints and symbolic dimensions.

    Raises:
        ArgumentValueError: a syntax error, a placeholder without a size, or both a scope and
            constraints.
        ArgumentSpecError: ``shape_spec`` is no string.

    >>> from tracebridge.symbolic_shapes import symbolic_shape
    >>> symbolic_shape("b, _, 2*b + 1", like=(None, 3, None))
    (b, 3, 2*b + 1)
    """
    given: Any = shape_spec
    if not isinstance(given, str | None):
        raise ArgumentSpecError(
            f"symbolic_shape: shape_spec is {shape_spec!r} of type {type(shape_spec).__name__}",
            expected="a string such as 'b, 3', or None",
        )
    if scope is not None and constraints:
        msg = (
            "symbolic_shape: got a scope and constraints; state the constraints where the scope "
            "is made, as in SymbolicScope(constraints)"
        )
        raise ArgumentValueError(msg)
    symbolic_scope = SymbolicScope(constraints) if scope is None else scope
    sizes = getattr(like, "shape", like)
    return parse_shape("..." if shape_spec is None else shape_spec, symbolic_scope.variable, sizes)
