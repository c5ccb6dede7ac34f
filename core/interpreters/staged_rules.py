"""Staged rules: rules and functions staged once on avals and replayed on values.

A jvp, transpose or batching rule depends only on an application and on which arguments take part,
so its equations are recorded once and kept on the application. Replaying costs one ``process``
per equation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.base import InternalError
from tracebridge.core.errors.transform_errors import (
    AxisSpecError,
    ClosedOverValueError,
    LinearityError,
)
from tracebridge.core.interpreters.split_by_known import split_by_known
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.linear_input import LinearInput
from tracebridge.core.ir.primitive import Primitive, is_default
from tracebridge.core.ir.splits import entries_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.sharding.context import get_abstract_mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.splits import explicit_split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.interpreters.graph import GraphEquation
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.values import Value


@final
class StagedRule:
    """A staged function. ``single``: its only application, if it is just that one."""

    __slots__ = ("extra", "jaxpr", "single")

    def __init__(self, jaxpr: Jaxpr, extra: Any = None) -> None:
        for const in jaxpr.consts:
            if isinstance(const, Tracer):
                msg = f"a rule closed over {const!r}; rules must be functions of their arguments"
                raise InternalError(msg)
        self.jaxpr = jaxpr
        self.extra = extra
        self.single: Application | None = None
        if len(jaxpr.equations) == 1:
            app, variables = jaxpr.equations[0]
            n = jaxpr.n_in
            if not app.multiple and variables == tuple(range(n)) and jaxpr.outs == (n,):
                self.single = app

    def replay(self, process: Any, args: Sequence[Any]) -> list[Any]:
        """The results of the rule, by ``process`` of some trace."""
        if self.single is not None:
            return [process(self.single, args)]
        return eval_jaxpr(self.jaxpr, process, args)


def stage_function(
    fun: Callable[..., tuple[Sequence[Any | None], Any]], avals: Sequence[ShapedArray]
) -> StagedRule:
    """Stage ``fun``, which gives ``(results, extra)``; results that are ``None`` have no variable.

    ``StagedRule.extra`` is ``(present, extra)``; ``present`` are bools: which are not ``None``.
    """
    seen: list[Any] = []

    def flat(*args: object) -> list[Any]:
        results, extra = fun(*args)
        seen.append((tuple([r is not None for r in results]), extra))
        return [r for r in results if r is not None]

    jaxpr = stage(flat, avals, locate=False)
    return StagedRule(jaxpr, seen[0])


def stage_rule(
    app: Application,
    fun: Callable[..., tuple[Sequence[Any | None], Any]],
    avals: Sequence[ShapedArray],
) -> StagedRule:
    """Stage a rule of ``app``; what a user's rule closes over is the user's affair.

    Raises:
        ClosedOverValueError: a rule of a primitive that users defined closes over a traced value.
    """
    try:
        return stage_function(fun, avals)
    except InternalError as error:
        if not app.primitive.has_rules_of_users:
            raise
        msg = f"a rule of the primitive {app.primitive} closes over a value that is being traced"
        raise ClosedOverValueError(
            msg, hint="pass that value as an argument of the primitive: rules see arguments only"
        ) from error


def bits(mask: int, n: int) -> list[int]:
    """Positions of the set bits of ``mask`` below ``n``."""
    return [i for i in range(n) if mask >> i & 1]


# jvp ---------------------------------------------------------------------------------------------


def staged_jvp(app: Application, mask: int) -> StagedRule:
    """The staged jvp rule: inputs are primals, then the tangents at the set bits of ``mask``."""
    staged_rules = app.staged_jvps
    if staged_rules is None:
        staged_rules = app.staged_jvps = {}
    staged = staged_rules.get(mask)
    if staged is None:
        staged = staged_rules[mask] = _stage_jvp(app, mask, app.primitive.jvp)
    return staged


def _stage_jvp(app: Application, mask: int, rule: Any) -> StagedRule:
    n = len(app.avals)
    positions = bits(mask, n)

    def run(*args: Any) -> tuple[list[Any], None]:
        tangents: list[Any] = [None] * n
        for i, t in zip(positions, args[n:], strict=True):
            tangents[i] = t
        out, tangent = rule(list(args[:n]), tangents, **app.params)
        if app.multiple:
            return [*out, *tangent], None
        return [out, tangent], None

    return stage_rule(app, run, [*app.avals, *[app.avals[i].tangent for i in positions]])


@final
class StagedLinearize:
    """A staged jvp rule split into equations on primals and equations linear in the tangents.

    Environment: primals, tangents, consts, results of primal equations, of linear equations.
    ``linear_equations`` are ``(application, variables, mask of linear arguments)``. ``outs`` holds,
    per result, the variable of the primal and the variable of the tangent or ``None``.
    """

    __slots__ = ("consts", "linear_equations", "outs", "positions", "primal_equations")

    def __init__(
        self,
        inputs: Sequence[int],
        consts: dict[int, Value],
        primal_equations: Sequence[GraphEquation],
        linear_equations: Sequence[GraphEquation],
        outs: Sequence[tuple[int, int | None]],
        positions: list[int],
    ) -> None:
        """From equations between numbered values; ``inputs`` are primals, then tangents."""
        self.consts = tuple(consts.values())
        self.positions = positions
        variables = {number: i for i, number in enumerate([*inputs, *consts])}
        linear = set(inputs[len(inputs) - len(positions) :])
        self.primal_equations = _renumbered(primal_equations, variables)
        first = len(variables)
        equations = _renumbered(linear_equations, variables)
        linear = {variables[number] for number in linear}
        self.linear_equations = [
            (a, idx, sum([1 << k for k, i in enumerate(idx) if i >= first or i in linear]))
            for a, idx in equations
        ]
        self.outs = tuple([(variables[p], None if t is None else variables[t]) for p, t in outs])


def _renumbered(
    equations: Sequence[GraphEquation], variables: dict[int, int]
) -> list[tuple[Application, tuple[int, ...]]]:
    found: list[tuple[Application, tuple[int, ...]]] = []
    for app, args, first, _ in equations:
        found.append((app, tuple([variables[a] for a in args])))
        for number in range(first, first + len(app.outs)):
            variables[number] = len(variables)
    return found


def _split_by_tangents(
    staged: StagedRule, app: Application, positions: list[int]
) -> StagedLinearize:
    """A staged jvp rule, split: equations sorted by whether they depend on tangents."""
    n_primal, n_in = len(app.avals), staged.jaxpr.n_in
    jaxpr = split_by_known(staged.jaxpr, tuple([i >= n_primal for i in range(n_in)]))
    fixed = n_in + len(jaxpr.consts)
    linear = [n_primal <= i < n_in for i in range(fixed)]
    groups: tuple[list[GraphEquation], list[GraphEquation]] = ([], [])
    for inner, idx in jaxpr.equations:
        is_linear = any([linear[i] for i in idx])
        groups[is_linear].append((inner, idx, len(linear), None))
        linear.extend([is_linear] * len(inner.outs))
    present, _ = staged.extra
    remaining_outs = iter(jaxpr.outs)
    variables = [next(remaining_outs) if here else None for here in present]
    n_out = len(app.outs)
    # A tangent that does not depend on the tangent inputs can only be zero.
    tangents = [s if s is not None and linear[s] else None for s in variables[n_out:]]
    primals = [s for s in variables[:n_out] if s is not None]
    consts = dict(zip(range(n_in, fixed), jaxpr.consts, strict=True))
    outs = list(zip(primals, tangents, strict=True))
    return StagedLinearize(range(n_in), consts, *groups, outs, positions)


def staged_linearize(app: Application, mask: int) -> StagedLinearize:
    """The staged and split linearization rule: ``Primitive.staged_linearize`` or ``linearize``."""
    staged_rules = app.staged_linearizes
    if staged_rules is None:
        staged_rules = app.staged_linearizes = {}
    staged = staged_rules.get(mask)
    if staged is None:
        staged = app.primitive.staged_linearize(app, mask)
        if staged is None:
            rule = app.primitive.linearize
            # By default it is the jvp rule, staged once for both.
            shared = is_default(rule, Primitive.linearize)
            whole = staged_jvp(app, mask) if shared else _stage_jvp(app, mask, rule)
            staged = _split_by_tangents(whole, app, bits(mask, len(app.avals)))
        staged_rules[mask] = staged
    return staged


# transpose ---------------------------------------------------------------------------------------


def staged_transpose(app: Application, mask: int, ct_mask: int) -> StagedRule:
    """The staged transpose rule for linear arguments ``mask``.

    Inputs: the cotangents at the bits of ``ct_mask``, then the nonlinear arguments. Results: the
    cotangents of the linear arguments that are not zero (``extra[0]`` says which).
    ``Primitive.staged_transpose`` makes it, or else ``transpose`` is staged.
    """
    staged_rules = app.staged_transposes
    if staged_rules is None:
        staged_rules = app.staged_transposes = {}
    staged = staged_rules.get((mask, ct_mask))
    if staged is None:
        staged = app.primitive.staged_transpose(app, mask, ct_mask)
        if staged is None:
            staged = _stage_transpose(app, mask, ct_mask)
        staged_rules[mask, ct_mask] = staged
    return staged


def cotangent_aval(aval: ShapedArray) -> ShapedArray:
    """The aval of cotangents; integers have some only in transposed integer functions."""
    tangent = aval.tangent
    return aval if tangent.dtype == float0 else tangent


def _stage_transpose(app: Application, mask: int, ct_mask: int) -> StagedRule:
    n = len(app.avals)
    linear = bits(mask, n)
    others = [i for i in range(n) if not mask >> i & 1]
    present = bits(ct_mask, len(app.outs))

    def run(*values: object) -> tuple[list[Any], None]:
        cts: list[Any] = [None] * len(app.outs)
        for i, ct in zip(present, values, strict=False):
            cts[i] = ct
        args: list[Any] = [LinearInput(a) for a in app.avals]
        for i, value in zip(others, values[len(present) :], strict=True):
            args[i] = value
        ct_arg = cts if app.multiple else cts[0]
        results = app.primitive.transpose(ct_arg, *args, **app.params)
        return [results[i] for i in linear], None

    avals = [cotangent_aval(app.outs[i]) for i in present] + [app.avals[i] for i in others]
    staged = stage_rule(app, run, avals)
    if any([isinstance(c, LinearInput) for c in staged.jaxpr.consts]):
        # The rule treated one of the linear arguments as a value: x * x.
        name = app.primitive.name
        raise LinearityError(f"{name} of two linear arguments is not linear", primitive=name)
    return staged


# batching ----------------------------------------------------------------------------------------


@final
class SpmdAxis:
    """A mapped axis that is spread over axes of a mesh: its own name, or None, and theirs.

    ``mesh`` is an abstract one if these are Explicit axes, which types of whole values name.
    """

    __slots__ = ("mesh", "name", "spmd_name")

    def __init__(self, name: Any, spmd_name: tuple[Any, ...], mesh: Any = None) -> None:
        self.name = name
        self.spmd_name = spmd_name
        self.mesh = mesh

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.spmd_name, self.mesh

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, SpmdAxis) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"SpmdAxis({self.name!r}, {self.spmd_name!r})"


def type_split(value: Any) -> Any:
    """How the type of a value is split over Explicit axes; NumPy's values and numbers are not."""
    return getattr(getattr(value, "aval", None), "split", None)


