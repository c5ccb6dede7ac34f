"""How the blocks of a call are shared among threads, as LLVM's text.

The caller takes blocks like all threads that come to help, and waits only for those that have
begun: it ends even if the whole pool waits in such calls. Each thread begins in a region of its own
and goes through it from block to block, then helps in the next ones: memory that is read and
written in order takes less time than when threads alternate (the gradient of a softmax of 4 million
elements 0.9 ms instead of 1.2 on two cores). To wake a thread of XLA's pool takes up
to 100 us, so one that has helped stays awake for a moment, in a seat where the next caller, of any
kernel, finds it. It gives its core to whoever wants it; so it may not run when it is asked, and a
caller who has done a block and finds its question unanswered wakes a thread after all.

A seat is one word: 0 is free, 1 has a helper that waits, anything else is the state of a call.
Seats are memory of the process that all kernels know by ``SEATS``. A call without XLA
(``own_threads.py``) has no API, and as its context the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracebridge.core.kernels.interface import ANSWERS, DESCRIBE, MEMORY
from tracebridge.core.kernels.own_threads import FLUSH, IS_X86, OWN_THREADS, SET_FLAGS

SEATS = "tracebridge_seats"
"""The symbol of the memory for seats, zeros at first; each stands in a cache line of its own."""
N_SEATS, SEAT_BYTES = 16, 64
_MOMENT = 100_000  # ns: what it takes to wake a thread

_MOST_REGIONS = 16
# The state of a call: how many threads have come first, counters in cache lines of their own, then
# what blocks read, and of each region how many of its blocks are taken, in lines of their own too.
STATE_DONE, STATE_USERS = 64, 128
STATE_ROWS, STATE_PER_BLOCK, STATE_BLOCKS = 192, 200, 208
STATE_COLUMNS, STATE_WORK, STATE_REGIONS, STATE_BLOCK = 216, 224, 232, 240
_STATE_TAKEN, _LINE = 256, 64
STATE_BUFFERS = _STATE_TAKEN + _MOST_REGIONS * _LINE

_API_SCHEDULE, _API_THREADS = 136, 144  # of XLA's C header, as in handler.py

STATE, SHARE, LEAVE = [f"tracebridge_{name}" for name in ("state", "share", "leave")]
EXPORTED = (DESCRIBE, STATE, SHARE, LEAVE, FLUSH, *((SET_FLAGS,) if IS_X86 else ()))
"""The functions of the library that kernels call."""

HELP = f"""
declare ptr @{STATE}(i64, ptr, ptr)
declare void @{SHARE}(ptr, ptr, ptr)
declare void @{LEAVE}(ptr)
declare i32 @{FLUSH}()
declare void @{SET_FLAGS}(i32)
"""
"""In the text of a kernel: functions of the library."""

LIBRARY = f"""{MEMORY}{ANSWERS}{OWN_THREADS}
@{SEATS} = external global [{N_SEATS * SEAT_BYTES} x i8]
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)

define internal i1 @take(ptr %state, i64 %own) noinline {{
entry:
  %done = getelementptr i8, ptr %state, i64 {STATE_DONE}
  %blocks.at = getelementptr i8, ptr %state, i64 {STATE_BLOCKS}
  %blocks = load i64, ptr %blocks.at
  %regions.at = getelementptr i8, ptr %state, i64 {STATE_REGIONS}
  %regions = load i64, ptr %regions.at
  br label %look
look:
  %k = phi i64 [0, %entry], [%k.next, %other]
  %beyond = add i64 %own, %k
  %region = urem i64 %beyond, %regions
  %from.all = mul i64 %region, %blocks
  %from = udiv i64 %from.all, %regions
  %to.all = add i64 %from.all, %blocks
  %to = udiv i64 %to.all, %regions
  %size = sub i64 %to, %from
  %offset = mul i64 %region, {_LINE}
  %lines = getelementptr i8, ptr %state, i64 {_STATE_TAKEN}
  %taken = getelementptr i8, ptr %lines, i64 %offset
  %seen = load atomic i64, ptr %taken monotonic, align 8
  %is_open = icmp ult i64 %seen, %size
  br i1 %is_open, label %try, label %other
try:
  %nth = atomicrmw add ptr %taken, i64 1 monotonic
  %is_block = icmp ult i64 %nth, %size
  br i1 %is_block, label %run, label %other
other:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %regions
  br i1 %more, label %look, label %none
run:
  %b = add i64 %from, %nth
  %block.at = getelementptr i8, ptr %state, i64 {STATE_BLOCK}
  %block = load ptr, ptr %block.at
  call void %block(ptr %state, i64 %b)
  %before = atomicrmw add ptr %done, i64 1 release
  ret i1 true
none:
  ret i1 false
}}

