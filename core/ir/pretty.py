"""Jaxprs as text.

    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }

Array constants stand before the semicolon, inputs after it. A program that does not fit on one
line has one line for each equation. Names are given in the order of printing: a, b, ..., z, ba.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.ir.atoms import DropVar, LiteralAtom, Var
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.atoms import JaxprEqn
    from tracebridge.core.ir.aval import ShapedArray

WIDTH = 80
_MAX_VALUE = 200

# Parameters that say nothing where they have this value.
_HIDDEN: dict[tuple[str, str], Any] = {("jit", "donated"): (), ("jit", "inline"): False}


def jaxpr_text(jaxpr: Jaxpr | ClosedJaxpr) -> str:
    """The text of a program."""
    program = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    return "\n".join(_Printer().program(program))


def equation_text(equation: JaxprEqn) -> str:
    """The text of one equation by itself; its results have the first names."""
    names: dict[Var, str] = {}

    def named(atom: Var | LiteralAtom) -> str:
        if isinstance(atom, LiteralAtom):
            return f"{atom.val}:{atom.aval.str_short()}"
        return names.setdefault(atom, name_of_variable(len(names)))

    outs = ["_" if isinstance(v, DropVar) else named(v) for v in equation.outvars]
    binders = [binder(n, v.aval) for n, v in zip(outs, equation.outvars, strict=True)]
    operands = [named(v) for v in equation.invars]
    return "\n".join(_Printer(len(names)).equation(equation.app, binders, operands))


def name_of_variable(number: int) -> str:
    """``a`` for 0, ``z`` for 25, ``ba`` for 26."""
    letters = ""
    while True:
        number, digit = divmod(number, 26)
        letters = chr(ord("a") + digit) + letters
        if not number:
            return letters


@final
class _Printer:
    """Gives names to variables, each used once in the whole text."""

    __slots__ = ("_names", "_width")

    def __init__(self, first: int = 0) -> None:
        self._names: Iterator[str] = map(name_of_variable, itertools.count(first))
        self._width = WIDTH

    def program(self, jaxpr: Jaxpr) -> list[str]:
        """The lines of a program; those after the first are indented relative to it."""
        used = {i for _, variables in jaxpr.equations for i in variables} | set(jaxpr.outs)
        n_in = jaxpr.n_in
        env: list[str] = [""] * n_in
        consts: list[str] = []
        constant_names: list[str] = []
        for c in jaxpr.consts:
            if type(c) is Literal:
                constant_names.append(literal_text(c))
            else:
                name = next(self._names)
                constant_names.append(name)
                consts.append(binder(name, c.aval))
        for i in range(n_in):
            env[i] = next(self._names)
        binders = [binder(n, a) for n, a in zip(env, jaxpr.in_avals, strict=True)]
        env.extend(constant_names)
        equations: list[list[str]] = []
        for app, variables in jaxpr.equations:
            outs: list[str] = []
            for aval in app.outs:
                name = next(self._names) if len(env) in used else "_"
                env.append(name)
                outs.append(binder(name, aval))
            equations.append(self.equation(app, outs, [env[i] for i in variables]))
        results = tuple_text([env[i] for i in jaxpr.outs])
        return _layout(consts, binders, equations, results, self._width)

    def equation(self, app: Application, outs: list[str], operands: list[str]) -> list[str]:
        """The lines of an equation."""
        left = f"{' '.join(outs)} = " if outs else ""
        right = f" {' '.join(operands)}" if operands else ""
        head = f"{left}{app.primitive.name}"
        params = self.params(app)
        if all([len(p) == 1 for p in params]):
            inside = f"[{' '.join([p[0] for p in params])}]" if params else ""
            line = f"{head}{inside}{right}"
            if len(line) <= self._width - 4 or not params:
                return [line]
        lines = [f"{head}["]
        for p in params:
            lines += [f"  {line}" for line in p]
        return [*lines, f"]{right}"]

    def params(self, app: Application) -> list[list[str]]:
        """The lines of each parameter, the name first and the others sorted."""
        primitive = app.primitive.name
        result: list[list[str]] = []
        for key in sorted(app.params, key=lambda k: (k != "name", k)):
            value = app.params[key]
            if value is None or _HIDDEN.get((primitive, key), _NOTHING) == value:
                continue
            # Programs in parameters stand further to the right.
            self._width -= 6 + len(key)
            lines = self.value(value)
            self._width += 6 + len(key)
            result.append([f"{key}={lines[0]}", *lines[1:]])
        return result

    def value(self, value: object) -> list[str]:
        """The lines of a parameter's value."""
        if isinstance(value, Jaxpr | ClosedJaxpr):
            return self.program(value.jaxpr if isinstance(value, ClosedJaxpr) else value)
        if isinstance(value, tuple) and any([isinstance(v, Jaxpr | ClosedJaxpr) for v in value]):
            inside = [f"  {line}" for v in value for line in self.value(v)]
            return ["(", *inside, ")"]
        return [value_text(value)]


_NOTHING = object()


def _layout(
    consts: list[str], binders: list[str], equations: list[list[str]], results: str, width: int
) -> list[str]:
    """A program on one line, if it fits."""
    head = f"{{ lambda {' '.join(consts)}; "
    body = "; ".join([lines[0] for lines in equations])
    line = f"{head}{' '.join(binders)}. let {body} in {results} }}"
    if len(line) <= width and all([len(lines) == 1 for lines in equations]):
        return [line]
    words = [head.rstrip(" "), *binders] if binders else [head]
    words[-1] += ". let"
    lines = _wrap(words, width)
    for equation in equations:
        lines += [f"    {line}" for line in equation]
    return [*lines, f"  in {results} }}"]


def _wrap(words: Sequence[str], width: int) -> list[str]:
    """Words on lines of limited width; further lines are indented."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return lines


def binder(name: str, aval: ShapedArray) -> str:
    """A variable with its type."""
    return f"{name}:{aval.str_short()}"


def literal_text(literal: Literal) -> str:
    """A constant with its type: ``2.0:f32[]``."""
    return f"{literal.value}:{literal.aval.str_short()}"


def tuple_text(words: Sequence[str]) -> str:
    """Words as a tuple: ``(a, b)``, ``(a,)``, ``()``."""
    return f"({words[0]},)" if len(words) == 1 else f"({', '.join(words)})"


def value_text(value: object) -> str:
    """A parameter that is no program, on one line."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple_text([value_text(v) for v in value])
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    if type(value).__repr__ is object.__repr__ and type(value).__str__ is object.__str__:
        # The address in memory is another one in each run.
        return type(value).__name__
    text = str(value).replace("\n", " ")
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."
