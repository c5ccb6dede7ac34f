"""Symbolic shapes: how they are written, and functions traced for all sizes."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.interpreters.specialize import specialize_jaxpr
from tracebridge.errors import (
    ArgumentValueError,
    InconclusiveDimensionError,
    TreeMismatchError,
)
from tracebridge.symbolic_shapes import (
    SymbolicScope,
    is_symbolic_dim,
    symbolic_args_specs,
    symbolic_shape,
)


def spec(shape, dtype="float32", **options):
    return tb.ShapeDtypeStruct(symbolic_shape(shape, **options), dtype)


def shapes_of(f, *args):
    return tb.tree.map(lambda s: (tuple(map(str, s.shape)), s.dtype.name), tb.eval_shape(f, *args))


def at_sizes(f, structs, args, **sizes):
    """``f`` traced for all sizes, then run at some; and the same without symbols."""
    closed = tb.make_jaxpr(f)(*structs)
    concrete = specialize_jaxpr(closed.jaxpr, sizes)
    return tb.core.eval_jaxpr(concrete, closed.consts, *args), tb.tree.leaves(f(*args))


X = np.float32([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

FUNCTIONS = {
    "sizes as numbers": lambda x: x * x.shape[0] + x.shape[1] / 2,
    "sizes in arithmetic": lambda x: x[0, 0] + (x.shape[0] + 1) // 2 - (x.shape[1] * 3) % 4,
    "numbers and sizes": lambda x: x + 2.0 * x.shape[0] - np.float32(3) / x.shape[1],
    "arrays and sizes": lambda x: np.arange(3.0, dtype=np.float32) + x.shape[0],
    "powers of sizes": lambda x: x * x.shape[1] ** 2 + 2.0 ** x.shape[0],
    "reshape": lambda x: x.reshape(-1),
    "reduce": lambda x: (x.sum(0), x.mean(), x.max(1)),
    "slice": lambda x: (x[1:], x[:-1, ::2], x[: x.shape[0] // 2]),
    "product": lambda x: x @ x.T,
    "made of sizes": lambda x: tnp.arange(x.shape[0]) + tnp.ones(x.shape[0]),
    "concatenate": lambda x: tnp.concatenate([x, x], axis=1),
    "compiled inside": lambda x: tb.jit(lambda y: y + tnp.ones(y.shape))(x),
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c.sum()), x[0], x),
    "while_loop": lambda x: lax.while_loop(lambda y: y.sum() < 99, lambda y: 2 * y, x),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda y: y, tnp.zeros_like, x),
    "grad": tb.grad(lambda x: (tnp.sin(x) * x.shape[0]).sum()),
    "jvp": lambda x: tb.jvp(tnp.sin, (x,), (x,)),
    "vmap": tb.vmap(lambda row: row.sum() * row.shape[0]),
    "checkpoint": tb.grad(lambda x: tb.checkpoint(lambda y: tnp.sin(y).sum())(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_for_all_sizes(name):
    """The program for all sizes, at given sizes, computes what the function computes there."""
    f = FUNCTIONS[name]
    got, expected = at_sizes(f, [spec("b, c")], [X], b=2, c=3)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(e, g, rtol=1e-5)
    assert "tensor<?x?xf32>" in tb.jit(f).lower(spec("b, c")).as_text()


def test_shapes_of_results():
    """Shapes of results are expressions of those of arguments."""
    assert (("b*c",), "float32") == shapes_of(lambda x: x.reshape(-1), spec("b, c"))
    assert (("2*b + 1", "3"), "float32") == shapes_of(
        lambda x: tnp.concatenate([x, x, tnp.ones((1, 3))]), spec("b, 3")
    )
    assert (("b", "b"), "float32") == shapes_of(lambda x: x @ x.T, spec("b, c"))


def test_sizes_are_weakly_typed_operands():
    """A size yields to the dtype of arrays, as a Python integer does."""
    out = tb.eval_shape(lambda x: (x * x.shape[0], tnp.asarray(x.shape[0])), spec("b", "bfloat16"))
    assert ["bfloat16", "int32"] == [o.dtype.name for o in out]
    assert out[1].weak_type


@pytest.mark.parametrize("symbol", ["add", "sub", "mul", "truediv", "floordiv", "mod"])
@pytest.mark.parametrize("other", [2, 2.5, np.float32(2.5), np.arange(1, 4), np.array(3)])
@pytest.mark.parametrize("swapped", [False, True])
def test_operators_of_sizes_and_numbers(symbol, other, swapped):
    """Operators give what they give for integers; where that is no size, an array."""
    operation = getattr(operator, symbol)

    def f(x):
        size = 2 * x.shape[0]
        return tnp.asarray(operation(other, size) if swapped else operation(size, other)), x

    (got, _), (expected, _) = at_sizes(f, [spec("b")], [np.ones(5, np.float32)], b=5)
    np.testing.assert_allclose(np.asarray(expected, np.float32), got, rtol=1e-5)


def test_decisions():
    """Comparisons hold for all sizes, or say what they depend on."""
    a, b = symbolic_shape("a, b", constraints=["a >= 4", "b <= 3"])
    assert a >= 4
    assert a > b
    assert b != a
    assert tb.core.max_dim(a, b) == a
    assert tb.core.min_dim(a, 2) == 2
    with pytest.raises(
        InconclusiveDimensionError,
        match=r"'a' >= '5'.*depends on the values of a with constraints: a >= 4",
    ):
        assert a >= 5
    assert tb.core.InconclusiveDimensionOperation is InconclusiveDimensionError
    assert [True, False, False] == [is_symbolic_dim(d) for d in (a, 3, a - a)]


def test_wrong_shapes_and_constraints():
    """Syntax errors, contradictions and mixed scopes are explained."""
    with pytest.raises(ArgumentValueError, match="at column 3"):
        symbolic_shape("a a")
    with pytest.raises(ArgumentValueError, match="no sizes of at least 1"):
        symbolic_shape("a", constraints=["a <= 0"])
    with pytest.raises(ArgumentValueError, match="should be a sequence of strings"):
        SymbolicScope("a >= 1")
    with pytest.raises(ValueError, match="mixing of symbolic scopes"):
        symbolic_shape("a")[0] + symbolic_shape("a")[0]
    assert (2,) == symbolic_shape("+ 2")


def test_specs_of_trees():
    """Strings stand for leaves or whole branches; names of one call share a scope."""
    args = (X, {"w": X, "n": 3})
    whole = symbolic_args_specs(args[:1], "b, ...")
    assert [("b", 3)] == [tuple(map(_plain, s.shape)) for s in whole]
    parts = symbolic_args_specs(args, ("b, c", {"w": "c, _", "n": None}), constraints=["b >= 2"])
    assert [("b", "c"), (), ("c", 3)] == [
        tuple(map(_plain, s.shape)) for s in tb.tree.leaves(parts)
    ]
    assert parts[0].shape[1] == parts[1]["w"].shape[0]
    assert parts[0].shape[0] >= 2
    wide = symbolic_args_specs((np.ones(2), np.ones(2, np.int64)), "n")
    assert ["float32", "int32"] == [w.dtype.name for w in wide]
    assert (2, 3) == symbolic_args_specs(X, None).shape
    scope = SymbolicScope()
    assert symbolic_args_specs(X, "b, c", scope=scope).shape[0].scope is scope


def _plain(d):
    return str(d) if is_symbolic_dim(d) else d


def test_wrong_specs():
    """No prefix, no string, and a scope beside constraints are refused."""
    with pytest.raises(TreeMismatchError, match="shapes_specs"):
        symbolic_args_specs((X, X), ("b", "b", "b"))
    with pytest.raises(ArgumentValueError, match=r"got 5 for args\[1\]"):
        symbolic_args_specs((X, X), ("b, c", 5))
    with pytest.raises(ArgumentValueError, match="a scope and constraints"):
        symbolic_args_specs(X, "b, c", constraints=["b >= 2"], scope=SymbolicScope())
    with pytest.raises(ArgumentValueError, match="no different size than 3"):
        symbolic_args_specs(X, "b, 4")


def test_sizes_have_no_value_outside_of_programs():
    """Operations on sizes alone cannot be evaluated."""
    (b,) = symbolic_shape("b")
    for use in (lambda: tnp.sin(b), lambda: tnp.zeros(b), lambda: tb.jit(lambda: b * 2.0)()):
        with pytest.raises(InconclusiveDimensionError, match="value only inside a function"):
            use()


def test_traces_once_for_all_sizes():
    """Specs with the same sizes of one scope are one type."""
    calls = []

    @tb.jit
    def f(x):
        calls.append(x.shape)
        return x + 1

    scope = SymbolicScope()
    for _ in range(2):
        f.lower(spec("b", scope=scope))
    assert 1 == len(calls)
    f.lower(spec("b"))
    assert 2 == len(calls)


def test_export_passes_the_names_on():
    """What stood in `export` before is still found there: the same objects."""
    for name in tb.symbolic_shapes.__all__:
        assert getattr(tb.export, name) is getattr(tb.symbolic_shapes, name)