define internal void @work(ptr %state) {{
entry:
  %own = atomicrmw add ptr %state, i64 1 monotonic
  call void @work_from(ptr %state, i64 %own)
  ret void
}}

define internal void @work_from(ptr %state, i64 %own) {{
entry:
  br label %more
more:
  %was_there = call i1 @take(ptr %state, i64 %own)
  br i1 %was_there, label %more, label %end
end:
  ret void
}}

define void @{LEAVE}(ptr %state) {{
entry:
  %users = getelementptr i8, ptr %state, i64 {STATE_USERS}
  %before = atomicrmw sub ptr %users, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %drop, label %end
drop:
  call void @free(ptr %state)
  br label %end
end:
  ret void
}}

define internal i64 @now() {{
entry:
  %time = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}

define internal i1 @change_seat(i64 %i, i64 %old, i64 %new) {{
entry:
  %offset = mul i64 %i, {SEAT_BYTES}
  %seat = getelementptr i8, ptr @{SEATS}, i64 %offset
  %found = load atomic i64, ptr %seat monotonic, align 8
  %is_old = icmp eq i64 %found, %old
  br i1 %is_old, label %try, label %failed
try:
  %pair = cmpxchg ptr %seat, i64 %old, i64 %new acq_rel acquire
  %good = extractvalue {{ i64, i1 }} %pair, 1
  ret i1 %good
failed:
  ret i1 false
}}

define internal i64 @find_seat(i64 %old, i64 %new) {{
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %other]
  %good = call i1 @change_seat(i64 %i, i64 %old, i64 %new)
  br i1 %good, label %end, label %other
other:
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, {N_SEATS}
  br i1 %more, label %look, label %none
end:
  ret i64 %i
none:
  ret i64 -1
}}

define internal void @help(ptr %first) {{
entry:
  br label %serve
serve:
  %state = phi ptr [%first, %entry], [%another, %got]
  %work.at = getelementptr i8, ptr %state, i64 {STATE_WORK}
  %work = load ptr, ptr %work.at
  call void %work(ptr %state)
  call void @{LEAVE}(ptr %state)
  %i = call i64 @find_seat(i64 0, i64 1)
  %is_seat = icmp sge i64 %i, 0
  br i1 %is_seat, label %sit, label %end
sit:
  %offset = mul i64 %i, {SEAT_BYTES}
  %seat = getelementptr i8, ptr @{SEATS}, i64 %offset
  %begun = call i64 @now()
  %until = add i64 %begun, {_MOMENT}
  br label %wait
wait:
  %found = load atomic i64, ptr %seat acquire, align 8
  %waits = icmp eq i64 %found, 1
  br i1 %waits, label %look, label %asked
look:
  %ignored = call i32 @sched_yield()
  %time = call i64 @now()
  %is_over = icmp sgt i64 %time, %until
  br i1 %is_over, label %go, label %wait
go:
  %gone = call i1 @change_seat(i64 %i, i64 1, i64 0)
  br i1 %gone, label %end, label %wait
asked:
  %is_sent_away = icmp eq i64 %found, 0
  br i1 %is_sent_away, label %end, label %accept
accept:
  %accepted = call i1 @change_seat(i64 %i, i64 %found, i64 0)
  br i1 %accepted, label %got, label %wait
got:
  %another = inttoptr i64 %found to ptr
  br label %serve
end:
  ret void
}}

