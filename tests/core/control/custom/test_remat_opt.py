"""optimize_remat: the function itself runs where residuals of its forward rule are not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.custom_derivatives import remat_opt_p


def make(optimize_remat: bool = True) -> Any:
    """``sin``; its forward rule says 100 more, which shows where it runs."""

    @tb.custom_vjp
    def f(x: Any) -> Any:
        return tnp.sin(x)

    f.defvjp(
        lambda x: (tnp.sin(x) + 100.0, tnp.cos(x)),
        lambda c, ct: (ct * c,),
        optimize_remat=optimize_remat,
    )
    return f


def test_unused_residuals() -> None:
    """The value of a pulled-back function alone is that of the function."""
    value = lambda f: tb.jit(lambda x: tb.vjp(f, x)[0])

    np.testing.assert_allclose(value(make())(0.5), np.sin(0.5), rtol=1e-6)
    np.testing.assert_allclose(value(make(False))(0.5), np.sin(0.5) + 100.0, rtol=1e-6)
    jaxpr = tb.make_jaxpr(lambda x: tb.vjp(make(), x)[0])(0.5).jaxpr
    assert primitives_in(jaxpr)[0] == remat_opt_p.name
    mapped = tb.jit(tb.vmap(lambda x: tb.vjp(make(), x)[0]))
    np.testing.assert_allclose(mapped(tnp.full(2, 0.5)), np.sin(0.5), rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_used_residuals(wrap: Any) -> None:
    """Where residuals are used the forward rule runs; derivatives follow the rules."""
    f = make()

    out, slope = wrap(tb.value_and_grad(f))(0.5)
    np.testing.assert_allclose(out, np.sin(0.5) + 100.0, rtol=1e-6)
    np.testing.assert_allclose(slope, np.cos(0.5), rtol=1e-6)
    second = wrap(tb.grad(tb.grad(f)))(0.5)
    np.testing.assert_allclose(second, -np.sin(0.5), rtol=1e-6)
    grads = wrap(tb.vmap(tb.grad(f)))(tnp.full(2, 0.5))
    np.testing.assert_allclose(grads, np.cos(0.5), rtol=1e-6)


def test_checkpoint() -> None:
    """The forward pass of a checkpointed function keeps nothing: the function runs there."""
    policies = (None, tb.checkpoint_policies.nothing_saveable)
    for policy in policies:
        g = tb.checkpoint(lambda x: make()(x) * x, policy=policy)
        out, slope = tb.jit(tb.value_and_grad(g))(0.5)
        np.testing.assert_allclose(out, np.sin(0.5) * 0.5, rtol=1e-6)
        # On the way back the forward rule runs.
        expected = 0.5 * np.cos(0.5) + np.sin(0.5) + 100.0
        np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_in_loops() -> None:
    """In the body of a scan too."""
    f = make()
    loop = lambda x: tb.lax.scan(lambda c, _: (tb.checkpoint(f)(c), None), x, None, length=2)[0]
    out, slope = tb.jit(tb.value_and_grad(loop))(0.5)

    np.testing.assert_allclose(out, np.sin(np.sin(0.5)), rtol=1e-6)
    np.testing.assert_allclose(slope, np.cos(np.sin(0.5)) * np.cos(0.5), rtol=1e-6)