def axis_of_types(axis: Any, values: Sequence[Any], dims: Sequence[int | None]) -> Any:
    """``axis``, spread as the mapped axes of values are according to their types.

    Raises:
        AxisSpecError: they are spread in different ways, or ``spmd_axis_name`` is given as well.
    """
    found: list[Any] = []
    for value, dim in zip(values, dims, strict=True):
        split = type_split(value)
        if dim is not None and split is not None and split.spec[dim] is not None:
            found.append((split.mesh, entry_names(split.spec[dim])))
    if not found or (type(axis) is SpmdAxis and axis.mesh is not None):
        return axis
    if type(axis) is SpmdAxis and axis.spmd_name != found[0][1]:
        raise AxisSpecError(
            f"vmap: spmd_axis_name is {axis.spmd_name}, but the types of arrays say already that "
            f"the mapped axis is split over {found[0][1]}",
            hint="leave spmd_axis_name out",
        )
    if any([other != found[0] for other in found]):
        raise AxisSpecError(
            "vmap: the mapped axes of arguments are split in different ways: "
            f"{', '.join([str(names) for _, names in found])}",
            hint="reshard them first: tracebridge.sharding.reshard",
        )
    mesh, names = found[0]
    return SpmdAxis(axis.name if type(axis) is SpmdAxis else axis, names, mesh)