define internal i1 @hire(ptr %api, ptr %context, ptr %state) {{
entry:
  %address = ptrtoint ptr %state to i64
  %i = call i64 @find_seat(i64 1, i64 %address)
  %is_there = icmp sge i64 %i, 0
  br i1 %is_there, label %hired, label %wake
hired:
  ret i1 true
wake:
  %good = call i1 @schedule(ptr %api, ptr %context, ptr %state)
  ret i1 %good
}}

define internal void @wake_others(ptr %api, ptr %context, ptr %state) {{
entry:
  %address = ptrtoint ptr %state to i64
  br label %look
look:
  %i = call i64 @find_seat(i64 %address, i64 0)
  %is_asleep = icmp sge i64 %i, 0
  br i1 %is_asleep, label %wake, label %end
wake:
  %good = call i1 @schedule(ptr %api, ptr %context, ptr %state)
  br i1 %good, label %look, label %refused
refused:
  call void @{LEAVE}(ptr %state)
  br label %look
end:
  ret void
}}

define internal i64 @threads(ptr %api, ptr %context) {{
entry:
  %is_ours = icmp eq ptr %api, null
  br i1 %is_ours, label %told, label %ask
told:
  %number = ptrtoint ptr %context to i64
  ret i64 %number
ask:
  %n = alloca i64
  store i64 1, ptr %n
  %args = alloca [4 x i64]
  store i64 32, ptr %args
  %extension = getelementptr i64, ptr %args, i64 1
  store i64 0, ptr %extension
  %for = getelementptr i64, ptr %args, i64 2
  store ptr %context, ptr %for
  %to = getelementptr i64, ptr %args, i64 3
  store ptr %n, ptr %to
  %at = getelementptr i8, ptr %api, i64 {_API_THREADS}
  %function = load ptr, ptr %at
  %error = call ptr %function(ptr %args)
  call void @forget(ptr %api, ptr %error)
  %found = load i64, ptr %n
  ret i64 %found
}}

define internal i1 @schedule(ptr %api, ptr %context, ptr %state) {{
entry:
  %is_ours = icmp eq ptr %api, null
  br i1 %is_ours, label %begin, label %ask
begin:
  %has_begun = call i1 @start(ptr %state)
  ret i1 %has_begun
ask:
  %args = alloca [5 x i64]
  store i64 40, ptr %args
  %extension = getelementptr i64, ptr %args, i64 1
  store i64 0, ptr %extension
  %for = getelementptr i64, ptr %args, i64 2
  store ptr %context, ptr %for
  %task = getelementptr i64, ptr %args, i64 3
  store ptr @help, ptr %task
  %data = getelementptr i64, ptr %args, i64 4
  store ptr %state, ptr %data
  %at = getelementptr i8, ptr %api, i64 {_API_SCHEDULE}
  %function = load ptr, ptr %at
  %error = call ptr %function(ptr %args)
  call void @forget(ptr %api, ptr %error)
  %good = icmp eq ptr %error, null
  ret i1 %good
}}

define ptr @{STATE}(i64 %bytes, ptr %numbers, ptr %block) {{
entry:
  %size = add nuw nsw i64 %bytes, {STATE_BUFFERS}
  %state = call ptr @malloc(i64 %size)
  %shares = getelementptr i8, ptr %state, i64 {STATE_ROWS}
  call void @llvm.memcpy.p0.p0.i64(ptr %shares, ptr %numbers, i64 24, i1 false)
  %block.at = getelementptr i8, ptr %state, i64 {STATE_BLOCK}
  store ptr %block, ptr %block.at
  store i64 1, ptr %state
  %taken = getelementptr i8, ptr %state, i64 {_STATE_TAKEN}
  call void @llvm.memset.p0.i64(ptr %taken, i8 0, i64 {_MOST_REGIONS * _LINE}, i1 false)
  %done = getelementptr i8, ptr %state, i64 {STATE_DONE}
  store i64 0, ptr %done
  %users = getelementptr i8, ptr %state, i64 {STATE_USERS}
  store i64 1, ptr %users
  ret ptr %state
}}

