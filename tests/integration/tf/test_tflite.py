"""TensorFlow Lite: programs of this package converted, and run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.op_table import TABLE
from tests.integration.tf.test_primitives import OTHERS, operands
from tracebridge import lax, nn
from tracebridge.core.dtypes import dtypes as d

# The interpreter of this release says that the next one has it in a package of its own.
pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter")]

Host = np.ndarray[Any, Any]


def weights(*shape: int) -> Host:
    """Reproducible parameters."""
    random = np.random.default_rng([7, *shape])
    return (random.standard_normal(shape) * 0.5).astype(np.float32)


def run(model: bytes, *args: Host) -> list[Host]:
    """The results of the interpreter, with its inputs resized to the arguments."""
    interpreter = tf.lite.Interpreter(model_content=model)
    details = interpreter.get_input_details()
    assert len(details) == len(args)
    for detail, arg in zip(details, args, strict=True):
        if tuple(detail["shape"]) != arg.shape:
            interpreter.resize_tensor_input(detail["index"], arg.shape)
    interpreter.allocate_tensors()
    for detail, arg in zip(details, args, strict=True):
        interpreter.set_tensor(detail["index"], arg)
    interpreter.invoke()
    return [interpreter.get_tensor(o["index"]) for o in interpreter.get_output_details()]


def converted(fun: Callable[..., Any], *specs: tf.TensorSpec, native: bool = False) -> bytes:
    """A function as a model of TensorFlow Lite, by a concrete function."""
    call = tb.tf.to_tf(fun, native_ops=native)
    graph = tf.function(call, input_signature=specs, autograph=False)
    concrete = graph.get_concrete_function()
    return tf.lite.TFLiteConverter.from_concrete_functions([concrete], graph).convert()


def conv_net(p: Any, x: Any) -> Any:
    """Convolution, bias, maxima of windows, flat rows, a dense layer, probabilities."""
    y = lax.conv_general_dilated(
        x, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = nn.relu(y + p["bias"])
    y = lax.reduce_window(y, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return nn.softmax(y.reshape(y.shape[0], -1) @ p["dense"])


def lstm(p: Any, x: Any) -> Any:
    """The last state of a recurrence over axis 1, by scan."""

    def step(carry: Any, t: Any) -> Any:
        h, c = carry
        i, f, g, o = tnp.split(t @ p["w"] + h @ p["u"] + p["b"], 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * tnp.tanh(g)
        return (nn.sigmoid(o) * tnp.tanh(c), c), None

    zero = tnp.zeros((x.shape[0], 4), x.dtype)
    return lax.scan(step, (zero, zero), tnp.moveaxis(x, 1, 0))[0][0]


def normalized(x: Any) -> Any:
    """Rows of mean 0 and variance 1."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def transformer(p: Any, x: Any) -> Any:
    """A block: two heads of causal attention, then two dense layers with gelu."""
    n, d_head = x.shape[1], 4
    y = normalized(x)
    q, k, v = [(y @ p[name]).reshape(*x.shape[:2], 2, d_head) for name in "qkv"]
    scores = tnp.einsum("bqhd,bkhd->bhqk", q, k) / 2
    scores = tnp.where(np.tril(np.ones((n, n), bool)), scores, -1e9)
    mixed = tnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v)
    x = x + mixed.reshape(*x.shape[:2], 2 * d_head) @ p["o"]
    return x + nn.gelu(normalized(x) @ p["up"], approximate=True) @ p["down"]


