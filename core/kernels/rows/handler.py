"""What XLA calls of a kernel over rows: a handler of its typed FFI, written as LLVM's text.

Rows are done in blocks, whose number depends on the shape only, so results do not
depend on the number of threads. The caller takes blocks like all threads of XLA's pool that come to
help, and waits only for those that have begun: it ends even if the whole pool waits in such calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracebridge.core.kernels.interface import BEGINNING, SHARED, attribute_at, pointers
from tracebridge.core.kernels.own_threads import IS_X86, direct_entry, run_call
from tracebridge.core.kernels.sharing import (
    HELP,
    LEFT,
    SHARED_OUT,
    STATE_BLOCKS,
    STATE_COLUMNS,
    STATE_PER_BLOCK,
    STATE_ROWS,
    arrays_of_block,
    state,
)
from tracebridge.core.kernels.waiting import ENTRY

if TYPE_CHECKING:
    from tracebridge.core.kernels.rows.program import RowProgram

_BLOCK = 1 << 14  # elements: some microseconds of work
_LEAST_SHARED = 1 << 18  # elements: to wake a thread takes 30 us, which 100,000 exponentials take
_MOST_BLOCKS = 64
_MOST_WITH_COLUMNS = 32  # each block has a row of sums: memory of 128 KB is cleared in each call
_LEAST_SUMMED = 4  # rows for each of those
_SUMMED = 16  # columns at a time
_APART = 128  # bytes: two cache lines, which processors fetch together
LINE = 64  # bytes of a cache line
_LEAST_STREAMED = 1 << 24  # bytes that are read and written: half of a large cache of all cores


class Interface(NamedTuple):
    """What a kernel reads and writes: how many arrays, rows of which length.

    ``columns``: the arrays that are sums over all rows. ``streamed``: those that are written line
    by line, past the caches if they are large; ``moved``: bytes of a row or unit of rows. ``real``:
    LLVM's type of numbers, and ``itemsize`` its bytes.
    """

    n_in: int
    n_out: int
    length: int
    columns: tuple[int, ...] = ()
    streamed: tuple[int, ...] = ()
    moved: int = 0
    real: str = "float"
    itemsize: int = 4

    @classmethod
    def of(cls, program: RowProgram, streamed: tuple[int, ...] = (), moved: int = 0) -> Interface:
        """Of a program over rows."""
        columns = tuple([r.place.operand for r in program.results if r.kind == "columns"])
        n_in = len(program.jaxpr.in_avals)
        frame = program.frame
        return cls(
            n_in, program.n_arrays, program.length, columns, streamed, moved,
            frame.real, frame.dtype.itemsize,
        )  # fmt: skip

    @property
    def bytes_of_sums(self) -> int:
        """Of the sums of a block: no two blocks write to the same cache lines."""
        size = self.itemsize * len(self.columns) * self.length
        return -(-size // _APART) * _APART


def module_text(arrays: Interface, rows: str) -> str:
    """The whole module of a kernel, whose function ``@rows`` is the text ``rows``."""
    n = arrays.n_in + arrays.n_out
    parts = [rows, _block(arrays), SHARED, HELP, _sums(arrays), _run(arrays), _handler(arrays)]
    direct = [direct_entry(n)] if IS_X86 else []
    return "\n".join([*parts, *direct, "!0 = !{i32 1}"])  # what marks stores past the caches


def shares(n_rows: int, length: int, n_columns: int) -> tuple[int, int, int]:
    """The attribute of a call: numbers of rows, of rows in a block, of blocks."""
    most = _MOST_BLOCKS
    if n_columns:
        few = max(n_rows // (_LEAST_SUMMED * n_columns), min(2, n_rows // 2))
        most = min(_MOST_WITH_COLUMNS, few)
    if n_rows * length < _LEAST_SHARED:
        most = 1
    n_blocks = max(1, min(most, n_rows, n_rows * length // _BLOCK))
    per_block = -(-n_rows // n_blocks)
    return n_rows, per_block, -(-n_rows // per_block)


def _block(arrays: Interface) -> str:
    """``@block``: the rows of one block, with its part of the sums of columns."""
    size = arrays.itemsize * len(arrays.columns) * arrays.length
    lines = ["define internal void @block(ptr %state, i64 %b) {", "entry:"]
    found, names = arrays_of_block(arrays.n_in, arrays.n_in + arrays.n_out)
    lines += found
    for name, place, kind in (
        ("rows", STATE_ROWS, "i64"),
        ("per_block", STATE_PER_BLOCK, "i64"),
        ("columns", STATE_COLUMNS, "ptr"),
    ):
        lines += [f"%{name}.at = getelementptr i8, ptr %state, i64 {place}"]
        lines += [f"%{name} = load {kind}, ptr %{name}.at"]
    lines += [
        "%from = mul nuw nsw i64 %b, %per_block",
        "%full = add nuw nsw i64 %from, %per_block",
        "%over = icmp ugt i64 %full, %rows",
        "%to = select i1 %over, i64 %rows, i64 %full",
        f"%first = mul nuw nsw i64 %b, {arrays.bytes_of_sums}",
        "%mine = getelementptr i8, ptr %columns, i64 %first",
    ]
    if size:
        lines += [f"call void @llvm.memset.p0.i64(ptr %mine, i8 0, i64 {size}, i1 false)"]
    given = [*[f"ptr {name}" for name in names], "i64 %from", "i64 %to", "ptr %mine"]
    if arrays.streamed:
        lines += _is_streamed(arrays)
        given.append("i1 %past")
    return "\n".join([*lines, f"call void @rows({', '.join(given)})", "ret void", "}"])


def _is_streamed(arrays: Interface) -> list[str]:
    """``%past``: whether arrays are large, and begin with a line, as XLA's do.

    What reads the results of smaller ones finds them in a cache. The caller sees such stores when
    the block is counted: an atomic addition waits for them.
    """
    lines = [f"%large = icmp uge i64 %rows, {-(-_LEAST_STREAMED // arrays.moved)}"]
    bits = "0"
    for k in arrays.streamed:
        lines += [
            f"%number{k} = ptrtoint ptr %out{k} to i64",
            f"%bits{k} = or i64 {bits}, %number{k}",
        ]
        bits = f"%bits{k}"
    return [
        *lines,
        f"%within = and i64 {bits}, {LINE - 1}",
        "%begins = icmp eq i64 %within, 0",
        "%past = and i1 %large, %begins",
    ]


def _sums(arrays: Interface) -> str:
    """``@sums``: the sums of columns from those of all blocks, some columns at a time.

    The last vector of a row overlaps the one before, where the length is no multiple.
    """
    length, step = arrays.length, arrays.bytes_of_sums // arrays.itemsize
    width = min(_SUMMED, 1 << (length.bit_length() - 1))
    real, size = arrays.real, arrays.itemsize
    vector, last = f"<{width} x {real}>", length - width
    zeros = f"<{', '.join([f'{real} -0.0'] * width)}>"
    lines = ["define internal void @sums(ptr %buffers, ptr %columns, i64 %blocks) {", "entry:"]
    for c, k in enumerate(arrays.columns):
        p = f"%c{c}"
        lines += [
            f"{p}.at = getelementptr ptr, ptr %buffers, i64 {arrays.n_in + k}",
            f"{p}.out = load ptr, ptr {p}.at",
            f"br label {p}.begin", f"c{c}.begin:", f"br label {p}.column", f"c{c}.column:",
            f"{p}.j = phi i64 [0, {p}.begin], [{p}.next, {p}.stored]",
            f"{p}.first = add nuw nsw i64 {p}.j, {c * length}",
            f"br label {p}.block", f"c{c}.block:",
            f"{p}.b = phi i64 [0, {p}.column], [{p}.following, {p}.block]",
            f"{p}.total = phi {vector} [{zeros}, {p}.column], [{p}.sum, {p}.block]",
            f"{p}.shift = mul nuw nsw i64 {p}.b, {step}",
            f"{p}.place = add nuw nsw i64 {p}.first, {p}.shift",
            f"{p}.from = getelementptr {real}, ptr %columns, i64 {p}.place",
            f"{p}.part = load {vector}, ptr {p}.from, align {size}",
            f"{p}.sum = fadd {vector} {p}.total, {p}.part",
            f"{p}.following = add nuw nsw i64 {p}.b, 1",
            f"{p}.more = icmp ult i64 {p}.following, %blocks",
            f"br i1 {p}.more, label {p}.block, label {p}.stored", f"c{c}.stored:",
            f"{p}.to = getelementptr {real}, ptr {p}.out, i64 {p}.j",
            f"store {vector} {p}.sum, ptr {p}.to, align {size}",
            f"{p}.after = add nuw nsw i64 {p}.j, {width}",
            f"{p}.is_last = icmp ugt i64 {p}.after, {last}",
            f"{p}.next = select i1 {p}.is_last, i64 {last}, i64 {p}.after",
            f"{p}.again = icmp ult i64 {p}.j, {last}",
            f"br i1 {p}.again, label {p}.column, label {p}.end", f"c{c}.end:",
        ]  # fmt: skip
    return "\n".join([*lines, "ret void", "}"])


def _run(arrays: Interface) -> str:
    """``@run``: all blocks, whoever calls."""
    columns = arrays.columns
    names = [f"%b{i}" for i in range(arrays.n_in + arrays.n_out)]
    given = ["ptr %api", "ptr %context", "ptr %numbers", *[f"ptr {name}" for name in names]]
    lines = [f"define internal void @run({', '.join(given)}) noinline {{", "entry:"]
    lines += state(names)
    if columns:
        lines += [
            f"%blocks.at = getelementptr i8, ptr %state, i64 {STATE_BLOCKS}",
            "%blocks = load i64, ptr %blocks.at",
            f"%of.blocks = mul nuw nsw i64 %blocks, {arrays.bytes_of_sums}",
            f"%size = add nuw nsw i64 %of.blocks, {2 * _APART}",
            "%memory = call ptr @malloc(i64 %size)",
            f"%inside = getelementptr i8, ptr %memory, i64 {2 * _APART}",
            "%number.inside = ptrtoint ptr %inside to i64",
            f"%number.first = and i64 %number.inside, {-_APART}",
            "%columns = inttoptr i64 %number.first to ptr",
        ]
    lines += [
        f"%columns.at = getelementptr i8, ptr %state, i64 {STATE_COLUMNS}",
        f"store ptr {'%columns' if columns else 'null'}, ptr %columns.at",
        SHARED_OUT,
    ]
    if columns:
        lines += ["call void @sums(ptr %buffers, ptr %columns, i64 %blocks)"]
        lines += ["call void @free(ptr %memory)"]
    return "\n".join([*lines, LEFT, "ret void", "}"])


def _handler(arrays: Interface) -> str:
    lines = [f"define ptr @{ENTRY}(ptr %frame) {{", "entry:", *BEGINNING, *attribute_at()]
    found, names = pointers(arrays.n_in, arrays.n_in + arrays.n_out)
    call = run_call("%api", [f"ptr {name}" for name in names])
    return "\n".join([*lines, *found, call, "ret ptr null", "}"])
