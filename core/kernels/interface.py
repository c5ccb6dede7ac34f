"""The frame of a call of XLA's typed FFI, as LLVM's text reads it.

Places in the structs are those of XLA's C header (``xla/ffi/api/c_api.h``, version 0.x, which comes
with jaxlib). A kernel has one attribute: an array of numbers.
"""

from __future__ import annotations

# bytes from the beginning of the structs
FRAME_EXTENSION, _FRAME_API, _FRAME_CONTEXT = 8, 16, 24
_FRAME_ARGS, _FRAME_RESULTS, _FRAME_ATTRIBUTES = 72, 112, 160
_EXTENSION_TYPE, _EXTENSION_METADATA = 8, 24
_METADATA_MAJOR, _METADATA_TRAITS = 24, 32  # the minor version follows the major one
_API_MAJOR, _API_DESTROY = 32, 64
_BUFFER_DATA = 24
_ARRAY_DATA = 16  # of the one attribute: numbers of rows, of rows in a block, of blocks

MEMORY = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

DESCRIBE = "tracebridge_describe"
"""The function that answers what XLA asks when a handler is registered."""

SHARED = f"{MEMORY}declare void @{DESCRIBE}(ptr, ptr)\n"
"""What the text of a kernel calls: functions of C, and one of the library (``sharing.py``)."""

ANSWERS = f"""
define internal void @forget(ptr %api, ptr %error) {{
entry:
  %none = icmp eq ptr %error, null
  br i1 %none, label %end, label %destroy
destroy:
  %args = alloca [3 x i64]
  store i64 24, ptr %args
  %extension = getelementptr i64, ptr %args, i64 1
  store i64 0, ptr %extension
  %what = getelementptr i64, ptr %args, i64 2
  store ptr %error, ptr %what
  %at = getelementptr i8, ptr %api, i64 {_API_DESTROY}
  %function = load ptr, ptr %at
  call void %function(ptr %args)
  br label %end
end:
  ret void
}}

define void @{DESCRIBE}(ptr %api, ptr %extension) {{
entry:
  %at = getelementptr i8, ptr %extension, i64 {_EXTENSION_METADATA}
  %metadata = load ptr, ptr %at
  %version = getelementptr i8, ptr %api, i64 {_API_MAJOR}
  %both = load i64, ptr %version
  %to = getelementptr i8, ptr %metadata, i64 {_METADATA_MAJOR}
  store i64 %both, ptr %to
  %traits = getelementptr i8, ptr %metadata, i64 {_METADATA_TRAITS}
  store i32 0, ptr %traits
  ret void
}}
"""

# Answer what XLA asks when the handler is registered; the label of a call.
BEGINNING = [
    f"%extension.at = getelementptr i8, ptr %frame, i64 {FRAME_EXTENSION}",
    f"%api.at = getelementptr i8, ptr %frame, i64 {_FRAME_API}",
    f"%context.at = getelementptr i8, ptr %frame, i64 {_FRAME_CONTEXT}",
    "%extension = load ptr, ptr %extension.at",
    "%api = load ptr, ptr %api.at",
    "%context = load ptr, ptr %context.at",
    "%is_call = icmp eq ptr %extension, null",
    "br i1 %is_call, label %call, label %ask",
    "ask:",
    f"%type.at = getelementptr i8, ptr %extension, i64 {_EXTENSION_TYPE}",
    "%type = load i32, ptr %type.at",
    "%is_question = icmp eq i32 %type, 1",
    "br i1 %is_question, label %answer, label %call",
    "answer:",
    f"call void @{DESCRIBE}(ptr %api, ptr %extension)",
    "ret ptr null",
    "call:",
]


def attribute_at() -> list[str]:
    """``%numbers``: where those of the attribute are."""
    return [
        f"%attributes.at = getelementptr i8, ptr %frame, i64 {_FRAME_ATTRIBUTES}",
        "%attributes = load ptr, ptr %attributes.at",
        "%attribute = load ptr, ptr %attributes",
        f"%numbers.at = getelementptr i8, ptr %attribute, i64 {_ARRAY_DATA}",
        "%numbers = load ptr, ptr %numbers.at",
    ]


def pointers(n_in: int, n: int) -> tuple[list[str], list[str]]:
    """The lines that find the addresses of operands and results, and the names of these."""
    lines: list[str] = []
    for name, place in (("args", _FRAME_ARGS), ("results", _FRAME_RESULTS)):
        lines += [f"%{name}.at = getelementptr i8, ptr %frame, i64 {place}"]
        lines += [f"%{name} = load ptr, ptr %{name}.at"]
    for i in range(n):
        base, k = ("%args", i) if i < n_in else ("%results", i - n_in)
        lines += [
            f"%b{i}.at = getelementptr ptr, ptr {base}, i64 {k}",
            f"%b{i} = load ptr, ptr %b{i}.at",
            f"%b{i}.data = getelementptr i8, ptr %b{i}, i64 {_BUFFER_DATA}",
            f"%b{i}.pointer = load ptr, ptr %b{i}.data",
        ]
    return lines, [f"%b{i}.pointer" for i in range(n)]
