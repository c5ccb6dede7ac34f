"""Taylor mode: derivatives of any order along a curve."""

from __future__ import annotations

from tracebridge._api.derivatives.jet import jet, jet2
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.transforms.jet.define import (
    def_comp,
    def_deriv,
    deflinear,
    defzero,
    deriv_prop,
    linear_prop,
    zero_prop,
)
from tracebridge.core.transforms.jet.user_rules import (
    ZeroSeries,
    ZeroTerm,
    fact,
    jet_rules,
    zero_series,
    zero_term,
)

__all__ = [
    "ZeroSeries",
    "ZeroTerm",
    "def_comp",
    "def_deriv",
    "deflinear",
    "defzero",
    "deriv_prop",
    "fact",
    "jet",
    "jet2",
    "jet_rules",
    "linear_prop",
    "zero_prop",
    "zero_series",
    "zero_term",
]

_shield(globals(), __name__)
