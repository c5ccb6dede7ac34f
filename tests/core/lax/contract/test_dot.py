"""Contractions agree with einsum for any dimension numbers and dtype, and all rules agree."""

from __future__ import annotations

import string
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracebridge as tb
from tests.equations import equations_of
from tracebridge import lax
from tracebridge.core.config.option_scopes import default_matmul_precision, enable_x64
from tracebridge.core.config.scopes import scope
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose, check_rules

Host = np.ndarray[Any, Any]
Numbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def sample(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Host:
    """Small numbers of any dtype."""
    random = np.random.default_rng(seed + len(shape))
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return random.integers(0 if dtype.kind in "ub" else -3, 4, shape).astype(dtype)
    x = random.normal(size=shape)
    if dtype.kind == "c":
        return (x + 1j * random.normal(size=shape)).astype(dtype)
    return x.astype(dtype)


def by_einsum(x: Host, y: Host, numbers: Numbers) -> Host:
    """The same contraction as a sum over letters."""
    (xc, yc), (xb, yb) = numbers
    letters = iter(string.ascii_letters)
    x_names = [next(letters) for _ in range(x.ndim)]
    y_names = [next(letters) for _ in range(y.ndim)]
    for i, j in (*zip(xc, yc, strict=True), *zip(xb, yb, strict=True)):
        y_names[j] = x_names[i]
    out = [x_names[i] for i in xb]
    out += [n for i, n in enumerate(x_names) if i not in (*xc, *xb)]
    out += [n for i, n in enumerate(y_names) if i not in (*yc, *yb)]
    return np.einsum(f"{''.join(x_names)},{''.join(y_names)}->{''.join(out)}", x, y)


@st.composite
def contractions(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], Numbers]:
    """Two shapes, and dimension numbers that fit them, with axes in any order."""
    sizes = st.integers(1, 3)
    n_contract, n_batch = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    shared = [draw(sizes) for _ in range(n_contract + n_batch)]
    shapes: list[tuple[int, ...]] = []
    axes: list[list[int]] = []
    for _ in range(2):
        free = [draw(sizes) for _ in range(draw(st.integers(0, 2)))]
        all_sizes = [*shared, *free]
        order = draw(st.permutations(range(len(all_sizes))))
        shapes.append(tuple([all_sizes[i] for i in order]))
        axes.append([order.index(i) for i in range(len(shared))])
    x, y = axes
    numbers = (
        (tuple(x[:n_contract]), tuple(y[:n_contract])),
        (tuple(x[n_contract:]), tuple(y[n_contract:])),
    )
    return shapes[0], shapes[1], numbers


@given(contractions())
def test_any_dimension_numbers(case: tuple[Any, Any, Numbers]) -> None:
    """Value, both transposes, second derivatives and batching for axes in any order."""
    x_shape, y_shape, numbers = case
    x, y = sample(*x_shape), sample(*y_shape, seed=7)

    check_rules(
        lambda x, y: lax.dot_general(x, y, numbers),
        x,
        y,
        reference=lambda x, y: by_einsum(x, y, numbers),
        order=1,
    )


@given(contractions(), st.data())
def test_the_transposes_are_adjoint(case: tuple[Any, Any, Numbers], data: Any) -> None:
    """``<ct, dot(s, y)> == <s, transpose(ct, y)>``, and likewise for rhs, exactly in integers."""
    x_shape, y_shape, numbers = case
    side = data.draw(st.sampled_from([0, 1]))
    x, y = (np.round(3 * sample(*s, seed=3)) for s in (x_shape, y_shape))

    with enable_x64():
        out, pullback = tb.vjp(lambda x, y: lax.dot_general(x, y, numbers), x, y)
        ct = np.round(3 * sample(*out.shape, seed=5))
        cotangent = np.asarray(pullback(ct)[side])
        tangent = np.round(3 * sample(*cotangent.shape, seed=9))
        primals = (tangent, y) if side == 0 else (x, tangent)
        pushed = np.asarray(lax.dot_general(*primals, numbers))

    assert float(np.sum(ct * pushed)) == float(np.sum(cotangent * tangent))


