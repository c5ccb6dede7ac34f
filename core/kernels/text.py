"""LLVM's text of values: numbers, and vectors of them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from tracebridge.core.dtypes.dtypes import bfloat16
from tracebridge.core.ir.open_numbers import Place

# Numbers of 16 bits are read and written; they are computed in float32.
TYPES = {
    "float32": "float", "bool": "i1", "int32": "i32", "float16": "half", "bfloat16": "i16",
    "float64": "double",
}  # fmt: skip


REALS = frozenset({"float", "double"})
"""LLVM's types of what is computed; a kernel has one of them."""

NAMES = {np.dtype(name): name for name in TYPES if name != "bfloat16"} | {bfloat16: "bfloat16"}
"""Of the dtypes that kernels read and write: to ask a dtype for its name takes a microsecond."""

TWICE = "; some of this is there twice"
"""A line of texts that compute the same more than once: LLVM shall look for it."""


def number_of(value: Any, dtype: Any) -> float | int | Place:
    """A number of the program such that two that are written alike are one."""
    if type(value) is Place:
        return value
    return int(value) if NAMES[dtype] in ("bool", "int32") else float(value)


def float_text(value: Any) -> str:
    """A float32 as LLVM writes it: the bits of the same float64. What is too large is infinite."""
    rounded = ctypes.c_float(float(value)).value  # NumPy would warn of numbers that are too large
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


def double_text(value: Any) -> str:
    """A float64 as LLVM writes it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


def _whole_text(value: Any) -> str:
    return str(int(value))


def _half_text(value: Any) -> str:
    return f"0xH{int(np.float16(value).view(np.uint16)):04X}"


def _bfloat16_text(value: Any) -> str:
    """An integer of the same bits."""
    return str(int(np.asarray(value).astype(bfloat16).view(np.uint16)))


_CONSTANTS: dict[str, Callable[[Any], str]] = {
    "float": float_text,
    "double": double_text,
    "half": _half_text,
    "i16": _bfloat16_text,
    "i1": lambda value: "true" if value else "false",
}
"""The text of a number, by LLVM's type; of other types it is a whole one."""


def constant_text(value: Any, scalar: str) -> str:
    """The text of a number of LLVM's type ``scalar``; a mark for it if it comes later."""
    if type(value) is Place:
        return f"?{value.nth}:{scalar}?"
    return _CONSTANTS.get(scalar, _whole_text)(value)


def type_of(dtype: Any) -> str:
    """LLVM's type of a number."""
    return TYPES[NAMES[np.dtype(dtype)]]


@final
class Text:
    """Lines of LLVM's text, whose names are numbered.

    ``width``: of vectors, 0 for numbers. ``real``: the type of what has no other one.
    """

    def __init__(self, names: list[int], width: int, real: str = "float") -> None:
        self.lines: list[str] = []
        self.real = real
        self.width, self._names = width, names
        self._types: dict[str, str] = {}
        self._functions: dict[tuple[str, int], str] = {}
        self.needs: set[str] = set()

    def name(self) -> str:
        self._names[0] += 1
        return f"%v{self._names[0]}"

    def line(self, text: str) -> str:
        """A line that makes a value; its name."""
        names = self._names  # as `name`: this makes most lines of a text
        names[0] += 1
        name = f"%v{names[0]}"
        self.lines.append(f"{name} = {text}")
        return name

    def type(self, scalar: str) -> str:
        if not self.width:
            return scalar
        kind = self._types.get(scalar)
        if kind is None:
            kind = self._types[scalar] = f"<{self.width} x {scalar}>"
        return kind

    def suffix(self, scalar: str = "") -> str:
        """Of the name of a function of LLVM."""
        scalar = scalar or ("f32" if self.real == "float" else "f64")
        return f"v{self.width}{scalar}" if self.width else scalar

    def constant(self, value: Any, scalar: str = "") -> str:
        """The text of a constant at every place."""
        scalar = scalar or self.real
        text = constant_text(value, scalar)
        return f"<{', '.join([f'{scalar} {text}'] * self.width)}>" if self.width else text

    def op(self, name: str, x: str, y: str, scalar: str = "") -> str:
        return self.line(f"{name} {self.type(scalar or self.real)} {x}, {y}")

    def call(self, function: str, *args: str, flags: str = "") -> str:
        """An intrinsic function of floats."""
        kind, key = self.type(self.real), (function, len(args))
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = f"@llvm.{function}.{self.suffix()}"
            self.needs.add(f"declare {kind} {name}({', '.join([kind] * len(args))})")
        between = f", {kind} "
        return self.line(f"call {flags}{kind} {name}({kind} {between.join(args)})")

    def fma(self, x: str, y: str, z: str) -> str:
        return self.call("fma", x, y, z)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        total = self.constant(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, self.constant(c))
        return total

    @property
    def whole(self) -> str:
        """The type of whole numbers of as many bits as the real ones have."""
        return "i32" if self.real == "float" else "i64"

    def bits(self, x: str) -> str:
        return self.line(f"bitcast {self.type(self.real)} {x} to {self.type(self.whole)}")

    def of_bits(self, x: str) -> str:
        return self.line(f"bitcast {self.type(self.whole)} {x} to {self.type(self.real)}")

    def compare(self, how: str, x: str, y: str, scalar: str = "") -> str:
        scalar = scalar or self.real
        what = "fcmp" if scalar in REALS else "icmp"
        return self.line(f"{what} {how} {self.type(scalar)} {x}, {y}")

    def select(self, flag: str, yes: str, no: str, scalar: str = "") -> str:
        kind = self.type(scalar or self.real)
        return self.line(f"select {self.type('i1')} {flag}, {kind} {yes}, {kind} {no}")

    def splat(self, x: str, scalar: str) -> str:
        """A number at every place of a vector."""
        kind = self.type(scalar)
        first = self.line(f"insertelement {kind} poison, {scalar} {x}, i32 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        return self.line(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def places(self) -> str:
        """The numbers of the places of a vector, from 0."""
        return f"<{', '.join([f'i32 {n}' for n in range(self.width)])}>"

    def widened(self, how: str, x: str, old: str, new: str) -> str:
        return self.line(f"{how} {self.type(old)} {x} to {self.type(new)}")
