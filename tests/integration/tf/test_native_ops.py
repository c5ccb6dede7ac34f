"""``native_ops``: programs as TensorFlow's own operations, with our values and gradients."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

import tracebridge as tb
import tracebridge.core
import tracebridge.numpy as tnp
from tests.core.lax.op_table import TABLE, Op
from tests.devices.programs import PROGRAMS, Program
from tests.integration.tf.native import native, operations, same, tensors
from tests.integration.torch.graph_cases import CASES
from tests.quick_compiles import quick_jit
from tracebridge import lax
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.errors.transform_errors import JaxprTypeError, MissingRuleError
from tracebridge.core.ir.primitive import all_primitives
from tracebridge.tf._native import families as _families  # noqa: F401 - registers the rules
from tracebridge.tf._native.builder import RULES

pytestmark = pytest.mark.tf

WITH_DTYPES = [pytest.param(op, dtype, id=f"{op}-{dtype}") for op in TABLE for dtype in op.dtypes]


def host(x: Any) -> Any:
    """A tensor of torch as a NumPy array; other leaves as they are."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype == torch.bfloat16:
        return x.float().numpy().astype(ml_dtypes.bfloat16)
    return x.numpy()


def total(out: Any, weights: Any, cast: Any) -> Any:
    """A number of all floats in a result, with other weights for other elements."""
    return sum([cast(x, w) for x, w in zip(out, weights, strict=True) if w is not None])


def gradients(fun: Any, args: Any, out: Any) -> tuple[Any, Any]:
    """Those of a weighted sum of the results, by tapes and ours, by the floats of ``args``."""
    leaves, tree = tb.tree.flatten(args)
    smooth = [isinstance(x, np.ndarray) and d.is_float(x.dtype) for x in leaves]
    rng = np.random.default_rng(3)
    weights = [
        rng.uniform(0.5, 1.5, x.shape).astype(x.dtype) if d.is_float(np.asarray(x).dtype) else None
        for x in tb.tree.leaves(out)
    ]
    if not any(smooth) or not [w for w in weights if w is not None]:
        return [], []

    def ours(moving: Any) -> Any:
        given = iter(moving)
        xs = [next(given) if s else x for x, s in zip(leaves, smooth, strict=True)]
        outs = tb.tree.leaves(fun(*tree.unflatten(xs)))
        return total(outs, weights, lambda x, w: (x * w).sum().astype("float32"))

    moving = [x for x, s in zip(leaves, smooth, strict=True) if s]
    watched = [tf.constant(x) for x in moving]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        given = iter(watched)
        xs = [next(given) if s else x for x, s in zip(leaves, smooth, strict=True)]
        outs = tb.tree.leaves(native(fun)(*tensors(tree.unflatten(xs))))
        value = total(outs, weights, lambda x, w: tf.cast(tf.reduce_sum(x * w), tf.float32))
    found = tape.gradient(value, watched, unconnected_gradients="zero")
    return found, quick_jit(tb.grad(ours))(moving)


@pytest.mark.parametrize("name", CASES)
def test_is_the_function(name: str) -> None:
    """Values, dtypes and gradients of one case of each family of operations."""
    fun, args, tolerance = CASES[name]
    args = tb.tree.map(host, args)
    with tb.enable_x64(True):
        out = quick_jit(fun)(*args)
        same(native(fun)(*tensors(args)), out, tolerance)
        same(*gradients(fun, args, out), 10 * tolerance)


@pytest.mark.parametrize(("op", "dtype"), WITH_DTYPES)
def test_elementwise(op: Op, dtype: Any) -> None:
    """Every elementwise operation at every dtype."""
    with tb.enable_x64(True):
        args = op.args(dtype)
        expected = quick_jit(op.fun)(*args)
        tolerance = 40 * float(tnp.finfo(expected.dtype).eps) if d.is_inexact(expected.dtype) else 0
        same(native(op.fun)(*tensors(args)), expected, tolerance)


