"""What traced values and arrays look like in text, and format specifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors


def texts_of(run: Callable[[Callable[[Any], Any]], Any]) -> list[str]:
    """The texts of the argument of a function that ``run`` transforms and calls."""
    found: list[str] = []

    def f(x: Any) -> Any:
        found.extend([repr(x), str(x), f"{x}", "%s" % x, format(x, "")])  # noqa: UP031 - it is tested
        return x * 2.0

    run(f)
    return found


TEXTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "jit": (lambda f: tb.jit(f)(tnp.ones(3)), "Traced<f32[3]>(x)"),
    "jit of a tree": (
        lambda f: tb.jit(lambda p: f(p["w"]))({"w": tnp.ones((2, 3))}),
        "Traced<f32[2,3]>(p['w'])",
    ),
    "grad": (lambda f: tb.grad(f)(1.5), "Traced<f32[]>(primal=1.5)"),
    "grad at an array": (lambda f: tb.vjp(f, tnp.ones(3)), "Traced<f32[3]>(primal=f32[3])"),
    "jvp": (
        lambda f: tb.jvp(f, (1.5,), (0.5,)),
        "Traced<f32[]>(primal=1.5, tangent=0.5)",
    ),
    "vmap": (
        lambda f: tb.vmap(f)(tnp.ones((4, 3))),
        "Traced<f32[3]>(one of a batch f32[4,3], axis 0)",
    ),
    "jit of grad": (
        lambda f: tb.jit(tb.grad(f))(1.5),
        "Traced<f32[]>(primal=Traced<f32[]>(x))",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_traced_values(name: str) -> None:
    """The type, and what is known about the value; no name of a class of the engine."""
    run, expected = TEXTS[name]

    assert {expected} == set(texts_of(run))


def test_text_of_a_result() -> None:
    """A value that was computed has its type."""
    found: list[str] = []
    tb.jit(lambda x: found.append(repr(x + 1.0)))(tnp.ones(3))

    assert ["Traced<f32[3]>"] == found


@pytest.mark.parametrize("run", [tb.jit, tb.grad, tb.vmap], ids=["jit", "grad", "vmap"])
def test_format_specification_of_a_traced_value(run: Any) -> None:
    """There is no number to format: the error says so, and what to do."""

    def f(x: Any) -> Any:
        return x * float(len(f"{x:.2f}"))

    with pytest.raises(errors.ConcretizationTypeError) as caught:
        run(f)(tnp.ones(2) if run is tb.vmap else 1.0)
    for word in ("'.2f'", "f32[]", "way out", "leave the specification out"):
        assert word in str(caught.value)


def test_format_specification_of_arrays() -> None:
    """Arrays without axes take those of numbers, others none, as those of NumPy."""
    assert "1.50" == f"{tnp.array(1.5):.2f}"
    assert "   3" == f"{tnp.array(3):4d}"
    assert "[1. 2.]" == f"{tnp.array([1.0, 2.0])}"
    with pytest.raises(errors.ArgumentTypeError):
        f"{tnp.array([1.0, 2.0]):9}"
    with pytest.raises(errors.ArgumentTypeError) as caught:
        f"{tnp.ones(3):.2f}"
    for word in ("'.2f'", "f32[3]", "without axes", "way out"):
        assert word in str(caught.value)


def test_format_specification_of_bfloat16() -> None:
    """Dtypes that NumPy does not have are formatted as numbers too."""
    assert "1.50" == f"{tnp.array(1.5, 'bfloat16'):.2f}"