def axis_inside(axis: Any, *, spread: bool) -> Any:
    """``axis`` for a program of one device, where the mesh in force has axes of type Manual.

    ``spread``: its devices have the elements among them, so that types inside say nothing of it.
    """
    if type(axis) is not SpmdAxis or axis.mesh is None:
        return axis
    mesh = get_abstract_mesh()
    same = mesh.shape_tuple == axis.mesh.shape_tuple and not spread
    return SpmdAxis(axis.name, axis.spmd_name, mesh if same else None)


def batched_with(aval: ShapedArray, size: object, dim: int | None, axis: object) -> ShapedArray:
    """The aval of a batch, whose new axis is split as ``axis`` says."""
    whole = batched_aval(aval, size, dim)
    of_users = type(whole) is not ShapedArray
    if type(axis) is not SpmdAxis or axis.mesh is None or dim is None or of_users:
        return whole
    entries = [*entries_of(whole)]
    entries[dim] = axis.spmd_name
    sharding = NamedSharding(axis.mesh, PartitionSpec(*entries))
    return whole.with_split(explicit_split(sharding, whole.ndim))


def name_of_axis(axis: object) -> Any:
    """The name of a mapped axis, or None: ``axis`` itself unless it is a ``SpmdAxis``."""
    return axis.name if type(axis) is SpmdAxis else axis


