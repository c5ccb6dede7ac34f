"""einsum against NumPy: random subscripts, and the forms that it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
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


@settings(max_examples=60)
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


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("ij,jk", np.ones((2, 3))), "2|operand"),
        (("ij", np.ones(3)), "operand 0 has 1 axes"),
        (("ij,jk->ik", np.ones((2, 3)), np.ones((4, 2))), "j"),
        (("ij->k", np.ones((2, 3))), "k"),
        (("i->ii", np.ones(2)), "i"),
    ],
)
def test_bad_subscripts(args, text):
    """The message names einsum and what does not fit."""
    with pytest.raises((TypeError, ValueError), match=f"einsum.*({text})"):
        tnp.einsum(*args)
