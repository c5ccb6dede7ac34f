"""Carries of loops: their types must be the same before and after a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.control.calls.bodies import leaf_paths
from tracebridge.core.dtypes.promotion import result_type
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, TypePromotionError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ShardingTypeError, TreeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.user_type import is_user_type
from tracebridge.core.ir.values import Literal
from tracebridge.core.ir.varied import varied
from tracebridge.core.lax.elementwise.convert import convert_element_type
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.tree.prefix import equality_errors_of_structures


def unchanged(values: Sequence[object]) -> list[Any]:
    """Values that are results too: outside of traces numbers become arrays, as of any operation."""
    if not is_eager():
        return list(values)
    return [to_array(v) if type(v) is Literal else v for v in values]


def check_structure(call: str, before: Any, returned: Any) -> None:
    """Raise unless the returned carry has the structure of the given one."""
    if before == returned:
        return
    places = equality_errors_of_structures(before, returned)
    first = f"; {places[0].describe('given carry', 'returned carry')}" if places else ""
    msg = (
        f"{call}: the carry changes its structure from one step to the next; its input and output "
        f"must have the same pytree structure{first}"
    )
    raise TreeMismatchError(
        msg,
        got=f"returned carry {returned}",
        expected=f"given carry    {before}",
        hint="return the carry in the form in which it was given",
    )


def promoted(
    init: Sequence[object], before: Sequence[ShapedArray], returned: Sequence[ShapedArray]
) -> list[Any] | None:
    """``init`` with values of the types of a step; None if all fits.

    A Python number as start of a carry takes the dtype that the loop computes with; a start that is
    the same on all devices varies along the axes of a shard_map along which a step does.
    """
    values = list(init)
    changed = False
    for i, (a, b) in enumerate(zip(before, returned, strict=True)):
        if not b.vma <= a.vma:
            values[i] = varied(values[i], b.vma)
            changed = True
        if not a.weak_type or a.dtype == b.dtype:
            continue
        try:
            dtype = result_type((a.dtype, True), (b.dtype, b.weak_type))
        except TypePromotionError:
            continue  # check_types words what is wrong
        if dtype != a.dtype:
            values[i] = convert_element_type(values[i], dtype)
            changed = True
    return values if changed else None


def check_types(
    call: str, tree: Any, before: Sequence[ShapedArray], returned: Sequence[ShapedArray]
) -> None:
    """Raise unless each carry keeps its shape, dtype and split; the message shows both."""
    wrong: dict[int, str] = {}
    for i, (a, b) in enumerate(zip(before, returned, strict=True)):
        if is_user_type(a) or is_user_type(b):
            if a != b:
                wrong[i] = "the types differ"
        elif a.shape != b.shape:
            wrong[i] = "the shapes differ"
        elif a.dtype != b.dtype:
            wrong[i] = "the dtypes differ"
        elif a.split is not b.split:
            wrong[i] = "the shardings differ"
    if not wrong:
        return
    paths = leaf_paths(tree.unflatten(range(len(before))))
    names = [f"carry{p}" for p in paths]
    width = max([len(n) for n in names])
    left = max([len(a.str_short()) for a in before] + [len("given")])
    right = max([len(b.str_short()) for b in returned] + [len("returned")])
    rows = [f"      {'':{width}}  {'given':{left}}  {'returned':{right}}"]
    for i, (name, a, b) in enumerate(zip(names, before, returned, strict=True)):
        mark = "*" if i in wrong else " "
        note = f"  {wrong[i]}" if i in wrong else ""
        row = f"    {mark} {name:{width}}  {a.str_short():{left}}  {b.str_short():{right}}{note}"
        rows.append(row.rstrip())
    shapes = any(["shapes" in note for note in wrong.values()])
    msg = f"{call}: the carry changes its type from one step to the next\n" + "\n".join(rows)
    error: type[TracebridgeError] = ShapeMismatchError if shapes else DtypeMismatchError
    if all(["shardings" in note for note in wrong.values()]):
        error = ShardingTypeError
    raise error(msg, hint="convert or reshape what the body returns, or the initial value")
