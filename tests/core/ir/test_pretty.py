"""Jaxprs as text."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.ir.pretty import literal_text, name_of_variable, tuple_text, value_text
from tracebridge.core.ir.values import literal
from tracebridge.experimental.custom_dce import custom_dce


def text(f: Any, *args: Any) -> str:
    """The program of ``f``."""
    return str(tb.make_jaxpr(f)(*args))


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lax.sin, "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }"),
        (
            lambda x: lax.cos(lax.sin(x)),
            "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = cos b in (c,) }",
        ),
        (lambda x: lax.add(x, 2.0), "{ lambda ; a:f32[]. let b:f32[] = add a 2.0:f32[] in (b,) }"),
        (lambda x: x, "{ lambda ; a:f32[]. let  in (a,) }"),
        (lambda x: (x, 3, x), "{ lambda ; a:f32[]. let  in (a, 3:i32[], a) }"),
        (lambda x: (), "{ lambda ; a:f32[]. let  in () }"),
    ],
)
def test_short_programs_stand_on_one_line(f: Any, expected: str) -> None:
    """Binders, equations joined by semicolons, results."""
    assert expected == text(f, 1.0)


def test_no_arguments() -> None:
    """A program of constants."""
    assert "{ lambda ; . let  in (2.0:f32[],) }" == text(lambda: 2.0)


def test_constants_stand_before_the_semicolon() -> None:
    """Arrays are constants with names; numbers stand in the equations."""
    table = tnp.arange(3.0)

    assert "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = mul b a in (c,) }" == text(
        lambda x: lax.mul(x, table), np.ones(3, np.float32)
    )


def test_long_programs_have_a_line_per_equation() -> None:
    """Equations are indented; parameters stand in brackets."""

    def f(x: Any) -> Any:
        return lax.reduce_sum(lax.mul(lax.sin(x), x), (0,))

    assert text(f, np.ones(3, np.float32)) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = sin a\n"
        "    c:f32[3] = mul b a\n"
        "    d:f32[] = reduce_sum[axes=(0,)] c\n"
        "  in (d,) }"
    )


def test_many_arguments_are_wrapped() -> None:
    """Lines stay within the width; the names go on after z."""
    lines = text(lambda *xs: xs[-1], *[1.0] * 30).split("\n")

    assert all(len(line) <= 80 for line in lines)
    assert "{ lambda ; a:f32[] b:f32[] " in lines[0]
    assert lines[-2].endswith("bd:f32[]. let")
    assert "  in (bd,) }" == lines[-1]


def test_programs_in_parameters() -> None:
    """They stand below their equation, with names of their own."""
    inner = tb.jit(lambda y: lax.mul(lax.sin(y), 2.0))

    assert text(lambda x: lax.add(inner(x), 1.0), np.ones(3, np.float32)) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = jit[\n"
        "      name=<lambda>\n"
        "      jaxpr={ lambda ; c:f32[3]. let\n"
        "          d:f32[3] = sin c\n"
        "          e:f32[3] = mul d 2.0:f32[]\n"
        "        in (e,) }\n"
        "    ] a\n"
        "    f:f32[3] = add b 1.0:f32[]\n"
        "  in (f,) }"
    )


def test_several_programs_in_a_parameter() -> None:
    """A tuple of programs has one per line."""
    branches = (lambda x: lax.sin(x), lambda x: lax.cos(x))

    printed = text(lambda i, x: lax.switch(i, branches, x), 0, 1.0)

    assert (
        "      branches=(\n"
        "        { lambda ; f:f32[]. let g:f32[] = sin f in (g,) }\n"
        "        { lambda ; h:f32[]. let i:f32[] = cos h in (i,) }\n"
        "      )\n"
    ) in printed


def test_unused_results_have_no_name() -> None:
    """They are written as an underscore."""
    printed = text(lambda x: lax.sort((x, x), num_keys=1)[0], np.ones(3, np.float32))

    assert "a:f32[3]. let" in printed
    assert "_:f32[3] = sort" in printed


@pytest.mark.parametrize(
    ("number", "name"), [(0, "a"), (25, "z"), (26, "ba"), (27, "bb"), (676, "baa")]
)
def test_names_of_variables(number: int, name: str) -> None:
    """Letters, in base 26."""
    assert name == name_of_variable(number)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.dtype("float32"), "float32"),
        ((1, (2,), ()), "(1, (2,), ())"),
        (tnp.sin, "sin"),
        (enum.Enum("Mode", "FAST").FAST, "Mode.FAST"),
        (object(), "object"),
        ((object(),), "(object,)"),
        ("a\nb", "a b"),
        ("x" * 300, "x" * 197 + "..."),
        (None, "None"),
    ],
)
def test_values_of_parameters(value: Any, expected: str) -> None:
    """One line, not too long."""
    assert expected == value_text(value)


@pytest.mark.parametrize("transform", [lambda f: f, tb.vmap, lambda f: lambda x: f(x)[0]])
@pytest.mark.parametrize("kind", ["jvp", "vjp", "vmap", "dce"])
def test_texts_of_custom_rules_are_the_same_in_each_run(kind: str, transform: Any) -> None:
    """Rules are shown by the name of their function, not by their address in memory."""

    def program() -> str:
        def twice(x: Any) -> Any:
            return lax.sin(x), lax.sin(x)

        f: Any
        if kind == "jvp":
            f = tb.custom_jvp(twice)
            f.defjvp(lambda p, t: (twice(*p), twice(*t)))
        elif kind == "vjp":
            f = tb.custom_vjp(twice)
            f.defvjp(lambda x: (twice(x), x), lambda r, cts: (r * cts[0],))
        elif kind == "vmap":
            f = tb.custom_batching.custom_vmap(twice)
            f.def_vmap(lambda size, batched, x: (twice(x), (True, True)))
        else:
            f = custom_dce(twice)
            f.def_dce(lambda used, x: (lax.sin(x), lax.sin(x)))
        return text(transform(f), np.ones(2, np.float32))

    first = program()

    assert first == program()
    assert " object at " not in first


def test_texts_of_rules_name_their_function() -> None:
    """A call of a function with an own derivative says whose it is."""
    f = tb.custom_jvp(lax.sin)
    f.defjvp(lambda p, t: (lax.sin(*p), t[0]))

    assert "JvpRule(sin)" in text(f, 1.0)


def test_precisions_are_shown_as_they_are_written() -> None:
    """Members of enumerations stand with their class."""
    shown = text(lambda x: tnp.dot(x, x, precision="high"), np.ones(3, np.float32))

    assert "precision=(Precision.HIGH, Precision.HIGH)" in shown


def test_literals_and_tuples() -> None:
    """A constant shows its type; a tuple of one keeps its comma."""
    assert "nan:f32[]" == literal_text(literal(float("nan"), np.float32))
    assert "True:bool[]" == literal_text(literal(True, np.bool_))
    assert ["()", "(a,)", "(a, b)"] == [tuple_text(w) for w in ([], ["a"], ["a", "b"])]


def test_equations_by_themselves() -> None:
    """They stand as in a program; names start anew, and one that has no result has no sign."""
    program = tb.make_jaxpr(lambda x: tb.jit(lambda y: (y + 1, -y))(tnp.sin(x) * 2.0)[1])(1.0)
    printing = tb.make_jaxpr(lambda x: tb.debug.print("{}", x))(1.0)

    assert ["a:f32[] = sin b", "a:f32[] = mul b 2.0:f32[]"] == [str(e) for e in program.eqns[:2]]
    assert repr(program.eqns[2]).startswith("_:f32[] a:f32[] = jit[")
    assert repr(program.eqns[2]).endswith("] b")
    assert str(printing.eqns[0]).startswith("debug_callback[")
