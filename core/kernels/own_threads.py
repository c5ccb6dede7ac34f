"""Calls of kernels without XLA, as LLVM's text: threads of our own, and tiny numbers that are zero.

XLA gives a handler its pool of threads, and lets its threads round what is smaller than the least
normal number to zero. A kernel that is called without XLA has neither: it starts a thread when
nobody waits in a seat (``sharing.py``), which takes as long as to wake one of XLA's, and sets the
same flag of the processor.
"""

from __future__ import annotations

import platform

DIRECT = "direct"
"""What the function is called that other callers than XLA call, in texts that have it."""

_FLUSH = 0x8040  # of x86: tiny results, and tiny operands, are zero

IS_X86 = platform.machine() == "x86_64"
"""Whether ``@flush`` sets that flag; on other processors kernels are called by XLA alone."""

FLUSH, SET_FLAGS = "tracebridge_flush", "tracebridge_set_flags"
"""Functions of the library (``sharing.py``): set that flag, and what it was; set it as it was."""

_FLAGS = f"""
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i32 @{FLUSH}() {{
entry:
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %before = load i32, ptr %at
  %new = or i32 %before, {_FLUSH}
  call void @{SET_FLAGS}(i32 %new)
  ret i32 %before
}}

define void @{SET_FLAGS}(i32 %flags) {{
entry:
  %at = alloca i32
  store i32 %flags, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}}
"""

_NO_FLAGS = f"""
define i32 @{FLUSH}() {{
entry:
  ret i32 0
}}
"""

OWN_THREADS = f"""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
{_FLAGS if IS_X86 else _NO_FLAGS}
define internal ptr @helper(ptr %state) {{
entry:
  %ignored = call i32 @{FLUSH}()
  call void @help(ptr %state)
  ret ptr null
}}

define internal i1 @start(ptr %state) {{
entry:
  %at = alloca i64
  %error = call i32 @pthread_create(ptr %at, ptr null, ptr @helper, ptr %state)
  %good = icmp eq i32 %error, 0
  br i1 %good, label %detach, label %end
detach:
  %thread = load i64, ptr %at
  %ignored = call i32 @pthread_detach(i64 %thread)
  br label %end
end:
  ret i1 %good
}}
"""


def direct_entry(n: int) -> str:
    """``@direct(n arrays, numbers, threads)``: ``@run``, with no API but a number of threads."""
    arrays = [f"ptr %b{i}" for i in range(n)]
    return "\n".join(
        [
            f"define void @{DIRECT}({', '.join([*arrays, 'ptr %numbers', 'i64 %threads'])}) {{",
            "entry:",
            f"%before = call i32 @{FLUSH}()",
            "%context = inttoptr i64 %threads to ptr",
            run_call("null", arrays),
            f"call void @{SET_FLAGS}(i32 %before)",
            "ret void",
            "}",
        ]
    )


def run_call(api: str, arrays: list[str]) -> str:
    """A call of ``@run``."""
    given = [f"ptr {api}", "ptr %context", "ptr %numbers", *arrays]
    return f"call void @run({', '.join(given)})"
