"""Mutable array references: a box whose content operations read and replace.

Programs stay pure. A traced function sees the content of a reference as one more argument and
gives the last content as one more result; the places that trace functions of the user
(``jit``, the bodies of control flow) pass a ``Captures`` to ``stage`` for that. See
docs/decisions/0012-references-are-boxes.md.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.refs.cells import (
    AbstractRef,
    Cell,
    HasContent,
    active_trace,
    content_of_user,
    frame_of,
    trace_below,
)
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.shape_errors import IndexingError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.batching import BatchTrace
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.trace import Trace, is_eager
from tracebridge.core.ir.typeof import as_value, register_value_type
from tracebridge.core.ir.user_type import is_user_type
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.elementwise.convert import convert_dtype
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand


_PYTHON_SCALARS = (bool, int, float, complex)


# the class ---------------------------------------------------------------------------------------


class _Access(HasContent):
    """What references and parts of them have in common."""

    __slots__ = ("__weakref__",)

    @abc.abstractmethod
    def _read(self, index: object) -> Any:
        """The elements at an index."""

    @abc.abstractmethod
    def _update(self, call: str, index: object, value: object, *, add: bool) -> None:
        """Replace the elements at an index, or add to them."""

    @property
    def at(self) -> _At:
        """``ref.at[index]`` is the part of the reference at ``index``, itself a reference."""
        return _At(self)

    def get(self, idx: object = None) -> Any:
        """The content, or its elements at ``idx``."""
        return self._read(idx)

    def set(self, value: object, idx: object = None) -> None:
        """Replace the content, or its elements at ``idx``."""
        self._update("set", idx, value, add=False)

    def swap(self, value: object, idx: object = None) -> Any:
        """Replace the content, or its elements at ``idx``; gives what was there."""
        before = self._read(idx)
        self._update("swap", idx, value, add=False)
        return before

    def addupdate(self, x: object, idx: object = None) -> None:
        """Add to the elements at ``idx``; an element that occurs several times gets every term."""
        self._update("addupdate", idx, x, add=True)

    def __getitem__(self, index: object) -> Any:
        return self._read(index)

    def __setitem__(self, index: object, value: Any) -> None:
        self._update("set", index, value, add=False)

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            msg = f"len() of a reference of type {self.inner_aval.str_short()}"
            raise TypeError(msg)
        return shape[0]

    # Without these two Python and NumPy would read element by element through __getitem__.
    __iter__ = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise _no_array(self)


@public_path("tracebridge")
@final
class Ref(_Access):
    """A mutable array: ``ref[...]`` reads its content, ``ref[...] = x`` replaces it.

    Made by ``new_ref``. Two references are equal only if they are the same object.
    """

    __slots__ = ("_cell", "_closed", "_frame", "_type")
    _cell: Cell
    _closed: str  # why it can't be used, or empty
    _frame: Any  # the trace of the program in which it was made; None outside of all
    _type: AbstractRef

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        msg = "Ref() makes no reference"
        raise RefError(msg, hint="make one with tracebridge.new_ref(value)")

    @property
    def inner_aval(self) -> ShapedArray:
        """Type of the content."""
        return self._type.inner_aval

    def __getattr__(self, name: str) -> AbstractRef:
        """``aval``, the type of the reference; ``inner_aval`` is that of its content."""
        # Not on the class: by the attribute of a class the engine tells values from other objects.
        if name == "aval":
            return self._type
        msg = f"'Ref' object has no attribute {name!r}"
        raise AttributeError(msg)

    @property
    def __tracebridge_typeof__(self) -> AbstractRef:
        return self._type

    @property
    def sharding(self) -> Any:
        """Where the content is."""
        return self._here("sharding").value.sharding

    @property
    def committed(self) -> bool:
        """Whether the content is bound to its place."""
        return self._here("committed").value.committed

    def unsafe_buffer_pointer(self) -> int:
        """Address of the content; changes with each write."""
        return self._here("unsafe_buffer_pointer").value.unsafe_buffer_pointer()

    def _here(self, call: str) -> Cell:
        """The cell of the program that is being traced, or the one outside of all."""
        if self._closed:
            msg = f"{call}: the reference {self._type.str_short()} {self._closed}"
            raise RefError(msg, hint="read the reference before, or make another one with new_ref")
        own = self._frame
        trace = active_trace()
        frame = None if trace is None else frame_of(trace)
        if own is not None and own.done:
            raise _leaked(self)
        if frame is own or frame is None:
            return self._cell
        if frame.captures is None:
            debug: DebugInfo = frame.debug
            msg = (
                f"{call}: the reference {self._type.str_short()} is used inside {debug.name}, "
                "which is traced as a pure function"
            )
            raise RefError(
                msg,
                where=debug.where,
                hint="read it before and pass the array, or write what the function returns",
            )
        return frame.captures.cell(self, frame)

    def _read(self, index: object) -> Any:
        value = read_ref(self)
        return value if _is_whole(index) else value[_checked(index, self.shape)]

    def _update(self, call: str, index: Any, value: Any, *, add: bool) -> None:
        cell = self._here(call)
        aval = self._type.inner_aval
        if is_user_type(aval):
            whole = _is_whole(index) and not add
            _store(call, self, cell, content_of_user(call, aval, value, whole=whole))
            return
        new = _fitting(call, value, aval)
        if not _is_whole(index):
            place = cell.value.at[_checked(index, aval.shape)]
            new = place.add(new) if add else place.set(new)
        elif add or new.aval.shape != aval.shape:
            place = cell.value.at[...]
            new = place.add(new) if add else place.set(new)
        _store(call, self, cell, new)

    def __repr__(self) -> str:
        if self._closed:
            return f"{self._type!r} that {self._closed}"
        return self._type.with_content(self._cell.value)

    def __copy__(self) -> Ref:
        return self

    def __reduce__(self) -> Any:
        raise _no_array(self)


@final
class RefView(_Access):
    """The part of a reference at an index: reads and writes go to the reference."""

    __slots__ = ("_type", "base", "index")

    def __init__(self, base: _Access, index: Any) -> None:
        self.base = base
        self.index = index
        self._type: Any = None

    @property
    def inner_aval(self) -> ShapedArray:
        """Type of the part."""
        if self._type is None:
            self._type = self.base._read(self.index).aval
        return self._type

    def _read(self, index: object) -> Any:
        part = self.base._read(self.index)
        return part if _is_whole(index) else part[_checked(index, part.aval.shape)]

    def _update(self, call: str, index: object, value: Any, *, add: bool) -> None:
        if _is_whole(index):
            self.base._update(call, self.index, value, add=add)
            return
        part = self.base._read(self.index)
        place = part.at[_checked(index, part.aval.shape)]
        new = _fitting(call, value, part.aval)
        changed = place.add(new) if add else place.set(new)
        self.base._update(call, self.index, changed, add=False)

    def __repr__(self) -> str:
        return f"{self.base!r}.at[{self.index!r}]"


@final
class _At:
    """``ref.at``: indexing it gives a part of the reference."""

    __slots__ = ("_base",)

    def __init__(self, base: _Access) -> None:
        self._base = base

    def __getitem__(self, index: object) -> RefView:
        return RefView(self._base, index)


# making and ending -------------------------------------------------------------------------------


def make_ref(value: Any, kind: Any = None, *, entered: bool = False) -> Ref:
    """A reference in the current program whose content is ``value``."""
    trace = active_trace()
    ref = object.__new__(Ref)
    ref._type = AbstractRef(value.aval, None, kind)
    ref._cell = Cell(_settled(value), trace, entered=entered)
    ref._frame = None if trace is None else frame_of(trace)
    ref._closed = ""
    return ref


def end_ref(call: str, ref: object, reason: str) -> Any:
    """The last content of ``ref``, which can't be used any more."""
    if not isinstance(ref, Ref):
        raise RefError(call=call, got=f"{type(ref).__name__}", expected="a reference of new_ref")
    cell: Cell = ref._here(call)
    if cell.entered or cell is not ref._cell:
        msg = f"{call}: the reference {ref._type.str_short()} was made outside this function"
        raise RefError(msg, hint=f"call {call} where the reference was made, or read it here")
    ref._closed = reason
    value, cell.value = cell.value, None
    return value


