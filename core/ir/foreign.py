"""Functions and operators of frameworks that meet arrays and traced values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import framework_of, way_out_of
from tracebridge.core.errors.tracer_errors import TracerArrayConversionError

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


# Functions of torch that have another name here.
_OTHER_NAMES = {
    "cat": "tracebridge.numpy.concatenate",
    "clamp": "tracebridge.numpy.clip",
    "linear": "x @ weight.T + bias",
    "mm": "tracebridge.numpy.matmul",
    "relu": "tracebridge.numpy.maximum(x, 0)",
    "sigmoid": "tracebridge.lax.logistic",
    "softmax": "tracebridge.numpy.exp, divided by its sum",
    "unsqueeze": "tracebridge.numpy.expand_dims",
}

_TORCH_IN_TRACES = (
    "tracebridge.torch.call_torch calls torch functions and modules from traced code, "
    "tracebridge.torch.from_module translates modules"
)


def refuse_tensor(x: Any, y: object) -> None:
    """Raise if ``x`` and ``y`` cannot be operands of one operator, and nobody else would say why.

    TensorFlow takes concrete arrays as operands of its own operators; nobody takes traced values.

    Raises:
        UnsupportedDtypeError: ``y`` is a tensor.
    """
    framework = framework_of(type(y))
    if framework == "torch" or (framework and x._trace is not None):
        what = "a traced value" if x._trace is not None else "an Array"
        raise UnsupportedDtypeError(
            f"an operator got {what} and a tensor of type {type(y).__name__}",
            hint=way_out_of(y),
        )


def torch_function(
    cls: type,
    func: object,
    types: Sequence[type],
    args: Sequence[Value] = (),
    kwargs: object = None,
) -> Any:
    """What torch calls when one of its functions gets a traced value.

    Raises:
        TracerArrayConversionError: names the function to use.
    """
    del types, kwargs
    name = str(getattr(func, "__name__", func))
    operands = [*args, *[x for a in args if isinstance(a, list | tuple) for x in a]]
    tracer = next((x for x in operands if isinstance(x, cls)), None)
    others = [x for x in operands if framework_of(type(x))]
    if others:
        hint = f"{way_out_of(others[0])}; {_TORCH_IN_TRACES}"
    else:
        ours = hasattr(sys.modules.get("tracebridge.numpy"), name)
        here = f"tracebridge.numpy.{name}" if ours else _OTHER_NAMES.get(name, "tracebridge.numpy")
        hint = (
            f"use {here} in functions that are traced (tracebridge.torch.wrap calls them on "
            f"tensors); {_TORCH_IN_TRACES}"
        )
    raise TracerArrayConversionError(tracer, f"torch.{name}", hint=hint)


def asker() -> str:
    """Which library asks a traced value for its elements, by the running frames."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tracebridge."):
        frame = frame.f_back
    package = "" if frame is None else frame.f_globals.get("__name__", "").partition(".")[0]
    return {"tensorflow": "TensorFlow", "keras": "Keras", "torch": "PyTorch"}.get(package, "")
