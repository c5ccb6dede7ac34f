"""Products whose result is transposed: the product of the operands in the other order.

XLA does so with products that it sees; it does not look into calls of a library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.lax.contract.by_library import suits_library
from tracebridge.core.lax.contract.precision import exchanged

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.value import Value
    from tracebridge.core.lowering.rewrites.factors import Producers


def is_turned_product(app: Application, args: Sequence[int], made_by: Producers) -> bool:
    """Whether a transpose exchanges the sides of the product of a library."""
    made = made_by.get(args[0])
    if made is None or made[0].primitive is not lax.dot_general_p:
        return False
    product = made[0]
    x, y = product.avals
    numbers = product.params["dimension_numbers"]
    if not suits_library(x, y, product.out.dtype, numbers):
        return False
    n = x.ndim - len(numbers[0][0])  # axes that come from x
    return app.params["permutation"] == (*range(n, product.out.ndim), *range(n))


def turned_product(product: Application) -> Callable[..., Any]:
    """The function of the operands of a product that gives its transpose."""
    params = exchanged(product.params)

    def run(x: Value, y: Value) -> Any:
        return lax.dot_general_p.bind(y, x, **params)

    return run
