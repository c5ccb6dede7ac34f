"""Functions of modules with buffers and state: what they get, and what of the state they change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch._C._functorch import (
    get_unwrapped,
    is_functorch_wrapped_tensor,
    is_gradtrackingtensor,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import int32, is_bool, is_complex, is_inexact, uint32
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.prng.keys import implementation_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten, leaves_with_path
from tracebridge.random.keys import key_data, wrap_key_data
from tracebridge.torch._graphs.operator import SNAPSHOT

Words = Mapping[int, str]
"""Which leaves of a tree are keys, with their generators: modules hold the words, signed."""


class Extra(NamedTuple):
    """What the function of a module gets besides parameters: buffers, state, or both."""

    words: tuple[Words, ...]
    has_state: bool


def words_of_key(leaf: Any) -> tuple[str, Any] | None:
    """The generator and the words of a leaf that is an array of keys.

    The words are int32, because libraries that send buffers between processes know no uint32.
    """
    if type(leaf) is not Array:
        return None
    implementation = implementation_of(leaf.aval)
    if implementation is None:
        return None
    return implementation.name, lax.bitcast_convert_type(as_value(key_data(leaf)), int32)


@final
class Stateful:
    """``fun(params, [buffers], [state], ...)`` that gets and gives words in the place of keys.

    With state it returns the outputs and those leaves of the new state that are other ones, by
    their position. A state has no derivative.
    """

    def __init__(self, fun: Callable[..., Any], extra: Extra) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = name_of(fun)
        self.fun = fun
        self.extra = extra

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for i, words in enumerate(self.extra.words):
            leaves, tree = flatten(given[i])
            for k, name in words.items():
                leaves[k] = wrap_key_data(_unsigned(leaves[k]), impl=name)
            given[i] = tree.unflatten(leaves)
        if not self.extra.has_state:
            return self.fun(params, *given, **kwargs)
        place = len(self.extra.words) - 1
        # Before the call: the function may write to the containers.
        before = leaves_with_path(given[place])
        structure = flatten(given[place])[1]
        return self._changes(before, structure, self.fun(params, *given, **kwargs))

    def _changes(self, before: Sequence[Any], structure: Any, result: Any) -> tuple[Any, Any]:
        call = f"Module({self.__name__})"
        if not isinstance(result, tuple) or len(result) != 2:
            msg = f"{call}: the function returned a value of type {type(result).__name__}"
            raise ArgumentSpecError(msg, expected="(outputs, new state), because it has a state")
        outputs, new = result
        after, returned = flatten(new)
        if returned != structure:
            raise TreeMismatchError(
                f"{call}: the new state has another structure than the state",
                got=str(returned),
                expected=str(structure),
                hint="return each entry of the state, also those that do not change",
            )
        pairs = zip(before, after, strict=True)
        changed = {
            i: _as_before(f"{call}: state{keystr(path)}", x, old)
            for i, ((path, old), x) in enumerate(pairs)
            if x is not old
        }
        return outputs, changed


def _unsigned(words: Any) -> Any:
    value = as_value(words)
    return lax.bitcast_convert_type(value, uint32) if value.aval.dtype == int32 else value


def _as_before(where: str, new: Any, old: Any) -> Any:
    """A new leaf of the state in the dtype of the old one.

    Raises:
        ShapeMismatchError: it has another shape.
        DtypeMismatchError: it is a float, say, and the old one an integer.
    """
    value, before = as_value(new), as_value(old)
    if value.aval.shape != before.aval.shape:
        msg = f"{where} changes its shape"
        got, expected = value.aval.str_short(), before.aval.str_short()
        raise ShapeMismatchError(msg, got=got, expected=expected)
    keys = [implementation_of(x.aval) for x in (value, before)]
    if keys[0] is not keys[1] or (keys[0] is None and _kind(value) > _kind(before)):
        raise DtypeMismatchError(
            f"{where} changes its dtype",
            got=value.aval.str_short(),
            expected=before.aval.str_short(),
            hint="convert it: x.astype(old.dtype)",
        )
    if keys[0] is not None:
        return lax.bitcast_convert_type(as_value(key_data(value)), int32)
    return lax.stop_gradient(lax.convert_element_type(value, before.aval.dtype))


def _kind(x: Value) -> int:
    dtype = x.aval.dtype
    if is_inexact(dtype):
        return 3 if is_complex(dtype) else 2
    return int(not is_bool(dtype))


# the state of a module --------------------------------------------------------------------------


def snapshots(state: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a call reads: copies where a backward pass may need the values that it had.

    Dynamo reads these lines.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_exporting():
        return list(state)
    if torch.compiler.is_compiling():
        return [SNAPSHOT(x) for x in state]
    return [x.clone() for x in state]


def write_state(state: Sequence[torch.Tensor], changed: Mapping[int, torch.Tensor]) -> None:
    """Write new leaves in the place of the old ones. Dynamo reads these lines."""
    if torch.compiler.is_exporting():
        # torch.export.save refuses graphs with a block of no_grad that gives nothing.
        for i, new in changed.items():
            state[i].copy_(new.detach())
        return
    with torch.no_grad():
        if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
            for i, new in changed.items():
                _write_under_transforms(state[i], new)
        else:
            for i, new in changed.items():
                state[i].copy_(new)


def _write_under_transforms(old: torch.Tensor, new: torch.Tensor) -> None:
    """The same in a function that ``torch.func`` transforms.

    It refuses writes to tensors that the function closes over, because derivatives of what is
    written would be lost. A state has none, so that its value may go there.
    """
    value = new
    while is_gradtrackingtensor(value):
        value = get_unwrapped(value)
    if is_functorch_wrapped_tensor(old) or is_functorch_wrapped_tensor(value):
        old.copy_(new)
        return
    with temporarily_clear_interpreter_stack():
        old.copy_(value)