CASES = {
    "vector": ((3,), (3,), (((0,), (0,)), ((), ()))),
    "matrix": ((2, 3), (3, 4), (((1,), (0,)), ((), ()))),
    "matrix_transposed": ((3, 2), (4, 3), (((0,), (1,)), ((), ()))),
    "outer": ((2,), (3,), (((), ()), ((), ()))),
    "batched": ((5, 2, 3), (5, 3, 4), (((2,), (1,)), ((0,), (0,)))),
    "two_contractions": ((2, 3, 4), (4, 5, 3), (((1, 2), (2, 0)), ((), ()))),
    "batch_in_the_middle": ((2, 5, 3), (3, 4, 5), (((2,), (0,)), ((1,), (2,)))),
    "no_elements": ((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
    "empty_result": ((0, 2), (2, 3), (((1,), (0,)), ((), ()))),
}


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives(name: str) -> None:
    """The product is bilinear: its second derivatives are products too."""
    x_shape, y_shape, numbers = CASES[name]

    check_rules(
        lambda x, y: lax.dot_general(x, y, numbers),
        sample(*x_shape),
        sample(*y_shape, seed=1),
        reference=lambda x, y: by_einsum(x, y, numbers),
        order=2,
    )


MANY_SMALL = {
    "rows": ((600, 3), (3, 4), (((1,), (0,)), ((), ()))),
    "rows_on_the_right": ((4, 3), (600, 3), (((1,), (1,)), ((), ()))),
    "matrices": ((70, 4, 5), (70, 5, 3), (((2,), (1,)), ((0,), (0,)))),
    "matrices_in_any_order": ((4, 70, 5), (3, 5, 70), (((2,), (1,)), ((1,), (2,)))),
    "two_contractions": ((300, 2, 2, 3), (3, 2, 4), (((3, 2), (0, 1)), ((), ()))),
    "two_batch_axes": ((10, 9, 4, 4), (9, 10, 4, 4), (((3,), (2,)), ((0, 1), (1, 0)))),
    "vectors": ((300, 6), (300, 6), (((1,), (1,)), ((0,), (0,)))),
}


@pytest.mark.parametrize("name", MANY_SMALL)
def test_many_small_products(name: str) -> None:
    """Products that are lowered to elementwise operations on CPU obey the same rules."""
    x_shape, y_shape, numbers = MANY_SMALL[name]
    x, y = sample(*x_shape), sample(*y_shape, seed=1)
    text = tb.jit(lambda x, y: lax.dot_general(x, y, numbers)).lower(x, y).as_text()
    if name != "vectors":
        assert "dot_general" not in text

    check_rules(
        lambda x, y: lax.dot_general(x, y, numbers),
        x,
        y,
        reference=lambda x, y: by_einsum(x, y, numbers),
        order=1,
        rtol=1e-5,
        atol=1e-5,
    )


TINY = {
    "matrices": ((8, 8), (8, 8), (((1,), (0,)), ((), ()))),
    "transposed": ((8, 3), (5, 8), (((0,), (1,)), ((), ()))),
    "any_order": ((4, 2, 3, 5), (3, 2, 4, 2), (((0, 2), (2, 0)), ((1,), (1,)))),
    "long_sums": ((2, 64), (2, 64), (((1,), (1,)), ((), ()))),
}


@pytest.mark.parametrize("name", TINY)
def test_tiny_products(name: str) -> None:
    """A product of a few numbers is a sum on CPU, in portable programs it stays a product."""
    x_shape, y_shape, numbers = TINY[name]
    x, y = sample(*x_shape), sample(*y_shape, seed=1)
    f = tb.jit(lambda x, y: lax.dot_general(x, y, numbers))

    check_rules(f, x, y, reference=lambda x, y: by_einsum(x, y, numbers), order=1)
    assert "dot_general" not in f.lower(x, y).as_text()
    with scope("platform_rules", False):
        assert "dot_general" in f.lower(x, y).as_text()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_dtypes_of_tiny_products(dtype: str) -> None:
    """Every dtype that is lowered that way; infinities and NaN go where they go in NumPy."""
    with enable_x64():
        x, y = sample(8, 8, dtype=dtype), sample(8, 8, dtype=dtype, seed=1)
        assert_allclose(lax.dot(x, y), x @ y, rtol=1e-5, atol=1e-5)
        x[2, 3], y[1, 1], x[5, 6] = np.inf, np.nan, -np.inf
        with np.errstate(invalid="ignore"):
            expected = np.isfinite(np.sum(x[:, :, None] * y[None], axis=1))
        assert expected.tolist() == np.isfinite(np.asarray(lax.dot(x, y))).tolist()


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint32", "complex64"])
def test_dtypes_of_many_small_products(dtype: str) -> None:
    """Every dtype that is lowered that way."""
    x, y = sample(600, 3, dtype=dtype), sample(3, 4, dtype=dtype, seed=1)

    assert_allclose(lax.dot(x, y), x @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["matrix", "batched", "batch_in_the_middle"])
@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint8", "int32", "uint32", "int64", "float32", "complex64", "complex128", "bool"],
)
def test_dtypes(dtype: str, name: str) -> None:
    """The result has the dtype of the operands; booleans give "or" of "and"."""
    x_shape, y_shape, numbers = CASES[name]
    x, y = sample(*x_shape, dtype=dtype), sample(*y_shape, dtype=dtype, seed=1)

    check_rules(
        lambda x, y: lax.dot_general(x, y, numbers),
        x,
        y,
        reference=lambda x, y: by_einsum(x, y, numbers),
        order=1 if np.dtype(dtype).kind == "c" else 0,
        atol=1e-5 if np.dtype(dtype).kind in "fc" else None,
    )


@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"],
)
@pytest.mark.parametrize("preferred", [None, np.float32])
def test_narrow_dtypes(dtype: Any, preferred: Any) -> None:
    """Sums are rounded once, to the dtype of the result."""
    dtype = getattr(ml_dtypes, dtype, dtype)
    x, y = sample(4, 8, dtype=np.int8).astype(dtype), sample(8, 3, dtype=np.int8, seed=1)
    y = y.astype(dtype)

    result = np.asarray(
        lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=preferred)
    )

    exact = x.astype(np.float32) @ y.astype(np.float32)
    assert np.dtype(preferred or dtype) == result.dtype
    if preferred is None and np.dtype(dtype).name == "int4":
        exact = (exact.astype(np.int32) + 8) % 16 - 8
    elif preferred is None:
        exact = exact.astype(dtype).astype(np.float32)
    assert exact.tolist() == result.astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("left", "right", "preferred", "out"),
    [
        ("int8", "int8", "int32", "int32"),
        ("int8", "int8", "float32", "float32"),
        ("float32", "bfloat16", None, "float32"),
        ("float32", "int32", None, "float32"),
        ("bool", "int32", None, "int32"),
        ("float32", "complex64", None, "complex64"),
        ("float32", "float32", "bfloat16", "bfloat16"),
        ("bfloat16", "bfloat16", "float32", "float32"),
        ("int4", "int4", "int32", "int32"),
    ],
)
def test_result_dtypes(left: str, right: str, preferred: str | None, out: str) -> None:
    """Two dtypes are promoted; preferred_element_type decides about sums and result."""
    x = sample(2, 4, dtype=np.int8).astype(getattr(ml_dtypes, left, left))
    y = sample(4, 3, dtype=np.int8, seed=1).astype(getattr(ml_dtypes, right, right))

    result = np.asarray(lax.dot(x, y, preferred_element_type=preferred))

    assert out == result.dtype.name
    exact = x.astype(np.complex64) @ y.astype(np.complex64)
    assert exact.tolist() == result.astype(np.complex64).tolist()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