@final
class BatchInfo:
    """The context that batching rules get.

    ``axis`` is what they pass on to ``batch_jaxpr``: a name, None, or a ``SpmdAxis``.
    """

    __slots__ = ("axis", "axis_name", "size", "spmd_name")

    def __init__(self, size: Any, axis: Any) -> None:
        self.size = size
        self.axis = axis
        self.axis_name = name_of_axis(axis)
        self.spmd_name: tuple[Any, ...] | None = axis.spmd_name if type(axis) is SpmdAxis else None


def staged_batch(
    app: Application, size: object, dims: tuple[int | None, ...], axis: object
) -> StagedRule:
    """The staged batching rule; ``extra[1]`` holds the dims of the results."""
    staged_rules = app.staged_batches
    if staged_rules is None:
        staged_rules = app.staged_batches = {}
    key = (size, dims, axis)
    staged = staged_rules.get(key)
    if staged is None:
        context = BatchInfo(size, axis)

        def run(*values: Any) -> tuple[list[Any], tuple[Any, ...]]:
            out, out_dims = app.primitive.batch(context, list(values), list(dims), **app.params)
            return (list(out), tuple(out_dims)) if app.multiple else ([out], (out_dims,))

        avals = [batched_with(a, size, d, axis) for a, d in zip(app.avals, dims, strict=True)]
        staged = staged_rules[key] = stage_rule(app, run, avals)
    return staged
