"""Elementwise functions: exponentials, trigonometry, arithmetic, logic, rounding, floats."""

from __future__ import annotations

import numpy as np
from scipy import special

from tests.bridge.numpy.table import C, F, I, M, V, X, case

NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.5, 0.5, 2.5, -3.7e4, 1e30]

ANYWHERE = "sin cos tan sinh cosh tanh arctan arcsinh exp expm1 exp2 atan asinh"
WITHIN_1 = "arcsin arccos arctanh asin acos atanh"
POSITIVE = "log log2 log10 log1p sqrt"
ABOVE_1 = "arccosh acosh"
REAL_ONLY = "cbrt deg2rad degrees rad2deg radians"
ALL_FLOAT = f"{ANYWHERE} {WITHIN_1} {POSITIVE} {ABOVE_1} {REAL_ONLY}"

EXP_TRIG = [
    *case(ANYWHERE, "fc", X(2, 3), grad=True),
    *case(ANYWHERE, "ibueB", X(2, 3), traced=False),
    *case(WITHIN_1, "fc", X(2, 3, low=-0.9, high=0.9), grad=True),
    *case(WITHIN_1, "ieB", X(2, 3, low=-0.9, high=0.9), traced=False),
    *case(POSITIVE, "fc", X(2, 3, low=0.2, high=3.0), grad=True),
    *case(POSITIVE, "ieB", X(2, 3, low=0.2, high=3.0), traced=False),
    *case(ABOVE_1, "fc", X(2, 3, low=1.2, high=3.0), grad=True),
    *case(ABOVE_1, "ieB", X(2, 3, low=1.2, high=3.0), traced=False),
    *case("cbrt", "f", X(2, 3, low=0.3, high=2), grad=True),
    *case("cbrt deg2rad degrees rad2deg radians", "fieB", X(2, 3), traced=False),
    *case("deg2rad degrees rad2deg radians", "f", X(2, 3), grad=True),
    *case(ALL_FLOAT, "f", X(), traced=False),
    *case(ALL_FLOAT, "f", X(0, 2), traced=False),
    *case(f"{ANYWHERE} {WITHIN_1} {POSITIVE} {ABOVE_1} {REAL_ONLY}", "f", V(SPECIAL), traced=False,
          exact=True),
    *case("sinc", "fc", X(2, 3), grad=True),
    *case("sinc", "fie", V([0.0, 1.0, -2.0, 0.0]), traced=False),
    *case("i0", "f", X(2, 3), grad=True, ref=special.i0),
    *case("i0", "i", X(2, 3), traced=False, ref=special.i0),
]  # fmt: skip

FLOAT = [
    *case("copysign", "feB", X(2, 3), X(3), grad=True),
    *case("copysign", "i", X(2, 3), X(3), traced=False),
    *case("copysign", "f", V(SPECIAL), V([[1.0], [-0.0]]), traced=False),
    *case("nextafter", "fe", X(2, 3), X(3), exact=True, rtol=0),
    *case("nextafter", "f", V([0.0, 0.0, 1.0, INF, NAN]), V([1.0, -1.0, INF, 0.0, 1.0]),
          exact=True, rtol=0, traced=False),
    *case("spacing", "fe", X(2, 3, low=0.0), exact=True, rtol=0),
    *case("spacing", "f", V([1.0, -1.0, INF, NAN, 3e5]), exact=True, rtol=0, traced=False),
    *case("signbit", "feB", X(2, 3)),
    *case("signbit", "i", X(2, 3), traced=False),
    *case("signbit", "f", V(SPECIAL), traced=False),
    *case("isneginf isposinf", "fe", V(SPECIAL)),
    *case("isneginf isposinf", "ib", X(3), traced=False),
    *case("nan_to_num", "f", V(SPECIAL), exact=True),
    *case("nan_to_num", "f", X(2, 3), grad=True),
    *case("nan_to_num", "f", V([[NAN, INF, -INF, 1.0]]), nan=7.0, posinf=8.0, neginf=-9.0),
    *case("nan_to_num", "c", V([complex(NAN, 1), complex(INF, -INF), 1j]), exact=True),
    *case("nan_to_num", "ib", X(2, 3), traced=False),
    *case("frexp", "f", V([[1.0, 0.5, -3.25], [0.0, 6e5, 1e-10]]), mapped=False),
    *case("frexp", "fi", X(2, 3, low=-50, high=50)),
    *case("frexp", "f", V([INF, -INF, NAN]), traced=False,
          ref=lambda x: (x, np.zeros(3, np.int32))),
    *case("ldexp", "f", X(2, 3), I(3), grad=True),
    *case("ldexp", "ie", X(2, 3), I(3), traced=False),
    *case("modf", "fe", X(2, 3, low=-5, high=5), grad=True),
    *case("modf", "f", V(SPECIAL), traced=False),
    *case("modf", "i", X(2, 3), traced=False),
]  # fmt: skip