def test_derivatives_with_wide_sums(dtype: Any) -> None:
    """Cotangents have the dtypes of their operands, also where the result is wider."""
    x, y = np.array([1.0, 2.0]).astype(dtype), np.array([3.0, 5.0]).astype(dtype)
    f = tb.grad(lambda x, y: lax.dot(x, y, preferred_element_type=np.float32), argnums=(0, 1))

    for derivative in (f, tb.jit(f)):
        dx, dy = derivative(x, y)

        assert [np.dtype(dtype)] * 2 == [dx.dtype, dy.dtype]
        assert [3.0, 5.0] == dx.tolist()
        assert [1.0, 2.0] == dy.tolist()


def test_derivative_of_a_real_operand_beside_a_complex_one() -> None:
    """The cotangent of a real array is real."""
    x, y = np.array([1.0, 2.0], np.float32), np.array([3.0 + 1j, 5.0], np.complex64)

    gradient = tb.grad(lambda x: lax.real(lax.dot(x, y)))(x)

    assert np.float32 == gradient.dtype
    assert [3.0, 5.0] == gradient.tolist()


def test_dot_contracts_vectors_and_matrices() -> None:
    """The last axis of lhs meets the first of rhs."""
    matrix, vector = sample(3, 3, dtype="float32"), sample(3, dtype="float32")
    for x in (matrix, vector):
        for y in (matrix, vector):
            assert_allclose(lax.dot(x, y), x @ y, rtol=1e-5, atol=1e-5)


def test_dot_takes_dimension_numbers() -> None:
    """With dimension numbers dot is dot_general."""
    x = sample(2, 3, 4, dtype="float32")
    numbers = (((2,), (2,)), ((0,), (0,)))

    assert_allclose(
        lax.dot(x, x, dimension_numbers=numbers), by_einsum(x, x, numbers), rtol=1e-5, atol=1e-5
    )


def test_batch_matmul() -> None:
    """All axes but the last two go in step."""
    x, y = sample(2, 3, 4, 5, dtype="float32"), sample(2, 3, 5, 6, dtype="float32")

    assert_allclose(lax.batch_matmul(x, y), x @ y, rtol=1e-5, atol=1e-5)


