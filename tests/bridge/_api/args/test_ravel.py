"""ravel_pytree: a tree as a vector and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.flatten_util import ravel_pytree

DTYPES = [np.bool_, np.int8, np.int32, np.float16, np.float32, np.complex64]
arrays = st.builds(
    lambda dtype, shape: (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
trees = st.recursive(
    arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner),
        st.none(),
    ),
    max_leaves=5,
)


@given(tree=trees)
def test_there_and_back(tree: Any) -> None:
    """unravel of the vector is the tree; the vector has the elements of the leaves in order."""
    flat, unravel = ravel_pytree(tree)
    leaves = tb.tree.leaves(tree)
    dtype = tnp.result_type(*leaves) if leaves else np.float32
    parts = [leaf.ravel().astype(dtype) for leaf in leaves]
    expected = np.concatenate(parts) if parts else np.zeros(0, dtype)
    assert dtype == flat.dtype
    np.testing.assert_array_equal(expected, flat)

    back = unravel(flat)
    assert tb.tree.structure(tree) == tb.tree.structure(back)
    for before, after in zip(leaves, tb.tree.leaves(back), strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
        np.testing.assert_array_equal(before, after)


def test_numbers() -> None:
    """Python numbers are leaves; their dtypes count as those of arrays."""
    flat, unravel = ravel_pytree({"a": 1.5, "b": 2})
    assert ([1.5, 2.0], np.float32) == (flat.tolist(), flat.dtype)
    assert 2 == int(unravel(flat)["b"])
    assert [3.0] == ravel_pytree(3.0)[0].tolist()


def test_one_dtype_takes_any() -> None:
    """A tree of one dtype is rebuilt from vectors of any dtype, of several only from its own."""
    unravel = ravel_pytree([tnp.ones(2), tnp.zeros((1, 2))])[1]
    assert np.int32 == unravel(tnp.arange(4))[1].dtype
    assert [[2, 3]] == unravel(tnp.arange(4))[1].tolist()
    mixed = ravel_pytree([tnp.ones(2), tnp.arange(2)])[1]
    with pytest.raises(DtypeMismatchError, match="unravel: got an array of dtype int32"):
        mixed(tnp.arange(4))


def test_wrong_arguments() -> None:
    """Another number of elements, another rank, and leaves that are no arrays."""
    flat, unravel_one = ravel_pytree([1.0, 2.0])
    with pytest.raises(ShapeMismatchError, match=r"f32\[1,2\]\n.*a vector of 2 elements"):
        unravel_one(flat[None])
    unravel = ravel_pytree([tnp.ones(2), tnp.zeros(3)])[1]
    with pytest.raises(ShapeMismatchError, match=r"f32\[4\]\n.*a vector of 5 elements"):
        unravel(tnp.ones(4))
    with pytest.raises(UnsupportedDtypeError, match="unravel: got"):
        unravel([1.0] * 5)
    with pytest.raises(UnsupportedDtypeError, match=r"pytree\['a'\] is 'text'"):
        ravel_pytree({"a": "text"})


def test_unravel_is_a_value() -> None:
    """Equal for trees of one type, so that it may be a static argument."""
    first, second = [ravel_pytree({"a": x, "b": tnp.arange(2)})[1] for x in (1.0, 2.0)]
    other = ravel_pytree({"a": 1, "b": tnp.arange(2)})[1]
    assert first == second
    assert hash(first) == hash(second)
    assert first != other
    assert first != 3
    run = tb.jit(lambda f, v: f(v)["b"], static_argnums=0)
    assert [2, 3] == run(first, tnp.array([1.0, 2.0, 3.0])).tolist()


def test_composition() -> None:
    """jit, grad and vmap through both ways."""
    tree = {"w": np.ones((2, 2), np.float32), "b": np.float32(3.0)}
    flat, unravel = ravel_pytree(tree)

    def loss(v: Any) -> Any:
        t = unravel(v)
        return tnp.sum(t["w"] ** 2) * t["b"]

    assert [4.0, 6.0, 6.0, 6.0, 6.0] == tb.grad(loss)(flat).tolist()
    assert [4.0, 6.0, 6.0, 6.0, 6.0] == tb.jit(tb.grad(loss))(flat).tolist()
    grads = tb.grad(lambda t: (ravel_pytree(t)[0] ** 2).sum())(tree)
    assert ([[2.0, 2.0], [2.0, 2.0]], 6.0) == (grads["w"].tolist(), float(grads["b"]))
    batch = tb.vmap(lambda t: ravel_pytree(t)[0])({"a": tnp.ones((3, 2)), "b": tnp.arange(3)})
    assert [[1.0, 1.0, float(i)] for i in range(3)] == batch.tolist()
    assert (3, 2) == tb.vmap(lambda v: unravel(v)["w"][0])(tnp.ones((3, 5))).shape
    assert (5,) == tb.eval_shape(lambda t: ravel_pytree(t)[0], tree).shape


@pytest.mark.parametrize("tree", [(), {"a": None}, []])
def test_trees_without_leaves(tree: Any) -> None:
    """An empty vector of float32, with 64-bit types on too."""
    with tb.enable_x64(True):
        flat, unravel = ravel_pytree(tree)

        assert ((0,), np.float32) == (flat.shape, flat.dtype)
        assert tree == unravel(flat)