ARITHMETIC = "add subtract multiply"
BINARY_FLOAT = "arctan2 atan2 hypot logaddexp logaddexp2"
EXTREMA = "maximum minimum fmax fmin"
INTEGER_LIKE = "floor_divide mod remainder fmod"

MATH = [
    *case(ARITHMETIC, "fc", X(2, 3), X(3), grad=True),
    *case("add multiply", "b", X(2, 3), X(3), traced=False),
    *case(ARITHMETIC, "iueB", X(2, 3), X(2, 1), traced=False),
    *case("divide true_divide", "fc", X(2, 3), X(3, low=0.5), grad=True),
    *case("divide true_divide", "iueB", X(2, 3), X(2, 1, low=1), traced=False),
    *case("divide true_divide float_power", "b", X(2, 3), V([True, True, True]), traced=False,
          ref=lambda x, y: np.float32(x)),
    *case(BINARY_FLOAT, "f", X(2, 3), X(3), grad=True),
    *case(BINARY_FLOAT, "ieB", X(2, 3), X(3), traced=False),
    *case("logaddexp", "c", X(2, 3), X(3), grad=True,
          ref=lambda x, y: np.log(np.exp(x) + np.exp(y))),
    *case(EXTREMA, "f", X(2, 3), X(3), grad=True),
    *case(EXTREMA, "ibueBc", X(2, 3), X(3), traced=False),
    *case(EXTREMA, "f", V(SPECIAL), V([[NAN], [1.0], [-INF]]), traced=False),
    *case(INTEGER_LIKE, "f", X(2, 3, low=-9, high=9), X(3, low=1.1), grad=True),
    *case(INTEGER_LIKE, "i", X(2, 4, low=-9, high=9), V([2, -2, 5, -7])),
    *case(INTEGER_LIKE, "ueB", X(2, 3, low=-9, high=9), X(3, low=1), traced=False, exact=True),
    *case(INTEGER_LIKE, "f", V(SPECIAL), V([[2.0], [-3.0], [INF]]), traced=False, exact=True),
    *case("mod remainder fmod", "f", V(SPECIAL), V([[0.0], [-0.0]]), traced=False, exact=True),
    *case("divmod", "f", X(2, 3, low=-9, high=9), X(3, low=1.1), grad=True),
    *case("divmod", "i", X(2, 4, low=-9, high=9), V([2, -2, 5, -7])),
    *case("float_power pow power", "f", X(2, 3, low=0.3), X(3), grad=True),
    *case("float_power pow power", "c", X(2, 3), X(3), grad=True),
    *case("pow power", "iu", X(2, 3), X(3, low=0)),
    *case("float_power", "i", X(2, 3, low=1), X(3), traced=False),
    *case("pow power", "eB", X(2, 3, low=0.5), X(3), traced=False),
    *case("pow power", "f", V(SPECIAL), V([[2.0], [0.5], [-1.0], [0.0], [INF], [NAN]]),
          traced=False, exact=True),
    *case("pow power", "fic", X(2, 3), 3, grad=True, exact=True),
    *case("pow power", "f", X(2, 3), -2, grad=True),
    *case("pow power", "f", X(2, 3, low=0.2), 0.5, grad=True),
    *case("pow power", "f", X(2, 3), 0, grad=True),
    *case("heaviside", "f", X(2, 3), X(3)),
    *case("heaviside", "f", V(SPECIAL), 0.5, traced=False),
    *case("heaviside", "e", X(2, 3), X(3), traced=False),
    *case("abs absolute negative positive square conj conjugate", "fc", X(2, 3), grad=True),
    *case("abs absolute negative positive square conj conjugate", "iueB", X(2, 3), traced=False),
    *case("abs absolute", "b", X(2, 3), traced=False),
    *case("conj conjugate", "b", X(2, 3), traced=False, ref=np.array),
    *case("square", "b", X(2, 3), traced=False, ref=lambda x: x.astype(np.int32)),
    *case("abs absolute", "c", V([3 + 4j, complex(-INF, 1), 0j]), traced=False),
    *case("fabs", "f", X(2, 3), grad=True),
    *case("fabs", "ieB", X(2, 3), traced=False),
    *case("sign", "fc", X(2, 3)),
    *case("sign", "iueB", X(2, 3), traced=False),
    *case("sign", "f", V(SPECIAL), traced=False),
    *case("reciprocal", "fc", X(2, 3, low=0.4), grad=True),
    *case("reciprocal", "eB", X(2, 3, low=0.4), traced=False),
    *case("real imag", "fc", X(2, 3), grad=True),
    *case("real imag", "ibe", X(2, 3), traced=False),
    *case("angle", "c", X(2, 3), grad=True),
    *case("angle", "c", X(2, 3), deg=True),
    *case("angle", "fi", X(2, 3), traced=False),
    *case("clip", "f", X(2, 3), -0.5, 1.0, grad=True),
    *case("clip", "f", X(2, 3), X(3, low=-1, high=0), X(2, 1, low=0.5, high=1), grad=True),
    *case("clip", "i", X(2, 3), min=-1),
    *case("clip", "ieB", X(2, 3), None, 1, exact=True, traced=False),
    *case("clip", "f", V(SPECIAL), -1.0, 2.0, traced=False),
    *case("clip", "f", X(2, 3), 1.0, -1.0, traced=False),
    *case(f"{ARITHMETIC} {BINARY_FLOAT} {EXTREMA} divide pow", "f", X(0, 3), X(1, 3), traced=False),
    *case(f"{ARITHMETIC} {BINARY_FLOAT} {EXTREMA} divide", "f", X(), X(2, 1), traced=False),
    *case(f"{ARITHMETIC} {EXTREMA} divide power floor_divide mod", "f", X(), X(), traced=False,
          exact=True),
]  # fmt: skip

