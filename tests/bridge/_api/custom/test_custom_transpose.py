"""custom_transpose: linear functions with a transpose of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.custom_transpose import custom_transpose


def make() -> Any:
    """``k * x`` with ten times its transpose."""
    f = custom_transpose(lambda k, x: x * k)
    f.def_transpose(lambda k, ct: ct * k * 10.0)
    return f


X = tnp.asarray([1.0, 2.0])


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_modes(wrap: Any) -> None:
    """The function forwards, the transpose backwards, what the transpose does twice backwards."""
    f = make()
    g = lambda x: f(tb.typeof(x), 3.0, x)

    assert float(wrap(g)(2.0)) == 6.0
    assert float(wrap(lambda x: tb.jvp(g, (x,), (1.0,))[1])(2.0)) == 3.0
    assert float(wrap(tb.grad(g))(2.0)) == 30.0
    assert float(wrap(tb.linear_transpose(g, 1.0))(1.0)[0]) == 30.0
    twice = tb.linear_transpose(lambda ct: tb.linear_transpose(g, 1.0)(ct)[0], 1.0)
    assert float(wrap(twice)(1.0)[0]) == 30.0


def test_compositions() -> None:
    """Mapped over residuals, linear arguments or both; in loops; under checkpoint."""
    f = make()
    g = lambda k, x: f(tb.typeof(x), k, x)
    slope = tb.grad(g, 1)

    assert tb.vmap(slope)(X, X).tolist() == [10.0, 20.0]
    assert tb.vmap(slope, (0, None))(X, 1.0).tolist() == [10.0, 20.0]
    assert tb.vmap(slope, (None, 0))(3.0, X).tolist() == [30.0, 30.0]
    loop = lambda x: tb.lax.scan(lambda c, _: (g(2.0, c), None), x, None, length=3)[0]
    assert float(tb.grad(loop)(1.0)) == 20.0**3
    assert float(tb.grad(tb.checkpoint(lambda x: g(3.0, x)))(1.0)) == 30.0


def test_trees_and_zeros() -> None:
    """Arguments and results are trees; None stands for zeros."""
    f = custom_transpose(lambda r, x: {"s": r * x["a"] + x["b"]})
    f.def_transpose(lambda r, ct: {"a": ct["s"] * r, "b": None})
    loss = lambda x: tnp.sum(f({"s": tb.typeof(X)}, 2.0, x)["s"])

    slopes = tb.grad(loss)({"a": X, "b": X})
    assert [v.tolist() for v in (slopes["a"], slopes["b"])] == [[2.0, 2.0], [0.0, 0.0]]


def test_is_traced_once_per_type() -> None:
    """Calls in a loop find the traces of function and transpose."""
    traced: list[str] = []

    @custom_transpose
    def f(k: Any, x: Any) -> Any:
        traced.append("fun")
        return x * k

    @f.def_transpose
    def back(k: Any, ct: Any) -> Any:
        traced.append("transpose")
        return ct * k

    for x in (1.0, 2.0, 3.0):
        tb.grad(lambda x: f(tb.typeof(x), 2.0, x))(x)

    assert traced == ["fun", "transpose"]


def test_errors() -> None:
    """Types of results, structures of cotangents, missing rules, residuals with derivatives."""
    f = make()
    with pytest.raises(CustomRuleError, match="not of the types out_types"):
        f(tb.ShapeDtypeStruct((2,), np.float32), 3.0, 1.0)
    with pytest.raises(CustomRuleError, match="a residual is differentiated"):
        tb.grad(lambda k: f(tb.typeof(k), k, 1.0))(2.0)
    with pytest.raises(CustomRuleError, match="without a transpose"):
        custom_transpose(lambda k, x: x)(tb.typeof(1.0), 1.0, 1.0)
    wrong = custom_transpose(lambda k, x: x[0])
    wrong.def_transpose(lambda k, ct: (ct, ct))
    with pytest.raises(CustomRuleError, match="another structure than the linear arguments"):
        wrong(tb.typeof(1.0), 1.0, [1.0])
    other = custom_transpose(lambda k, x: x)
    other.def_transpose(lambda k, ct: tnp.stack([ct, ct]))
    with pytest.raises(CustomRuleError, match="another type than linear_args"):
        other(tb.typeof(1.0), 1.0, 1.0)
    with pytest.raises(ArgumentSpecError, match="expected a function"):
        make().def_transpose(3)
    with pytest.raises(TypeError, match="expected a function"):
        custom_transpose(3)
