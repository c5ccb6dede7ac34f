"""platform_dependent: the function of the platform runs, under every transformation."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge.core.control.branches.platform_dependent import platform_dependent_p
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    MissingRuleError,
    TreeMismatchError,
)
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.ir.traverse import primitive_names
from tracebridge.core.lowering.module import lower_module

X = np.float32(0.7)


def sine(x):
    return tb.lax.platform_dependent(x, cpu=tnp.sin, cuda=tnp.cos, default=tnp.exp)


def close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-6, atol=1e-7)


def test_the_function_of_the_platform_runs():
    """On a CPU it is that of cpu, eager and compiled."""
    close(sine(X), np.sin(X))
    close(tb.jit(sine)(X), np.sin(X))


def test_the_default_runs_where_no_name_fits():
    """A default serves all other platforms."""
    f = lambda x: tb.lax.platform_dependent(x, tpu=tnp.cos, default=tnp.exp)

    close(f(X), np.exp(X))


def test_the_platform_is_known_when_the_program_is_lowered():
    """One Jaxpr serves several platforms; other functions leave no trace in the program."""
    jaxpr = tb.make_jaxpr(sine)(X).jaxpr

    assert "platform_dependent" in primitive_names(jaxpr)
    for platform, name in (("cpu", "sine"), ("cuda", "cosine"), ("gpu", "cosine"), ("tpu", "exp")):
        text = lower_module(jaxpr, "f", platform).as_text()
        found = [n for n in ("sine", "cosine", "exponential") if f"stablehlo.{n}" in text]
        assert [n for n in ("sine", "cosine", "exponential") if n.startswith(name)] == found


def test_derivatives_and_batches():
    """Both modes, second order and batches are those of the chosen function."""
    xs = np.linspace(0, 1, 4, dtype=np.float32)

    close(tb.grad(sine)(X), np.cos(X))
    close(tb.jit(tb.grad(tb.grad(sine)))(X), -np.sin(X))
    close(tb.jvp(tb.jit(sine), (X,), (X,))[1], np.cos(X) * X)
    close(tb.vmap(sine)(xs), np.sin(xs))
    close(tb.vmap(tb.grad(tb.jit(sine)))(xs), np.cos(xs))
    close(tb.lax.scan(lambda c, x: (c + sine(x), None), X * 0, xs)[0], np.sin(xs).sum())


def test_closures_and_trees():
    """The functions may close over traced values, and take and give trees."""

    def f(x, k):
        return tb.lax.platform_dependent(
            {"a": x}, (x, 2.0), cpu=lambda d, t: (d["a"] * k, t), default=lambda d, t: (d["a"], t)
        )

    (product, pair) = tb.jit(f)(X, 3.0)

    close(product, 3 * X)
    close(pair, [X, 2.0])
    close(tb.grad(lambda k: f(X, k)[0])(3.0), X)


def test_partial_evaluation_splits_the_functions():
    """What depends on known operands only is computed in the known part."""
    f = lambda x, y: tb.lax.platform_dependent(
        x, y, cpu=lambda x, y: (tnp.sin(x), y), default=lambda x, y: (tnp.cos(x), y * y)
    )
    split = partial_eval_jaxpr(tb.make_jaxpr(f)(X, X).jaxpr, (False, True))

    assert (False, True) == split.unknown_out
    assert equations_of(split.known, platform_dependent_p.name)


def test_bad_arguments():
    """Messages name what is missing or differs."""
    with pytest.raises(ArgumentSpecError, match="got no functions"):
        tb.lax.platform_dependent(X)
    with pytest.raises(ArgumentSpecError, match="tpu is 3 of type int"):
        tb.lax.platform_dependent(X, tpu=3)
    with pytest.raises(MissingRuleError, match=r"(?s)compiled for 'cpu'.*are for tpu.*default"):
        tb.lax.platform_dependent(X, tpu=tnp.sin)
    with pytest.raises(TreeMismatchError, match=r"(?s)cpu sin.*returns.*default .*returns"):
        tb.lax.platform_dependent(X, cpu=tnp.sin, default=lambda x: (x, x))
    with pytest.raises(ShapeMismatchError, match=r"default .* returns f32\[2\]"):
        tb.lax.platform_dependent(X, cpu=tnp.sin, default=lambda x: tnp.ones(2))
