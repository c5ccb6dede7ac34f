"""Unknown sizes: symbols, specifications, checks when run, errors that say what to pass."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import TreeMismatchError

pytestmark = pytest.mark.tf

WEIGHTS = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def sample(n: int) -> np.ndarray[Any, Any]:
    """n rows of 4."""
    return np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)


def softmax(x: Any) -> Any:
    """Along the last axis."""
    y = tnp.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


PROGRAMS: dict[str, Any] = {
    "attention": lambda x: softmax((x @ WEIGHTS) @ x.T) @ x,
    "mean and variance": lambda x: (x - x.mean(0)) / (x.var(0) + 1),
    "scan over a carry of symbolic size": lambda x: lax.scan(
        lambda c, w: (tnp.tanh(c * w), c.sum(0)), x, tnp.asarray(WEIGHTS)
    ),
    "jit inside": lambda x: tb.jit(lambda a: a + tnp.ones(a.shape) * a.shape[0])(x),
    "vmap": tb.vmap(lambda row: tnp.sin(row) @ WEIGHTS),
    "grad": tb.grad(lambda x: (softmax(x @ WEIGHTS) ** 2).sum()),
    "gather": lambda x: x[:, np.array([2, 0])] + x[np.array([0, 0])].sum(),
    "slices": lambda x: (x[1:], x[:-1], x[-1], x[::-1]),
    "concatenate": lambda x: tnp.concatenate([x, x[:1]], 0),
    "reshape": lambda x: (x.reshape(-1), x.reshape(x.shape[0], 2, 2).swapaxes(0, 1)),
    "outer difference": lambda x: x[:, None] - x[None],
    "update": lambda x: x.at[:, 1].set(0.0).at[0].add(1.0),
    "positions": lambda x: tnp.arange(x.shape[0]) * 2,
    "one hot": lambda x: (tnp.argmax(x, 1)[:, None] == tnp.arange(4)).astype(x.dtype),
    "special functions": lambda x: (lax.erf(x), lax.lgamma(tnp.abs(x) + 1), tnp.arctan(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_for_all_sizes_agrees_with_programs_for_one(name: str) -> None:
    """Values and gradients, at several sizes."""
    fun = PROGRAMS[name]
    converted = tb.tf.to_tf(fun, polymorphic_constraints=["b >= 2"], polymorphic_shapes="b, _")
    unknown = tf.function(converted, input_signature=[tf.TensorSpec((None, 4))])
    static = tf.function(tb.tf.to_tf(fun))
    for n in (2, 5):
        x = tf.constant(sample(n))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            got, expected = unknown(x), static(x)
        leaves = list(zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True))
        for g, e in leaves:
            assert g.dtype == e.dtype
            np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)
            if g.dtype.is_floating:
                one, other = tape.gradient(g, x), tape.gradient(e, x)
                if other is not None:
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_unknown_sizes_get_symbols_of_their_own() -> None:
    """Without a specification; the result keeps what is known of its shape."""
    fun = tf.function(
        tb.tf.to_tf(lambda x, y: (x * 2, y["a"].sum(0))),
        input_signature=[tf.TensorSpec((None, 3)), {"a": tf.TensorSpec((None, None))}],
    )
    out = fun.get_concrete_function().structured_outputs

    assert [o.shape.as_list() for o in out] == [[None, 3], [None]]
    assert fun(tf.ones((2, 3)), {"a": tf.ones((5, 7))})[1].shape == (7,)


def test_sizes_that_must_agree_say_what_to_pass() -> None:
    """The message names the sizes and the arguments that they come from."""
    fun = tf.function(
        tb.tf.to_tf(lambda x, y: x + y, polymorphic_shapes=None),
        input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((None, 3))],
        autograph=False,
    )

    with pytest.raises(InconclusiveDimensionError) as caught:
        fun.get_concrete_function()

    assert "x_0 = x.shape[0], y_0 = y.shape[0]" in str(caught.value)
    assert "pass" in str(caught.value) or "polymorphic_shapes" in str(caught.value)


def test_specification_says_that_sizes_agree() -> None:
    """The same with names; a call with different sizes is an error."""
    fun = tb.tf.to_tf(lambda x, y: x + y, polymorphic_shapes=["b, ...", "b, _"])
    graph = tf.function(fun, input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((None, 3))])

    assert graph(tf.ones((2, 3)), tf.ones((2, 3))).shape == (2, 3)
    assert fun(tf.ones((4, 3)), tf.ones((4, 3))).shape == (4, 3)
    with pytest.raises(ShapeMismatchError, match=r"y\.shape\[0\] is 5, expected 4, the value of b"):
        fun(tf.ones((4, 3)), tf.ones((5, 3)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"y\.shape\[0\] is 5, expected 4"):
        graph(tf.ones((4, 3)), tf.ones((5, 3)))


def test_constraints_are_used_and_checked() -> None:
    """What a constraint promises decides comparisons; a call that breaks it is an error."""
    fun = tb.tf.to_tf(
        lambda x: x.reshape(2, -1) if x.shape[0] >= 2 else x,
        polymorphic_shapes="b",
        polymorphic_constraints=["b >= 2", "mod(b, 2) == 0"],
    )

    assert fun(tf.ones(6)).shape == (2, 3)
    with pytest.raises(ShapeMismatchError, match=r"the constraint mod\(b, 2\) == 0 does not hold"):
        fun(tf.ones(5))
    double = tb.tf.to_tf(
        lambda x: x * 2, polymorphic_shapes="b", polymorphic_constraints=["b >= 2"]
    )
    graph = tf.function(double, input_signature=[tf.TensorSpec((None,))], autograph=False)
    assert graph(tf.ones(6)).shape == (6,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the constraint b >= 2 does not hold"):
        graph(tf.ones(1))


def test_undecided_comparison_says_what_to_pass() -> None:
    """A branch on a size needs a constraint."""
    fun = tb.tf.to_tf(lambda x: x if x.shape[0] >= 2 else -x, polymorphic_shapes="b")

    with pytest.raises(InconclusiveDimensionError, match=r'polymorphic_constraints=\["b >= 2"\]'):
        fun(tf.ones(6))


def test_expressions_as_sizes() -> None:
    """A size may be an expression of others."""
    fun = tb.tf.to_tf(lambda x, y: tnp.concatenate([x, x]) + y, polymorphic_shapes=["b", "2*b"])

    assert fun(tf.ones(3), tf.ones(6)).shape == (6,)
    with pytest.raises(ShapeMismatchError, match=r"y\.shape\[0\] is 5, expected 6"):
        fun(tf.ones(3), tf.ones(5))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("b, _, _", "does not fit a tensor of shape (3, 4)"),
        ("b, 5", "polymorphic_shapes of x does not fit a tensor of shape (3, 4)"),
        ("b, +", "polymorphic_shapes of x"),
    ],
)
def test_specifications_that_do_not_fit(spec: str, message: str) -> None:
    """The message names the argument and both shapes."""
    with pytest.raises(ValueError, match=r".*") as caught:
        tb.tf.to_tf(lambda x: x, polymorphic_shapes=spec)(tf.ones((3, 4)))

    assert message in str(caught.value)


def test_specifications_of_another_structure() -> None:
    """One for each argument."""
    fun = tb.tf.to_tf(lambda x, y: x, polymorphic_shapes=["b"])

    with pytest.raises(TreeMismatchError):
        fun(tf.ones(3), tf.ones(3))
    with pytest.raises(TypeError, match="expected strings"):
        tb.tf.to_tf(lambda x: x, polymorphic_shapes=[3])(tf.ones(3))


def test_one_trace_serves_all_sizes() -> None:
    """Other sizes use the program of the first call."""
    calls: list[Any] = []

    def fun(x: Any) -> Any:
        calls.append(str(x.shape[0]))
        return x * 2

    converted = tb.tf.to_tf(fun, polymorphic_shapes="b")
    for n in (2, 3, 4):
        assert converted(tf.ones(n)).shape == (n,)

    assert calls == ["b"]


def test_unknown_rank() -> None:
    """Needs a specification with all sizes."""
    specs = {"input_signature": [tf.TensorSpec(None)], "autograph": False}

    with pytest.raises(InconclusiveDimensionError, match="x is a tensor of unknown rank"):
        tf.function(tb.tf.to_tf(lambda x: x), **specs).get_concrete_function()
    named = tf.function(tb.tf.to_tf(lambda x: x * 2, polymorphic_shapes="b, 3"), **specs)
    assert named(tf.ones((2, 3))).shape == (2, 3)


EMPTY = ["mean and variance", "scan over a carry of symbolic size", "jit inside", "vmap", "grad",
         "concatenate", "reshape", "outer difference", "positions", "one hot",
         "special functions"]  # fmt: skip
MORE_EMPTY: dict[str, Any] = {
    "sort": lambda x: tnp.sort(x, 0),
    "variance": lambda x: x.var(),
    "pad": lambda x: tnp.pad(x, ((1, 1), (0, 0))),
    "stack": lambda x: tnp.stack([x, x]),
    "product": lambda x: (x.T @ x, x @ x.T),
    "reshape to fewer rows": lambda x: x.reshape(2, -1),
    "flip and roll": lambda x: (x[::-1], x[: x.shape[0] // 2]),
    "repeat": lambda x: tnp.repeat(x, 2, 0),
    "logarithm of a sum": lambda x: tnp.log(tnp.exp(x).sum(0)),
    "division by the size": lambda x: x.sum(0) / x.shape[0],
    "roll": lambda x: (tnp.roll(x, 1, 0), tnp.roll(x, -3, 0), tnp.roll(x, 2)),
    "running sums and products": lambda x: (tnp.cumsum(x, 0), tnp.cumprod(x), lax.cummax(x, 0)),
    "running sums from the end": lambda x: lax.cumlogsumexp(x, 0, reverse=True),
    "scan over rows": lambda x: lax.scan(lambda c, r: (c * r, c + r), tnp.ones(4), x),
    "scan from the end": lambda x: lax.scan(lambda c, r: (c * r, c), tnp.ones(4), x, reverse=True),
    "scan with flags": lambda x: lax.scan(lambda c, r: (c + r, r > 0), x.sum(0), x)[1],
    "products of elements": lambda x: (tnp.prod(x, 0), tnp.prod(x), tnp.nanprod(x, 0)),
    "differences": lambda x: (tnp.diff(x, axis=0), tnp.diff(x, n=2, axis=0), tnp.ediff1d(x)),
    "trapezoids": lambda x: tnp.trapezoid(x[:, :, None] * tnp.ones(2), axis=1),
    "steps": lambda x: (x[::2], x[::-2], x[1::3], x[1:], x[:-1]),
    "along an axis": lambda x: tnp.take_along_axis(x, tnp.argsort(x, axis=1), axis=1),
    "along the rows": lambda x: tnp.take_along_axis(x, tnp.argsort(x, axis=0), axis=0),
    "medians and quantiles of rows": lambda x: (tnp.median(x, 1), tnp.quantile(x, 0.3, axis=1)),
    "diagonal": lambda x: tnp.diagonal(x @ x.T),
    "triangle": lambda x: tnp.tril(x @ x.T) + tnp.eye(x.shape[0]),
}


@pytest.mark.parametrize("name", [*EMPTY, *MORE_EMPTY])
def test_unknown_sizes_may_be_0(name: str) -> None:
    """Values and gradients are those of the program for empty arrays."""
    fun = {**PROGRAMS, **MORE_EMPTY}[name]
    converted = tb.tf.to_tf(fun, polymorphic_shapes="b, _")
    unknown = tf.function(converted, input_signature=[tf.TensorSpec((None, 4))])
    x = tf.zeros((0, 4))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        got, named, expected = unknown(x), converted(x), tb.tf.to_tf(fun)(x)
    for g, n, e in zip(*map(tf.nest.flatten, (got, named, expected)), strict=True):
        assert g.dtype == n.dtype == e.dtype
        np.testing.assert_array_equal(g, e)
        np.testing.assert_array_equal(n, e)
        if e.dtype.is_floating:
            np.testing.assert_array_equal(tape.gradient(g, x), tape.gradient(e, x))


def test_rows_become_flat_also_if_there_are_none() -> None:
    """The size -1 beside the batch is known for all batches: 0 rows need no other program."""
    fun = lambda x: (x[:, :, None] * tnp.ones(3)).reshape(x.shape[0], -1)
    options: Any = {"polymorphic_shapes": "b, _", "polymorphic_constraints": ["b >= 0"]}
    unknown = tf.function(tb.tf.to_tf(fun, **options), input_signature=[tf.TensorSpec((None, 4))])

    assert (None, 12) == tuple(unknown.get_concrete_function().output_shapes)
    np.testing.assert_array_equal(np.repeat(sample(5), 3, 1), unknown(sample(5)))
    assert (0, 12) == unknown(tf.zeros((0, 4))).shape


NEED_ROWS: dict[str, Any] = {
    "max": lambda x: x.max(0),
    "argmin": lambda x: tnp.argmin(x, 0),
    "softmax": lambda x: softmax(x.T),
    "median": lambda x: tnp.median(x, 0),
    "first": lambda x: lax.index_in_dim(x, 0),
    "branch": lambda x: x if x.shape[0] > 0 else x.sum(0),
}


@pytest.mark.parametrize("name", NEED_ROWS)
def test_traces_that_need_a_row_say_so(name: str) -> None:
    """They serve all sizes from 1; the message of a call with 0 says why, and what to do."""
    fun = NEED_ROWS[name]
    signature = [tf.TensorSpec((None, 4))]
    unknown = tf.function(tb.tf.to_tf(fun), input_signature=signature, autograph=False)
    static = tb.tf.to_tf(fun)

    for n in (1, 3):
        x = tf.constant(sample(n))
        np.testing.assert_allclose(unknown(x), static(x), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"x\.shape\[0\]"):
        unknown(tf.zeros((0, 4)))
    strict = tb.tf.to_tf(fun, polymorphic_shapes="b, _", polymorphic_constraints=["b >= 0"])
    with pytest.raises(InconclusiveDimensionError, match=r'polymorphic_constraints=\["b'):
        tf.function(strict, input_signature=signature).get_concrete_function()


def test_empty_tensors_get_programs_of_their_own() -> None:
    """Called with a size of 0, a function whose trace for all sizes needs a row is traced for 0."""
    fun = tb.tf.to_tf(lambda x: x.sum() if x.shape[0] == 0 else x.max(), polymorphic_shapes="b")
    named = tb.tf.to_tf(lambda x: x * 2 if x.shape[0] > 0 else x, polymorphic_shapes="b")

    assert 0.0 == tb.tf.to_tf(lambda x: x.sum(), polymorphic_shapes="b")(tf.zeros(0))
    assert 3.0 == fun(tf.constant([1.0, 3.0]))
    assert 0.0 == fun(tf.zeros(0))
    asks = tb.tf.to_tf(lambda x: -1.0 if x.shape[0] == 0 else x.sum(), polymorphic_shapes="b")
    assert (2.0, -1.0) == (asks(tf.ones(2)), asks(tf.zeros(0)))
    assert [2.0] == named(tf.ones(1)).numpy().tolist()
    assert (0,) == named(tf.zeros(0)).shape


def test_constraints_that_ask_for_more_than_0() -> None:
    """They are checked, also of empty tensors."""
    options: Any = {"polymorphic_shapes": "b", "polymorphic_constraints": ["b >= 1"]}
    fun = tb.tf.to_tf(lambda x: x.max(), **options)

    assert 1.0 == fun(tf.ones(1))
    with pytest.raises(ShapeMismatchError, match="the constraint b >= 1 does not hold"):
        fun(tf.zeros(0))
    doubled = tb.tf.to_tf(lambda x, y: x.sum() + y, polymorphic_shapes=["b + 2", "b"])
    with pytest.raises(ShapeMismatchError, match="is -1, expected at least 0"):
        doubled(tf.ones(1), tf.ones(0))


NEED_SIZES: dict[str, tuple[int, Any]] = {
    "slice": (4, lambda x: lax.slice(x, (0,), (4,))),
    "dynamic slice": (4, lambda x: lax.dynamic_slice_in_dim(x, 0, 4)),
    "update": (4, lambda x: lax.dynamic_update_slice(x, tnp.ones(4), (0,))),
    "greatest": (3, lambda x: lax.top_k(x, 3)[0]),
    "cut": (2, lambda x: lax.pad(x, 0.0, [(-1, -1, 0)])),
    "loop over rows": (1, lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.0)),
    "embedding": (1, lambda x: x[np.array([0, 0])]),
}


@pytest.mark.parametrize("name", NEED_SIZES)
def test_sizes_that_operations_need_are_checked_by_name(name: str) -> None:
    """A size that is too small is an error that names the input; eagerly it is that of the size."""
    least, fun = NEED_SIZES[name]
    signature = [tf.TensorSpec((None,))]
    graph = tf.function(tb.tf.to_tf(fun), input_signature=signature, autograph=False)
    named, static = tb.tf.to_tf(fun, polymorphic_shapes="b"), tb.tf.to_tf(fun)
    strict = tb.tf.to_tf(fun, polymorphic_shapes="b", polymorphic_constraints=["b >= 0"])

    for n in (least, least + 2):
        x = tf.range(n, dtype=tf.float32)
        np.testing.assert_array_equal(static(x), graph(x))
        np.testing.assert_array_equal(static(x), named(x))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"where x_0 = x\.shape\[0\]|is 0"):
        graph(tf.ones(least - 1))
    with pytest.raises((ValueError, IndexError)) as of_the_size:
        static(tf.ones(least - 1))
    with pytest.raises((ValueError, IndexError)) as of_all:
        named(tf.ones(least - 1))
    assert type(of_the_size.value) is type(of_all.value)
    with pytest.raises(InconclusiveDimensionError):
        tf.function(strict, input_signature=signature, autograph=False).get_concrete_function()


MISFITS: dict[str, Any] = {
    "sum": (lambda x, y: x + y, ["b", "b"], (3, 4), r"y\.shape\[0\] is 4, expected 3"),
    "product": (lambda x, y: x @ y, ["b", "b"], (3, 4), r"y\.shape\[0\] is 4, expected 3"),
    "halves": (lambda x, y: (x.reshape(2, -1), y), ["2*b", "c"], (3, 4), r"x\.shape\[0\] is 3"),
    "known": (lambda x, y: (x * 2, y), ["3", "b"], (4, 4), r"x \[4\] is not compatible .* \[3\]"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_sizes_that_do_not_fit_are_named_before_operations_meet_them(name: str) -> None:
    """What the caller of a graph reads is about arguments, not about operations of the program."""
    fun, specs, sizes, message = MISFITS[name]
    converted = tb.tf.to_tf(fun, polymorphic_shapes=specs)
    signature = [tf.TensorSpec((None,)), tf.TensorSpec((None,))]
    graph = tf.function(converted, input_signature=signature, autograph=False)

    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        graph(*[tf.ones(n) for n in sizes])


def test_constraints_on_names_of_no_size() -> None:
    """They would have no effect."""
    named = tb.tf.to_tf(
        lambda x: x, polymorphic_shapes="b, _", polymorphic_constraints=["c >= 2", "b >= 1"]
    )
    own = tb.tf.to_tf(lambda x: x.sum(0), polymorphic_constraints=["x_0 >= 2"])
    graph = tf.function(own, input_signature=[tf.TensorSpec((None, None))], autograph=False)

    with pytest.raises(ValueError, match=r"speaks of c, which is the name of no size"):
        named(tf.ones((2, 3)))
    assert (3,) == graph(tf.ones((2, 3))).shape == own(tf.ones((2, 3))).shape
    with pytest.raises(tf.errors.InvalidArgumentError, match="x_0 >= 2 does not hold"):
        graph(tf.ones((1, 3)))


def test_division_by_a_size_of_0_does_not_end_the_process() -> None:
    """Sizes as divisors; NumPy's results are those of a program for no elements."""
    fun = tb.tf.to_tf(lambda x, y: y * (7 // tnp.maximum(x.shape[0], 1)) + (7 % (x.shape[0] + 1)))
    signature = [tf.TensorSpec((None,)), tf.TensorSpec((2,))]
    graph = tf.function(fun, input_signature=signature)

    assert [7.0, 7.0] == graph(tf.ones(0), tf.ones(2)).numpy().tolist()
    direct = tb.tf.to_tf(lambda x, y: y + 7 % x.shape[0])
    graph = tf.function(direct, input_signature=signature)
    assert [2.0, 2.0] == graph(tf.ones(3), tf.ones(2)).numpy().tolist()
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        graph(tf.ones(0), tf.ones(2))
