"""Types of users under vmap: how they are taken apart and put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentTypeError, AxisSizeError, AxisSpecError
from tracebridge.interpreters import batching


class Named:
    """An array whose axes have names."""

    def __init__(self, names: tuple[str, ...], array: Any) -> None:
        self.names = names
        self.array = array


class Along:
    """Maps over the axis of a name."""

    def __init__(self, name: str, index: int = 0) -> None:
        self.name = name
        self.index = index


def to_element(part: Any, index: Any, data: Named, spec: Along) -> Named:
    """Without the axis."""
    del index
    axis = data.names.index(spec.name)
    names = tuple([n for n in data.names if n != spec.name])
    return Named(names, part(data.array, axis))


def from_element(whole: Any, size: Any, element: Named, spec: Along) -> Named:
    """With the axis."""
    names = list(element.names)
    names.insert(spec.index, spec.name)
    return Named(tuple(names), whole(size, element.array, spec.index))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    batching.register_vmappable(Named, Along, int, to_element, from_element, None)
    yield
    batching.unregister_vmappable(Named)


A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit])
def test_arguments_and_results(wrap: Any) -> None:
    """The function sees elements; the result has the axis where the entry of out_axes says."""

    def f(x: Named, y: Any) -> tuple[Named, Any]:
        assert x.names == ("row",)
        return Named(x.names, tnp.sin(x.array) * y), x.array.sum() + y

    def run(a: Any, b: Any) -> Any:
        z, s = tb.vmap(f, in_axes=(Along("col"), 0), out_axes=(Along("col", 1), 0))(
            Named(("row", "col"), a), b
        )
        assert z.names == ("row", "col")
        return z.array, s

    b = np.float32([1, 2, 3])
    z, s = wrap(run)(A, b)
    np.testing.assert_allclose(np.sin(A) * b, z, rtol=1e-6)
    np.testing.assert_allclose(A.sum(0) + b, s, rtol=1e-6)


def test_results_only_and_sizes() -> None:
    """An unmapped array in a result is repeated; without arrays axis_size says how often."""
    f = lambda i: Named((), i + 1.0)
    out = tb.vmap(f, out_axes=Along("i"))(tnp.arange(3.0))
    assert (("i",), [1.0, 2.0, 3.0]) == (out.names, out.array.tolist())

    same = tb.vmap(lambda x: Named((), 2.0), Along("col"), Along("k"), axis_size=3)
    assert [2.0] * 3 == same(Named(("row", "col"), A)).array.tolist()
    with pytest.raises(AxisSizeError):
        tb.vmap(lambda x: 1.0, in_axes=Along("col"))(Named(("row", "col"), A))


def test_nested_and_differentiated() -> None:
    """vmap of vmap takes two axes away; gradients go through."""

    def total(a: Any) -> Any:
        inner = lambda x: x.array**2
        rows = tb.vmap(
            lambda x: tb.vmap(inner, Along("row"), axis_size=2)(x), Along("col"), axis_size=3
        )
        out = rows(Named(("row", "col"), a))
        assert out.shape == (3, 2)
        return out.sum()

    np.testing.assert_allclose(2 * A, tb.grad(total)(A))


def test_index_of_the_element() -> None:
    """Handlers that ask for it get the number of the element, from make_iota if there is one."""

    class Count:
        pass

    def to_elt(part: Any, index: Any, data: Any, spec: Any) -> Any:
        return index()

    given: list[int] = []

    def numbers(size: int) -> Any:
        given.append(size)
        return 10 * tnp.arange(size)

    batching.register_vmappable(Count, Along, int, to_elt, from_element, None)
    try:
        f = tb.vmap(lambda c, x: c + x, in_axes=(Along("n"), 0))
        assert [0, 1, 2] == f(Count(), tnp.zeros(3, int)).tolist()
        batching.register_vmappable(Count, Along, int, to_elt, from_element, numbers)
        assert [0, 10, 20] == f(Count(), tnp.zeros(3, int)).tolist()
        assert [3] == given
    finally:
        batching.unregister_vmappable(Count)
        batching.register_vmappable(Count, Along, int, to_elt, from_element, tnp.arange)
        batching.unregister_vmappable(Count)


def test_other_arguments_are_as_before() -> None:
    """Trees, None, float0 and wrong axes behave as if nothing were registered."""
    out = tb.vmap(lambda t: {"s": t["a"].sum(), "n": None}, in_axes=({"a": 1},))({"a": A})
    np.testing.assert_allclose(A.sum(0), out["s"])
    with pytest.raises(AxisSpecError, match="in_axes must be"):
        tb.vmap(lambda x: x, in_axes="a")
    zeros = np.zeros((2, 3), tb.float0)
    assert zeros.shape == tb.vmap(lambda x: x)(zeros).shape


@pytest.mark.parametrize(
    ("position", "value", "text"),
    [(0, 3, "data_type is 3"), (1, "a", "spec_type is 'a'"), (3, None, "to_elt is None")],
)
def test_wrong_registrations(position: int, value: Any, text: str) -> None:
    """Types must be classes, handlers functions."""
    given: list[Any] = [Named, Along, int, to_element, from_element, None]
    given[position] = value
    with pytest.raises(ArgumentTypeError, match=text):
        batching.register_vmappable(*given)