def final_of(ref: Ref) -> Any:
    """The last content of a reference made by ``make_ref(entered=True)``; None if unchanged."""
    cell = ref._cell
    return cell.value if cell.written else None


def lend(ref: Ref, reason: str) -> Any:
    """The content of ``ref``, which can't be used until ``take_back``."""
    value = read_ref(ref)
    ref._closed = reason
    return value


def take_back(ref: Ref) -> None:
    """End ``lend``."""
    ref._closed = ""


def read_ref(ref: Ref) -> Any:
    """The content of ``ref`` as a value of the program that is being traced."""
    cell = ref._here("get")
    cell.shared = True
    return cell.value


def content_to_pass(ref: Ref) -> Any:
    """The content, for a compiled program that does not keep it."""
    return ref._here("get").value


def content_to_consume(ref: Ref) -> Any:
    """The content, or a copy if others may hold it, for a program that writes to its memory."""
    cell = ref._here("set")
    return lax.copy(cell.value) if cell.shared else cell.value


def write_ref(ref: Ref, value: object, *, fresh: bool = False) -> None:
    """Replace the content by a value of its type; ``fresh``: nobody else holds that array."""
    cell = ref._here("set")
    _store("set", ref, cell, value)
    cell.shared = not fresh


def outer_refs(refs: Sequence[Ref]) -> bool:
    """Whether all were made outside of all traces, so that a trace may remember them."""
    return all([r._frame is None for r in refs])


