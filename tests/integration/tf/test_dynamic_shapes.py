"""Unknown sizes: symbols, specifications, checks when run, errors that say what to pass."""

from __future__ import annotations

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
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
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


def test_sizes_below_one_are_refused() -> None:
    """Programs are traced for sizes of at least 1."""
    fun = tb.tf.to_tf(lambda x: x, polymorphic_shapes="b, _")

    with pytest.raises(ShapeMismatchError, match="expected at least 1"):
        fun(tf.ones((0, 3)))
