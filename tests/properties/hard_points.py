"""Functions of one float for the law of derivatives at hard points, and where they have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax, nn
from tracebridge.scipy import special as sp

Function = Callable[[Any], Any]
INF = np.inf


def of(value: float, x: Any) -> Any:
    """A constant of the shape of ``x``."""
    return tnp.full_like(x, value)


def each(function: Function) -> Function:
    """A function of one number, at all points."""
    return tb.vmap(function)


LAX = """
    abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf erf_inv
    erfc exp exp2 expm1 lgamma log log1p logistic neg reciprocal rsqrt sin sinh sqrt square tan tanh
"""
NN = """
    celu elu gelu hard_sigmoid hard_silu hard_tanh identity leaky_relu log1mexp log_sigmoid mish
    relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus tanh
"""
SPECIAL = """
    dawsn entr erfcx erfinv exp1 expi expit factorial gamma gammaln i0 i0e i1 i1e log_ndtr logit
    loggamma ndtr ndtri spence
"""
ROWS: dict[str, Function] = {
    **{f"lax.{name}": getattr(lax, name) for name in LAX.split()},
    **{f"nn.{name}": getattr(nn, name) for name in NN.split()},
    **{f"special.{name}": getattr(sp, name) for name in SPECIAL.split()},
    "nn.gelu exactly": lambda x: nn.gelu(x, approximate=False),
    "integer_pow 0": lambda x: lax.integer_pow(x, 0),
    "integer_pow 3": lambda x: lax.integer_pow(x, 3),
    "integer_pow -2": lambda x: lax.integer_pow(x, -2),
    "x**0": lambda x: tnp.power(x, tnp.float64(0.0)),
    "0.5**x": lambda x: tnp.power(of(0.5, x), x),
    "0**abs(x)": lambda x: tnp.power(of(0.0, x), abs(x)),
    "0/x": lambda x: of(0.0, x) / x,
    "xlogy(x, 2)": lambda x: sp.xlogy(x, of(2.0, x)),
    "xlogy(2, x)": lambda x: sp.xlogy(of(2.0, x), x),
    "xlogy(0, x)": lambda x: sp.xlogy(of(0.0, x), x),
    "xlogy(x, 0)": lambda x: sp.xlogy(x, of(0.0, x)),
    "xlogy(x, x)": lambda x: sp.xlogy(x, x),
    "xlog1py(0, x)": lambda x: sp.xlog1py(of(0.0, x), x),
    "xlog1py(x, x)": lambda x: sp.xlog1py(x, x),
    "rel_entr(x, 2)": lambda x: sp.rel_entr(x, of(2.0, x)),
    "rel_entr(2, x)": lambda x: sp.rel_entr(of(2.0, x), x),
    "kl_div(x, 2)": lambda x: sp.kl_div(x, of(2.0, x)),
    "kl_div(2, x)": lambda x: sp.kl_div(of(2.0, x), x),
    "boxcox(x, 0)": lambda x: sp.boxcox(x, of(0.0, x)),
    "boxcox(x, 2)": lambda x: sp.boxcox(x, of(2.0, x)),
    "boxcox(2, x)": lambda x: sp.boxcox(of(2.0, x), x),
    "boxcox1p(2, x)": lambda x: sp.boxcox1p(of(2.0, x), x),
    "igamma(2, x)": lambda x: lax.igamma(of(2.0, x), x),
    "igammac(0.5, x)": lambda x: lax.igammac(of(0.5, x), x),
    "betainc(2, 0.5, x)": lambda x: lax.betainc(of(2.0, x), of(0.5, x), x),
    "betaln(x, 2)": lambda x: sp.betaln(x, of(2.0, x)),
    "beta(x, 2.5)": lambda x: sp.beta(x, of(2.5, x)),
    "poch(x, 2.5)": lambda x: sp.poch(x, of(2.5, x)),
    "poch(x, 2)": lambda x: sp.poch(x, of(2.0, x)),
    "zeta(3, x)": lambda x: lax.zeta(of(3.0, x), x),
    "polygamma(1, x)": lambda x: lax.polygamma(of(1.0, x), x),
    "expn(2, x)": lambda x: sp.expn(2, x),
    "hyp1f1(1, 2, x)": lambda x: sp.hyp1f1(of(1.0, x), of(2.0, x), x),
    "owens_t(x, 2)": lambda x: sp.owens_t(x, of(2.0, x)),
    "owens_t(2, x)": lambda x: sp.owens_t(of(2.0, x), x),
    "fresnel": lambda x: sp.fresnel(x)[0],
    "sici": lambda x: sp.sici(x)[0],
    "logaddexp(x, -inf)": lambda x: tnp.logaddexp(x, -INF),
    "logaddexp(x, x)": lambda x: tnp.logaddexp(x, x),
    "hypot(x, 0)": lambda x: tnp.hypot(x, 0.0),
    "hypot(x, x)": lambda x: tnp.hypot(x, x),
    "arctan2(x, 1)": lambda x: tnp.arctan2(x, 1.0),
    "arctan2(0, abs(x) + 1)": lambda x: tnp.arctan2(of(0.0, x), abs(x) + 1),
    "sinc": tnp.sinc,
    "where guard": lambda x: tnp.where(x > 0, tnp.sqrt(tnp.where(x > 0, x, 1.0)), 0.0),
    "maximum": lambda x: tnp.maximum(x, 0.0),
    "clamp": lambda x: lax.clamp(-1.0, x, 1.0),
    "logsumexp of -inf": each(lambda x: sp.logsumexp(tnp.stack([x, -INF]))),
    "logsumexp of a pair": each(lambda x: sp.logsumexp(tnp.stack([x, x]))),
    "logmeanexp": each(lambda x: nn.logmeanexp(tnp.stack([x, -INF, 1.0]))),
    "softmax": each(lambda x: nn.softmax(tnp.stack([x, -INF, 1.0]))[0]),
    "log_softmax": each(lambda x: nn.log_softmax(tnp.stack([x, -INF, 1.0]))[0]),
    "masked softmax": each(
        lambda x: nn.softmax(tnp.stack([x, x, 1.0]), where=np.array([True, False, True]))[0]
    ),
    "standardize": each(lambda x: nn.standardize(tnp.stack([x, x]))[0]),
    "norm": each(lambda x: tnp.linalg.norm(tnp.stack([x, x]))),
    "norm 1": each(lambda x: tnp.linalg.norm(tnp.stack([x, x]), ord=1)),
    "norm 3": each(lambda x: tnp.linalg.norm(tnp.stack([x, x]), ord=3)),
    "norm inf": each(lambda x: tnp.linalg.norm(tnp.stack([x, x]), ord=INF)),
    "norm of Frobenius": each(lambda x: tnp.linalg.norm(tnp.stack([x, x])[None])),
    "std of a constant": each(lambda x: tnp.std(tnp.stack([x, x]))),
    "var of a constant": each(lambda x: tnp.var(tnp.stack([x, x]))),
    "prod with a zero": each(lambda x: tnp.prod(tnp.stack([x, x * 0 + 2.0, 0.0]))),
    "cumprod with a zero": each(lambda x: tnp.cumprod(tnp.stack([x, 0.0, x]))[1]),
    "cumlogsumexp after -inf": each(lambda x: lax.cumlogsumexp(tnp.stack([-INF, x]))[1]),
    "reduce_max of ties": each(lambda x: tnp.max(tnp.stack([x, x]))),
    "cummax of ties": each(lambda x: lax.cummax(tnp.stack([x, x]))[1]),
    "sort of ties": each(lambda x: tnp.sort(tnp.stack([x, x]))[0]),
}


def below(limit: float) -> Callable[[Any], Any]:
    """All points up to a limit."""
    return lambda x: x <= limit


def infinite(x: Any) -> Any:
    """Both infinities."""
    return np.isinf(x)


def never(x: Any) -> Any:
    """No point."""
    return np.zeros(x.shape, bool)


# Values without a derivative: poles, whose sides differ; parts outside of the domain, where SciPy
# gives a constant infinity.
POLES = (
    "lax.digamma", "lax.lgamma", "special.gammaln", "special.loggamma", "betaln(x, 2)",
    "polygamma(1, x)",
)  # fmt: skip
UNDEFINED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(POLES, lambda x: (x < 1e-300) | np.isinf(x)),
    "special.entr": below(0.0),
    # Poles, which are infinite, as SciPy's are.
    "beta(x, 2.5)": lambda x: (abs(x) < 1e-300) | ((x < 0) & (x == np.floor(x))),
    # Sums and quotients of infinities: the value is the limit, its derivative would be another one.
    **dict.fromkeys(
        [
            "xlogy(x, x)", "xlog1py(x, x)", "rel_entr(x, 2)", "logsumexp of -inf", "logmeanexp",
            "logsumexp of a pair", "cumlogsumexp after -inf", "norm", "norm 3",
            "norm of Frobenius", "special.i1", "hypot(x, x)", "fresnel",
        ],
        infinite,
    ),
}  # fmt: skip