COMPARISONS = "equal not_equal less less_equal greater greater_equal"
BITWISE = "bitwise_and bitwise_or bitwise_xor"
LOGICAL = "logical_and logical_or logical_xor"
SHIFTS = "left_shift right_shift bitwise_left_shift bitwise_right_shift"

LOGIC = [
    *case(COMPARISONS, "f", X(2, 3), X(3)),
    *case(COMPARISONS, "ibueB", V([[1, 0, 2], [0, 1, 1]]), V([1, 1, 0]), traced=False),
    *case(COMPARISONS, "f", V(SPECIAL), V([[NAN], [0.0], [INF]]), traced=False),
    *case(COMPARISONS, "c", V([1 + 1j, 1 - 1j, 2j]), V([1 + 1j, 1, 3j]), traced=False),
    *case(COMPARISONS, "f", X(0, 3), X(), traced=False),
    *case(BITWISE, "i", X(2, 3, low=-9, high=9), X(3, low=-9, high=9)),
    *case(BITWISE, "bu", X(2, 3, high=200), X(3, high=200), traced=False),
    *case("bitwise_not bitwise_invert invert", "i", X(2, 3, low=-9, high=9)),
    *case("bitwise_not bitwise_invert invert", "bu", X(2, 3, high=200), traced=False),
    *case("bitwise_count", "iu", X(2, 3, low=-200, high=200)),
    *case(SHIFTS, "i", X(2, 3, low=-900, high=900), X(3, low=0, high=5)),
    *case(SHIFTS, "u", X(2, 3, high=200), X(3, low=0, high=7), traced=False),
    *case(LOGICAL, "fi", V([[0.0, 2.0, 1.0]]), V([[0.0], [3.0]])),
    *case(LOGICAL, "bec", V([[0, 2, 1]]), V([[0], [3]]), traced=False),
    *case("logical_not", "fib", V([[0, 2, 1]])),
    *case("isfinite isinf isnan", "feB", V(SPECIAL)),
    *case("isfinite isinf isnan", "c", V([complex(NAN, 1), complex(1, INF), 1j]), traced=False),
    *case("isfinite isinf isnan", "i", X(2, 3), traced=False),
    *case("iscomplex isreal", "c", V([1j, 1, complex(1, NAN)])),
    *case("iscomplex isreal", "fi", X(2, 3), traced=False),
    *case("isclose", "f", V([[1.0, NAN, INF, 1.0]]), V([[1.000001, NAN, INF, 1.1]])),
    *case("isclose", "f", V([[1.0, NAN, INF]]), V([[1.01, NAN, -INF]]), 0.1, equal_nan=True),
    *case("isclose", "i", X(2, 3), X(3), traced=False),
    *case("isclose", "c", C(2, 3), C(3), 1.0, 1.0, traced=False),
    *case("allclose", "f", V([1.0, 2.0]), V([1.0, 2.0000001])),
    *case("allclose", "fi", X(2, 3), X(3)),
    *case("array_equal array_equiv", "fib", V([[1, 0], [1, 1]]), V([[1, 0], [1, 1]])),
    *case("array_equal array_equiv", "f", V([1.0, 2.0]), V([[1.0, 2.0], [1.0, 2.0]])),
    *case("array_equal array_equiv", "f", V([1.0, 2.0]), V([1.0, 2.0, 3.0])),
    *case("array_equal", "f", V([1.0, NAN]), V([1.0, NAN]), equal_nan=True),
]  # fmt: skip

