"""Blocks that are parts of a sum: P(unreduced=...) and P(reduced=...) in specifications.

A whole array has no parts left to sum. So one device gets an unreduced argument and the others
zeros, and unreduced results are summed. Of what counts as reduced all devices have the same, and
each one its part of the cotangent: those of arguments are summed, and of results one device gets
the cotangent and the others zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core import lax
from tracebridge.core.collectives.axis_index import axis_index
from tracebridge.core.collectives.casts import pcast
from tracebridge.core.collectives.psum import psum
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.varied import typed_axes, varied
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.tree.tree import PyTreeDef, flatten, leaves

Names = frozenset[Any]


def sums_of(spec: object) -> tuple[Names, Names]:
    """The axes along which blocks are parts of a sum, and along which cotangents are."""
    if isinstance(spec, PartitionSpec):
        return spec.unreduced, spec.reduced
    return frozenset(), frozenset()


def names_sums(specs: object) -> bool:
    """Whether a tree of specifications says of an array that it is a part of a sum."""
    return any([any(sums_of(spec)) for spec in leaves(specs)])


def summed(
    fun: Callable[..., object],
    in_specs: Sequence[object],
    out_specs: Callable[[PyTreeDef], Sequence[object]],
    what: Callable[[PyTreeDef, int], str],
) -> Callable[..., object]:
    """The function of blocks, with the sums before and after it that specifications ask for.

    ``in_specs`` has one for each leaf of the arguments, ``out_specs`` gives those of the leaves of
    a result; ``what`` says what messages call such a leaf.
    """

    def with_sums(*blocks: object) -> object:
        flat, tree = flatten(blocks)
        given = [_entered(x, spec) for x, spec in zip(flat, in_specs, strict=True)]
        outs, out_tree = flatten(fun(*tree.unflatten(given)))
        specs = out_specs(out_tree)
        for i, (out, spec) in enumerate(zip(outs, specs, strict=True)):
            if any(sums_of(spec)):
                outs[i] = _left(as_value(out), spec, out_tree, i, what)
        return out_tree.unflatten(outs)

    return with_sums


def _entered(block: Any, spec: object) -> Any:
    """What a device gets of an argument."""
    unreduced, reduced = sums_of(spec)
    if reduced:
        block = varied(block, typed_axes() & reduced)
    return _on_first(block, unreduced) if unreduced else block


def _left(
    block: Any, spec: object, tree: PyTreeDef, i: int, what: Callable[[PyTreeDef, int], str]
) -> Any:
    """What a device gives for a result."""
    unreduced, reduced = sums_of(spec)
    if reduced:
        block = pcast(block, _ordered(reduced), to="reduced")
        if is_inexact(block.dtype):
            block = psum(_on_first(block, reduced), _ordered(reduced))
    if not unreduced:
        return block
    shared = _ordered((typed_axes() & unreduced) - block.aval.vma)
    if shared:
        raise AxisSpecError(
            f"{what(tree, i)}: out_specs has {spec} for it, but it is not unreduced: it is the "
            f"same on all devices along {', '.join(map(repr, shared))}",
            hint="name only axes along which the devices have parts of a sum in unreduced",
        )
    return psum(block, _ordered(unreduced))


def _on_first(block: Any, names: Names) -> Any:
    """The block on the first device along ``names``, and zeros on the others."""
    first = lax.eq(axis_index(_ordered(names)), lax.full((), 0, "int32"))
    vma = block.aval.vma | first.aval.vma
    block = varied(block, vma)
    zeros = varied(lax.full(block.shape, 0, block.dtype), vma)
    return lax.select_n(varied(first, vma), zeros, block)


def _ordered(names: Names) -> tuple[Any, ...]:
    return tuple(sorted(names, key=repr))
