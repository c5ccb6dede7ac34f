"""The contents of mutable references in the programs that are being traced."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.config.state import settled_state
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.interpreters.batching import BatchTrace
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.trace import Trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import different_types, is_user_type
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.control.refs.ref import Ref
    from tracebridge.core.ir.value import Operand


class HasContent(abc.ABC):
    """Something with a content of type ``inner_aval``: a reference, a part of one, its type."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def inner_aval(self) -> ShapedArray:
        """Type of the content."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the content."""
        return self.inner_aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the content."""
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        """Number of axes of the content."""
        return self.inner_aval.ndim

    @property
    def size(self) -> Any:
        """Number of elements of the content."""
        return self.inner_aval.size

    @property
    def weak_type(self) -> bool:
        """Whether the content is weakly typed."""
        return self.inner_aval.weak_type


@public_path("tracebridge.ref")
@final
class AbstractRef(HasContent):
    """The type of a reference: that of its content, and where and how it is kept."""

    __slots__ = ("_inner", "kind", "memory_space")

    def __init__(self, inner_aval: ShapedArray, memory_space: Any = None, kind: Any = None) -> None:
        self._inner = inner_aval
        self.memory_space = memory_space
        self.kind = kind

    @property
    def inner_aval(self) -> ShapedArray:
        """Type of the content."""
        return self._inner

    @property
    def sharding(self) -> Any:
        """How the type divides the content; a property of arrays as well."""
        return self.inner_aval.sharding

    def _key(self) -> tuple[Any, ...]:
        return self.inner_aval, self.memory_space, self.kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def str_short(self) -> str:
        """The form of messages, such as ``Ref{f32[3]}``."""
        return f"Ref{{{self.inner_aval.str_short()}}}"

    def with_content(self, value: object) -> str:
        """The form of a reference with this content."""
        text = repr(value)
        if is_user_type(self.inner_aval):
            return f"Ref({text})"
        return f"Ref({text[len('Array(') : -1]})" if text.startswith("Array(") else f"{self}"

    def __repr__(self) -> str:
        if is_user_type(self.inner_aval):
            return self.str_short()
        dtype, shape = self.inner_aval.dtype.name, self.inner_aval.shape
        return f"Ref{{{dtype}[{','.join(map(str, shape))}]}}"


@final
class Cell:
    """The content of a reference within one traced program, or outside of all.

    ``owner``: the trace whose tracers the content may be (None: arrays only). ``entered``:
    whether the content came from outside the program. ``shared``: whether others may hold the
    array, so that its memory can't be given to a program.
    """

    __slots__ = ("entered", "owner", "shared", "value", "written")

    def __init__(self, value: Any, owner: Trace | None, *, entered: bool) -> None:
        self.value = value
        self.owner = owner
        self.entered = entered
        self.shared = True
        self.written = False


def active_trace() -> Trace | None:
    """The current trace, None outside of all."""
    current = settled_state()
    return None if current is None else current.trace


def trace_below(trace: object) -> Trace | None:
    """The trace on which ``trace`` runs operations; None for those that stage a program."""
    parent = getattr(trace, "parent", None)
    if parent is None:
        owner = getattr(trace, "owner", None)
        parent = None if owner is None else owner.parent
    return parent


def frame_of(trace: object) -> Any:
    """The innermost trace that stages a program and that ``trace`` runs on, or None."""
    while trace is not None and not hasattr(trace, "captures"):
        trace = trace_below(trace)
    return trace


@final
class Captures:
    """The references that a function uses while it is staged, as inputs and results.

    ``refs``: those that were made outside, in the order of their extra inputs. ``written``: for
    each whether it has an extra result too. ``custom``: whether a function with a custom
    derivative rule uses references and ran in place, so that the program has lost its rule.
    """

    __slots__ = ("_cells", "_inputs", "custom", "refs", "written")

    def __init__(self) -> None:
        self.custom = False
        self.refs: list[Ref] = []
        self.written: list[bool] = []
        self._cells: list[Cell] = []
        self._inputs: list[Any] = []

    def cell(self, ref: Ref, trace: Any) -> Cell:
        """The cell of ``ref`` in the program that ``trace`` stages."""
        for known, cell in zip(self.refs, self._cells, strict=True):
            if known is ref:
                return cell
        value = trace.input(ref.inner_aval, 0)
        value.source = None  # it stands for no argument, so messages can't name one
        cell = Cell(value, trace, entered=True)
        self.refs.append(ref)
        self._cells.append(cell)
        self._inputs.append(value)
        return cell

    def close(
        self, inputs: Sequence[object], outputs: Sequence[object]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """The inputs and results of the program with those of the references behind them."""
        if not self.refs:
            return inputs, outputs
        self.written = [cell.written for cell in self._cells]
        finals = [cell.value for cell in self._cells if cell.written]
        whole = [*inputs, *self._inputs], [*outputs, *finals]
        # Tracers end with the trace: only the references are kept.
        self._cells, self._inputs = [], []
        return whole


def is_differentiated() -> bool:
    """Whether operations run on a trace that differentiates the current program."""
    trace: Any = active_trace()
    while trace is not None and not hasattr(trace, "captures"):
        if not isinstance(trace, BatchTrace) and trace_below(trace) is not None:
            return True
        trace = trace_below(trace)
    return False


def note_custom(call: str) -> None:
    """Note that ``call`` runs in place in the program that is being traced.

    Raises:
        RefError: the program is to be differentiated, which would miss its rule.
    """
    frame = frame_of(active_trace())
    if is_differentiated() or (frame is not None and frame.captures is None):
        msg = f"{call}: a function with a custom derivative rule uses references"
        raise RefError(
            msg,
            hint="differentiate it directly or inside jit; inside vmap, loops and branches that "
            "are differentiated its rule could not reach them",
        )
    if frame is not None:
        frame.captures.custom = True


def refuse_captures(name: str) -> RefError:
    """The error of places that can't pass references through a program."""
    return RefError(
        f"{name} uses a reference that was made outside of it; it is compiled or exported as a "
        "pure function here",
        hint="call the function of jit itself, or pass arrays and return the new ones",
    )


def content_of_user(call: str, aval: ShapedArray, value: Operand, *, whole: bool) -> Any:
    """``value`` as the content of a reference of a type of users; parts of it can't be written."""
    x = as_value(value, call)
    if not whole:
        raise RefError(
            call=call,
            got="a part of the content, or an addition",
            expected=f"ref[...] = value: the content is one value of type {aval.str_short()}",
        )
    if different_types(x.aval, aval):
        raise DtypeMismatchError(
            call=call,
            got=f"a value of type {x.aval.str_short()}",
            expected=f"{aval.str_short()}, the type of the reference",
        )
    return x
