"""einsum against NumPy: random subscripts, and the forms that it refuses."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentTypeError
from tracebridge.testing import assert_allclose

SIZES = {"a": 2, "b": 3, "c": 1, "d": 2}


@st.composite
def subscripts(draw):
    """Terms of up to three labels, repeated ones too, and a result of some of them."""
    count = draw(st.integers(1, 3))
    terms = [draw(st.lists(st.sampled_from("abcd"), max_size=3)) for _ in range(count)]
    labels = sorted({label for term in terms for label in term})
    out = draw(st.permutations(labels))[: draw(st.integers(0, len(labels)))]
    text = ",".join("".join(term) for term in terms)
    return text if draw(st.integers(0, 4)) == 0 else f"{text}->{''.join(out)}"


@settings(max_examples=30)
@given(subscripts(), st.sampled_from(["float32", "int32", "complex64"]))
def test_sums_are_those_of_numpy(text, dtype):
    """Values and dtype, eagerly and under jit."""
    random = np.random.default_rng(0)
    shapes = [[SIZES[label] for label in term] for term in text.split("->")[0].split(",")]
    operands = [(random.integers(-3, 4, s) + 0).astype(dtype) for s in shapes]
    expected = np.einsum(text, *operands)

    assert_allclose(tnp.einsum(text, *operands), expected, rtol=1e-5, atol=1e-5, check_dtype=True)
    assert_allclose(tb.jit(lambda *xs: tnp.einsum(text, *xs))(*operands), expected, atol=1e-5)


@settings(max_examples=20)
@given(subscripts())
def test_gradient_is_the_sum_of_the_others(text):
    """einsum is linear in each operand: <g, x> is the value of a scalar form."""
    shapes = [[SIZES[label] for label in term] for term in text.split("->")[0].split(",")]
    operands = [np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in shapes]

    total = tb.jit(lambda *xs: tnp.einsum(text, *xs).sum())
    gradients = tb.jit(tb.grad(total, tuple(range(len(operands)))))(*operands)

    for x, g in zip(operands, gradients, strict=True):
        assert_allclose(
            (x * np.asarray(g)).sum(), np.asarray(total(*operands)), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal", [(1, 2), (0, 1)]])
def test_paths_change_no_values(optimize):
    """Any order of products."""
    xs = [np.random.standard_normal(s).astype(np.float32) for s in ((2, 3), (3, 4), (4, 2))]

    assert_allclose(
        tnp.einsum("ij,jk,kl->il", *xs, optimize=optimize), xs[0] @ xs[1] @ xs[2], rtol=1e-4,
        atol=1e-5,
    )  # fmt: skip


def test_einsum_path():
    """A plan has one pair of operands per product; einsum takes it."""
    xs = [np.ones(s, np.float32) for s in ((2, 3), (3, 4), (4, 2))]
    path, _ = tnp.einsum_path("ij,jk,kl->il", *xs)

    assert 2 == len([step for step in path if not isinstance(step, str)])
    assert_allclose(tnp.einsum("ij,jk,kl->il", *xs, optimize=path), xs[0] @ xs[1] @ xs[2])


def test_einsum_path_takes_paths_of_numpy():
    """Plans of NumPy begin with a name; what is no plan is refused by name."""
    xs = [np.ones(s, np.float32) for s in ((2, 3), (3, 4), (4, 2))]
    plan = np.einsum_path("ij,jk,kl->il", *xs, optimize="greedy")[0]
    path, _ = tnp.einsum_path("ij,jk,kl->il", *xs, optimize=plan)

    assert path == plan[1:]
    with pytest.raises(ArgumentTypeError, match="einsum_path: an entry of optimize is"):
        tnp.einsum_path("ij,jk,kl->il", *xs, optimize=["greedy"])
    with pytest.raises(ArgumentTypeError, match="einsum_path: optimize is"):
        tnp.einsum_path("ij,jk,kl->il", *xs, optimize=3)


def test_einsum_path_takes_lists_and_shows_the_letters_given():
    """Only shapes matter: lists have some."""
    path, info = tnp.einsum_path("pq,q", [[2.0, 1.0, 0.0], [1.0, 3.0, 4.0]], [1.0, 2.0, 3.0])
    numbered, _ = tnp.einsum_path([[2.0, 1.0]], [0, 1], [1.0, 2.0], [1])

    assert [(0, 1)] == path == numbered
    assert "pq,q->p" in str(info)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("ij,jk", np.ones((2, 3))), "2|operand"),
        (("ij", np.ones(3)), "operand 0 has 1 axes"),
        (("ij,jk->ik", np.ones((2, 3)), np.ones((4, 2))), "j"),
        (("ij->k", np.ones((2, 3))), "k"),
        (("i->ii", np.ones(2)), "i"),
        (("i-", np.ones((2, 2))), "'-' in 'i-' is no label"),
        (("i.j", np.ones((2, 2))), "'.' in 'i.j' is no label"),
        (("i\tj", np.ones((2, 2))), "is no label"),
    ],
)
def test_bad_subscripts(args, text):
    """The message names einsum and what does not fit."""
    with pytest.raises((TypeError, ValueError), match=f"einsum.*({text})"):
        tnp.einsum(*args)


@pytest.mark.parametrize(
    ("i", "j", "k"),
    [
        (0, 1, 2),
        (-1, 100, 52),
        (np.int64(3), np.int64(2), np.int64(1)),
        ("tokens", "features", "heads"),
        ("...", "a", "b"),
        (("x", 2), ("x", 1), ("y", 0)),
        (0.5, 1, 2.5),
    ],
    ids=str,
)
def test_labels_in_lists(i, j, k):
    """Labels are any values that can be sorted; the implicit output is sorted."""
    x, y = np.arange(6.0, dtype="float32").reshape(2, 3), np.ones((3, 4), "float32")
    y[:, 1] = 2
    product = x @ y

    assert_allclose(tnp.einsum(x, [i, j], y, [j, k], [k, i]), product.T)
    assert_allclose(tnp.einsum(x, [i, j], y, [j, k]), product if i < k else product.T)
    assert_allclose(tnp.einsum(x, [..., j], y, [j, k], [..., k]), product)
    assert_allclose(tb.jit(lambda x: tnp.einsum(x, [i, j]))(x), x if i < j else x.T)
    assert [(0, 1)] == tnp.einsum_path(x, [i, j], y, [j, k], [k, i])[0]


@pytest.mark.parametrize("label", ["j", "1", "_", "*", "|", "\u00df", "\u4e2d"])
def test_labels_in_strings(label):
    """A label is any character that stands for nothing else; the implicit output is sorted."""
    x, y = np.arange(6.0, dtype="float32").reshape(2, 3), np.ones((3, 4), "float32")
    y[:, 1] = 2
    product = x @ y

    assert_allclose(tnp.einsum(f"a{label},{label}c->ac", x, y), product)
    assert_allclose(tnp.einsum(f"...{label},{label}c->...c", x, y), product)
    assert_allclose(tnp.einsum(f"a{label}", x), x if label > "a" else x.T)
    assert [(0, 1)] == tnp.einsum_path(f"a{label},{label}c->ac", x, y)[0]


@pytest.mark.parametrize(
    "labels", [["a", 1], [object(), object()], [[0], [1]]], ids=["mixed", "objects", "lists"]
)
def test_labels_that_cannot_be_sorted(labels):
    """The message shows them."""
    with pytest.raises(TypeError, match=r"einsum: the labels .* cannot be compared"):
        tnp.einsum(np.ones((2, 2)), labels)


def test_the_public_product_is_the_default():
    """Giving lax.dot_general changes nothing, not even the program; wrapping it does."""
    seen = []

    @functools.wraps(tb.lax.dot_general)
    def counted(*args, **kwargs):
        seen.append(args)
        return tb.lax.dot_general(*args, **kwargs)

    def program(**options):
        x = np.ones((2, 2), "float32")
        return str(tb.make_jaxpr(lambda x: tnp.einsum("i,j", x[0], x[1], **options))(x))

    assert program() == program(_dot_general=tb.lax.dot_general)
    assert program() != program(_dot_general=counted)
    assert 1 == len(seen)


@pytest.mark.parametrize(
    ("text", "calls"), [("ij,jk->ik", 1), ("i,j->ji", 1), ("ij,ij,j->i", 2), ("ij->j", 0)]
)
def test_products_of_pairs_can_be_replaced(text, calls):
    """A function for the products sees every pair, with what it needs to be dot_general."""
    seen = []

    def dot(x, y, numbers, precision, **options):
        seen.append((precision, options))
        return tb.lax.dot_general(x, y, numbers, precision, **options)

    random = np.random.default_rng(1)
    sizes = {"i": 2, "j": 3, "k": 4}
    terms = text.split("->")[0].split(",")
    operands = [random.normal(size=[sizes[n] for n in t]).astype("float32") for t in terms]

    def einsum(*xs):
        return tnp.einsum(text, *xs, precision="highest", _dot_general=dot)

    expected = np.einsum(text, *operands)
    assert_allclose(einsum(*operands), expected, rtol=1e-5, check_dtype=True)
    assert [("highest", {"preferred_element_type": np.float32})] * calls == seen
    assert_allclose(tb.jit(einsum)(*operands), expected, rtol=1e-5)
    batched = tb.vmap(einsum)(*[np.stack([x, 2 * x]) for x in operands])
    assert_allclose(batched, np.stack([expected, 2 ** len(terms) * expected]), rtol=1e-5)


def test_a_replaced_product_decides_values_and_derivatives():
    """Rounding before the product and a derivative rule of its own are used."""

    @tb.custom_jvp
    def coarse(x):
        return tnp.round(x)

    coarse.defjvp(lambda primals, tangents: (coarse(*primals), 10 * tangents[0]))

    def dot(x, y, numbers, precision, preferred_element_type):
        x, y = coarse(x), coarse(y)
        return tb.lax.dot_general(x, y, numbers, precision, preferred_element_type)

    x, y = tnp.array([1.2, 2.6]), tnp.array([2.4, 0.6])

    def product(x):
        return tnp.einsum("i,i", x, y, _dot_general=dot)

    assert 5.0 == product(x)
    assert [20.0, 10.0] == tb.grad(product)(x).tolist()
    out = tnp.einsum("i,i", x, y, preferred_element_type="float16", _dot_general=dot)
    assert np.float16 == out.dtype


def test_the_last_product_has_the_order_of_the_result():
    """Operands change places where the result would be transposed otherwise."""
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4, 3), np.float32)

    text = str(tb.make_jaxpr(lambda x, y: tnp.einsum("bi,ijk,bk->bj", x, y, x))(x, y))

    assert "transpose" not in text
    assert tnp.einsum("ij,jk->ki", x, y[0].T).tolist() == np.full((4, 2), 3.0).tolist()


@pytest.mark.parametrize(("text", "expected"), [("ij,jk->ik", [2, 0]), ("ij,jk->ki", [0, 2])])
def test_operands_that_change_places_keep_their_precision(text, expected):
    """A pair of precisions belongs to the operands in the order of the user."""
    given = tb.lax.Precision.HIGHEST, tb.lax.Precision.DEFAULT

    jaxpr = tb.make_jaxpr(lambda x, y: tnp.einsum(text, x, y, precision=given))(
        np.ones((2, 3)), np.ones((3, 4))
    )

    (product,) = [e for e in jaxpr.eqns if e.primitive is tb.lax.dot_general_p]
    assert expected == [p.value for p in product.params["precision"]]
