"""Transposition: cotangents walk a tape, or a linear Jaxpr, backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.linearize import Linearized, TapeEntry
from tracebridge.core.interpreters.split_by_known import split_by_known
from tracebridge.core.interpreters.staged_rules import staged_transpose
from tracebridge.core.interpreters.transpose_graph import takes_zeros, transpose_into
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.linear_input import LinearInput
from tracebridge.core.ir.name_scopes import ScopedTape, entered, transposed
from tracebridge.core.ir.name_stack import in_use, names_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.ad_util import (
    add_application,
    constraint_application,
    weak_type_application,
)
from tracebridge.core.sharding.partition_spec import PartitionSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.trace import Process
    from tracebridge.core.ir.values import Value


def backward(
    linear: Linearized, cotangents: Sequence[Value | None], process: Process
) -> list[Value | None]:
    """Cotangents of the inputs of a linear function; ``None`` is a symbolic zero, both ways.

    They are weakly typed where the inputs are, and split over Explicit axes as these are.
    """
    cts = _pull_back(linear, cotangents, process)
    for i, (ct, aval) in enumerate(zip(cts, linear.in_avals, strict=True)):
        if ct is None:
            continue
        given = ct.aval
        typed = ct if given.weak_type is aval.weak_type else _as_weak_as(ct, aval, process)
        if type(given) is type(aval) is ShapedArray and given.split is not aval.split:
            typed = _split_as(typed, aval, process)
        cts[i] = typed
    return cts


def _pull_back(
    linear: Linearized, cotangents: Sequence[Value | None], process: Process
) -> list[Value | None]:
    """Cotangents of the inputs, weakly typed or not as it happens: within a program."""
    cts: list[Any] = [None] * linear.size
    for node, ct in zip(linear.out_nodes, cotangents, strict=True):
        if node is not None and ct is not None:
            _accumulate(cts, node, ct, process)
    walk_back(linear.tape, cts, process, set())
    return cts[: len(linear.in_avals)]


def _as_weak_as(ct: Value, aval: ShapedArray, process: Process) -> Value:
    """``ct`` with the weak type of ``aval``."""
    given = ct.aval
    if given.dtype != aval.dtype:
        return ct  # a user's rule may give cotangents of another dtype
    if type(ct) is Literal:
        return Literal(ct.value, given.update(weak_type=aval.weak_type))
    return process(weak_type_application(given, aval.weak_type), [ct])


def _split_as(ct: Value, aval: ShapedArray, process: Process) -> Value:
    """``ct`` with the split of ``aval``, over the mesh of either."""
    given, wanted = ct.aval, aval.split
    if given.split == wanted or given.shape != aval.shape:
        return ct
    if wanted is None and given.split is not None:
        wanted = given.split.update(spec=PartitionSpec())
    return ct if wanted is None else process(constraint_application(given, wanted), [ct])


def walk_back(tape: Sequence[TapeEntry], cts: list[Any], process: Any, zeros: set[int]) -> None:
    """Transposes each entry whose results have cotangents; accumulates into ``cts``.

    ``zeros``: nodes to which a rule of a user has given a zero. Rules before it are called with
    zeros: what they return need not be linear.
    """
    if type(tape) is ScopedTape:
        for part, names in tape.parts():
            with transposed(names):
                walk_back(part, cts, process, zeros)
        return
    for app, mask, args, node in reversed(tape):
        if app.multiple:
            n_out = len(app.outs)
            out_cts = cts[node : node + n_out]
            ct_mask = sum([1 << i for i, ct in enumerate(out_cts) if ct is not None])
            if not ct_mask and not (zeros and takes_zeros(app, mask, args, node, zeros)):
                continue
            # Frees memory early in eager mode.
            cts[node : node + n_out] = [None] * n_out
            primitive = app.primitive
            if primitive.transposes_inline or (
                primitive.stages_when_repeated and app.staged_transposes is None
            ):
                app.staged_transposes = app.staged_transposes or {}
                _transpose_inline(app, mask, args, out_cts, cts, process, zeros)
                continue
            values = [ct for ct in out_cts if ct is not None]
        else:
            ct = cts[node]
            if ct is None:
                if zeros:  # they go on to its arguments
                    takes_zeros(app, mask, args, node, zeros)
                continue
            ct_mask = 1
            cts[node] = None
            values = [ct]
        staged_rules = app.staged_transposes
        staged = None if staged_rules is None else staged_rules.get((mask, ct_mask))
        if staged is None:
            staged = staged_transpose(app, mask, ct_mask)
        targets: list[int] = []
        for i, a in enumerate(args):
            if mask >> i & 1:
                targets.append(a)
            else:
                values.append(a)
        single = staged.single
        if single is not None and len(targets) == 1:
            target = targets[0]
            out = process(single, values)
            old = cts[target]
            cts[target] = out if old is None else process(add_application(out.aval), [old, out])
            continue
        results = iter(staged.replay(process, values))
        for target, present in zip(targets, staged.extra[0], strict=True):
            if present:
                _accumulate(cts, target, next(results), process)


def _transpose_inline(
    app: Any,
    mask: int,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    cts: list[Any],
    process: Any,
    zeros: set[int],
) -> None:
    """Call a transpose rule on values: a user's, which may look at them, or one not staged."""
    values = [LinearInput(app.avals[i]) if mask >> i & 1 else a for i, a in enumerate(args)]
    results = app.primitive.transpose(cotangents, *values, **app.params)
    for i, ct in enumerate(results):
        if mask >> i & 1:
            if ct is not None:
                _accumulate(cts, args[i], ct, process)
            elif app.primitive.transposes_inline:
                zeros.add(args[i])


