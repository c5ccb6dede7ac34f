"""Special functions of SciPy on arrays, differentiable.

Integers become floats, operands are broadcast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._api.programs.missing import missing as _missing
from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.scipy._special.error_functions import (
    erf,
    erfc,
    erfinv,
    i0,
    i0e,
    i1,
    i1e,
    ndtr,
    ndtri,
)
from tracebridge.scipy._special.gamma_functions import (
    beta,
    betainc,
    betaln,
    digamma,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    poch,
    polygamma,
)
from tracebridge.scipy._special.harmonics import bessel_jn, expn, sph_harm_y
from tracebridge.scipy._special.hypergeometric import hyp1f1, hyp2f1
from tracebridge.scipy._special.integrals import (
    dawsn,
    erfcx,
    exp1,
    expi,
    fresnel,
    owens_t,
    sici,
    spence,
    wofz,
)
from tracebridge.scipy._special.legendre import lpmn, lpmn_values
from tracebridge.scipy._special.logarithms import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    logit,
    rel_entr,
    xlog1py,
    xlogy,
)
from tracebridge.scipy._special.others import (
    bernoulli,
    comb,
    factorial,
    log_ndtr,
    log_softmax,
    logsumexp,
    multigammaln,
    softmax,
    zeta,
)

__all__ = [
    "bernoulli",
    "bessel_jn",
    "beta",
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "lpmn",
    "lpmn_values",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "rel_entr",
    "sici",
    "softmax",
    "spence",
    "sph_harm_y",
    "wofz",
    "xlog1py",
    "xlogy",
    "zeta",
]

_publish(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        raise _missing(__name__, name)
