"""No derivative goes through a maximum that makes no difference, and through all others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.interpreters.test_linearize import count
from tests.quick_compiles import check_grads
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.still_shifts import still_extrema

RNG = np.random.default_rng(0)


def _exps(x: Any, axis: Any = -1) -> Any:
    return tnp.exp(x - x.max(axis, keepdims=True))


def _normal(e: Any, axis: Any = -1) -> Any:
    return e / e.sum(axis, keepdims=True)


def _softmax(x: Any) -> Any:
    return _normal(_exps(x))


def _cooled(x: Any) -> Any:
    return _normal(tnp.exp((x - x.max(-1, keepdims=True)) / 0.3))


def _of_all(x: Any) -> Any:
    e = tnp.exp(x - x.max())
    return e / e.sum()


def _logsumexp(x: Any) -> Any:
    m = x.max(1)
    return m + tnp.log(tnp.exp(x - m[:, None]).sum(1))


def _log_softmax(x: Any) -> Any:
    z = x - x.max(-1, keepdims=True)
    return z - tnp.log(tnp.exp(z).sum(-1, keepdims=True))


def _attention(x: Any) -> Any:
    e = _exps(x @ x.T)
    return (e @ x) / e.sum(-1, keepdims=True)


def _heads(x: Any) -> Any:
    q = x.reshape(x.shape[0], 2, -1).transpose(1, 0, 2)
    return tnp.einsum("hts,hsd->thd", _normal(_exps(tnp.einsum("htd,hsd->hts", q, q))), q)


def _masked(x: Any) -> Any:
    return _normal(tnp.where(tnp.arange(x.shape[-1]) != 2, _exps(x), 0))


def _hidden(x: Any) -> Any:
    return _normal(tnp.exp(tnp.where(x > -1, x - x.max(-1, keepdims=True), -tnp.inf)))


def _least(x: Any) -> Any:
    return _normal(tnp.exp(x.min(-1, keepdims=True) - x))


_STILL = [
    _softmax, _cooled, _of_all, _logsumexp, _log_softmax, _attention, _heads, _masked, _hidden,
    _least, lambda x: _normal(_exps(x, 0), 0),
]  # fmt: skip


def _with_itself(x: Any) -> Any:
    m = x.max(-1, keepdims=True)
    return _normal(tnp.exp(x - m)) + m


def _half_stopped(x: Any) -> Any:
    e = tnp.exp(x - lax.stop_gradient(x).max(-1, keepdims=True))
    return _exps(x) / e.sum(-1, keepdims=True)


def _squared(x: Any) -> Any:
    e = _exps(x)
    return e**2 / e.sum(-1, keepdims=True)


_OTHERS = [
    lambda x: x - x.max(-1, keepdims=True),
    lambda x: x / x.max(-1, keepdims=True),
    lambda x: _exps(x) / (_exps(x).sum(-1, keepdims=True) + 1e-3),
    lambda x: _normal(_exps(x), 0),
    lambda x: _normal(tnp.where(x > 0, _exps(x), 1.0)),
    _squared,
    lambda x: tnp.where(_exps(x) > 0.5, x, 2 * x),
    lambda x: _exps(x).sum(),
    _with_itself,
]


def _program(f: Any, x: Any) -> Any:
    return inline_calls(tb.make_jaxpr(f)(x).jaxpr)


@pytest.mark.parametrize("f", _STILL)
def test_shifts_that_make_no_difference(f: Any) -> None:
    """The linear part compares nothing with the maximum; derivatives of both orders are right."""
    with enable_x64(new_val=True):
        x = RNG.standard_normal((5, 6))
        jaxpr = _program(f, x)
        assert len(still_extrema(jaxpr)) == 1
        assert count(linearize_jaxpr(jaxpr, (True,)).primal, "eq") == 0
        check_grads(tb.jit(f), (x,), order=2)


@pytest.mark.parametrize("f", [*_OTHERS, _half_stopped])
def test_all_others(f: Any) -> None:
    with enable_x64(new_val=True):
        x = RNG.standard_normal((5, 6))
        jaxpr = _program(f, x)
        places = [k for k, (app, _) in enumerate(jaxpr.equations) if app.primitive.name == "exp"]
        assert all([k > min(places, default=0) for k in still_extrema(jaxpr)])
        direct, traced = tb.grad(_sum_of(f))(x), tb.grad(tb.jit(_sum_of(f)))(x)
        np.testing.assert_allclose(direct, traced, rtol=1e-12, atol=1e-12)


def _sum_of(f: Any) -> Any:
    return lambda x: tnp.sum(tnp.sin(3 * f(x)))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("f", [_softmax, _logsumexp, _log_softmax])
def test_what_is_no_number_stays_so(f: Any, value: float) -> None:
    """Gradients have NaN where those through the maximum have."""
    x = RNG.standard_normal((3, 6)).astype(np.float32)
    x[1, 2], x[2] = value, value
    direct, traced = tb.grad(_sum_of(f))(x), tb.grad(tb.jit(_sum_of(f)))(x)
    np.testing.assert_allclose(direct, traced, rtol=1e-5, atol=1e-6)