# values ------------------------------------------------------------------------------------------


def _is_whole(index: object) -> bool:
    # By identity: entries may be arrays, which have no plain equality.
    if type(index) is tuple:
        return not index or (len(index) == 1 and index[0] is ...)
    return index is None or index is ...


def _checked(index: object, shape: tuple[object, ...]) -> Any:
    """The index; raises where a Python integer is out of bounds."""
    parts = index if type(index) is tuple else (index,)
    if any([type(p) is int for p in parts]) and not any([p is None for p in parts]):
        n_after = next((len(parts) - 1 - i for i, p in enumerate(parts) if p is ...), None)
        for i, p in enumerate(parts):
            if type(p) is not int:
                continue
            from_end = n_after is not None and i > len(parts) - 1 - n_after
            axis = len(shape) - len(parts) + i if from_end else i
            if axis < len(shape) and isinstance(size := shape[axis], int) and not -size <= p < size:
                msg = f"index {p} is out of bounds for axis {axis} of size {size} of a reference"
                raise IndexingError(msg)
    return index


def _fitting(call: str, value: Operand, aval: ShapedArray) -> Any:
    """``value`` in the dtype of the reference; its shape is not checked here."""
    x = as_value(value, call)
    if x.aval.dtype == aval.dtype:
        return x
    kinds = "biufcV"
    weak = x.aval.weak_type or type(value) in _PYTHON_SCALARS
    if weak and kinds.index(x.aval.dtype.kind) <= kinds.index(aval.dtype.kind):
        return convert_dtype(x, aval.dtype)
    raise DtypeMismatchError(
        call=call,
        got=f"a value of type {x.aval.str_short()}",
        expected=f"dtype {aval.dtype.name}, that of the reference",
        hint="convert the value with astype",
    )


def _settled(value: object) -> Any:
    """Outside of traces a number becomes an array, so that users read arrays."""
    return to_array(value) if type(value) is Literal and is_eager() else value


def _store(call: str, ref: Ref, cell: Cell, value: Any) -> None:
    aval = ref._type.inner_aval
    value = convert_dtype(value, aval.dtype, aval.weak_type)
    trace = value._trace
    if trace is not None and trace is not cell.owner:
        _check_level(call, ref, cell.owner, trace)
    cell.value = _settled(value)
    cell.written = True
    cell.shared = True