NETS: dict[str, tuple[Callable[..., Any], dict[str, Host], tuple[int, ...]]] = {
    "convolutions": (
        conv_net,
        {"kernel": weights(3, 3, 3, 4), "bias": weights(4), "dense": weights(64, 5)},
        (8, 8, 3),
    ),
    "lstm by scan": (lstm, {"w": weights(3, 16), "u": weights(4, 16), "b": weights(16)}, (5, 3)),
    "transformer block": (
        transformer,
        {**{name: weights(8, 8) for name in "qkvo"}, "up": weights(8, 16), "down": weights(16, 8)},
        (6, 8),
    ),
}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_networks_of_any_batch(name: str, native: bool, tmp_path: Any) -> None:
    """Saved with their parameters and an unknown batch, converted, and run at several batches."""
    fun, params, shape = NETS[name]
    spec = tf.TensorSpec((None, *shape), tf.float32, name="x")
    tb.tf.save(fun, tmp_path / "model", [spec], params=params, grad_order=0, native_ops=native)
    model = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "model")).convert()

    for batch in (1, 2, 5):
        x = weights(batch, *shape)
        (got,) = run(model, x)
        np.testing.assert_allclose(got, fun(params, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_networks_of_one_batch(name: str) -> None:
    """By a concrete function, with the parameters as constants."""
    fun, params, shape = NETS[name]
    model = converted(lambda x: fun(params, x), tf.TensorSpec((2, *shape), tf.float32))

    x = weights(2, *shape)
    (got,) = run(model, x)
    np.testing.assert_allclose(got, fun(params, x), rtol=1e-4, atol=1e-5)


def _cases() -> dict[str, tuple[Callable[..., Any], list[Host]]]:
    """The programs of all primitives: in float32 where they take it."""
    found: dict[str, tuple[Callable[..., Any], list[Host]]] = {}
    for op in TABLE:
        dtype = d.float32 if d.float32 in op.dtypes else op.dtypes[0]
        found[str(op).replace(" ", "_")] = op.fun, op.args(dtype)
    return {**found, **{str(p): (p.fun, operands(p)) for p in OTHERS}}


CASES = _cases()

# What the converter says -> programs that it refuses.
REFUSED = {
    "mhlo.round_nearest_afz": "round",
    "tf.PopulationCount": "population_count",
    "vhlo.count_leading_zeros_v1": "clz",
    "tf.Complex": "conj complex",
    "tfl.right_shift": "mulhi",
    "tf.BitwiseAnd": "nextafter bitwise_and",
    "vhlo.compare_v1": "eq_to lt_to le_to",
    "tf.BitwiseOr": "bitwise_or",
    "tf.LeftShift": (
        "shift_left stored threefry2x32 split_of_keys normal small_numbers_of_events betainc"
    ),
    "vhlo.reduce_precision_v1": (
        "reduce_precision_to_bfloat16 reduce_precision_of_float64 igamma igammac igamma_grad_a "
        "gradient_of_igamma gradient_of_igammac"
    ),
    "tfl.less": "igamma_of_float64",
    "mhlo.log_plus_one": "random_gamma_grad_of_float64",
    "tfl.cast": "convert_to_complex128 gamma",
    "tfl.reduce_all": "reduce_and",
    "tfl.reduce_any": "reduce_or",
    "vhlo.reduce_v1": "reduce_xor argmax argmin reduce_of_two",
    "vhlo.sort_v1": "sort sort_of_two",
    "vhlo.fft_v1": "fft irfft FFT IFFT RFFT",
    "tfl.strided_slice": "IRFFT",
    "vhlo.triangular_solve_v1": "triangular_solve",
    "bfloat16": "dot_general_of_bfloat16",
}
# Programs of values and gradients of which it takes the values.
VALUES_ALONE = [
    "gather",
    "max_pooling",
    "max_pooling_of_images",
    "tangents_of_max_pooling",
    "conv",
    "depthwise_conv",
    "qdwh",
]
# What the interpreter says of models that the converter wrote.
NOT_RUN = {
    "Only one kernel": "cumlogsumexp",
    "Only update, Add": (
        "top_k approx_min_k at[].add at[].multiply at[].min at[].max at[].subtract sparse_dot"
    ),
    "Invalid tensor size": "tokens",
}
WRONG = ["cbrt", "rem", "shift_right_logical", "conv_transpose", "tridiagonal_solve"]
"""Converted, and other numbers."""
NATIVE = [
    "cbrt",
    "round",
    "eq_to",
    "lt_to",
    "le_to",
    "reduce_precision_to_bfloat16",
    "argmax",
    "argmin",
    "top_k",
    "gather",
    "at[].add",
    "at[].multiply",
    "max_pooling",
    "max_pooling_of_images",
    "tangents_of_max_pooling",
    "reduce_of_two",
    "conv",
    "depthwise_conv",
    "conv_transpose",
]
"""Of all these, those that convert and run with ``native_ops=True``."""
LEFT_OUT = {*VALUES_ALONE, *WRONG, *" ".join([*REFUSED.values(), *NOT_RUN.values()]).split()}


def results(name: str, native: bool = False, first: bool = False) -> tuple[list[Host], list[Host]]:
    """What the interpreter gives, and what jit gives; of the first result, or of all."""
    fun, args = CASES[name]
    flat = lambda *xs: tb.tree.leaves(fun(*xs))[: 1 if first else None]
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in args]
    return run(converted(flat, *specs, native=native), *args), tb.jit(flat)(*args)


def agree(got: list[Host], expected: list[Host]) -> None:
    """Fail unless dtypes, shapes and values do."""
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("name", [name for name in CASES if name not in LEFT_OUT])
def test_primitives(name: str) -> None:
    """They convert, with gradients, run, and give what jit gives."""
    agree(*results(name))


@pytest.mark.parametrize("name", VALUES_ALONE)
def test_values_without_gradients(name: str) -> None:
    """The program of the value converts, that of the gradients does not."""
    agree(*results(name, first=True))
    with pytest.raises(Exception, match=r"not part of|explicitly marked illegal|prepare|type\(s\)"):
        results(name)


@pytest.mark.parametrize(("says", "name"), [(k, n) for k, v in REFUSED.items() for n in v.split()])
def test_refused(says: str, name: str) -> None:
    """For the reason of the table, and no other."""
    with pytest.raises(Exception, match=says):
        results(name)


@pytest.mark.parametrize(("says", "name"), [(k, n) for k, v in NOT_RUN.items() for n in v.split()])
def test_not_run(says: str, name: str) -> None:
    """For the reason of the table, and no other."""
    with pytest.raises((RuntimeError, ValueError), match=says):
        results(name)


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    """What has other values is not to be used: a converter that is right empties this table."""
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        agree(*results(name))


linalg = lax.linalg
POSITIVE = weights(5, 5) @ weights(5, 5).T + 5 * np.eye(5, dtype=np.float32)
# A function of the matrix above, and what the converter says, or nothing where it converts: of
# StableHLO, and of operations of TensorFlow.
DENSE: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "cholesky": (linalg.cholesky, "vhlo.cholesky_v1", "tf.Cholesky"),
    "lu": (linalg.lu, "vhlo.reduce_v1", ""),
    "qr": (linalg.qr, "", "tf.Qr"),
    "hessenberg": (linalg.hessenberg, "", "tfl.batch_matmul"),
    "eigh": (linalg.eigh, "vhlo.sort_v1", "tf.SelfAdjointEigV2"),
    "svd": (linalg.svd, "vhlo.sort_v1", "tf.Svd"),
    "solve": (lambda a: tnp.linalg.solve(a, a[:, :2]), "vhlo.triangular_solve_v1",
              "tf.MatrixTriangularSolve"),
    "inv": (tnp.linalg.inv, "vhlo.triangular_solve_v1", "tf.MatrixTriangularSolve"),
    "det": (tnp.linalg.det, "tf.BitwiseAnd", "tf.BitwiseAnd"),
}  # fmt: skip


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", DENSE)
def test_linear_algebra(name: str, native: bool) -> None:
    """Factors up to signs; or the reason of the table."""
    fun, *reasons = DENSE[name]
    flat = lambda a: [tnp.abs(y) for y in tb.tree.leaves(fun(a))]
    spec = tf.TensorSpec((5, 5), tf.float32)
    if reasons[native]:
        with pytest.raises(Exception, match=reasons[native]):
            converted(flat, spec, native=native)
        return

    for got, expected in zip(run(converted(flat, spec, native=native), POSITIVE), flat(POSITIVE),
                             strict=True):  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NATIVE)
def test_native(name: str) -> None:
    """Operations of TensorFlow convert where those of StableHLO do not."""
    agree(*results(name, native=True))
