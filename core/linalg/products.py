"""Products whose symmetry is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.linalg.family import (
    Composed,
    check_dtype,
    check_square,
    jvp_by_parts,
    matrices,
    rounded,
)
from tracebridge.core.linalg.matrices import lower_part, matmul, scalar, swapped

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.value import Operand, Value


@final
class SymmetricProduct(Composed):
    """``alpha A A^T + beta C``."""

    name = "symmetric_product"
    exact_keys = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        a, c = avals
        check_dtype("symmetric_product", *avals)
        check_square("symmetric_product", c)
        if c.shape[:-1] != a.shape[:-1]:
            msg = f"symmetric_product: got {a.str_short()} and {c.str_short()}"
            raise ShapeMismatchError(msg, expected="(*batch, m, n) and (*batch, m, m)")
        return c.update(weak_type=a.weak_type and c.weak_type)

    def compose(self, *operands: Value, **params: Any) -> Any:
        a, c = operands
        product = lax.mul(matmul(a, swapped(a)), scalar(a, params["alpha"]))
        if params["beta"] == 0:
            return product
        return lax.add(product, lax.mul(c, scalar(c, params["beta"])))

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        (out,), (change,) = jvp_by_parts(self.compose, primals, tangents, params)
        return out, change


symmetric_product_p = SymmetricProduct()


def symmetric_product(
    a_matrix: Operand,
    c_matrix: Operand,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Any:
    """``alpha A A^T + beta C`` for symmetric C.

    Args:
        a_matrix: A, of shape ``(*batch, m, n)``.
        c_matrix: C, of shape ``(*batch, m, m)``.
        alpha: factor of the product.
        beta: factor of C; with 0 it is not read.
        symmetrize_output: whether the lower triangle is mirrored, so that the result is exactly
            symmetric.

    Returns:
        Array of the shape and dtype of ``c_matrix``.

    Raises:
        UnsupportedDtypeError: an argument holds neither floats nor complex numbers.
        DtypeMismatchError: the dtypes differ.
        RankError, ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> a, c = tb.numpy.array([[1.0], [2.0]]), tb.numpy.eye(2)
    >>> tb.lax.linalg.symmetric_product(a, c, beta=1.0).tolist()
    [[2.0, 2.0], [2.0, 5.0]]
    """
    (a, c), dtype = matrices("symmetric_product", a_matrix, c_matrix, ranks=(2, 2))
    out = symmetric_product_p.bind(a, c, alpha=float(alpha), beta=float(beta))
    if symmetrize_output:
        out = lax.add(lower_part(out), swapped(lower_part(out, -1)))
    return rounded(out, dtype)