def _check_level(call: str, ref: Ref, owner: Trace | None, trace: Trace) -> None:
    """Raise if ``trace`` maps or differentiates a function around which the reference was made."""
    lower: Any = trace
    while lower is not None:
        lower = trace_below(lower)
        if lower is owner or (lower is None and owner is None and frame_of(trace) is None):
            batched = isinstance(trace, BatchTrace)
            kind = "mapped by vmap" if batched else "being differentiated"
            inside = "vmap" if batched else "grad, jvp or vjp"
            unbatched = "is unbatched: it " if batched else ""
            msg = (
                f"{call}: the value is {kind}, but the reference {ref._type.str_short()} "
                f"{unbatched}was made outside of that {inside}"
            )
            hint = (
                "make the reference an argument that vmap maps, or make it inside the function"
                if batched
                else "write stop_gradient(value), or make the reference inside the function"
            )
            raise RefError(msg, hint=hint)


def _leaked(ref: Ref) -> UnexpectedTracerError:
    debug: DebugInfo = ref._frame.debug
    return UnexpectedTracerError(
        f"the reference {ref._type.str_short()} was made while {debug.name} was traced, and is "
        "used after that tracing ended: it has leaked"
    )


def _no_array(ref: Any) -> RefError:
    kind = AbstractRef(ref.inner_aval).str_short() if isinstance(ref, RefView) else ref._type
    return RefError(
        f"got a reference {kind} where an array is expected",
        hint="read its content with ref[...]; references can't be results or carries of "
        "transformed functions, nor be differentiated backwards: close over them instead",
    )


def _refuse(ref: object) -> Any:
    raise _no_array(ref)


register_value_type(Ref, _refuse)
register_value_type(RefView, _refuse)


# references in trees -----------------------------------------------------------------------------


@final
class RefNode:
    """Stands for a reference in the structure of a tree."""

    __slots__ = ("ref",)

    def __init__(self, ref: _Access) -> None:
        self.ref = ref


def _put_together(ref: object, children: object) -> Any:
    # The reference again: the node exists only inside flattened trees.
    del children
    return ref


register_pytree_node(RefNode, lambda node: ((), node.ref), _put_together)


def has_refs(leaves: Sequence[object]) -> bool:
    """Whether a leaf is a reference, or a part of one."""
    return any([type(x) is Ref or type(x) is RefView for x in leaves])


def check_passed_once(
    call: str, leaves: Sequence[object], names: Callable[[], Sequence[str]] | None = None
) -> None:
    """Raise if one reference occurs twice among the arguments of ``call``; ``names`` are theirs."""
    refs = [i for i, x in enumerate(leaves) if type(x) is Ref]
    if len({id(leaves[i]) for i in refs}) == len(refs):
        return
    called = range(len(leaves)) if names is None else names()
    passed: Any = [(str(called[i]), leaves[i]) for i in refs]
    check_distinct(call, passed, ())


def hide_refs(leaves: Sequence[Any], tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure of the same tree with references as part of the structure."""
    return flatten(tree.unflatten([RefNode(x) if isinstance(x, _Access) else x for x in leaves]))


def check_distinct(call: str, refs: Sequence[tuple[str, Ref]], captured: Sequence[Ref]) -> None:
    """Raise if one reference is passed twice, or passed and closed over."""
    for i, (name, ref) in enumerate(refs):
        for other, again in refs[:i]:
            if again is ref:
                msg = f"{call}: one reference {ref._type.str_short()} is passed twice"
                hint = "pass it once"
                raise RefError(msg, where=f"arguments {other} and {name}", hint=hint)
        if any([c is ref for c in captured]):
            msg = f"{call}: the reference {ref._type.str_short()} is passed and closed over"
            raise RefError(msg, where=f"argument {name}", hint="do one of both")
