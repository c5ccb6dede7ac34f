"""The text form of dimensions, shapes and constraints.

dim        = term {("+" | "-") term}
term       = unary {("*" | "//" | "%") unary}
unary      = ("-" | "+") unary | power
power      = atom [("^" | "**") number]
atom       = number | name | function "(" dim {"," dim} ")" | "(" dim ")"
function   = "floordiv" | "mod" | "max" | "min" | "non_negative"
constraint = dim ("==" | ">=" | "<=" | ">" | "<") dim
shape      = ["("] [entry {"," entry} [","]] [")"];  entry = dim | "_";  the last may be "..."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.symbolic.dims import Dim, DimExpr, floordiv, max_dim, min_dim, mod

Variable = Callable[[str], Dim]
"""Gives the dimension of a variable's name."""

Constraint = tuple[Dim, str, Dim]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)|(?P<symbol>\.\.\.|//|\*\*|==|>=|<=|[-+*%^(),<>]))"
)
_FUNCTIONS: Final[dict[str, Callable[..., Dim]]] = {
    "floordiv": floordiv,
    "mod": mod,
    "max": max_dim,
    "min": min_dim,
}
_UNARY: Final[dict[str, Callable[[Dim], Dim]]] = {"non_negative": lambda dim: max_dim(dim, 0)}
_BINARY: Final = 2
_RELATIONS: Final = ("==", ">=", "<=", ">", "<")


