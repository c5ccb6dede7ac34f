"""The error function and its complement as LLVM's text, fitted as in ``exponentials.py``.

``erf`` is within 1.2 ulp, ``erfc`` within 2.5, also where it is small. Where vectors are whole
registers of AVX-512, both look their polynomials up, and ``erfc`` sixteenths of a power of two:
half of the time of ``erf``, and 0.6 of that of ``erfc``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracebridge.core.kernels.exponentials import (
    AVX512,
    exp_parts,
    exp_parts_looked_up,
    has_registers,
    joined,
    registers,
    scaled,
    small_exp,
    times_power,
)
from tracebridge.core.kernels.text import Text, float_text

# erf(x) = x + x P(x^2) for |x| <= 7/8; relative error 1.6e-8.
_NEAR = (0.12837915122509003, -0.37612515687942505, 0.11282145977020264,
         -0.026781361550092697, 0.005018302705138922, -0.0006135187577456236)  # fmt: skip
_NEAR_BOUND = 0.875
# log(1 - erf(x)) = P(x) from there to 3.95; error 2e-9 of erf(x).
_FAR = (-0.0001335040433332324, -1.1279364824295044, -0.6367365121841431,
        -0.10432825237512589, 0.022420642897486687, -0.0030924181919544935,
        0.00020101155678275973)  # fmt: skip
_FAR_BOUND = 4.0
# erfc(x) exp(x^2) = q P(q - 7/32), q = 1 / (x + 7/4), for x from 0 to 10.2; relative error 2e-9.
_COMPLEMENT = (0.8651145696640015, 1.8252906799316406, 2.2425613403320312, 0.24392811954021454,
               -3.4382495880126953, -1.490207314491272, 8.11172866821289, 1.3982495069503784,
               -23.639684677124023, 18.97207260131836, 22.441679000854492,
               -32.04954528808594)  # fmt: skip
_ADDED, _CENTRE = 1.75, 0.21875
_VANISHES = 10.5  # erfc of it is less than the least subnormal number
# The same, without the factor q, by x minus the centre of an interval: of [2^e (1 + m / 8),
# 2^e (1 + (m + 1) / 8)] minus 1. By 24 + 8 e + m modulo 32 the coefficients; relative error 5e-9.
_TABLES = (
    (
        0.39569807, 0.3432959, 0.3022612, 0.26942998, 0.24267036, 0.2205057, 0.20188755, 0.18605493,
        0.16633534, 0.14558972, 0.12934527, 0.11630271, 0.10561273, 0.096698776, 0.089156635,
        0.08269506, 0.074573696, 0.06592512, 0.05906468, 0.0534919, 0.0, 0.0, 0.0, 0.0, 0.93320626,
        0.8191813, 0.72608596, 0.6491932, 0.5849986, 0.53087085, 0.48481083, 0.44528228,
    ),
    (
        -0.23805849, -0.18431547, -0.14603023, -0.11801672, -0.09703012, -0.08097713, -0.0684695,
        -0.058563292, -0.047199402, -0.036456257, -0.028944332, -0.023503449, -0.019445445,
        -0.016343217, -0.01392127, -0.0119959, -0.009773771, -0.007652085, -0.0061502783,
        -0.0050492724, 0.0, 0.0, 0.0, 0.0, -1.0117284, -0.8211862, -0.67457545, -0.5603351,
        -0.47025573, -0.39843172, -0.34056157, -0.2934749,
    ),
    (
        0.1278816, 0.089861766, 0.06496188, 0.048148524, 0.036481302, 0.028184973, 0.02215508,
        0.017685454, 0.01293717, 0.008878701, 0.00633184, 0.004661313, 0.0035241437, 0.0027252696,
        0.0021486934, 0.001722726, 0.0012703976, 0.0008823983, 0.0006370311, 0.0004745381, 0.0, 0.0,
        0.0, 0.0, 0.8699721, 0.66520816, 0.51528066, 0.40404633, 0.32047957, 0.25694892, 0.20810445,
        0.17014948,
    ),
    (
        -0.062794, -0.040503383, -0.026977912, -0.018492026, -0.01300481, -0.009358484,
        -0.0068749078, -0.005145047, -0.0034354646, -0.0021072796, -0.0013559316, -0.0009080981,
        -0.00062910106, -0.00044859547, -0.0003279471, -0.00024499322, -0.00016379976,
        -0.00010110337, -6.563947e-05, -4.4406035e-05, 0.0, 0.0, 0.0, 0.0, -0.6382372, -0.4643066,
        -0.34236687, -0.25570986, -0.19332394, -0.14785285, -0.11431776, -0.089306474,
    ),
    (
        0.02873579, 0.01714548, 0.010594205, 0.0067563816, 0.004433695, 0.002985645, 0.0020581249,
        0.0014491774, 0.0008911242, 0.0004905275, 0.00028568864, 0.0001744996, 0.00011099282,
        7.309887e-05, 4.9615446e-05, 3.4573877e-05, 2.1079615e-05, 1.1566543e-05, 6.7550104e-06,
        4.151071e-06, 0.0, 0.0, 0.0, 0.0, 0.41582292, 0.28958055, 0.20447667, 0.14630671,
        0.106015615, 0.0777511, 0.0576804, 0.043261055,
    ),
    (
        -0.012267654, -0.006819299, -0.0039339243, -0.0023474712, -0.0014446549, -0.00091440085,
        -0.0005938112, -0.00039476078, -0.00022332491, -0.00011097124, -5.8770533e-05, -3.28591e-05,
        -1.924599e-05, -1.17345435e-05, -7.409194e-06, -4.8236707e-06, -2.67265e-06, -1.3076341e-06,
        -6.88478e-07, -3.8494574e-07, 0.0, 0.0, 0.0, 0.0, -0.24509859, -0.16416214, -0.11150925,
        -0.076773286, -0.053546477, -0.037812777, -0.02702119, -0.019530175,
    ),
)  # fmt: skip
# erf of c + x for the nearest c = n / 8 to a number below 3.94, n from 0 to 31; for n = 0 of x
# without the term x. Absolute error 7e-9, relative to x for n = 0 2e-9.
_ERF_TABLES = (
    (
        0.0, 0.1403162, 0.2763264, 0.4041169, 0.5204999, 0.6232409, 0.71115565, 0.7840751,
        0.8427008, 0.8883882, 0.92290014, 0.94817007, 0.96610516, 0.97844374, 0.9866717,
        0.99199003, 0.9953223, 0.997346, 0.9985373, 0.99921703, 0.999593, 0.9997946, 0.9998994,
        0.99995214, 0.9999779, 0.9999901, 0.9999957, 0.9999982, 0.9999993, 0.9999997, 0.9999999,
        1.0,
    ),
    (
        0.12837917, 1.1108853, 1.0600141, 0.9803528, 0.8787826, 0.76349956, 0.64293104, 0.52474505,
        0.4151075, 0.31827396, 0.23652112, 0.17035978, 0.11893029, 0.08047226, 0.052774996,
        0.03354583, 0.020666985, 0.01234082, 0.007142319, 0.004006478, 0.0021782843, 0.0011478751,
        0.0005862772, 0.0002902283, 0.00013925305, 6.4758686e-05, 2.9189026e-05, 1.27517405e-05,
        5.3994268e-06, 2.2159204e-06, 8.8143224e-07, 3.398224e-07,
    ),
    (
        0.0, -0.13886046, -0.26500317, -0.36763188, -0.43939087, -0.47718686, -0.48219806,
        -0.45915183, -0.41510755, -0.35805833, -0.29565158, -0.23424488, -0.1783956, -0.13076754,
        -0.09235632, -0.062898465, -0.041333973, -0.026224228, -0.016070193, -0.009515358,
        -0.0054456866, -0.0030131529, -0.0016122482, -0.0008343965, -0.0004177528, -0.000202367,
        -9.4862065e-05, -4.3035867e-05, -1.8897324e-05, -8.032371e-06, -3.3052047e-06,
        -1.316734e-06,
    ),
    (
        -0.37612617, -0.35872316, -0.30917066, -0.23487614, -0.14646381, -0.05567196, 0.026788637,
        0.09292344, 0.13836904, 0.16245225, 0.16753577, 0.15793772, 0.13875204, 0.11484067,
        0.09015734, 0.067441136, 0.048222996, 0.03303742, 0.02172456, 0.0137305325, 0.008350085,
        0.0048904205, 0.002760383, 0.0015025315, 0.0007890973, 0.00040001748, 0.00019580826,
        9.258207e-05, 4.229501e-05, 1.8673474e-05, 7.969476e-06, 3.2884204e-06,
    ),
    (
        0.0, 0.06857445, 0.12674361, 0.16629009, 0.18278675, 0.17621776, 0.15052958, 0.112335764,
        0.06921148, 0.028064178, -0.006034739, -0.030370869, -0.04448568, -0.049634416,
        -0.048049673, -0.04223579, -0.034442242, -0.026371466, -0.019100375, -0.0131514445,
        -0.008638766, -0.005427458, -0.0032678267, -0.0018884437, -0.0010487258, -0.0005602271,
        -0.00028811555, -0.0001427473, -6.8174224e-05, -3.1400727e-05, -1.3954453e-05,
        -5.9855197e-06,
    ),
    (
        0.11268063, 0.104041174, 0.0799585, 0.045443367, 0.0073548034, -0.027332, -0.053134814,
        -0.067107, -0.069095835, -0.061267402, -0.04715977, -0.030614251, -0.014894034,
        -0.0021711243, 0.006588884, 0.011433715, 0.013069292, 0.012484523, 0.010653742,
        0.008358106, 0.00612052, 0.004221866, 0.002759592, 0.00171636, 0.0010188362, 0.00057852356,
        0.00031479393, 0.00016437324, 8.245765e-05, 3.977725e-05, 1.8466495e-05, 8.256005e-06,
    ),
)  # fmt: skip
_STEP, _ONE_AFTER = 0.125, 3.93
_INTERVAL_BITS, _HALF_BITS = -(1 << 20), 1 << 19  # of a float32 with three digits behind the first


def erf(to: Text, x: str) -> str:
    """A polynomial near 0, elsewhere 1 minus the exponential of one."""
    if has_registers(to):
        return _erf_looked_up(to, x)
    size, squared = to.call("fabs", x), to.op("fmul", x, x)
    near = to.fma(x, to.polynomial(squared, _NEAR), x)
    rest = small_exp(to, to.polynomial(_at_most(to, size, _FAR_BOUND), _FAR))
    far = to.op("fsub", to.constant(1.0), rest)
    y = to.select(to.compare("olt", size, to.constant(_NEAR_BOUND)), near, far)
    return to.call("copysign", y, x)  # NaN stays


def _erf_looked_up(to: Text, x: str) -> str:
    """By a polynomial around the nearest eighth, whose number is in the last bits of a sum."""
    size = _at_most(to, to.call("fabs", x), _ONE_AFTER)
    rounder = to.constant(1.5 * 2.0**23 * _STEP)
    shifted = to.op("fadd", size, rounder)
    centred = to.op("fsub", size, to.op("fsub", shifted, rounder))
    indices = registers(to, to.bits(shifted), "i32")
    slope = _polynomial_from(to, indices, centred, _ERF_TABLES[1:])
    value = _from_table(to, indices, _ERF_TABLES[0])
    # A sixteenth is as near to an eighth as to 0, and the sum's last bit is even: it belongs to 0.
    is_near = to.compare("ole", size, to.constant(_STEP / 2))
    y = to.fma(slope, centred, to.select(is_near, size, value))
    return to.call("copysign", y, x)  # NaN stays


def erfc(to: Text, x: str) -> str:
    """``exp(-x^2)`` times a function near 1 / (1 + x); of numbers below 0 it is 2 minus that."""
    size = _at_most(to, to.call("fabs", x), _VANISHES)
    if has_registers(to):
        y = _erfc_looked_up(to, size)
    else:
        square = to.op("fmul", size, size)
        of_square = to.fma(size, size, _negated(to, square))
        shifted, part = exp_parts(to, _negated(to, square), of_square)
        y = times_power(to, _by_inverse(to, size, part), shifted)
    is_negative = to.compare("olt", x, to.constant(0.0))
    return to.select(is_negative, to.op("fsub", to.constant(2.0), y), y)


def _by_inverse(to: Text, size: str, part: str) -> str:
    """``(1 + part) erfc(x) exp(x^2)``, by the inverse of ``x + 7/4``."""
    inverse, lost = _inverse(to, size)
    centred = to.op("fadd", to.op("fsub", inverse, to.constant(_CENTRE)), lost)
    slope, first = to.polynomial(centred, _COMPLEMENT[1:]), to.constant(_COMPLEMENT[0])
    p = to.fma(slope, centred, first)
    # What p lacks after its rounding goes into one sum with the other small parts.
    less = to.fma(slope, centred, to.op("fsub", first, p))
    small = to.fma(to.fma(p, part, less), inverse, to.op("fmul", p, lost))
    return to.fma(p, inverse, small)


def _erfc_looked_up(to: Text, size: str) -> str:
    """By a polynomial for each of some intervals, with an exponential in two parts."""
    n, power, less = exp_parts_looked_up(to, size)
    p = _scaled_complement(to, size)
    # The product with the larger part is not rounded before the sum.
    return scaled(to, to.fma(p, power, to.op("fmul", p, less)), n)


def _scaled_complement(to: Text, size: str) -> str:
    """``erfc(x) exp(x^2)``."""
    bits = to.bits(to.op("fadd", size, to.constant(1.0)))
    index = to.op("lshr", bits, to.constant(20, "i32"), "i32")  # its last 5 digits count
    centre = to.op("and", bits, to.constant(_INTERVAL_BITS, "i32"), "i32")
    centre = to.of_bits(to.op("or", centre, to.constant(_HALF_BITS, "i32"), "i32"))
    centred = to.op("fsub", size, to.op("fsub", centre, to.constant(1.0)))
    return _polynomial_from(to, registers(to, index, "i32"), centred, _TABLES)


def _polynomial_from(
    to: Text, indices: list[str], x: str, tables: Sequence[tuple[float, ...]]
) -> str:
    """A polynomial of ``x`` whose coefficients come from tables, the last one first."""
    p = _from_table(to, indices, tables[-1])
    for table in tables[-2::-1]:
        p = to.fma(p, x, _from_table(to, indices, table))
    return p


def _from_table(to: Text, indices: list[str], table: tuple[float, ...]) -> str:
    """The numbers of a table of 32 that the last 5 binary digits of each index tell."""
    kind, function = f"<{AVX512} x float>", "@llvm.x86.avx512.vpermi2var.ps.512"
    to.needs.add(f"declare {kind} {function}({kind}, <{AVX512} x i32>, {kind})")
    low, high = [
        f"{kind} <{', '.join([f'float {float_text(c)}' for c in table[i : i + AVX512]])}>"
        for i in (0, AVX512)
    ]
    parts = [
        to.line(f"call {kind} {function}({low}, <{AVX512} x i32> {i}, {high})") for i in indices
    ]
    return joined(to, parts)


def _inverse(to: Text, size: str) -> tuple[str, str]:
    """``1 / (size + 7/4)``, and what it lacks after both roundings."""
    one, added = to.constant(1.0), to.constant(_ADDED)
    total = to.op("fadd", size, added)
    rounded = to.op("fsub", size, to.op("fsub", total, added))
    inverse = to.op("fdiv", one, total)
    error = to.fma(_negated(to, total), inverse, one)
    error = to.fma(_negated(to, rounded), inverse, error)
    return inverse, to.op("fmul", inverse, error)


def _at_most(to: Text, x: str, bound: float) -> str:
    c = to.constant(bound)
    return to.select(to.compare("ogt", x, c), c, x)  # NaN stays


def _negated(to: Text, x: str) -> str:
    return to.line(f"fneg {to.type('float')} {x}")
