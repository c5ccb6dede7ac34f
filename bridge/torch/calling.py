"""``call_torch``: a torch function or module as an operation of traced code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracebridge.core.control.callbacks.foreign import foreign_call_p
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.random.uniform import bits
from tracebridge.torch._foreign.arguments import Arguments
from tracebridge.torch._foreign.functions import Called
from tracebridge.torch._foreign.results import results_of

VMAP_METHODS = (None, "vectorized", "sequential")


@api_boundary
def call_torch(
    fun: Callable[..., Any],
    *args: Any,
    params: Mapping[str, Any] | None = None,
    key: Any = None,
    result_shape_dtypes: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a torch function or module in traced code, with derivatives by torch's autograd.

    A compiled program calls back into Python; on the CPU the function reads the memory of the
    program. Derivatives of any order are those of torch: reverse mode by autograd, forward mode by
    autograd twice. Backward passes call the function again. The call may be dropped or repeated,
    so that the function should depend on its arguments only and change nothing.

    Args:
        fun: function of tensors, or ``nn.Module``.
        *args: trees of arrays, which the function gets as tensors. Everything else, Python numbers
            too, is given as it is.
        params: of a module, the parameters and buffers to call it with, by their names in
            ``state_dict``; derivatives go to these. Others are those that the module has when the
            program runs; they must not require gradients.
        key: key of ``tracebridge.random`` for a function that draws random numbers: torch's
            generators are seeded by it during the call, forward and backward.
        result_shape_dtypes: tree of ``ShapeDtypeStruct``, the types of the results. By default the
            function is called once with tensors without values to find them.
        vmap_method: ``"vectorized"`` maps the function by ``torch.func.vmap``, ``"sequential"``
            calls it for each element. None does the first where torch can, else the second.
        **kwargs: further arguments, likewise.

    Returns:
        What the function returns, with arrays in the place of tensors.

    Raises:
        ArgumentSpecError: an argument is not as described; the module has parameters that require
            gradients and are not in ``params``.
        CallbackError: the function raised, writes to its arguments, or draws without ``key``.

    >>> import torch
    >>> import tracebridge as tb
    >>> from tracebridge.torch import call_torch
    >>> @tb.jit
    ... def loss(x):
    ...     return call_torch(torch.special.log_ndtr, x).sum()
    >>> print(tb.grad(loss)(tb.numpy.zeros(2)))
    [0.7978846 0.7978846]
    """
    if vmap_method not in VMAP_METHODS:
        msg = f"call_torch: vmap_method is {vmap_method!r}"
        raise ArgumentSpecError(msg, expected="None, 'vectorized' or 'sequential'")
    operands: list[Any] = []
    arguments = Arguments(fun, args, params, kwargs, operands)
    avals = tuple([v.aval for v in operands])
    results = results_of(arguments, avals, result_shape_dtypes, has_key=key is not None)
    if key is not None:
        operands.append(bits(key, (2,), "uint32"))
    function = Called(
        arguments.label,
        results.runner(arguments, seeded=key is not None),
        len(operands),
        tuple([is_inexact(a.dtype) for a in results.avals]),
        # With keys of their own, elements draw numbers of their own.
        vectorized=vmap_method != "sequential" and key is None,
        content=(arguments.content, key is not None),
    )
    return results.tree_of(
        foreign_call_p.bind(*operands, callback=function, result_avals=results.avals)
    )
