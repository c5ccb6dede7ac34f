"""Called functions that kernels may have parts of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.kernels.equations import REDUCTIONS, is_handled
from tracebridge.core.kernels.steps.moves import MOVES
from tracebridge.core.lax.reduce.exp_sums import shifted_exp_sum_p
from tracebridge.core.lowering.rewrites.flat import computed_by

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr


def inlined(app: Application) -> Jaxpr | None:
    """The called function if it belongs where it is called; others have kernels of their own.

    It has neither products nor loops.
    """
    if app.primitive.inlinable and _is_plain(app.params["jaxpr"]):
        return app.params["jaxpr"]
    return None


def is_part_of_kernel(app: Application) -> bool:
    """Whether a call that is computed again in the backward pass may be a kernel as a whole.

    Its function has products of batches, as blocks of attention, and no other ones.
    """
    if not app.primitive.inlinable_at_last:
        return False
    called: Jaxpr | None = app.primitive.called_at_last(**app.params)
    return called is not None and all([_is_part(inner) for inner, _ in called.equations])


def _is_part(app: Application) -> bool:
    if app.primitive is lax.dot_general_p:
        return bool(app.params["dimension_numbers"][1][0])
    return _is_plain_equation(app)


def _is_plain(called: Jaxpr) -> bool:
    """Whether a function is part of a kernel: others have products, and kernels of their own."""
    if "is plain" not in called.cache:
        called.cache["is plain"] = all([_is_plain_equation(app) for app, _ in called.equations])
    return called.cache["is plain"]


def _is_plain_equation(app: Application) -> bool:
    if app.primitive in MOVES or app.primitive in REDUCTIONS:
        return True
    if is_handled(app) or is_handled(app, doubles=True):
        return True
    if app.primitive is lax.pow_p or app.primitive is shifted_exp_sum_p:
        return True
    called = app.params["jaxpr"] if app.primitive.inlinable else computed_by(app)
    return called is not None and _is_plain(called)