UNSIGNED_OR_NOT = ["int32", "uint8", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", UNSIGNED_OR_NOT)
def test_integers_at_their_limits(dtype: str) -> None:
    """Division by 0 and by -1, shifts of too many bits, saturation: nothing traps or differs."""
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min], dtype)
    floats = np.array([np.nan, np.inf, -np.inf, -1.5, 2.5, 1e30, 3e9])

    def fun(x: Any, floats: Any) -> Any:
        a, b = tnp.broadcast_arrays(x[:, None], x[None, :])
        return (
            lax.div(a, b), lax.rem(a, b), a < b, tnp.maximum(a, b), tnp.sort(x), tnp.max(x),
            a * b, a - b, -x, lax.shift_left(a, b), lax.shift_right_logical(a, b),
            lax.shift_right_arithmetic(a, b), floats.astype(x.dtype), x.astype("float32"),
            lax.top_k(x, 3), tnp.argmin(x),
        )  # fmt: skip

    with tb.enable_x64(True):
        same(native(fun)(*tensors((x, floats))), quick_jit(fun)(x, floats), 0)


def test_special_numbers() -> None:
    """NaNs, infinities and zeros of both signs in comparisons, reductions, sorting, scatter."""
    x = np.array([1.0, np.nan, -0.0, np.inf, 0.0, -np.inf, 2.0, np.nan], np.float32)
    at = np.array([0, 9, 2, 2, -1, 3, 4, 5], np.int32)

    def fun(x: Any, at: Any) -> Any:
        y = x[::-1]
        return (
            tnp.maximum(x, y), lax.min(x, y), tnp.sign(x), tnp.max(x), tnp.argmax(x),
            tnp.argmin(x[2:4]), lax.sort((x, at), num_keys=1), lax.top_k(x, 5),
            lax.reduce_window(x, -np.inf, lax.max, (2,), (1,), "SAME"), lax.cummax(x),
            tnp.zeros(6).at[at].max(x), tnp.ones(6).at[at].min(x, mode="clip"),
            lax.clamp(-1.0, x, 1.0), 1 / lax.rem(x, 3.0), 1 / tnp.round(x), x.astype("int32"),
        )  # fmt: skip

    same(native(fun)(*tensors((x, at))), quick_jit(fun)(x, at), 1e-6)


def test_exact_near_zero_and_far_from_it() -> None:
    """Functions that TensorFlow itself computes less exactly than we do."""
    x = np.array([1e-30, 1e-8, -1e-4, 0.1, -0.499, 0.7], np.float32)
    z = np.array([0, 1j, -1j, 1, -1, 1e-4 + 1e-4j, 2 - 3j, 1e3 + 1e3j, -0.5 - 20j], np.complex64)

    def fun(x: Any, z: Any) -> Any:
        functions = lax.log1p, lax.asin, lax.acos, lax.atan, lax.asinh, lax.atanh
        return lax.erf_inv(x), [f(z[5:]) for f in functions], lax.atan(z[:5]), lax.atanh(z[:5])

    for a, e in zip(
        tb.tree.leaves(native(fun)(*tensors((x, z)))),
        tb.tree.leaves(quick_jit(fun)(x, z)),
        strict=True,
    ):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=4e-6)


# Primitives whose lowering consists of operations of ours.
BY_DEFINITION = """adjugate bessel_gap beta_density betainc_grad_a betainc_grad_b binomial_count
cholesky_update det digamma_gap gamma_density gamma_draw geqrf hessenberg householder_product
log_beta lu lu_pivots_to_permutation lu_solve ormqr poisson_count ragged_rows ragged_sums
random_gamma sampled_dot schur shifted_exp_sum sparse_dot tridiagonal tridiagonal_solve
trigamma_gap true_positions"""
# Those without counterpart: the error names them.
WITHOUT = {
    "devices": "all_gather all_to_all axis_index pmap pmax pmin ppermute psum psum_shared "
    "reduce_scatter inspect_sharding shard_map",
    "functions of the host": "buffer_callback debug_callback ffi_call io_callback pure_callback",
    "bits that depend on the platform": "rng_bit_generator rng_uniform",
    "any computation chooses": "select_and_scatter",
    "a program of a file": "exported_call",
    "types of values that programs define": (
        "add_of_users call_hi_primitive call_hi_primitive_linearized"
    ),
    "made by derivatives or lowerings, or to be handled before": (
        "batch_kernel check chosen composed custom_lin guarded plain_call row_kernel "
        "running_kernel scan_by_blocks scan_kernel"
    ),
}


