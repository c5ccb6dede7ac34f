"""Python scalars stay weak through elementwise functions, and give way to the dtypes of arrays."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

FLOAT_UNARY = [
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "arcsin",
    "arccos",
    "arctan",
    "arcsinh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "cbrt",
    "deg2rad",
    "rad2deg",
    "degrees",
    "radians",
    "sinc",
    "i0",
    "reciprocal",
]
SAME_UNARY = [
    "abs",
    "absolute",
    "negative",
    "positive",
    "square",
    "conj",
    "real",
    "round",
    "ceil",
    "floor",
    "trunc",
]
ARITHMETIC = ["add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin"]
FLOAT_BINARY = [
    "divide",
    "true_divide",
    "arctan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "heaviside",
    "copysign",
]
REMAINDERS = ["floor_divide", "mod", "remainder", "fmod", "power"]
COMPARISONS = ["equal", "less", "greater_equal", "logical_and"]
TRUTHS = ["isclose", "array_equal"]
REDUCTIONS = [
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "ptp",
    "median",
    "average",
    "nansum",
    "nanmean",
    "nanmax",
    "nanvar",
    "cumsum",
    "cumprod",
]


def type_of(x):
    return str(x.dtype), x.weak_type


@pytest.mark.parametrize("name", FLOAT_UNARY)
def test_float_functions_of_scalars_are_weak(name):
    """Python numbers give the default float, weakly typed; arrays give strong results."""
    function = getattr(tnp, name)

    assert ("float32", True) == type_of(function(0.5))
    assert ("float32", True) == type_of(function(1))
    assert ("bfloat16", False) == type_of(function(tnp.ones(2, tnp.bfloat16)))
    assert ("float32", False) == type_of(function(tnp.ones(2, "int32")))
    assert ("float32", True) == type_of(tb.jit(function)(0.5))


@pytest.mark.parametrize("name", SAME_UNARY)
def test_functions_that_keep_dtypes_keep_weak_types(name):
    """Nothing is promoted."""
    function = getattr(tnp, name)

    assert ("int32", True) == type_of(function(1))
    assert ("float32", True) == type_of(function(0.5))
    assert ("float16", False) == type_of(function(tnp.ones(2, "float16")))
    assert ("int8", False) == type_of(function(tnp.ones(2, "int8")))


@pytest.mark.parametrize("name", ARITHMETIC + REMAINDERS)
def test_scalars_take_the_dtype_of_arrays(name):
    """An array decides among dtypes of its kind; a scalar of a higher kind gives its default."""
    function = getattr(tnp, name)

    for dtype in ("float16", "bfloat16", "float32"):
        for scalar in (2, 2.0):
            assert (dtype, False) == type_of(function(tnp.ones(2, dtype), scalar))
            assert (dtype, False) == type_of(function(scalar, tnp.ones(2, dtype)))
    for dtype in ("int8", "uint8", "int32"):
        assert (dtype, False) == type_of(function(tnp.ones(2, dtype), 2))
        assert (dtype, False) == type_of(function(2, tnp.ones(2, dtype)))
    assert ("float32", True) == type_of(function(tnp.ones(2, "int32"), 2.0))
    assert ("float32", True) == type_of(function(2, 2.0))
    assert ("int32", True) == type_of(function(2, 2))


@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_float_functions_of_two_operands(name):
    """Integers become floats; a scalar gives way to a float array."""
    function = getattr(tnp, name)

    assert ("float32", True) == type_of(function(1, 2.0))
    assert ("float32", False) == type_of(function(tnp.ones(2, "int32"), 2))
    assert ("float16", False) == type_of(function(tnp.ones(2, "float16"), 2.0))
    assert ("bfloat16", False) == type_of(function(2, tnp.ones(2, tnp.bfloat16)))


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_weak_operands_are_weak(name):
    """As of every operation; what two truth values give together is strong."""
    compare = getattr(tnp, name)
    weak = compare(1.0, 2)

    assert ("bool", True) == type_of(weak)
    assert ("bool", True) == type_of(~weak)
    assert ("bool", False) == type_of(compare(tnp.ones(2), 2))
    assert ("bool", False) == type_of(weak | weak)
    assert ("bool", False) == type_of(tnp.all(weak))
    assert ("float32", False) == type_of(tnp.sin(weak))
    assert ("int8", False) == type_of(weak * tnp.int8(3))


@pytest.mark.parametrize("name", TRUTHS)
def test_tests_of_values_are_strong(name):
    """Functions of NumPy that are more than one comparison."""
    assert ("bool", False) == type_of(getattr(tnp, name)(1.0, 2))
    assert ("bool", False) == type_of(getattr(tnp, name)(tnp.ones(2), 2))


def test_comparisons_of_lax_are_weak_as_their_operands():
    """In the form of loops and branches, too, where both kinds meet."""
    lax = tb.lax

    assert lax.gt(1, 2).weak_type
    assert lax.is_finite(1.0).weak_type
    assert not lax.eq(1, tnp.int8(2)).weak_type
    assert not lax.cond(True, lambda: lax.gt(1, 2), lambda: tnp.bool_(True)).weak_type
    assert 0 == lax.while_loop(lambda c: c > 0, lambda c: c - 1, 3)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_strongly_typed(name):
    """A reduction of weakly typed numbers is an array like any other."""
    weak = tnp.full((2,), 1.5)

    assert weak.weak_type
    assert ("float32", False) == type_of(getattr(tnp, name)(weak))


LATTICE = {
    ("bool", "int8"): "int8", ("uint8", "int8"): "int16", ("uint8", "int16"): "int16",
    ("uint16", "int8"): "int32", ("int32", "float16"): "float16",
    ("int32", "bfloat16"): "bfloat16", ("float16", "bfloat16"): "float32",
    ("float16", "float32"): "float32", ("int32", "complex64"): "complex64",
    ("float32", "complex64"): "complex64", ("bool", "float16"): "float16",
}  # fmt: skip


@pytest.mark.parametrize(("left", "right"), LATTICE)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "where", "concatenate"])
def test_two_arrays_meet_in_the_lattice(name, left, right):
    """The dtype of a pair does not depend on the order, nor on the function."""
    x, y = tnp.ones(2, left), tnp.ones(2, right)
    call = {"where": lambda a, b: tnp.where(True, a, b), "concatenate": lambda a, b:
            tnp.concatenate([a, b])}.get(name, getattr(tnp, name))  # fmt: skip

    assert (LATTICE[left, right], False) == type_of(call(x, y))
    assert (LATTICE[left, right], False) == type_of(call(y, x))


def test_sequences_and_copies():
    """A scalar array is weak, a sequence of scalars is not; conversions make strong types."""
    weak = tnp.asarray(2.0)

    assert ("float32", True) == type_of(weak)
    assert ("float32", True) == type_of(tnp.array(weak))
    assert ("float32", False) == type_of(tnp.array([weak, weak]))
    assert ("float32", False) == type_of(tnp.array([1.0, 2.0]))
    assert ("float32", True) == type_of(tnp.stack([weak, weak]))
    assert ("float32", False) == type_of(weak.astype("float32"))
    assert ("float32", False) == type_of(tnp.asarray(2.0, dtype="float32"))
    assert ("float32", True) == type_of(tnp.full((2,), 2.0))
    assert ("int32", True) == type_of(tnp.full_like(tnp.asarray(1), 2))
    assert ("float32", False) == type_of(tnp.zeros_like(tnp.ones(2)))


@pytest.mark.parametrize("name", ["log2", "log10", "angle", "nan_to_num", "poly"])
def test_functions_that_divide_by_constants_are_strong(name):
    """So are what JAX computes with constants that are arrays, and what picks elements anew."""
    function = getattr(tnp, name)

    assert not function(0.5).weak_type
    assert not tb.jit(function)(0.5).weak_type
    assert tnp.float32 == function(0.5).dtype


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tnp.rint(1),
        lambda x: tnp.vander(x),
        lambda x: tnp.diagflat(x),
        lambda x: tnp.diagonal(x[:, None]),
        lambda x: tb.nn.gelu(x),
        lambda x: tb.nn.gelu(x, approximate=False),
        lambda x: tb.nn.softplus(tnp.arange(3)),
        lambda x: tb.nn.log_sigmoid(tnp.arange(3)),
        lambda x: tb.scipy.special.ndtr(x),
        lambda x: tb.scipy.special.ndtri(x),
        lambda x: tb.scipy.special.log_ndtr(x),
        lambda x: tb.scipy.special.erfcx(x),
        lambda x: tb.scipy.special.gamma(x),
        lambda x: tb.scipy.special.sici(x)[1],
        lambda x: tb.scipy.special.multigammaln(x + 1, 2),
    ],
)
def test_results_that_are_strong_like_those_of_jax(call):
    """Weakly typed vectors, and integers that are not weak, give results that decide."""
    assert ("float32", False) == type_of(call(tnp.full((2,), 0.5)))


def test_integers_are_folded_as_floats_where_results_are():
    """The logarithm of a sum of exponentials of integers is no integer."""
    x = tnp.array([1, 2])

    assert tnp.float32 == tnp.logaddexp.reduce(x).dtype
    assert abs(2.3132617 - float(tnp.logaddexp.reduce(x))) < 1e-6  # roundings of float32
    assert tnp.float32 == tnp.logaddexp.accumulate(x).dtype
    assert tnp.float32 == tnp.logaddexp2.reduce(x).dtype


def test_quantiles_of_integers_are_strong():
    """A weakly typed probability does not make the result weak."""
    assert ("float32", False) == type_of(tnp.quantile(tnp.arange(5), 0.5))


def test_arrays_of_exponents_make_powers_strong():
    """One exponent leaves a weakly typed base as it is."""
    assert ("float32", False) == type_of(2.0 ** tnp.arange(3))
    assert ("float32", True) == type_of(tnp.power(2.0, tnp.int32(3)))


@pytest.mark.parametrize("name", ["hypot", "heaviside", "logaddexp2"])
def test_integers_beside_a_number_decide_where_values_are_selected(name):
    """Arrays are strong; numbers alone stay weak."""
    function = getattr(tnp, name)

    assert ("float32", False) == type_of(function(tnp.arange(2), 1.5))
    assert ("float32", True) == type_of(function(0.5, 1.5))


def test_truth_values_beside_an_integer_decide():
    """Powers and divisors are computed in the dtype of both."""
    truths = tnp.array([True, False])

    assert ("int32", False) == type_of(tnp.power(truths, 2))
    assert ("int32", False) == type_of(tnp.gcd(truths, 2))
    assert ("int32", True) == type_of(tnp.power(2, 2))
    assert ("int32", True) == type_of(tnp.gcd(4, 2))


def test_values_of_polynomials_are_strong_and_gradients_are_as_their_operands():
    """What stands beside integers decides, in one of them."""
    whole = tnp.arange(3)

    assert ("float32", False) == type_of(tnp.polyval(whole, 1.5))
    assert ("float32", True) == type_of(tnp.gradient(whole, 1.5))
    assert ("float32", False) == type_of(tnp.gradient(whole * 1.0 + tnp.ones(3), 1.5))


def test_weights_decide_about_averages_of_weak_numbers():
    """A weakly typed array has no width of its own."""
    weights = tnp.array([1.0, 2.0], "float16")

    assert ("float16", False) == type_of(tnp.average(tnp.full((2,), 1.5), weights=weights))


@pytest.mark.parametrize("name", ["comb", "factorial"])
def test_counts_of_weak_numbers_are_weak(name: str) -> None:
    """As those that numbers alone have, whatever formula gives them."""
    function = getattr(tb.scipy.special, name)
    rest = (1.5,) if name == "comb" else ()

    assert ("float32", True) == type_of(function(2.5, *rest))
    assert ("float32", False) == type_of(function(np.float32(2.5), *rest))


@pytest.mark.parametrize("path", ["stats.norm.pdf", "stats.bernoulli.pmf", "special.rel_entr"])
def test_distributions_of_integers_beside_numbers_are_strong(path):
    """Parameters that are numbers make no array of integers weak; numbers alone stay weak."""
    function = functools.reduce(getattr, path.split("."), tb.scipy)

    assert ("float32", False) == type_of(function(tnp.arange(2), 0.5))
    assert ("float32", True) == type_of(function(0.5, 0.5))


WEAK_RESULTS = {
    "cholesky": lambda m, v: tnp.linalg.cholesky(m),
    "eig": lambda m, v: tnp.linalg.eigvals(m),
    "eigh": lambda m, v: tnp.linalg.eigvalsh(m),
    "solve": tnp.linalg.solve,
    "triangular_solve": lambda m, v: tb.lax.linalg.triangular_solve(m, v, lower=True),
    "convolve": lambda m, v: tnp.convolve(v, v),
    "correlate": lambda m, v: tnp.correlate(v, v),
    "interp": lambda m, v: tnp.interp(v, v, v, left=0, right=1),
    "insert": lambda m, v: tnp.insert(v, 1, 7),
    "put": lambda m, v: tnp.put(v, 0, 7, inplace=False),
    "place": lambda m, v: tnp.place(v, v > 2, 7, inplace=False),
    "fill_diagonal": lambda m, v: tnp.fill_diagonal(m, 7, inplace=False),
    "dot": lambda m, v: tb.lax.dot(v, v, preferred_element_type="float32"),
    "digamma": lambda m, v: tb.scipy.special.digamma(v),
    "mish": lambda m, v: tb.nn.mish(tnp.full(2, 1)),
    "log1mexp": lambda m, v: tb.nn.log1mexp(tnp.full(2, 1)),
    "setdiff1d": lambda m, v: tnp.setdiff1d(v, tnp.arange(3), size=2),
    "rsf2csf": lambda m, v: tb.scipy.linalg.rsf2csf(m, m)[0],
    "symmetric_product": lambda m, v: tb.lax.linalg.symmetric_product(m, m),
    "detrend": lambda m, v: tb.scipy.signal.detrend(v),
    "reduceat": lambda m, v: tnp.maximum.reduceat(v, tnp.array([0, 1])),
    "interp of weak values": lambda m, v: tnp.interp(tnp.arange(3), v, v),
}
STRONG_RESULTS = {
    "associative_scan": lambda m, v: tb.lax.associative_scan(tb.lax.add, v),
    "dynamic_update_slice": lambda m, v: tb.lax.dynamic_update_slice(v, v, (0,)),
    "cross": lambda m, v: tnp.cross(v, v),
    "toeplitz": lambda m, v: tb.scipy.linalg.toeplitz(v),
    "diag": lambda m, v: tnp.diag(m),
    "slogdet": lambda m, v: tnp.linalg.slogdet(m)[1],
    "matmul": lambda m, v: tnp.matmul(v, v, preferred_element_type="float32"),
    "round": lambda m, v: tnp.round(v, 1),
    "rad2deg": lambda m, v: tnp.rad2deg(v),
    "sinc": lambda m, v: tnp.sinc(v),
    "logit": lambda m, v: tb.scipy.special.logit(v),
    "bool": lambda m, v: tnp.astype(v, bool),
    "setxor1d": lambda m, v: tnp.setxor1d(v, v, size=2),
    "intersect1d": lambda m, v: tnp.intersect1d(v, v, size=2),
    "trapezoid": lambda m, v: tnp.trapezoid(v, v),
    "polydiv": lambda m, v: tnp.polydiv(v, v)[0],
    "complex logaddexp": lambda m, v: tnp.logaddexp(1j * v, 1j * v),
    "reduce_or": lambda m, v: tb.lax.reduce_or(tnp.full(2, 1), (0,)),
    "pow": lambda m, v: tb.lax.pow(v, tnp.arange(3)),
    "pow of a number": lambda m, v: tb.lax.pow(2.0, tnp.arange(3)),
}


@pytest.mark.parametrize("name", [*WEAK_RESULTS, *STRONG_RESULTS])
def test_results_of_weak_arrays(name):
    """What only moves or combines weak elements stays weak; some functions decide about dtypes."""
    weak = tnp.full((3, 3), 1.5), tnp.full(3, 1.5)
    function = {**WEAK_RESULTS, **STRONG_RESULTS}[name]
    found = tb.eval_shape(lambda: function(*weak))

    assert (name in WEAK_RESULTS) is found.weak_type


def test_integers_between_strong_points_are_strong():
    """The place alone is weak."""
    points = tnp.arange(3)

    assert ("float32", False) == type_of(tnp.interp(0.5, points, points))


@pytest.mark.parametrize("name", ["unique", "union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_found_on_the_host_are_weak_as_their_elements(name):
    """The elements of a set are those that were given."""
    weak, function = tnp.full(3, 1.5), getattr(tnp, name)
    others = () if name == "unique" else (tnp.arange(3),)

    assert ("float32", True) == type_of(function(weak, *others))


def test_integers_become_floats_before_they_meet_narrow_places():
    """Places and values are two quantities."""
    points = tnp.arange(3)

    assert ("float32", False) == type_of(tnp.interp(tnp.ones(2, "float16"), points, points))


def test_known_exponents_leave_integers_as_they_are():
    """NumPy's scalars are as known as Python's."""
    x = tnp.array([1, 2], "int8")

    assert ("int8", False) == type_of(tnp.power(x, np.int64(3)))
    assert [1, 8] == (x ** np.int64(3)).tolist()


def test_angles_of_unsigned_integers_are_unwrapped():
    """Differences have signs; a period that is a float makes floats."""
    x = tnp.array([0, 250, 3], "uint8")

    assert [0, 250, 3] == tnp.unwrap(x, period=256).tolist()
    assert ("float32", False) == type_of(tnp.unwrap(x, period=4.0))


@pytest.mark.parametrize("number", [True, 2, 2.0])
def test_truth_of_signs_and_of_sums_in_booleans_is_no_number_that_yields(number: float) -> None:
    """Results that are always boolean have a dtype of their own."""
    found = tb.eval_shape(
        lambda x: (tnp.signbit(x), tnp.sum(x, dtype=bool), tnp.prod(x, dtype=bool)), number
    )

    assert [False] * 3 == [s.weak_type for s in found]
    assert [np.bool_] * 3 == [s.dtype for s in found]
