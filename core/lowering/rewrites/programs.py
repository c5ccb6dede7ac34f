"""The pass over a Jaxpr before it is lowered, and the list of rewrites that it tries.

| equation | where | becomes |
|---|---|---|
| ``reduce_sum``, ``dot_general`` | the operand is an outer product | contractions of its factors |
| ``reduce_sum`` | the operand is an array in memory, times weights | a product with the weights |
| ``reduce_sum`` | an axis that stays holds copies of one slice | the sum of that slice, repeated |
| ``reduce_sum`` | the operand is a reshape that splits no sum | the sum, reshaped |
| ``reduce_sum`` | the operand is a negated array of floats | the negated sum |
| ``reduce_sum`` | of functions that others read too, as in softmax | these are computed once |
| ``reduce_sum`` | of ``exp(x - max(x))``, read by the sum only | ``exp_sums.py`` |
| ``reduce_sum`` | of short chains that others read a part of | the sum of a copy |
| ``reduce_sum`` | over what ``take_along_axis`` puts back | what it puts back |
| ``reduce_sum`` | of products that others sum up with other weights | ``shared_products.py`` |
| ``reduce_sum`` | the only one of a transposed array | ``turned_sums.py`` |
| ``gather`` | few elements of a chain that others read too | the chain of these elements |
| ``add`` | of what pads make of the parts of an array | their concatenation |
| ``transpose`` | the operand is joined along a new axis | a concatenation along another axis |
| ``transpose`` | the operand is a product by a library | the product of its operands, exchanged |
| ``sin``, ``cos``, ``tan`` | the same of the same operand is there | that one |
| ``cumsum`` and its kin | float32, along the last axis of large arrays | a kernel |
| ``broadcast_in_dim`` | of random bits or sines | ``repeated.py`` |
| ``eq`` | of an array with its own maximum | ``compared.py`` |
| ``select_n`` | numbers of the program decide it | ``known_choices.py`` |
| ``sin``, ``cos``, ``tan`` | of large arrays, with what is elementwise round them | ``waves.py`` |

Picks come first, in a pass of their own: what is picked from is read by one less then.

Derivatives and batching see programs as they were written. Lowerings for single platforms that
need one equation only are rules of their own (core/lowering/platforms.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.interpreters.own_extrema import EXTREMA
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.kernels.rows.running_kernel import RUNNING, can_run, running_kernel_p
from tracebridge.core.lowering.rewrites.batches import with_batch_kernels
from tracebridge.core.lowering.rewrites.compared import with_compared
from tracebridge.core.lowering.rewrites.joins import moved_join
from tracebridge.core.lowering.rewrites.known_choices import with_known_choices
from tracebridge.core.lowering.rewrites.moves_inside import with_moves_inside
from tracebridge.core.lowering.rewrites.one_pass import Pass, Rewrites
from tracebridge.core.lowering.rewrites.picks import with_picks
from tracebridge.core.lowering.rewrites.producers import forget_facts
from tracebridge.core.lowering.rewrites.repeated import is_costly, with_stored
from tracebridge.core.lowering.rewrites.rows import with_row_kernels
from tracebridge.core.lowering.rewrites.shared_products import with_shared_products
from tracebridge.core.lowering.rewrites.sums import compares, rewritten_product, rewritten_sum
from tracebridge.core.lowering.rewrites.turned_products import is_turned_product, turned_product
from tracebridge.core.lowering.rewrites.waves import with_guarded_waves
from tracebridge.core.lowering.rewrites.whole_programs import is_marked

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


def rewritten(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with the faster forms of what is in the table above."""
    # None stands for the Jaxpr itself, which must not refer to itself.
    if "rewritten" not in jaxpr.cache:
        new = with_known_choices(jaxpr)
        found = primitives_of(new or jaxpr)
        if any([is_costly(p) for p in found]):
            new = with_stored(new or jaxpr) or new
        if lax.gather_p in found:
            new = with_picks(new or jaxpr) or new
        if lax.pad_p in found and lax.add_p in found:
            new = Pass(new or jaxpr, _JOINS).result() or new
        new = with_moves_inside(new or jaxpr) or new
        new = with_batch_kernels(new or jaxpr) or new
        new = with_row_kernels(new or jaxpr, is_marked(jaxpr)) or new
        if lax.reduce_sum_p in found:
            new = with_shared_products(new or jaxpr) or new
        if new is not None or not found.isdisjoint(_REWRITES):
            new = Pass(new or jaxpr, _REWRITES).result() or new
            new = with_guarded_waves(new or jaxpr) or new
        if lax.eq_p in found and not found.isdisjoint(EXTREMA):
            new = with_compared(new or jaxpr) or new
        jaxpr.cache["rewritten"] = new
        forget_facts(jaxpr)
        if new is not None:
            forget_facts(new)
    return jaxpr.cache["rewritten"] or jaxpr


# concatenations ----------------------------------------------------------------------------------


def _transposed(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """What gives the operand gives the transpose of it, where nobody reads the operand itself."""
    if not here.is_static(app):
        return None
    plan = moved_join(app, args, here.made_by)
    if plan is not None:
        return here.emit(*plan, source)
    if is_turned_product(app, args, here.made_by) and here.readers(args[0]) == 1:
        product, operands = here.made_by[args[0]]
        return here.emit(turned_product(product), operands, source)
    return None


def _part(here: Pass, app: Application, args: Sequence[int], source: object) -> None:
    """Nothing: it only remembers what a pad puts where."""
    del source
    here.joins.padded(app, args, here.last)


def _joined(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    plan = here.joins.added(app, args, here.last)
    if plan is None:
        plan = here.joins.added_to_part(args, lambda v: _is_there(here, v))
    return None if plan is None else here.emit(*plan, source)


def _is_there(here: Pass, v: int) -> bool:
    """Whether a value is given or one of several results of a call, perhaps with sums in it."""
    made = here.made_by.get(v)
    return made is None or made[0].primitive is lax.dynamic_update_slice_p


def _wave(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The same function of the same operand, if it is there already."""
    del source
    if app.params:
        return None
    first = here.waves.setdefault((app.primitive, args[0]), here.last)
    return None if first == here.last else first


def _running(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """A reduction that runs along rows as a kernel over these."""
    del source
    if not can_run(app):
        return None
    here.write()
    params = {"kind": RUNNING[app.primitive], "reverse": app.params["reverse"]}
    return here.graph.add_bound(running_kernel_p, args, {**params, "axis": app.params["axis"]})


_JOINS: Rewrites = {lax.pad_p: _part, lax.add_p: _joined}
_REWRITES: Rewrites = {
    lax.reduce_sum_p: rewritten_sum,
    lax.dot_general_p: rewritten_product,
    lax.transpose_p: _transposed,
    lax.sin_p: _wave,
    lax.cos_p: _wave,
    lax.eq_p: compares,
    lax.tan_p: _wave,
    **dict.fromkeys(RUNNING, _running),
}
