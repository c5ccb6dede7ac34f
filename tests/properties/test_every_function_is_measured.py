"""Every public elementwise function of floats is in a table of digits, or has a reason."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
from tests.bridge.scipy.test_special_ulps import TABLE as SPECIAL
from tests.core.lax.elementwise.ulp_table import TABLE as ELEMENTWISE
from tests.properties.digits_table import TABLE as SEVERAL
from tests.properties.elementwise_names import MODULES, elementwise_names
from tests.properties.test_digits import TABLE as OF_ONE
from tracebridge import core

_OF_ONE_NAME = """
    acos acosh asin asinh atan atanh cbrt cos cosh exp exp2 expm1 log log1p reciprocal sin sinh sqrt
    square tan
"""
_INVERSE = "cos cosh sin sinh tan tanh"
# Other names of functions that a table has; a test below compares their numbers.
SAME = {
    "lax.acosh": "core.acosh", "lax.betainc": "special.betainc", "lax.digamma": "core.digamma",
    "lax.erf_inv": "core.erf_inv", "lax.erfc": "core.erfc", "lax.igamma": "special.gammainc",
    "lax.igammac": "special.gammaincc", "lax.lgamma": "core.lgamma", "lax.zeta": "core.zeta",
    "lax.polygamma": "special.polygamma", "special.digamma": "core.digamma",
    "special.erf": "core.erf", "special.erfc": "core.erfc", "special.erfinv": "core.erf_inv",
    "special.expit": "core.logistic", "special.gammaln": "core.lgamma",
    "special.loggamma": "core.lgamma", "nn.hard_swish": "nn.hard_silu", "numpy.power": "core.pow",
    "numpy.pow": "core.pow", "numpy.float_power": "core.pow", "numpy.arctan2": "core.atan2",
    "numpy.atan2": "core.atan2", "numpy.divide": "core.div", "numpy.true_divide": "core.div",
    "numpy.fmod": "core.rem",
    **{
        f"numpy.{name}": f"core.{name}"
        for name in _OF_ONE_NAME.split()
    },
    **{
        f"numpy.arc{name}": f"core.a{name}"
        for name in _INVERSE.split()
    },
}  # fmt: skip
_EXACT = """
    lax.abs lax.add lax.ceil lax.clamp lax.floor lax.max lax.min lax.mul lax.neg
    lax.nextafter lax.round lax.sign lax.sub
    numpy.abs numpy.absolute numpy.add numpy.angle numpy.around numpy.ceil numpy.clip
    numpy.conj numpy.conjugate numpy.copysign numpy.divmod numpy.fabs numpy.floor
    numpy.floor_divide numpy.fmax numpy.fmin numpy.heaviside numpy.imag numpy.maximum
    numpy.minimum numpy.mod numpy.modf numpy.multiply numpy.nan_to_num numpy.negative
    numpy.nextafter numpy.positive numpy.real numpy.remainder numpy.rint numpy.round numpy.sign
    numpy.spacing numpy.subtract numpy.trunc numpy.where nn.hard_tanh nn.identity nn.relu
    nn.relu6 nn.sparse_sigmoid special.gammasgn
"""
_SHAPES = """
    lax.broadcast_like lax.ones_like lax.optimization_barrier lax.stage lax.stop_gradient
    lax.zeros_like numpy.array numpy.asarray numpy.block numpy.broadcast_arrays
    numpy.copy numpy.empty_like numpy.flip numpy.from_dlpack numpy.full_like
    numpy.nanpercentile numpy.nanquantile numpy.ones_like numpy.percentile numpy.quantile
    numpy.squeeze numpy.zeros_like nn.standardize special.log_softmax special.softmax
"""
_LEFT = {
    **dict.fromkeys(_EXACT.split(), "rounded once, a choice or a rounding: no digits are lost"),
    **dict.fromkeys(_SHAPES.split(), "of shapes or of several elements: not elementwise"),
    **dict.fromkeys(
        ["lax.igamma_grad_a", "lax.random_gamma_grad"],
        "slopes of the incomplete gamma functions, which are measured with these",
    ),
}
# Probabilities and quantiles are compositions of functions that have rows of their own.
COMPOSED = {"pdf", "pmf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf", "entropy"}


def _function(name: str) -> Any:
    module, _, function = name.rpartition(".")
    return getattr(core.lax if module == "core" else MODULES[module], function)


def test_each_function_has_a_row_or_a_reason() -> None:
    """A new function needs a row, and a reason goes with its function."""
    functions = dict(elementwise_names())
    rows = {id(row.fun) for row in (*ELEMENTWISE, *OF_ONE, *SPECIAL.values(), *SEVERAL)}
    named = {row.name for row in SEVERAL} | set(SAME)
    left = {
        name
        for name, function in functions.items()
        if id(function) not in rows | {id(_function(other)) for other in SAME.values()}
        and name not in named | set(_LEFT)
        and not (name.startswith("stats.") and name.rpartition(".")[2] in COMPOSED)
    }

    assert set() == left
    assert set() == set(_LEFT) - set(functions)


def test_names_of_one_function_give_the_same_numbers() -> None:
    """So that one row is enough."""
    x, y, z = np.array([[0.3, 1.2, 2.7, 0.9], [0.7, 1.6, 0.4, 3.0], [0.1, 0.4, 0.9, 0.6]])
    different: list[str] = []
    with tb.enable_x64(True):
        for name, other in SAME.items():
            for operands in ([x], [np.ceil(x), y], [x, y, z]):
                try:
                    found, expected = _function(name)(*operands), _function(other)(*operands)
                except (TypeError, ValueError):  # the function takes more operands, or fewer
                    continue
                break
            else:
                different.append(name)
                continue
            if not np.array_equal(np.asarray(found), np.asarray(expected), equal_nan=True):
                different.append(name)

    assert [] == different