def test_precision_is_a_parameter_of_the_equation() -> None:
    """Argument and option reach the primitive in their normal form; derivatives keep it."""
    x = np.ones((2, 2), np.float32)

    def precisions(f: Any, *args: Any) -> list[Any]:
        products = equations_of(tb.make_jaxpr(f)(*args), "dot_general")
        return [product.params["precision"] for product in products]

    high = lax.Precision.HIGH
    assert [None] == precisions(lambda x: lax.dot(x, x), x)
    assert [(high, high)] == precisions(lambda x: lax.dot(x, x, precision="high"), x)
    with default_matmul_precision("high"):
        assert [(high, high)] == precisions(lambda x: lax.dot(x, x), x)
        assert [(lax.Precision.DEFAULT,) * 2] == precisions(
            lambda x: lax.dot(x, x, precision="default"), x
        )
    pair = (lax.Precision.HIGHEST, lax.Precision.DEFAULT)
    found = precisions(
        tb.grad(lambda x, y: lax.reduce_sum(lax.dot(x, y, precision=pair), (0, 1)), argnums=(0, 1)),
        x, x,
    )  # fmt: skip
    assert found
    assert {pair} == set(found)


@pytest.mark.parametrize(
    "precision",
    [
        "highest",
        "F32_F32_F32",
        lax.DotAlgorithmPreset.BF16_BF16_F32,
        lax.DotAlgorithm(np.float32, np.float32, np.float32),
        ("high", lax.Precision.DEFAULT),
    ],
    ids=str,
)
def test_every_kind_of_precision_compiles(precision: Any) -> None:
    """Small integers are exact in every precision."""
    x, y = np.arange(4.0, dtype=np.float32).reshape(2, 2), np.ones((2, 2), np.float32)

    assert [[1.0, 1.0], [5.0, 5.0]] == lax.dot(x, y, precision=precision).tolist()


def test_errors_say_what_does_not_fit() -> None:
    """Wrong sizes, ranks, axes and dtypes."""
    x, y = np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)
    with pytest.raises(ShapeMismatchError, match="dot: the inner sizes differ: 4 and 3"):
        lax.dot(x, y)
    with pytest.raises(ShapeMismatchError, match="contracting axis 1 of lhs has size 4, axis 0 of"):
        lax.dot_general(x, y, (((1,), (0,)), ((), ())))
    with pytest.raises(ShapeMismatchError, match="lhs has 1 batch axes"):
        lax.dot_general(x, y, (((1,), (1,)), ((0,), ())))
    with pytest.raises(RankError, match="must be distinct axes of f32"):
        lax.dot_general(x, y, (((1,), (1,)), ((1,), (1,))))
    with pytest.raises(RankError, match="must be distinct axes of f32"):
        lax.dot_general(x, y, (((2,), (1,)), ((), ())))
    with pytest.raises(RankError, match="expected rank 1 or 2"):
        lax.dot(np.ones((2, 2, 2), np.float32), y)
    with pytest.raises(RankError, match="batch_matmul: got f32\\[3,4\\] and f32\\[4\\]"):
        lax.batch_matmul(x, np.ones(4, np.float32))
    with pytest.raises(DtypeMismatchError, match="preferred_element_type int32 cannot hold"):
        lax.dot_general_p.bind(
            x,
            x.T,
            dimension_numbers=(((1,), (0,)), ((), ())),
            precision=None,
            preferred_element_type=np.dtype(np.int32),
        )


def test_one_axis_by_itself() -> None:
    """An axis needs no brackets where it is the only one."""
    x, y = sample(3, 4), sample(4, 5)

    assert_allclose(lax.dot_general(x, y, ((1, 0), ((), ()))), x @ y)


@pytest.mark.parametrize("dtype", ["int32", "int8", "bool"])
def test_sums_become_what_cannot_hold_their_terms(dtype: str) -> None:
    """Fractions are added up before they are cut off; of complex sums the real parts are left."""
    x = np.asarray([0.5, 1.5, 3.0], np.float32)
    z = (x + 1j).astype(np.complex64)

    found = lax.dot(x, x, preferred_element_type=dtype)
    assert (dtype, int(np.asarray(11.5).astype(dtype))) == (found.dtype.name, int(found))
    found = lax.dot(z, z, preferred_element_type="float32")
    assert ("float32", 8.5) == (found.dtype.name, float(found))
    slope = tb.grad(lambda v: lax.dot(v, x, preferred_element_type="int32").astype("float32"))(x)
    assert [0.0, 0.0, 0.0] == slope.tolist()
