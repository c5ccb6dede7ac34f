"""Arguments with wrong values or types: our classes, the function, what was got, the way out."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors


def matrix() -> Any:
    """An array of shape (3, 4)."""
    return tnp.ones((3, 4))


def six() -> Any:
    """A vector of 6 elements."""
    return tnp.arange(6.0)


CASES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "repeated axis": (lambda: tnp.sum(matrix(), axis=(0, 0)), ValueError, ("sum", "(0, 0)")),
    "axis of a string": (lambda: tnp.sum(matrix(), axis="a"), TypeError, ("axis", "'a'", "int")),
    "squeeze": (lambda: tnp.squeeze(matrix(), 0), ValueError, ("squeeze", "f32[3,4]", "size 3")),
    "concatenate nothing": (lambda: tnp.concatenate([]), ValueError, ("concatenate", "empty")),
    "stack nothing": (lambda: tnp.stack([]), ValueError, ("stack", "at least one array")),
    "stack": (
        lambda: tnp.stack([six(), tnp.ones(4)]),
        ValueError,
        ("stack", "f32[6]", "f32[4]", "one shape"),
    ),
    "zeros": (lambda: tnp.zeros((2, -1)), ValueError, ("zeros", "-1", "negative")),
    "full": (lambda: tnp.full(-3, 1.0), ValueError, ("full", "-3", "negative")),
    "eye": (lambda: tnp.eye(-1), ValueError, ("eye", "-1", "negative")),
    "zeros of text": (lambda: tnp.zeros("2"), TypeError, ("zeros", "'2'", "int")),
    "reshape to text": (lambda: tnp.reshape(six(), "2"), TypeError, ("reshape", "'2'", "int")),
    "reshape to floats": (lambda: six().reshape(2.0, 3), TypeError, ("reshape", "2.0", "int")),
    "split": (lambda: tnp.split(six(), 4), ValueError, ("split", "4", "6")),
    "array_split": (lambda: tnp.array_split(six(), 0), ValueError, ("array_split", "0")),
    "take": (lambda: tnp.take(six(), 1, mode="raise"), ValueError, ("take", "'raise'", "'clip'")),
    "einsum label": (lambda: tnp.einsum("i.->i", six()), ValueError, ("einsum", "'.'")),
    "einsum output": (lambda: tnp.einsum("i->ij", six()), ValueError, ("einsum", "'j'")),
    "einsum repeated": (lambda: tnp.einsum("i->ii", six()), ValueError, ("einsum", "'ii'")),
    "einsum operands": (lambda: tnp.einsum("i,j->ij", six()), ValueError, ("einsum", "2", "1")),
    "matmul": (
        lambda: tnp.matmul(matrix(), matrix()),
        ValueError,
        ("matmul", "4", "3", "f32[3,4]"),
    ),
    "dtype": (lambda: tnp.zeros(3, "float99"), TypeError, ("zeros", "'float99'", "'float32'")),
    "dtype of astype": (lambda: six().astype(3), TypeError, ("astype", "3", "'float32'")),
    "unique": (lambda: tnp.unique(six(), axis=3), ValueError, ("unique", "3", "dimension 1")),
    "too few leaves": (
        lambda: tb.tree.unflatten(tb.tree.structure([1, 2]), [1]),
        ValueError,
        ("tree.unflatten", "1 leaves", "2"),
    ),
    "no definition": (
        lambda: tb.tree.unflatten([1, 2], [1, 2]),
        TypeError,
        ("tree.unflatten", "list", "tree.structure"),
    ),
    "power": (lambda: tnp.power(tnp.arange(3), -1), ValueError, ("power", "-1", "float")),
    "bool": (lambda: bool(six()), ValueError, ("truth value", "f32[6]", "x.any()")),
    "float": (lambda: float(six()), TypeError, ("float(x)", "f32[6]", "scalar arrays", "x[0]")),
    "int": (lambda: int(six()), TypeError, ("int(x)", "f32[6]", "scalar arrays")),
    "index": (lambda: [1, 2][six()], TypeError, ("f32[6]", "integer scalar arrays")),
    "item": (lambda: six().item(), ValueError, ("item()", "f32[6]", "tolist()")),
    "iter": (lambda: list(tnp.array(1.0)), TypeError, ("iteration", "f32[]")),
    "x[0] = 1": (lambda: six().__setitem__(0, 1.0), TypeError, ("immutable", "x.at[index].set")),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_of_arguments(name: str) -> None:
    """A class of ours that is also the builtin that NumPy raises; nothing is chained to it."""
    call, cls, words = CASES[name]
    with pytest.raises(cls) as caught:
        call()

    assert isinstance(caught.value, errors.TracebridgeError)
    assert [] == [word for word in words if word not in str(caught.value)]
    assert (
        caught.value.__context__ is None
        or caught.value.__suppress_context__
        or (caught.value.__cause__ is not None)
    )
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))


def test_deleted_arrays_are_no_values_of_the_wrong_shape() -> None:
    """Conversions of a deleted array say that it is deleted."""
    for convert in (bool, int, float, complex, list, lambda x: x.item()):
        x = tnp.ones(())
        x.delete()
        with pytest.raises(errors.DeletedArrayError if convert is not list else TypeError):
            convert(x)


def test_64_bits_by_name_as_an_error() -> None:
    """It is a ValueError, as in comparable libraries, and one about dtypes."""
    with tb.explicit_x64_dtypes("error"), pytest.raises(ValueError) as caught:  # noqa: PT011 - see below
        tnp.zeros(3, dtype="float64")

    assert isinstance(caught.value, errors.ExplicitX64Error)
    assert isinstance(caught.value, errors.UnsupportedDtypeError)
    for word in ("zeros", "float64", "float32", "enable_x64"):
        assert word in str(caught.value)