class _Parser:
    def __init__(self, call: str, text: str, variable: Variable) -> None:
        self.call = call
        self.text = text
        self.variable = variable
        self.tokens: list[tuple[str, str, int]] = []
        self.position = 0
        self._tokenize()

    def _tokenize(self) -> None:
        at = 0
        text = self.text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                self.fail("a number, a name or an operator", at)
            self.tokens.append(
                (found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            )
            at = found.end()
        self.tokens.append(("end", "", len(text)))

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        """Raise the error that points at the present token."""
        at = self.tokens[self.position][2] if at is None else at
        got = repr(self.text[at:]) if self.text[at:].strip() else "the end"
        msg = (
            f"{self.call}: syntax error in symbolic shape {self.text!r} at column {at + 1}: "
            f"got {got}, expected {expected}"
        )
        raise ArgumentValueError(msg)

    def peek(self) -> str:
        """The present token as text; names and numbers give their kind."""
        kind, text, _ = self.tokens[self.position]
        return text if kind == "symbol" else kind

    def take(self) -> str:
        """The present token's text; moves on."""
        text = self.tokens[self.position][1]
        self.position += 1
        return text

    def accept(self, *symbols: str) -> str | None:
        """Take the present token if it is one of the symbols."""
        return self.take() if self.peek() in symbols else None

    def expect(self, symbol: str, expected: str) -> None:
        """Take a symbol or fail."""
        if self.accept(symbol) is None:
            self.fail(expected)

    def dim(self) -> Dim:
        result = self.term()
        while (symbol := self.accept("+", "-")) is not None:
            other = self.term()
            result = result + other if symbol == "+" else result - other
        return result

    def term(self) -> Dim:
        result = self.unary()
        while (symbol := self.accept("*", "//", "%")) is not None:
            other = self.unary()
            if symbol == "*":
                result = result * other
            else:
                result = floordiv(result, other) if symbol == "//" else mod(result, other)
        return result

    def unary(self) -> Dim:
        if self.accept("-"):
            return -self.unary()
        return self.unary() if self.accept("+") else self.power()

    def power(self) -> Dim:
        result = self.atom()
        if self.accept("^", "**"):
            if self.peek() != "number":
                self.fail("a constant power")
            result = result ** int(self.take())
        return result

    def atom(self) -> Dim:
        kind = self.peek()
        if kind == "number":
            return int(self.take())
        if kind == "name":
            at = self.position
            name = self.take()
            if name in (*_FUNCTIONS, *_UNARY) and self.peek() == "(":
                return self.function(name)
            if name == "_":
                self.position = at
                self.fail("a dimension; the placeholder _ stands for a whole entry of a shape")
            return self.variable(name)
        if self.accept("("):
            result = self.dim()
            self.expect(")", "')'")
            return result
        return self.fail("a number, a name, a function or '('")

    def function(self, name: str) -> Dim:
        self.expect("(", "'('")
        operands = [self.dim()]
        while self.accept(","):
            operands.append(self.dim())
        self.expect(")", "',' or ')'")
        if name in _UNARY:
            if len(operands) > 1:
                self.fail(f"{name} with one operand")
            return _UNARY[name](operands[0])
        if len(operands) < _BINARY or (name in {"floordiv", "mod"} and len(operands) > _BINARY):
            self.fail(f"{name} with two operands")
        return _FUNCTIONS[name](*operands)


def parse_dim(text: str, variable: Variable, call: str = "symbolic dimension") -> Dim:
    """The dimension that a text such as ``"2*b + 1"`` means.

    Raises:
        ValueError: a syntax error; the message points at it.
    """
    parser = _Parser(call, text, variable)
    result = parser.dim()
    if parser.peek() != "end":
        parser.fail("the end")
    return result


def parse_constraint(text: str, variable: Variable, call: str = "constraint") -> Constraint:
    """``(left, relation, right)`` of a text such as ``"b >= 4"``.

    Raises:
        ValueError: a syntax error; the message points at it.
    """
    if not any(relation in text for relation in _RELATIONS):
        msg = f"{call}: {text!r} must contain one of '==' or '>=' or '<=' or '>' or '<'"
        raise ArgumentValueError(msg)
    parser = _Parser(call, text, variable)
    left = parser.dim()
    relation = parser.accept(*_RELATIONS)
    if relation is None:
        parser.fail("one of " + " ".join(_RELATIONS))
    right = parser.dim()
    if parser.peek() != "end":
        parser.fail("the end")
    return left, relation, right


def parse_shape(
    text: str, variable: Variable, like: Sequence[Any] | None, call: str = "symbolic_shape"
) -> tuple[Dim, ...]:
    """The shape that a text such as ``"b, _, ..."`` means.

    Args:
        text: the entries, with or without parentheses around them.
        variable: gives the dimension of a name.
        like: sizes for ``_`` and ``...``; None where a size is not known.
        call: the public function, for messages.

    Raises:
        ValueError: a syntax error, or a placeholder that ``like`` does not fill.
    """
    parser = _Parser(call, text, variable)
    closing = _opens_shape(parser)
    dims: list[Dim] = []
    while parser.peek() not in {"end", ")"}:
        if parser.peek() == "...":
            dims += _rest(parser, like, len(dims))
            parser.take()
            break
        dims.append(_entry(parser, like, len(dims)))
        if not parser.accept(","):
            break
    if closing:
        parser.expect(")", "',' or ')'")
    if parser.peek() != "end":
        parser.fail("',' or the end")
    if like is not None and len(dims) != len(like):
        msg = (
            f"{call}: syntax error in symbolic shape {text!r}: it has {len(dims)} dimensions, "
            f"like={tuple(like)} has {len(like)}"
        )
        raise ArgumentValueError(msg)
    return tuple(dims)


def _opens_shape(parser: _Parser) -> bool:
    """Take a parenthesis that encloses the whole shape, and not only its first entry."""
    depth = 0
    for i, (kind, text, _) in enumerate(parser.tokens):
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth == 0:
            whole = i > 0 and kind == "symbol" and parser.tokens[i + 1][0] == "end"
            return whole and parser.accept("(") is not None
    return False


def _entry(parser: _Parser, like: Sequence[Any] | None, i: int) -> Dim:
    known = like[i] if like is not None and i < len(like) else None
    if parser.tokens[parser.position][1] == "_":
        if known is None:
            parser.fail(f"a dimension: {_no_size(like)} for the placeholder _ at entry {i}")
        parser.take()
        return known if isinstance(known, DimExpr) else int(known)
    start = parser.position
    result = parser.dim()
    if isinstance(result, int) and isinstance(known, int) and result != known:
        parser.position = start
        parser.fail(f"no different size than {known}, which like={like} has at entry {i}")
    return result


def _no_size(like: Sequence[Any] | None) -> str:
    return "no 'like' shape was given" if like is None else f"like={like} has no size"


def _rest(parser: _Parser, like: Sequence[Any] | None, done: int) -> list[Dim]:
    sizes = None if like is None else list(like[done:])
    if sizes is None or any(size is None for size in sizes):
        parser.fail(f"dimensions: {_no_size(like)} for the placeholder ...")
    return [size if isinstance(size, DimExpr) else int(size) for size in sizes]
