"""Every primitive defines every rule, or the table below says why it has none."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, final

import numpy as np
import pytest

import tracebridge.core
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.primitive import Primitive, all_primitives
from tracebridge.core.lax.families import Elementwise, UnaryElementwise
from tracebridge.core.lax.reduce.family import Reduction

RULES = ("abstract_eval", "lower", "jvp", "transpose", "batch")

# Rules whose default is right for most primitives.
OPTIONAL = (
    "by_blocks", "by_steps", "called_at_last", "dce", "destination", "effects", "evaluate",
    "has_devices", "is_high", "is_lowered_on", "low", "staged_linearize", "linearize",
    "linearize_unstaged", "names_axis", "prepare", "recipe", "replicas", "result_memory",
    "sharding_callback", "split_by_known", "split_results", "vary_results",
    "staged_transpose", "unknown_outs", "varying", "wanted_sharding",
)  # fmt: skip
# What every primitive does in the same way, or its family does.
MACHINERY = {"application", "bind", "bind_with_trace", "fitted", "get_bind_params", "keep"}

# (rule, reason) -> primitives with Jaxprs in their parameters that leave it at the default
AT_DEFAULT: dict[tuple[str, str], str] = {
    ("linearize", "the user's rule gives results and tangents"): "custom_jvp_call",
    ("linearize", "the tangent is an equation of its own already"): (
        "custom_linear_solve custom_transpose_call linear_call"
    ),
    ("linearize", "it stages the rule itself"): "scan",
    ("linearize", "its tangents are computed by other operations"): "reduce reduce_window",
    ("linearize", "no derivative"): "select_and_scatter",
    ("dce", "the results are computed together"): (
        "custom_linear_solve custom_transpose_call linear_call"
    ),
    ("dce", "the computation takes and gives all of them"): "reduce reduce_window",
    ("dce", "one result"): "select_and_scatter",
    ("unknown_outs", "the computation takes all of them"): "reduce reduce_window",
    ("unknown_outs", "one result"): "select_and_scatter",
    ("linearize", "made while programs are lowered: nobody transforms it"): "plain_call",
    ("dce", "made while programs are lowered: nobody transforms it"): "plain_call",
    ("unknown_outs", "made while programs are lowered: nobody transforms it"): "plain_call",
    ("unknown_outs", "rules of users are given all arguments"): "custom_jvp_call custom_vjp_call",
    ("unknown_outs", "the results are computed together"): (
        "custom_linear_solve custom_transpose_call linear_call"
    ),
}

# (rule, reason) -> primitives without that rule
EXEMPT: dict[tuple[str, str], str] = {
    (
        "jvp",
        "made while programs are lowered: nobody transforms it",
    ): (
        "batch_kernel chosen composed guarded plain_call row_kernel running_kernel scan_by_blocks "
        "scan_kernel"
    ),
    (
        "transpose",
        "made while programs are lowered: nobody transforms it",
    ): (
        "batch_kernel chosen composed guarded plain_call row_kernel running_kernel scan_by_blocks "
        "scan_kernel"
    ),
    (
        "batch",
        "made while programs are lowered: nobody transforms it",
    ): (
        "batch_kernel chosen composed guarded plain_call row_kernel running_kernel scan_by_blocks "
        "scan_kernel"
    ),
    ("jvp", "no operands"): "axis_index create_token",
    ("jvp", "operands are never floating or complex"): (
        "after_all key_use lu_pivots_to_permutation random_unwrap random_wrap reduce_and reduce_or "
        "reduce_window_and reduce_window_or reduce_xor rng_bit_generator threefry2x32"
    ),
    ("jvp", "the operand is a mask"): "true_positions",
    ("transpose", "the operand is a mask"): "true_positions",
    ("transpose", "numbers of samplers have no tangents here"): (
        "binomial_count gamma_draw poisson_count"
    ),
    ("jvp", "its results depend on nothing but hidden state and two bounds"): "rng_uniform",
    ("batch", "no operands"): "create_token",
    ("transpose", "no operands"): "create_token",
    ("batch", "draws from hidden state, so that no mapped form equals a loop"): "rng_uniform",
    ("transpose", "not linear: a tangent of its own, of products with derivatives"): (
        "abs atan atan2 atanh beta_density betainc_grad_a betainc_grad_b digamma_gap foreign_call "
        "gamma_density igamma igamma_grad_a igammac integer_pow log log1p log_beta polygamma pow "
        "random_gamma random_gamma_grad regularized_incomplete_beta trigamma_gap zeta"
    ),
    ("transpose", "not linear: the tangent selects or adds up tangents of the winners"): (
        "clamp max min pmax pmin reduce_max reduce_min scatter_max scatter_min cummax cummin"
    ),
    ("transpose", "not linear: the tangent is a sum of products or shares"): (
        "reduce_prod cumprod cumlogsumexp rem shifted_exp_sum"
    ),
    ("transpose", "not linear: the tangent is a gather by the positions found"): (
        "approx_top_k sort top_k"
    ),
    ("transpose", "not linear: the tangent is made of products and of triangular systems"): (
        "adjugate cholesky cholesky_update det eig eigh geqrf hessenberg householder_product lu qr "
        "schur svd symmetric_product tridiagonal"
    ),
    ("transpose", "results have no tangents, or tangents that are zero"): (
        "argmax argmin axis_index bitcast_convert_type ceil eq eq_to floor ge gt is_finite le "
        "le_to lt lt_to ne nextafter round sign check"
    ),
    ("transpose", "operands are never floating or complex"): (
        "after_all and clz key_use lu_pivots_to_permutation mulhi not or population_count "
        "random_unwrap random_wrap reduce_and reduce_or reduce_window_and reduce_window_or "
        "reduce_xor rng_bit_generator shift_left shift_right_arithmetic shift_right_logical "
        "threefry2x32 xor"
    ),
    ("transpose", "its results depend on nothing but hidden state and two bounds"): "rng_uniform",
    ("transpose", "the linear part is given by the user's rule"): "custom_vjp_call",
    ("jvp", "any computations: select_and_scatter_add has the derivative that windows need"): (
        "select_and_scatter"
    ),
    ("transpose", "not linear: the tangent is computed by other operations"): (
        "reduce reduce_window reduce_window_max reduce_window_min select_and_scatter"
    ),
}


def _import_all() -> None:
    """Primitives register themselves when their module is imported."""
    for module in pkgutil.walk_packages(tracebridge.core.__path__, "tracebridge.core."):
        importlib.import_module(module.name)


_import_all()
# Tests make primitives of their own, which may be there already when this file is collected.
PRIMITIVES = [p for p in all_primitives() if type(p).__module__.startswith("tracebridge.core.")]


def _is_nonlinear(primitive: Primitive) -> bool:
    """Whether it is a function of one operand with a derivative, so that nobody transposes it."""
    derivative = getattr(type(primitive), "derivative", None)
    return isinstance(primitive, UnaryElementwise) and (
        derivative is not UnaryElementwise.derivative
    )


REASONS = {
    (name, rule): reason for (rule, reason), names in EXEMPT.items() for name in names.split()
} | {(p.name, "transpose"): "not linear" for p in PRIMITIVES if _is_nonlinear(p)}


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


def test_every_rule_is_in_the_matrix() -> None:
    """What interpreters may ask a primitive for is listed above, and explained where it is made."""
    methods = {n: f for n, f in vars(Primitive).items() if inspect.isfunction(f) and n[0] != "_"}

    assert methods.keys() - MACHINERY == {*RULES, *OPTIONAL}
    assert [] == [name for name, method in methods.items() if not method.__doc__]


@pytest.mark.parametrize("rule", ["linearize", "dce", "unknown_outs"])
def test_programs_inside_are_taken_apart_or_the_table_says_why_not(rule: str) -> None:
    """Primitives with Jaxprs have the rules that make smaller ones of them, or a reason."""
    names = [p.name for p in PRIMITIVES if isinstance(p, HigherOrderPrimitive)]
    listed = [n for (r, _), some in AT_DEFAULT.items() if r == rule for n in some.split()]
    known = {p.name: p for p in PRIMITIVES}

    assert sorted(listed) == sorted([n for n in names if not defines(known[n], rule)])


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_rules_that_need_each_other_come_together(primitive: Primitive) -> None:
    """One without the other would never be asked, or have no answer."""
    staged = [
        defines(primitive, r)
        for r in ("staged_linearize", "linearize_unstaged", "staged_transpose")
    ]

    assert defines(primitive, "unknown_outs") == defines(primitive, "split_by_known")
    # What moves arrays says where to; what computes on a mesh prepares its own program for it.
    moves = defines(primitive, "destination") or defines(primitive, "prepare")
    assert not defines(primitive, "wanted_sharding") or moves
    # What changes the mesh in a type and nothing else wants no place in a program.
    places = defines(primitive, "wanted_sharding") or defines(primitive, "split_results")
    assert not defines(primitive, "destination") or places
    assert staged == [primitive.stages_when_repeated] * 3
    assert primitive.multiple_results or not defines(primitive, "dce")
    assert primitive.multiple_results or not defines(primitive, "unknown_outs")
    assert not primitive.wants_dce or defines(primitive, "dce")
    assert not primitive.inlinable or isinstance(primitive, HigherOrderPrimitive)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_rules_take_what_interpreters_give(primitive: Primitive) -> None:
    """A rule has the positional parameters of the default."""
    for rule in (*RULES, *OPTIONAL):
        base, own = [
            inspect.signature(getattr(cls, rule)).parameters.values()
            for cls in (Primitive, type(primitive))
        ]
        wanted = [p.name for p in base if p.kind is p.POSITIONAL_OR_KEYWORD]
        # Operands may be named one by one where the default takes any number.
        some = any(p.kind is p.VAR_POSITIONAL for p in base)
        given = [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]

        assert wanted == (given[: len(wanted)] if some else given), rule


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_cost_is_stated(primitive: Primitive) -> None:
    """The class of a primitive says what it costs, or a family whose members cost the same."""
    stated = [c for c in type(primitive).__mro__ if "cost" in vars(c) and c is not Primitive]

    assert stated, f"{type(primitive).__name__} has no cost, see core/ir/cost.py"
    assert isinstance(primitive.cost, Cost)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_cost_fits_the_family(primitive: Primitive) -> None:
    """Elementwise operations and reductions are known as such to who counts operations."""
    elementwise = (Cost.CHEAP, Cost.EXPENSIVE, Cost.COMPOSED)
    if isinstance(primitive, Elementwise):
        assert primitive.cost in (Cost.FREE, Cost.MOVES_DATA, *elementwise)
    else:
        assert primitive.cost not in elementwise
    assert isinstance(primitive, Reduction) == (primitive.cost is Cost.REDUCTION)
    # Results of what is done again are the same each time.
    assert not (primitive.cost.is_repeatable and primitive.holds_functions)


@final
class Bare(Primitive):
    """With the rules that it must have, and no more."""

    name = "bare of the rule matrix"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Any:
        del params
        return list(avals)

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        del ctx, params
        return list(operands)


def test_defaults_change_nothing() -> None:
    """Interpreters that ask for a rule which is not there go on as if nobody had asked."""
    bare = Bare()
    scalar = ShapedArray((), np.dtype("float32"))
    app = bare.application((scalar, scalar), {})

    assert (app, (True, True), (True, True)) == bare.dce((True, False), app)
    assert bare.unknown_outs((True, False)) is None
    assert [1.0, 2.0] == [float(x) for x in bare.split_by_known((True, False), (1.0, 2.0))]
    assert bare.evaluate([]) is NotImplemented
    assert bare.destination() is NotImplemented
    assert bare.linearize_unstaged(None, [], [], {}) is NotImplemented
    assert [None] * 6 == [
        bare.recipe(scalar),
        bare.wanted_sharding({}),
        bare.prepare(app, []),
        bare.result_memory({}),
        bare.staged_linearize(app, 1),
        bare.staged_transpose(app, 1, 1),
    ]


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
