"""Sine and cosine as LLVM's text.

Arguments are reduced by multiples of pi/2 in float64, which leaves all digits of a float32 up to
2^50; beyond, which is rare, the C library is asked, element by element. Within 1.5 ulp.
"""

from __future__ import annotations

import math
import struct

from tracebridge.core.kernels.text import TWICE, Text, float_text

# sin(r) = r + r^3 P(r^2), cos(r) = 1 - r^2 / 2 + r^4 Q(r^2) for |r| <= pi / 4; relative errors
# 4e-9 and 2e-10.
_SIN = (-0.16666655242443085, 0.00833215843886137, -0.00019514953601174057)
_COS = (0.04166664555668831, -0.0013887312961742282, 2.4432778445770964e-05)
_HALF_PI = math.pi / 2
_HALF_PI_REST = 6.123233995736757e-17  # pi / 2 minus the number above
_ROUNDER = 1.5 * 2.0**52  # a sum with it has the nearest integer in its last bits
_LARGE = 2.0**50


def sin(to: Text, x: str) -> str:
    """The sine of float32."""
    return _wave(to, x, "sinf", 0)


def cos(to: Text, x: str) -> str:
    """The cosine: a quarter of a turn later."""
    return _wave(to, x, "cosf", 1)


def _wave(to: Text, x: str, name: str, quarters: int) -> str:
    r, n = _reduced(to, x)
    turn = to.op("add", n, to.constant(quarters, "i32"), "i32")
    squared = to.op("fmul", r, r)
    odd = to.fma(to.op("fmul", r, squared), to.polynomial(squared, _SIN), r)
    even = to.fma(squared, to.constant(-0.5), to.constant(1.0))
    fourth = to.op("fmul", squared, squared)
    even = to.fma(fourth, to.polynomial(squared, _COS), even)
    is_even = to.op("and", turn, to.constant(1, "i32"), "i32")
    y = to.select(to.compare("ne", is_even, to.constant(0, "i32"), "i32"), even, odd)
    sign = to.op("shl", turn, to.constant(30, "i32"), "i32")
    sign = to.op("and", sign, to.constant(-(1 << 31), "i32"), "i32")
    y = to.of_bits(to.op("xor", to.bits(y), sign, "i32"))
    return _unless_large(to, name, x, y)


def _reduced(to: Text, x: str) -> tuple[str, str]:
    """What is left of ``x``, and the last bits of how many quarters of a turn were taken away."""
    wide = to.widened("fpext", x, "float", "double")
    rounder = _double(to, _ROUNDER)
    shifted = _fma(to, wide, _double(to, 1 / _HALF_PI), rounder)
    n = to.op("fsub", shifted, rounder, "double")
    left = _fma(to, n, _double(to, -_HALF_PI), wide)
    left = _fma(to, n, _double(to, -_HALF_PI_REST), left)
    bits = to.line(f"bitcast {to.type('double')} {shifted} to {to.type('i64')}")
    return to.widened("fptrunc", left, "double", "float"), to.widened("trunc", bits, "i64", "i32")


def _double(to: Text, value: float) -> str:
    text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return f"<{', '.join([f'double {text}'] * to.width)}>" if to.width else text


def _fma(to: Text, x: str, y: str, z: str) -> str:
    kind, name = to.type("double"), f"@llvm.fma.{to.suffix('f64')}"
    to.needs.add(f"declare {kind} {name}({kind}, {kind}, {kind})")
    return to.line(f"call {kind} {name}({kind} {x}, {kind} {y}, {kind} {z})")


def _unless_large(to: Text, name: str, x: str, y: str) -> str:
    """``y``, or what the C library has where ``x`` is large. LLVM puts the function in line."""
    kind, function = to.type("float"), f"@{name}.{to.suffix()}"
    to.needs.add(f"declare float @{name}(float)")
    to.call("fabs", x)  # for its declaration
    to.needs.add(TWICE)  # the sine and the cosine of a value begin alike
    if to.width:
        flags = to.type("i1")
        to.needs.add(f"declare i1 @llvm.vector.reduce.or.v{to.width}i1({flags})")
        to.needs.add(_by_element(to, name))
    else:
        to.needs.add(_of_one(name))
    return to.line(f"call {kind} {function}({kind} {x}, {kind} {y})")


def _of_one(name: str) -> str:
    return f"""
define internal float @{name}.f32(float %x, float %y) alwaysinline {{
entry:
  %size = call float @llvm.fabs.f32(float %x)
  %is_large = fcmp oge float %size, {float_text(_LARGE)}
  br i1 %is_large, label %large, label %small
small:
  ret float %y
large:
  %found = call float @{name}(float %x)
  ret float %found
}}"""


def _by_element(to: Text, name: str) -> str:
    kind, flags = to.type("float"), to.type("i1")
    return f"""
define internal {kind} @{name}.{to.suffix()}({kind} %x, {kind} %y) alwaysinline {{
entry:
  %size = call {kind} @llvm.fabs.{to.suffix()}({kind} %x)
  %is_large = fcmp oge {kind} %size, {to.constant(_LARGE)}
  %any = call i1 @llvm.vector.reduce.or.v{to.width}i1({flags} %is_large)
  br i1 %any, label %element, label %small
small:
  ret {kind} %y
element:
  %i = phi i32 [0, %entry], [%next, %element]
  %all = phi {kind} [%y, %entry], [%more, %element]
  %one = extractelement {kind} %x, i32 %i
  %of_one = call float @{name}(float %one)
  %known = extractelement {kind} %y, i32 %i
  %flag = extractelement {flags} %is_large, i32 %i
  %new = select i1 %flag, float %of_one, float %known
  %more = insertelement {kind} %all, float %new, i32 %i
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, {to.width}
  br i1 %again, label %element, label %done
done:
  ret {kind} %more
}}"""
