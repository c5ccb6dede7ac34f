"""Wrong operands of array functions, and arrays that are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors

lax = tb.lax


def v() -> Any:
    """A vector."""
    return tnp.arange(3.0)


def m() -> Any:
    """A matrix."""
    return tnp.ones((2, 3))


CASES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    # shapes and ranks
    "sum over a missing axis": (
        lambda: tnp.sum(m(), axis=2),
        errors.AxisError,
        ("sum", "axis 2", "from -2 to 1"),
    ),
    "sum over an axis twice": (lambda: tnp.sum(m(), axis=(0, 0)), ValueError, ("sum", "(0, 0)")),
    "axis of a wrong type": (
        lambda: tnp.sum(m(), axis="a"),
        TypeError,
        ("axis", "'a'", "str", "int"),
    ),
    "inner sizes": (
        lambda: m() @ m(),
        errors.ShapeMismatchError,
        ("matmul", "f32[2,3]", "3 and 2"),
    ),
    "matmul of a scalar": (
        lambda: tnp.matmul(1.0, m()),
        errors.RankError,
        ("matmul", "f32[]", "*"),
    ),
    "add": (
        lambda: m() + tnp.ones(4),
        errors.BroadcastError,
        ("add", "(2, 3)", "(4,)", "equal or 1"),
    ),
    "lax.add of shapes": (
        lambda: lax.add(m(), v()),
        errors.ShapeMismatchError,
        ("add", "(2, 3)", "(3,)"),
    ),
    "lax.add of dtypes": (
        lambda: lax.add(v(), tnp.arange(3)),
        errors.DtypeMismatchError,
        ("add", "f32[3]", "i32[3]"),
    ),
    "reshape": (
        lambda: tnp.reshape(m(), (4, 2)),
        errors.ShapeMismatchError,
        ("reshape", "6", "(4, 2)", "8"),
    ),
    "reshape with two unknowns": (
        lambda: tnp.reshape(m(), (-1, -1)),
        errors.ShapeMismatchError,
        ("one size", "-1"),
    ),
    "concatenate": (
        lambda: tnp.concatenate([m(), v()]),
        errors.ShapeMismatchError,
        ("f32[2,3]", "f32[3]"),
    ),
    "concatenate nothing": (
        lambda: tnp.concatenate([]),
        ValueError,
        ("concatenate", "at least one"),
    ),
    "stack": (lambda: tnp.stack([m(), v()]), errors.ShapeMismatchError, ("stack", "f32[2,3]")),
    "transpose": (
        lambda: tnp.transpose(m(), (0, 0)),
        errors.RankError,
        ("transpose", "(0, 0)", "permutation"),
    ),
    "squeeze": (lambda: tnp.squeeze(m(), 0), ValueError, ("squeeze", "axis 0", "size 2")),
    "expand_dims": (lambda: tnp.expand_dims(m(), 5), errors.AxisError, ("expand_dims", "axis 5")),
    "broadcast_to": (
        lambda: tnp.broadcast_to(m(), (2, 4)),
        errors.BroadcastError,
        ("broadcast to", "(2, 3)", "(2, 4)", "equal or 1"),
    ),
    "at set": (
        lambda: m().at[0].set(tnp.ones(5)),
        errors.BroadcastError,
        ("(5,)", "(3,)", "equal or 1"),
    ),
    "where": (
        lambda: tnp.where(v() > 1, m(), tnp.ones(5)),
        errors.BroadcastError,
        ("where", "(5,)"),
    ),
    "einsum": (
        lambda: tnp.einsum("ij,jk", m(), m()),
        errors.ShapeMismatchError,
        ("einsum", "'j'", "3 and 2"),
    ),
    "split": (
        lambda: tnp.split(v(), 2),
        errors.ShapeMismatchError,
        ("split", "size 3", "array_split"),
    ),
    "zeros of a negative size": (lambda: tnp.zeros((-1,)), ValueError, ("negative", "-1")),
    # operands
    "string": (
        lambda: tnp.sin("a"),
        errors.UnsupportedDtypeError,
        ("sin", "'a'", "str", "asarray"),
    ),
    "None": (lambda: tnp.add(m(), None), errors.UnsupportedDtypeError, ("add", "None", "NoneType")),
    "list": (lambda: tnp.sin([1.0]), errors.UnsupportedDtypeError, ("sin", "list", "asarray")),
    "string in lax": (lambda: lax.add("a", v()), errors.UnsupportedDtypeError, ("add", "'a'")),
    "object": (lambda: tnp.asarray(object()), errors.UnsupportedDtypeError, ("object",)),
    "bits of floats": (lambda: m() & m(), errors.UnsupportedDtypeError, ("bitwise_and", "float32")),
    "dtype that is none": (
        lambda: tnp.asarray(1, dtype="float99"),
        TypeError,
        ("'float99'", "expected a dtype"),
    ),
    # indices
    "too many indices": (lambda: m()[0, 0, 0], errors.IndexingError, ("2 axes", "has 3")),
    "string index": (lambda: m()["a"], TypeError, ("'a'", "string")),
    "float index": (lambda: m()[1.0], TypeError, ("index", "integer", "f32[]")),
    "assignment": (
        lambda: m().__setitem__(0, 1.0),
        TypeError,
        ("immutable", "x.at[index].set(value)"),
    ),
    # conversion to Python
    "truth of many": (lambda: bool(v()), ValueError, ("f32[3]", "more than one element", "any")),
    "int of many": (lambda: int(v()), TypeError, ("int(x)", "f32[3]", "scalar arrays")),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    """The class and every key word of the message; nothing is chained to it unasked."""
    run, cls, words = CASES[name]
    with pytest.raises(cls) as caught:
        run()
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert [] == missing, message
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_message_is_the_same_under_jit() -> None:
    """Staging finds the same mistake and words it alike."""
    for name in ("add", "inner sizes", "broadcast_to", "sum over a missing axis"):
        run, cls, _ = CASES[name]
        with pytest.raises(cls) as eager:
            run()
        with pytest.raises(cls) as staged:
            tb.jit(run)()
        assert str(eager.value) == str(staged.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1.0,
        lambda x: tb.jit(tnp.sin)(x),
        lambda x: tb.grad(lambda a: tnp.sum(a * a))(x),
        lambda x: np.asarray(x),
        lambda x: x.tolist(),
        lambda x: x[0],
    ],
    ids=["operator", "jit", "grad", "asarray", "tolist", "index"],
)
def test_donated_array(use: Callable[[Any], Any]) -> None:
    """Whoever uses a donated array is told its type and the function that took it."""
    x = tnp.ones(4) + 1.0

    def step(a: Any) -> Any:
        return a * 2.0

    tb.jit(step, donate_argnums=0)(x)
    with pytest.raises(errors.DeletedArrayError) as caught:
        use(x)
    for word in ("f32[4]", "donated to step", "way out"):
        assert word in str(caught.value)


def test_deleted_array() -> None:
    """A deleted array says so, and how to keep a copy."""
    x = tnp.ones(4) + 1.0
    x.delete()
    with pytest.raises(
        errors.DeletedArrayError, match=r"^Array has been deleted.*f32\[4\]"
    ) as caught:
        np.asarray(x)
    assert "x.copy()" in str(caught.value)


def test_array_donated_twice() -> None:
    """The same buffer cannot be given away twice in one call."""
    x = tnp.ones(4) + 1.0
    both = tb.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))
    with pytest.raises(errors.DonationError, match=r"argument 0 .* argument 1"):
        both(x, x)
    assert 2.0 == float(x[0])
