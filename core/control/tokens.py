"""Tokens: values without elements, which order computations by what depends on what."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.typeof import as_value

_DTYPE = np.dtype(np.bool_)


def create_token(_: object = None) -> Any:
    """A token that waits for nothing: an array without elements.

    >>> import tracebridge as tb
    >>> tb.lax.create_token().size
    0
    """
    return lax.full((0,), False, _DTYPE)


def after_all(*operands: object) -> Any:
    """A token that waits for other tokens.

    Args:
        *operands: tokens.

    Raises:
        ArgumentTypeError: an operand is no token.

    >>> import tracebridge as tb
    >>> tb.lax.after_all(tb.lax.create_token(), tb.lax.create_token()).size
    0
    """
    tokens = [as_value(o) for o in operands]
    for i, token in enumerate(tokens):
        if token.aval.shape != (0,) or token.aval.dtype != _DTYPE:
            msg = f"after_all: operand {i} is {token.aval.str_short()}, expected a token"
            raise ArgumentTypeError(msg, hint="create_token() and after_all(...) give tokens")
    return lax.optimization_barrier(tuple(tokens))[0] if tokens else create_token()
