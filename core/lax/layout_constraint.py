"""with_layout_constraint: in which order a value inside a program lies in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Constraint
from tracebridge.core.mlir.attrs import array, string
from tracebridge.core.sharding.layout import Layout
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class LayoutConstraint(Constraint):
    """The operand itself; in a program it lies in memory as parameter ``layout`` says."""

    name = "layout_constraint"

    def evaluate(self, arrays: Sequence[object], **params: object) -> Any:
        """Eagerly: nothing, since results of programs are row-major."""
        del params
        return arrays[0]

    def lower(self, ctx: LoweringContext, x: Any, *, layout: Layout) -> Any:
        order = np.asarray(layout.major_to_minor[::-1], dtype=np.int64)
        layouts = array([mlir.ir.DenseElementsAttr.get(order, type=mlir.ir.IndexType.get())])
        operation = ctx.create(
            "stablehlo.custom_call",
            results=[x.type],
            operands=[x],
            attributes={
                "call_target_name": string("LayoutConstraint"),
                "operand_layouts": layouts,
                "result_layouts": layouts,
            },
        )
        return operation.results[0]

    def with_axis(self, ctx: BatchContext, axis: int, params: Params) -> dict[str, Any]:
        """The mapped axis is the slowest one."""
        del ctx
        layout = params["layout"]
        inner = [a + (a >= axis) for a in layout.major_to_minor]
        return {"layout": layout.update(major_to_minor=(axis, *inner))}


layout_constraint_p = LayoutConstraint()


@api_boundary
def with_layout_constraint(x: object, layouts: object) -> Any:
    """``x``, in a certain order in memory inside compiled programs; results stay row-major.

    Args:
        x: tree of arrays.
        layouts: ``Layout`` or None (no constraint); a tree prefix of ``x``.

    Returns:
        A tree like ``x``.

    Raises:
        ArgumentTypeError: something is no layout.
        ArgumentValueError: a layout has other axes than its array.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.layout import Layout, with_layout_constraint
    >>> f = tb.jit(lambda x: with_layout_constraint(x * 2, Layout((1, 0))).sum())
    >>> print(f(tb.numpy.ones((2, 3))))
    12.0
    """
    flat, tree = flatten(x)
    wanted = flatten_axes(
        "with_layout_constraint", tree, layouts, axes_name="layouts", full_name="x"
    )
    return tree.unflatten(
        [
            leaf if w is None else _constrained(as_value(leaf), w)
            for leaf, w in zip(flat, wanted, strict=True)
        ]
    )


def _constrained(value: Value, layout: object) -> Any:
    if not isinstance(layout, Layout):
        msg = f"with_layout_constraint: got {layout!r} of type {type(layout).__name__}"
        raise ArgumentTypeError(msg, expected="a Layout or None")
    layout.check_compatible_aval(value.aval.shape)
    return layout_constraint_p.bind(value, layout=layout)