def test_every_primitive_is_known() -> None:
    """Each has a rule, or a definition, or a reason why there is none."""
    for module in pkgutil.walk_packages(tracebridge.core.__path__, "tracebridge.core."):
        importlib.import_module(module.name)
    everything = {
        p.name for p in all_primitives() if type(p).__module__.startswith("tracebridge.core.")
    }
    others = [*BY_DEFINITION.split(), *" ".join(WITHOUT.values()).split()]

    assert set(others) == everything - RULES.keys()


FACTORS = {
    "cholesky": lambda a: tnp.linalg.cholesky(a @ tnp.conj(a).mT + tnp.eye(4)),
    "eigh": lambda a: (tnp.linalg.eigh(a + tnp.conj(a).mT), a + tnp.conj(a).mT),
    "svd": lambda a: (tnp.linalg.svd(a[:, :, :3], full_matrices=False), a[:, :, :3]),
    "eig": lambda a: (tnp.linalg.eig(a), a),
}
PRODUCTS_OF = {
    "eigh": lambda w, v: (v * w[:, None].astype(v.dtype)) @ v.conj().swapaxes(1, 2),
    "svd": lambda u, s, v: (u * s[:, None].astype(u.dtype)) @ v,
    "eig": lambda w, v: (v * w[:, None]) @ np.linalg.inv(v),
}


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_matrices(name: str, dtype: str) -> None:
    """Factors that are not unique multiply to the matrix; the others are ours."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 2, 4, 4))
    a = (a + 1j * b if dtype == "complex128" else a).astype(dtype)
    with tb.enable_x64(True):
        found = native(FACTORS[name])(tf.constant(a))
        if name not in PRODUCTS_OF:
            same(found, FACTORS[name](tnp.asarray(a)), 1e-4)
            return
    factors, matrix = found
    product = PRODUCTS_OF[name](*[np.asarray(f) for f in tb.tree.leaves(factors)])

    np.testing.assert_allclose(product, np.asarray(matrix), rtol=1e-4, atol=1e-4)


# Eigenvectors and singular vectors have signs of their own, see above; draws take XLA ten seconds
# to compile; the rest has no counterpart.
NOT_COMPARED = ("eig", "svd", "schur", "gamma", "small numbers", "betainc", "rng")
PROGRAMS_COMPARED = [
    p
    for p in PROGRAMS[len(TABLE) :]
    if not p.name.startswith(NOT_COMPARED) and not p.name.endswith("callback")
]


def numbers(aval: Any) -> Any:
    """An array of small positive numbers of a type."""
    rng = np.random.default_rng(aval.size)
    dtype = np.dtype(aval.dtype)
    if d.is_integer(dtype) or d.is_bool(dtype):
        return rng.integers(0, 2 if d.is_bool(dtype) else 6, aval.shape).astype(dtype)
    x = rng.uniform(0.2, 2, aval.shape)
    x = x + 1j * rng.uniform(0.2, 2, aval.shape) if d.is_complex(dtype) else x
    if len(aval.shape) == 3 and aval.shape[1] == aval.shape[2]:
        x = x @ x.conj().swapaxes(1, 2) + 3 * np.eye(aval.shape[1])  # of which there are factors
    return x.astype(dtype)


@pytest.mark.parametrize("program", PROGRAMS_COMPARED, ids=str)
def test_every_primitive(program: Program) -> None:
    """The programs that together use every primitive, most of them with their gradients."""
    args = [numbers(a) for a in program.args]
    # Tensors of 64 bits keep them, arrays of NumPy where the option says so.
    with tb.enable_x64(any(a.dtype == np.float64 for a in args)):
        expected = quick_jit(program.fun)(*args)

    same(native(program.fun)(*tensors(args)), expected, 2e-3)


def test_forward_mode() -> None:
    """Forward accumulators differentiate, by the rules of the user."""

    @tb.custom_jvp
    def cube(x: Any) -> Any:
        return x**3

    cube.defjvp(lambda p, t: (cube(*p), 4.5 * p[0] ** 2 * t[0]))
    x, t = tf.constant([1.0, -2.0]), tf.constant([2.0, 3.0])
    with tf.autodiff.ForwardAccumulator(x, t) as forward:
        y = native(cube)(x)

    assert forward.jvp(y).numpy().tolist() == [9.0, 54.0]


def dense(w: Any, x: Any) -> Any:
    return tnp.tanh(x @ w)


def test_layer() -> None:
    """A layer of plain operations, which its configuration knows."""
    layer = tb.tf.Layer(dense, np.ones((3, 2), np.float32), native_ops=True)
    model = tf.keras.Sequential([tf.keras.Input((3,)), layer])
    graph = tf.function(model).get_concrete_function(tf.TensorSpec((None, 3))).graph

    assert layer.get_config()["native_ops"] is True
    assert "Tanh" in operations(graph)
    assert not [name for name in operations(graph) if name.startswith("Xla")]


def test_functions_of_tensorflow_inside() -> None:
    """What ``call_tf`` put into a program is written as it was, with its derivatives."""
    inside = tb.tf.call_tf(lambda x: tf.math.lgamma(x) * tf.range(3.0))
    fun = native(lambda x: tnp.sin(inside(x)))
    x = tf.constant([[0.5, 1.5, 2.5]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, expected = fun(x), tf.sin(tf.math.lgamma(x) * tf.range(3.0))
    step = tf.function(fun).get_concrete_function(tf.TensorSpec((None, 3)))

    same(y.numpy(), expected.numpy(), 1e-6)
    same(tape.gradient(y, x).numpy(), tape.gradient(expected, x).numpy(), 1e-5)
    assert "Lgamma" in operations(step.graph)
    assert "XlaCallModule" not in operations(step.graph)


VARIABLE = tf.Variable([1.0, 2.0])


def test_second_derivatives() -> None:
    """Nested tapes, eager and in a function; the rule of the user counts."""

    @tb.custom_jvp
    def cube(x: Any) -> Any:
        return x**3

    cube.defjvp(lambda p, t: (cube(*p), 4.5 * p[0] ** 2 * t[0]))

    def second(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = native(lambda x: cube(x) + tnp.sin(x))(x)
            slope = inner.gradient(y, x)
        return outer.gradient(slope, x)

    x = tf.constant([1.0, -2.0])
    expected = 9 * x - tf.sin(x)

    same(second(x).numpy(), expected.numpy(), 1e-6)
    same(tf.function(second)(x).numpy(), expected.numpy(), 1e-6)


@pytest.mark.parametrize(
    ("fun", "error", "text"),
    [
        (
            lambda x: (lax.rng_uniform(0.0, x[0], (2,)), lax.rng_bit_generator(
                tnp.zeros(4, "uint32"), (2,))),
            MissingRuleError,
            r"'rng_uniform' of f32\[\], f32\[\]; 'rng_bit_generator' of u32\[4\]\n.*native_ops",
        ),
        (
            lambda x: (tb.pure_callback(np.sin, x, x), tb.tf.call_tf(
                lambda y: VARIABLE * y, variables=[VARIABLE])([x], x)),
            MissingRuleError,
            r"'pure_callback' of f32\[2\]; 'foreign_call' of f32\[2\], f32\[2\]\n.*native_ops",
        ),
        (
            lambda x: x.astype("float8_e4m3fn") + 1,
            MissingRuleError,
            r"'add' of f8_e4m3fn\[2\].*\n.*another dtype",
        ),
        (lambda x: tb.debug.print("{}", x), JaxprTypeError, "effects"),
    ],
)  # fmt: skip
def test_errors(fun: Any, error: Any, text: str) -> None:
    """What cannot be written is named, all of it, with the way out."""
    with pytest.raises(error, match=text):
        native(fun)(tf.ones(2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bits", [0, 1, 7, 12, 22])
def test_numbers_of_fewer_bits(dtype: Any, bits: int) -> None:
    """The last bits of a mantissa are rounded away, to even; the derivative is 1."""
    exponent = 8 if dtype == np.float32 else 11
    x = np.array([1.5, -2.75, 1 / 3, 0.0, -0.0, np.inf, -np.inf, 3e38, 1e-30, 1.25, np.nan], dtype)
    x = x if bits else x[:-1]  # a NaN has bits in its mantissa: without them XLA makes it infinite

    def f(x: Any) -> Any:
        return lax.reduce_precision(x, exponent, bits)

    with tb.enable_x64(dtype == np.float64):
        expected = np.asarray(f(x))
        found = native(f)(tf.constant(x)).numpy()
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
        given = tf.constant(x[:4])
        with tf.GradientTape() as tape:
            tape.watch(given)
            out = native(f)(given)
        np.testing.assert_array_equal(tape.gradient(out, given).numpy(), np.ones(4, dtype))
