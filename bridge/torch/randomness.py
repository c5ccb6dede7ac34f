"""Keys and generators: ``generator_to_key`` and ``key_to_generator``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.random._streams import generator_and_words
from tracebridge.random.keys import key_data
from tracebridge.random.uniform import bits
from tracebridge.torch._drawing import as_key, draw


@api_boundary
def generator_to_key(generator: torch.Generator | None = None) -> Any:
    """A key of ``tracebridge.random`` drawn from a generator of torch, which moves on.

    Args:
        generator: a generator (default: the one of the CPU that ``torch.manual_seed`` seeds).

    Returns:
        A key without axes, of the generator that the option ``default_prng_impl`` names. Equal
        states give equal keys, the next draw gives another one.

    Raises:
        ArgumentTypeError: ``generator`` is something else.
        ArgumentSpecError: a function is being traced: the key would be a constant of the program.

    >>> import torch
    >>> import tracebridge as tb
    >>> from tracebridge.torch import generator_to_key
    >>> generator = torch.Generator().manual_seed(0)
    >>> keys = [generator_to_key(generator), generator_to_key(generator.manual_seed(0))]
    >>> bool(tb.random.normal(keys[0]) == tb.random.normal(keys[1]))
    True
    """
    given: Any = generator
    if given is not None and not isinstance(given, torch.Generator):
        msg = f"generator_to_key: generator is {given!r} of type {type(given).__name__}"
        raise ArgumentTypeError(msg, expected="a torch.Generator or None")
    if _is_staging():
        raise ArgumentSpecError(
            "generator_to_key: called in a function that is being traced: all calls of the program "
            "would have this key",
            hint="make the key an argument, which rng_argnames of wrap draws at each call",
        )
    device = "cpu" if generator is None else generator.device
    return as_key(torch_adapter.import_(draw(generator, device)))


def _is_staging() -> bool:
    """Whether what is computed now becomes part of a program."""
    trace: Any = current_trace()
    while trace is not None and not isinstance(trace, StagingTrace):
        trace = trace.parent_trace
    return trace is not None


@api_boundary
def key_to_generator(key: Any, device: Any = "cpu") -> torch.Generator:
    """A new generator of torch, seeded by a key of ``tracebridge.random``.

    Args:
        key: a key, typed or the words of one. Different keys give different seeds (the generator
            of the CPU looks at 32 bits of a seed).
        device: device of the generator.

    Raises:
        ArgumentTypeError: ``key`` is no key.
        ShapeMismatchError: it is an array of keys with axes.

    >>> import torch
    >>> import tracebridge as tb
    >>> from tracebridge.torch import key_to_generator
    >>> seeds = [key_to_generator(tb.random.key(n)).initial_seed() for n in (1, 1, 2)]
    >>> seeds[0] == seeds[1], seeds[0] == seeds[2]
    (True, False)
    """
    generator_and_words("key_to_generator", as_value(key, "key_to_generator"))
    if key_data(key).ndim != 1:
        msg = f"key_to_generator: key has the shape {key_data(key).shape[:-1]}"
        raise ShapeMismatchError(msg, expected="one key", hint="make a generator of each of them")
    high, low = [int(word) for word in np.asarray(bits(key, (2,), "uint32"))]
    return torch.Generator(device).manual_seed(high << 32 | low)
