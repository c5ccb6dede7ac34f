"""Where on a machine operations run: its host beside the device, or a part of the device."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from tracebridge._api.args.op_attributes import OpAttributes
from tracebridge._api.devices.transfer import device_put
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["compute_on", "compute_on2"]

_XLA_NAMES = {"device_host": "host", "device": "dense", "tpu_sparsecore": "sparseoffload"}
_STREAM = "gpu_stream:"


def compute_on(compute_type: str) -> OpAttributes:
    """Say where the operations of a block run, as XLA can place them.

    The CPU is its own host: there all is computed in one place, and values are the same.

    Args:
        compute_type: "device_host" for the host of an accelerator, "device" for the device,
            "tpu_sparsecore", or "gpu_stream:1" for a stream of a GPU by number.

    Returns:
        A context manager, also a decorator of functions.

    Raises:
        ArgumentTypeError: ``compute_type`` is no string.
        ArgumentValueError: it is an unknown one.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.compute_on import compute_on
    >>> @tb.jit
    ... def f(x):
    ...     with compute_on("device_host"):
    ...         return x * 2
    >>> '_xla_compute_type = "host"' in f.lower(1.0).as_text()
    True
    """
    if not isinstance(compute_type, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        kind = type(compute_type).__name__
        msg = f"compute_on: compute_type is {compute_type!r} of type {kind}"
        raise ArgumentTypeError(msg, expected="a string")
    nothing: dict[str, str | None] = dict.fromkeys(
        ("_xla_compute_type", "_xla_stream_annotation", "inlineable")
    )
    if compute_type.startswith(_STREAM):
        stream = compute_type.removeprefix(_STREAM)
        return OpAttributes({**nothing, "_xla_stream_annotation": stream, "inlineable": "false"})
    name = _XLA_NAMES.get(compute_type)
    if name is None:
        known = ", ".join([*map(repr, _XLA_NAMES), repr(f"{_STREAM}1")])
        msg = f"compute_on: compute_type is {compute_type!r}"
        raise ArgumentValueError(msg, expected=f"one of {known}")
    return OpAttributes({**nothing, "_xla_compute_type": name})


def compute_on2(
    f: Callable[..., Any] | None = None,
    *,
    compute_type: str,
    out_memory_spaces: Any,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """A function like ``f`` that runs as ``compute_on`` says and leaves results where told.

    Args:
        f: function of arrays and trees of arrays; None gives a decorator.
        compute_type: as in `compute_on`.
        out_memory_spaces: the ``memory.Space`` of the results: one, or a tree like a prefix of
            the result.
        compiler_options: what XLA is told about the call, as attributes of its operations.

    Returns:
        The function.

    Raises:
        ArgumentTypeError: ``compute_type`` is no string.
        ArgumentValueError: it is an unknown one.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.compute_on import compute_on2
    >>> twice = compute_on2(
    ...     lambda x: 2 * x, compute_type="device_host", out_memory_spaces=tb.memory.Space.Device)
    >>> print(tb.jit(twice)(3.0))
    6.0
    """
    if f is None:
        return functools.partial(
            compute_on2,
            compute_type=compute_type,
            out_memory_spaces=out_memory_spaces,
            compiler_options=compiler_options,
        )
    compute_on(compute_type)
    options: dict[str, str | None] = {}
    if compiler_options is not None:
        options["backend_config"] = json.dumps(compiler_options)

    @functools.wraps(f)
    def placed(*args: Any) -> Any:
        with compute_on(compute_type), OpAttributes(options):
            result = f(*args)
        return device_put(result, out_memory_spaces)

    return placed


_shield(globals(), __name__)