define void @{SHARE}(ptr %api, ptr %context, ptr %state) {{
entry:
  %blocks.at = getelementptr i8, ptr %state, i64 {STATE_BLOCKS}
  %blocks = load i64, ptr %blocks.at
  %done = getelementptr i8, ptr %state, i64 {STATE_DONE}
  %users = getelementptr i8, ptr %state, i64 {STATE_USERS}
  %regions.at = getelementptr i8, ptr %state, i64 {STATE_REGIONS}
  store i64 1, ptr %regions.at
  %is_alone = icmp eq i64 %blocks, 1
  br i1 %is_alone, label %begin, label %look
look:
  %work.at = getelementptr i8, ptr %state, i64 {STATE_WORK}
  store ptr @work, ptr %work.at
  %threads = call i64 @threads(ptr %api, ptr %context)
  %few = icmp ult i64 %threads, %blocks
  %wanted = select i1 %few, i64 %threads, i64 %blocks
  %at_most = call i64 @llvm.umin.i64(i64 %wanted, i64 {_MOST_REGIONS})
  %regions = call i64 @llvm.umax.i64(i64 %at_most, i64 1)
  store i64 %regions, ptr %regions.at
  br label %more
more:
  %t = phi i64 [1, %look], [%t.next, %counted], [%t.next, %refused]
  %is_wanted = icmp ult i64 %t, %wanted
  br i1 %is_wanted, label %ask_one, label %first
ask_one:
  %t.next = add nuw nsw i64 %t, 1
  %before = atomicrmw add ptr %users, i64 1 monotonic
  %good = call i1 @hire(ptr %api, ptr %context, ptr %state)
  br i1 %good, label %counted, label %refused
counted:
  br label %more
refused:
  %after = atomicrmw sub ptr %users, i64 1 monotonic
  br label %more
first:
  %ignored.block = call i1 @take(ptr %state, i64 0)
  call void @wake_others(ptr %api, ptr %context, ptr %state)
  br label %begin
begin:
  call void @work_from(ptr %state, i64 0)
  br label %wait
wait:
  %finished = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %finished, %blocks
  br i1 %all, label %end, label %spin
spin:
  %ignored = call i32 @sched_yield()
  br label %wait
end:
  ret void
}}
"""
"""Functions that all kernels call: ``@share`` asks for help, works, and waits for the blocks that
others have begun; ``@state`` makes the state of a call. Compiled once: LLVM takes as long for them
as for most kernels."""


def state(names: Sequence[str]) -> list[str]:
    """In a handler: memory for the state of a call; ``names``: addresses of operands and results.

    Its attribute has three numbers: of rows or steps, of those in a block, of blocks. Addresses are
    copied: help may come when the call's own are gone.
    """
    lines = [
        f"%state = call ptr @{STATE}(i64 {8 * len(names)}, ptr %numbers, ptr @block)",
        f"%buffers = getelementptr i8, ptr %state, i64 {STATE_BUFFERS}",
    ]
    for i, name in enumerate(names):
        lines.append(f"%b{i}.to = getelementptr ptr, ptr %buffers, i64 {i}")
        lines.append(f"store ptr {name}, ptr %b{i}.to")
    return lines


SHARED_OUT = f"call void @{SHARE}(ptr %api, ptr %context, ptr %state)"
"""In a handler: do all blocks."""
LEFT = f"call void @{LEAVE}(ptr %state)"


def arrays_of_block(n_in: int, n: int) -> tuple[list[str], list[str]]:
    """In a block: the lines that find the arrays of the call, and their names."""
    lines = [f"%buffers = getelementptr i8, ptr %state, i64 {STATE_BUFFERS}"]
    names = [f"%in{i}" if i < n_in else f"%out{i - n_in}" for i in range(n)]
    for i, name in enumerate(names):
        lines.append(f"{name}.at = getelementptr ptr, ptr %buffers, i64 {i}")
        lines.append(f"{name} = load ptr, ptr {name}.at")
    return lines, names
