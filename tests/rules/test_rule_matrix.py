"""Every primitive defines every rule, or the table below says why it has none."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import tracebridge.core
from tracebridge.core.ir.primitive import Primitive, all_primitives

RULES = ("abstract_eval", "lower", "jvp", "transpose", "batch")

# (rule, reason) -> primitives without that rule
EXEMPT: dict[tuple[str, str], str] = {
    ("jvp", "no operands"): "axis_index",
    ("jvp", "operands are never floating or complex"): (
        "reduce_and reduce_or reduce_xor rng_bit_generator threefry2x32"
    ),
    ("jvp", "its results depend on nothing but hidden state and two bounds"): "rng_uniform",
    ("batch", "draws from hidden state, so that no mapped form equals a loop"): "rng_uniform",
    ("transpose", "not linear: the tangent is a product with the derivative"): (
        "abs acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp "
        "exp2 expm1 integer_pow lgamma log log1p logistic polygamma pow rsqrt sin sinh sqrt "
        "square tan tanh zeta"
    ),
    ("transpose", "not linear: the tangent selects or adds up tangents of the winners"): (
        "clamp max min pmax pmin reduce_max reduce_min scatter_max scatter_min cummax cummin"
    ),
    ("transpose", "not linear: the tangent is a sum of products or shares"): (
        "reduce_prod cumprod cumlogsumexp rem"
    ),
    ("transpose", "not linear: the tangent is a gather by the positions found"): "sort top_k",
    ("transpose", "results have no tangents, or tangents that are zero"): (
        "argmax argmin axis_index bitcast_convert_type ceil eq eq_to floor ge gt is_finite le "
        "le_to lt lt_to ne nextafter round sign check"
    ),
    ("transpose", "operands are never floating or complex"): (
        "and clz mulhi not or population_count reduce_and reduce_or reduce_xor rng_bit_generator "
        "shift_left shift_right_arithmetic shift_right_logical threefry2x32 xor"
    ),
    ("transpose", "its results depend on nothing but hidden state and two bounds"): "rng_uniform",
    ("transpose", "the linear part is given by the user's rule"): "custom_vjp_call",
}


def _import_all() -> None:
    """Primitives register themselves when their module is imported."""
    for module in pkgutil.walk_packages(tracebridge.core.__path__, "tracebridge.core."):
        importlib.import_module(module.name)


_import_all()
# Tests make primitives of their own, which may be there already when this file is collected.
PRIMITIVES = [p for p in all_primitives() if type(p).__module__.startswith("tracebridge.core.")]
REASONS = {
    (name, rule): reason for (rule, reason), names in EXEMPT.items() for name in names.split()
}


def defines(primitive: Primitive, rule: str) -> bool:
    """Whether the class of ``primitive`` has a rule of its own (or of its family)."""
    return getattr(type(primitive), rule) is not getattr(Primitive, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_has_the_rule_or_says_why_not(primitive: Primitive, rule: str) -> None:
    """A primitive has the rule, or the table has a reason, and never both."""
    assert defines(primitive, rule) != ((primitive.name, rule) in REASONS)


def test_exemptions_name_primitives_once() -> None:
    """No entry is left behind when a primitive goes, and none is repeated."""
    listed = [(n, rule) for (rule, _), names in EXEMPT.items() for n in names.split()]
    known = {p.name for p in PRIMITIVES}

    assert [] == [n for n, _ in listed if n not in known]
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_classes_are_final_and_concrete(primitive: Primitive) -> None:
    """A primitive is the only instance of a concrete class, which nothing derives from."""
    cls = type(primitive)

    assert not inspect.isabstract(cls)
    assert getattr(cls, "__final__", False), f"{cls.__name__} lacks @final"
    assert [] == cls.__subclasses__()


def test_names_are_unique() -> None:
    """Primitives are found by name, so that two modules may not take the same one."""
    classes: dict[str, set[type]] = {}

    def visit(cls: type) -> None:
        name = cls.__dict__.get("name")
        if isinstance(name, str) and not inspect.isabstract(cls):
            classes.setdefault(name, set()).add(cls)
        for child in cls.__subclasses__():
            visit(child)

    visit(Primitive)

    assert {} == {name: found for name, found in classes.items() if len(found) > 1}