ROUND = [
    *case("around round", "f", X(2, 3, low=-99, high=99)),
    *case("around round", "f", X(2, 3, low=-99, high=99), 2),
    *case("around round", "fi", V([[15, 25, -35, 149]]), -1),
    *case("around round", "c", X(2, 3, low=-9, high=9), 1, traced=False),
    *case("around round", "e", X(2, 3, low=-9, high=9), 1, traced=False, exact=True, rtol=1e-2),
    *case("ceil floor trunc rint", "feB", V([[1.5, 2.5, -0.5], [-1.2, 0.0, 7.0]])),
    *case("ceil floor trunc rint", "f", V(SPECIAL), traced=False),
    *case("rint", "c", X(2, 3, low=-9, high=9), traced=False),
]

MIXED = [
    *case("add", "f", X(2, 3), I(3), ref=lambda x, y: x + y.astype(x.dtype)),
    *case("multiply", "e", X(2, 3), I(3), ref=lambda x, y: x * y.astype(x.dtype)),
    *case("subtract", "i", X(2, 3), M(3), ref=np.subtract),
    *case("add", "c", X(2, 3), F(3)),
    *case("arctan2", "f", X(2, 3), I(3, low=1), ref=lambda x, y: np.arctan2(x, y.astype(x.dtype))),
    *case("maximum", "f", X(2, 3), I(3), ref=lambda x, y: np.maximum(x, y.astype(x.dtype))),
    *case("equal", "f", V([[1.0, 2.5, 3.0]]), I(3)),
    *case("power", "f", X(2, 3), I(3, low=0), grad=True,
          ref=lambda x, y: np.power(x, y.astype(x.dtype))),
]  # fmt: skip

CASES = [*EXP_TRIG, *FLOAT, *MATH, *LOGIC, *ROUND, *MIXED]