def _accumulate(cts: list[Any], node: int, ct: Value, process: Any) -> None:
    old = cts[node]
    cts[node] = ct if old is None else process(add_application(ct.aval), [old, ct])


def linear_tape(
    jaxpr: Jaxpr, linear_in: Sequence[bool], args: Sequence[object], process: Process
) -> tuple[Linearized, list[Any]]:
    """Run the nonlinear steps of ``jaxpr`` and record the linear ones.

    ``args`` are values of the nonlinear inputs (anything at linear positions). Gives the tape and
    the results, ``None`` where a result is linear.
    """
    jaxpr = split_by_known(jaxpr, tuple(linear_in))
    env: list[Any] = list(args)
    linear = list(linear_in)
    size = 0
    for i, is_linear in enumerate(linear_in):
        if is_linear:
            env[i] = size
            size += 1
    n_linear = size
    env.extend(jaxpr.consts)
    linear.extend([False] * len(jaxpr.consts))
    names = names_of(jaxpr) if in_use[0] else None
    tape: list[TapeEntry] = [] if names is None else ScopedTape()
    for k, (app, idx) in enumerate(jaxpr.equations):
        mask = sum([1 << k for k, i in enumerate(idx) if linear[i]])
        values = [env[i] for i in idx]
        n_out = len(app.outs)
        if mask:
            if names is not None and type(tape) is ScopedTape:
                tape.scopes.append((len(tape), names[k]))
            tape.append((app, mask, values, size))
            env.extend(range(size, size + n_out))
            size += n_out
        elif names is not None:
            with entered(names[k]):
                result = process(app, values)
            env.extend(result if app.multiple else (result,))
        elif app.multiple:
            env.extend(process(app, values))
        else:
            env.append(process(app, values))
        linear.extend([bool(mask)] * n_out)
    in_avals = [a for a, is_linear in zip(jaxpr.in_avals, linear_in, strict=True) if is_linear]
    out_nodes = [env[i] if linear[i] else None for i in jaxpr.outs]
    linearized = Linearized(tape, max(size, n_linear), in_avals, out_nodes, list(jaxpr.out_avals))
    return linearized, [None if linear[i] else env[i] for i in jaxpr.outs]


def transpose_jaxpr(
    jaxpr: Jaxpr,
    linear_in: tuple[bool, ...],
    ct_in: tuple[bool, ...] | None = None,
    *,
    instantiate: bool = True,
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The Jaxpr ``(nonlinear inputs, cotangents) -> cotangents of the linear inputs``.

    ``ct_in`` says which results have a cotangent (default: all). With ``instantiate`` every
    linear input gets a cotangent; the second result says which ones are given.
    """
    cts_given = (True,) * len(jaxpr.outs) if ct_in is None else ct_in
    key = ("transpose", linear_in, cts_given, instantiate)
    cached = jaxpr.cache.get(key)
    if cached is None:
        cached = jaxpr.cache[key] = _stage_transpose(jaxpr, linear_in, cts_given, instantiate)
    return cached


def _stage_transpose(
    jaxpr: Jaxpr, linear_in: tuple[bool, ...], ct_in: tuple[bool, ...], instantiate: bool
) -> tuple[Jaxpr, tuple[bool, ...]]:
    graph = Graph()
    pairs = list(zip(jaxpr.in_avals, linear_in, strict=True))
    args = graph.inputs([a for a, is_linear in pairs if not is_linear])
    cts = graph.inputs([a for a, here in zip(jaxpr.out_avals, ct_in, strict=True) if here])
    remaining_cts = iter(cts)
    results = transpose_into(
        graph, jaxpr, linear_in, args, [next(remaining_cts) if here else None for here in ct_in]
    )
    if instantiate:
        avals = [a for a, is_linear in pairs if is_linear]
        results = [graph.zeros(a) if r is None else r for r, a in zip(results, avals, strict=True)]
    outs = [r for r in results if r is not None]
    transposed = graph.program([*args, *cts], outs, jaxpr.debug)
    for const in transposed.consts:
        if isinstance(const, Tracer):
            msg = (
                f"a backward rule in {jaxpr.debug.name} closes over {const!r}, a value of a "
                "function that is being traced, and is itself traced at another time"
            )
            raise CustomRuleError(msg, hint="pass that value as an argument of the function")
    return transposed, tuple([r is not None for r in results])
