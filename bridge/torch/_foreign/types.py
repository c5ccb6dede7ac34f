"""What a torch function gives, found by calling it with tensors without values."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode

from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.tree.tree import flatten
from tracebridge.interop.torch_adapter import TORCH_DTYPES
from tracebridge.torch._foreign.execute import alone


class Found(NamedTuple):
    """What a call does: its result, whether it draws random numbers, and what it changes."""

    result: Any
    draws: str  # the operation that draws random numbers, or ""
    written: tuple[int, ...]  # the arguments that it writes to
    written_state: tuple[str, ...]  # the parameters and buffers of a module that it writes to
    reads_history: bool  # whether it depends on a tensor that requires grad and is no argument


class _Draws(TorchDispatchMode):
    """Notes an operation that draws from torch's generators."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if torch.Tag.nondeterministic_seeded in func.tags and not self.name:
            self.name = func._schema.name.removeprefix("aten::")
        return func(*args, **(kwargs or {}))


def run_on_fakes(
    name: str,
    call: Callable[[Sequence[Any], dict[str, Any]], Any],
    avals: Sequence[ShapedArray],
    state: dict[str, torch.Tensor],
) -> Found:
    """Call ``call(tensors, state)`` with tensors of these types that have no values.

    Raises:
        CallbackError: the call failed.
    """
    check_static(name, avals)
    draws = _Draws()
    with alone(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [_fake(a) for a in avals]
        fake_state = {k: mode.from_tensor(v, static_shapes=True) for k, v in state.items()}
        versions = [t._version for t in (*fakes, *fake_state.values())]
        try:
            with draws, _quiet():
                result = call(fakes, fake_state)
        except Exception as error:
            raise _failure(name, error) from error
        n = len(fakes)
        moved = [
            i for i, t in enumerate((*fakes, *fake_state.values())) if t._version != versions[i]
        ]
        own = any([t.requires_grad for t in fakes])  # the function has made it so
        tensors = [t for t in flatten(result)[0] if isinstance(t, torch.Tensor)]
        reads_history = not own and any([t.requires_grad for t in tensors])
    names = list(fake_state)
    return Found(
        result,
        draws.name,
        tuple([i for i in moved if i < n]),
        tuple([names[i - n] for i in moved if i >= n]),
        reads_history,
    )


def runs_on_fakes(run: Callable[..., Any], avals: Sequence[ShapedArray]) -> bool:
    """Whether a function of tensors can be called with these types at all."""
    try:
        with alone(), _quiet(), FakeTensorMode(allow_non_fake_inputs=True):
            run(*[_fake(a) for a in avals])
    except Exception:  # noqa: BLE001 - torch.func refuses with errors of many kinds
        return False
    return True


def _failure(name: str, error: Exception) -> CallbackError:
    text = f"{type(error).__name__}: {error}".split("\n")[0]
    if not isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return CallbackError(f"{name}: the function raised {text}")
    msg = f"{name}: types of the results depend on values ({error.func})"
    hint = (
        "the function is called with tensors without values first, to find the types: "
        "declare them by result_shape_dtypes=..."
    )
    return CallbackError(msg, hint=hint)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Torch logs what fails here with its whole traceback; it is raised or means something."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addFilter(_drop)
    try:
        yield
    finally:
        logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    del record
    return False


def check_static(name: str, avals: Sequence[ShapedArray]) -> None:
    """Raise if a size is not known: torch is called with tensors of given shapes.

    Raises:
        ArgumentSpecError: names the type.
    """
    for aval in avals:
        if not all([type(d) is int for d in aval.shape]):
            msg = f"{name}: an argument of type {aval.str_short()} has sizes that are not known"
            raise ArgumentSpecError(msg, hint="call it with static shapes, or use from_module")


def _fake(aval: ShapedArray) -> torch.Tensor:
    return torch.empty(aval.shape, dtype=TORCH_DTYPES[aval.dtype], device="cpu")
