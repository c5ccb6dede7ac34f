"""check_grads, check_jvp and check_vjp accept right derivatives and find wrong ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.core.lax as lax
from tracebridge.core.lax.families import InexactUnary
from tracebridge.testing import check_grads, check_jvp, check_rules, check_vjp


@final
class WrongDerivative(InexactUnary):
    """Computes the sine, and says that its derivative is 1."""

    name = "wrong_derivative"
    hlo = "stablehlo.sine"

    def tangent(self, t: Any, x: Any, ans: Any, **params: Any) -> Any:
        return lax.copy(t)


@final
class WrongTranspose(InexactUnary):
    """Doubles, and halves backwards."""

    name = "wrong_transpose"

    def lower_full(self, ctx: Any, *xs: Any, **params: Any) -> Any:
        return ctx.op1("stablehlo.add", [xs[0], xs[0]], ctx.aval_out)

    def tangent(self, t: Any, x: Any, ans: Any, **params: Any) -> Any:
        return self.bind(t)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return [lax.mul(ct, 0.5)]


@final
class WrongBatch(InexactUnary):
    """The batched form forgets the sign."""

    name = "wrong_batch"
    hlo = "stablehlo.negate"

    def batch(self, ctx: Any, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        return lax.copy(args[0]), dims[0]


wrong_derivative_p = WrongDerivative()
wrong_transpose_p = WrongTranspose()
wrong_batch_p = WrongBatch()


def cubes(tree: dict[str, Any]) -> Any:
    """A function of a tree, with an integer leaf."""
    x, n = tree["x"], tree["n"]
    return lax.mul(lax.mul(x, lax.mul(x, x)), lax.convert_dtype(n, x.dtype))


def test_right_derivatives_pass() -> None:
    """Trees, integer leaves, complex numbers and third order are checked."""
    check_grads(cubes, ({"x": np.array([0.5, 2.0]), "n": np.array([2, 3])},), order=3)
    check_grads(lambda z: lax.real(lax.mul(z, z)), (np.array([1.0 + 2.0j]),), order=2)


@pytest.mark.parametrize("modes", [("fwd",), ["rev"], "fwd", "rev"])
def test_a_wrong_derivative_fails(modes: str | Sequence[str]) -> None:
    """The message says which mode disagrees with the differences."""
    with pytest.raises(AssertionError, match="against finite differences"):
        check_grads(wrong_derivative_p.bind, (np.array([0.7]),), order=1, modes=modes)


def test_a_wrong_transpose_fails_in_reverse_mode_only() -> None:
    """Forward mode does not use transposes."""
    x = np.array([0.7])
    check_grads(wrong_transpose_p.bind, (x,), order=1, modes=("fwd",))
    with pytest.raises(AssertionError, match="vjp against finite differences"):
        check_grads(wrong_transpose_p.bind, (x,), order=1, modes=("rev",))


def test_a_wrong_second_derivative_fails() -> None:
    """Order 2 differentiates the derivatives, here one with a wrong derivative."""

    def f(x: Any) -> Any:
        return lax.mul(wrong_derivative_p.bind(x), 0.0)

    check_grads(f, (np.array([0.7]),), order=1)
    with pytest.raises(AssertionError, match="jvp, then jvp"):
        check_grads(lambda x: lax.mul(x, wrong_second(x)), (np.array([0.7]),), order=2)


def test_tolerances_by_dtype() -> None:
    """A dict has tolerances for some dtypes; the others keep their own."""
    x = np.array([0.7])
    with pytest.raises(AssertionError, match="against finite differences"):
        check_grads(wrong_derivative_p.bind, (x,), order=1, atol={np.float32: 10.0})
    check_grads(wrong_derivative_p.bind, (x,), order=1, atol={"float64": 10.0}, rtol={})
    check_grads(wrong_derivative_p.bind, (x,), order=1, atol=10.0)


def test_results_of_single_precision() -> None:
    """Rounding errors of float32 are allowed for, in sums over many elements too."""
    x = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)

    def f(v: Any) -> Any:
        return lax.sin(v), lax.reduce_sum(lax.mul(v, v), (0, 1))

    check_grads(f, (x,), order=2, atol=1e-2, rtol=1e-2)
    check_jvp(f, functools.partial(tb.jvp, f), (x,))
    check_vjp(f, functools.partial(tb.vjp, f), (x,))


@final
class RightFirst(InexactUnary):
    """The sine; its derivative is right, the derivative of that is not."""

    name = "right_first"
    hlo = "stablehlo.sine"

    def derivative(self, x: Any, ans: Any, **params: Any) -> Any:
        return wrong_cosine_p.bind(x)


@final
class WrongCosine(InexactUnary):
    """The cosine, with derivative 1."""

    name = "wrong_cosine"
    hlo = "stablehlo.cosine"

    def tangent(self, t: Any, x: Any, ans: Any, **params: Any) -> Any:
        return lax.copy(t)


right_first_p = RightFirst()
wrong_cosine_p = WrongCosine()
wrong_second = right_first_p.bind


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_kinks_within_the_step_are_no_errors(mode: str) -> None:
    """A step that passes a kink, or a fast change of slopes, is followed by a shorter one."""
    x = np.float32([1e-3, -1e-3, 0.5])
    check_grads(lambda x: lax.max(x, 0.0), (x,), order=1, modes=mode)
    check_grads(lambda x: lax.sin(lax.mul(x, 300.0)), (x,), order=1, modes=mode, rtol=5e-2)
    with pytest.raises(AssertionError, match="against finite differences"):
        check_grads(lambda x: lax.max(x, 0.0), (x,), order=1, modes=mode, eps=5e-3)


@pytest.mark.parametrize(("at", "offset"), [(0.5, 0.0), (0.5, 1e4), (2.0**12, 0.0)])
def test_steps_that_are_rounded_away_prove_nothing(at: float, offset: float) -> None:
    """The slope 0 is wrong, though arguments and results in 32 bits hardly move."""
    x = np.float32(at)

    def wrong(x: Any) -> Any:
        return lax.add(lax.stop_gradient(lax.mul(x, 2.0**-15 + float(at < 1))), offset)

    with pytest.raises(AssertionError, match="against finite differences"):
        check_grads(wrong, (x,), order=1, atol=1e-7)


def test_given_rules_may_have_kinks_within_the_step() -> None:
    """Rules of users are compared at a shorter step as well."""
    x = np.float32([1e-3, -1e-3, 0.5])

    def relu(x: Any) -> Any:
        return lax.max(x, 0.0)

    def relu_jvp(primals: Any, tangents: Any, sign: float = 1.0) -> Any:
        return tb.jvp(relu, primals, tuple([lax.mul(t, sign) for t in tangents]))

    def relu_vjp(x: Any, sign: float = 1.0) -> Any:
        out, pullback = tb.vjp(relu, x)
        return out, lambda ct: pullback(lax.mul(ct, sign))

    check_jvp(relu, relu_jvp, (x,))
    check_vjp(relu, relu_vjp, (x,))
    with pytest.raises(AssertionError, match="jvp"):
        check_jvp(relu, functools.partial(relu_jvp, sign=-1.0), (x,))
    with pytest.raises(AssertionError, match="vjp"):
        check_vjp(relu, functools.partial(relu_vjp, sign=-1.0), (x,))


def test_unknown_modes_are_refused() -> None:
    """Only "fwd" and "rev" are modes."""
    with pytest.raises(ValueError, match="got \\['forward'\\]"):
        check_grads(lax.sin, (0.5,), order=1, modes=("forward",))


def test_given_jvp_and_vjp_are_checked() -> None:
    """Functions that users wrote are compared with differences of the original."""
    x = np.array([0.5, 2.0])

    def sin_jvp(primals: Any, tangents: Any, scale: float = 1.0) -> Any:
        slope = lax.mul(lax.cos(*primals), scale)
        return lax.sin(*primals), lax.mul(slope, *tangents)

    def sin_vjp(x: Any, scale: float = 1.0) -> Any:
        return lax.sin(x), lambda ct: (lax.mul(lax.mul(lax.cos(x), scale), ct),)

    check_jvp(lax.sin, sin_jvp, (x,))
    check_vjp(lax.sin, sin_vjp, (x,))
    with pytest.raises(AssertionError, match="jvp"):
        check_jvp(lax.sin, lambda p, t: sin_jvp(p, t, 1.01), (x,))
    with pytest.raises(AssertionError, match="vjp"):
        check_vjp(lax.sin, lambda x: sin_vjp(x, 1.01), (x,))


def test_check_rules_finds_wrong_batching_and_values() -> None:
    """Mapping is compared with a loop, values with the reference."""
    x = np.array([0.7, 0.8])
    with pytest.raises(AssertionError, match="vmap with in_dims"):
        check_rules(wrong_batch_p.bind, x, order=0)
    with pytest.raises(AssertionError, match="value against the reference"):
        check_rules(lax.sin, x, reference=np.cos)
    with pytest.raises(AssertionError, match="vjp against finite differences"):
        check_rules(wrong_transpose_p.bind, x, order=1, vmap=False)
