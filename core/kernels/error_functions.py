"""Error functions and the normal distribution as LLVM's text, fitted as in ``exponentials.py``.

``erf`` is within 1.2 ulp, ``erfc`` within 2.5, ``ndtr`` within 3.5, also where they are small.
Where vectors are whole registers of AVX-512, the first two look their polynomials up: half of the
time of ``erf``, and 0.4 of that of ``erfc``.

``erfc`` has two ways. Below 3.93, with looked up coefficients, a polynomial is all, within 1.6 ulp;
elsewhere a power of two goes with one below 4, within 2.3. A vector with a number beyond goes on to
the inverse of that number, or to an exponential of sixteenths that is looked up. ``ndtr`` has such
a power of its own, or goes by ``erfc``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

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
_NOT_ALL = 16.0  # nothing is left of erfc there, nor of what rounding changes
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
# erfc of c + x for the same c; relative error 4e-8, with the rounding of what it adds up to.
_ERFC_TABLES = (
    (
        1.0, 0.8596838, 0.7236736, 0.5958831, 0.47950011, 0.3767591, 0.28884438, 0.21592493,
        0.1572992, 0.11161177, 0.077099875, 0.051829927, 0.03389485, 0.021556268, 0.013328329,
        0.008009942, 0.004677735, 0.0026540293, 0.0014627166, 0.0007829382, 0.00040695202,
        0.00020537573, 0.000100621925, 4.785484e-05, 2.2090497e-05, 9.896735e-06, 4.3027794e-06,
        1.8152814e-06, 7.430984e-07, 2.9514018e-07, 1.1372726e-07, 4.2513943e-08,
    ),
    (
        -1.1283792, -1.1108853, -1.0600141, -0.98035276, -0.8787826, -0.7634995, -0.6429311,
        -0.52474505, -0.4151075, -0.31827396, -0.23652112, -0.17035978, -0.11893028, -0.08047226,
        -0.052774996, -0.03354583, -0.020666985, -0.01234082, -0.0071423193, -0.004006478,
        -0.0021782843, -0.0011478751, -0.0005862773, -0.0002902283, -0.00013925305, -6.4758686e-05,
        -2.9189025e-05, -1.27517405e-05, -5.3994268e-06, -2.2159202e-06, -8.8143224e-07,
        -3.3982238e-07,
    ),
    (
        0.0, 0.13878721, 0.26512676, 0.36771616, 0.4394232, 0.47721267, 0.4821531, 0.4591755,
        0.4151134, 0.35805693, 0.29563904, 0.23424709, 0.17840265, 0.13076423, 0.09235646,
        0.06289879, 0.04133471, 0.026224535, 0.01607013, 0.009515427, 0.005445694, 0.003013179,
        0.001612253, 0.0008344091, 0.00041776028, 0.00020237012, 9.486447e-05, 4.303723e-05,
        1.8897957e-05, 8.03274e-06, 3.3053548e-06, 1.3168153e-06,
    ),
    (
        0.37618664, 0.35871992, 0.3091552, 0.23475978, 0.14644133, 0.05560488, -0.026707118,
        -0.09293459, -0.138386, -0.16244715, -0.16751951, -0.15793796, -0.13877265, -0.114834584,
        -0.090158075, -0.067440316, -0.04822464, -0.03303818, -0.021724015, -0.013730409,
        -0.00834993, -0.0048904708, -0.002760325, -0.0015025357, -0.0007890994, -0.00040001387,
        -0.00019580983, -9.258297e-05, -4.229525e-05, -1.8673765e-05, -7.969421e-06,
        -3.2884548e-06,
    ),
    (
        0.0, -0.019255286, -0.20973335, -0.22139597, -0.2041585, -0.19274329, -0.1215648,
        -0.12793028, -0.07290848, -0.027183937, 0.0140751535, 0.028940124, 0.040102046,
        0.051729854, 0.047969386, 0.04201686, 0.033982873, 0.026181623, 0.01913534, 0.013105234,
        0.008631676, 0.00541047, 0.003263637, 0.0018800918, 0.0010437436, 0.0005580381,
        0.0002865081, 0.00014183656, 6.773967e-05, 3.1155174e-05, 1.3851506e-05, 5.9310732e-06,
    ),
    (
        -0.12514669, -0.10412061, -0.07153881, -0.013484316, -0.0011025815, 0.046031862,
        0.028563228, 0.072230324, 0.07388253, 0.059904948, 0.041283973, 0.03085754, 0.020945113,
        0.00016002184, -0.006380483, -0.011582439, -0.012537023, -0.012238829, -0.01079445,
        -0.008380648, -0.0061575887, -0.004209141, -0.0027749788, -0.0017144096, -0.0010179457,
        -0.0005795029, -0.00031442582, -0.00016414588, -8.2399696e-05, -3.9706993e-05,
        -1.8481504e-05, -8.247646e-06,
    ),
    (
        0.0, -8.344229, 13.9640255, 9.103413, 3.5664225, 2.6624262, -4.697536, 2.5735881,
        0.58857113, -0.13951457, -1.2942729, 0.23555608, 0.68836874, -0.33330187, 0.011801783,
        0.036691565, 0.07215271, 0.029613927, -0.0048968475, 0.0077903876, 0.0014396383,
        0.0028043047, 0.0008342211, 0.0013928422, 0.00083517446, 0.00038114964, 0.00027119892,
        0.00015316987, 7.439453e-05, 4.1247673e-05, 1.763536e-05, 9.189271e-06,
    ),
)  # fmt: skip
_STEP, _ONE_AFTER = 0.125, 3.93


class _Tail(NamedTuple):
    """A function from 0 to ``end``: ``f(x) 2^(rate (x + shift)^2) = P(x - centre)``.

    A power that falls more slowly at first than ``exp(-x^2)``, and faster later: a short polynomial
    is left. The rate has 5 bits, the shift none below 2^-16.
    """

    rate: float
    shift: float
    centre: float
    end: float
    coefficients: tuple[float, ...]


# Relative error 1e-8.
_ERFC = _Tail(1.1875, 0.8125, 1.28125, 4.0, (
    2.5830715, 0.83830553, 0.0050247544, -0.109757766, -0.009492187, 0.002541697, 0.0016040185,
    -0.00016751485, -1.8804694e-05, -1.2655295e-05, 4.2654706e-06, -3.3161692e-07,
))  # fmt: skip
# The normal distribution function of -x, which is half of erfc of x over the root of 2: without
# that quotient, whose rounding would count. Relative error 8e-9.
_NORMAL = _Tail(0.59375, 1.1490478515625, 1.8125, 5.65625, (
    1.2916933, 0.29638588, 0.0012247103, -0.01940505, -0.0011859487, 0.00022491146, 0.00010024512,
    -7.3862075e-06, -5.9616036e-07, -2.8084753e-07, 6.753525e-08, -3.7616670e-09,
))  # fmt: skip
_WHOLE_SQUARES = 192.0  # a sum with it has 19 bits of a number: the rate times these is exact
# The root of 1/2 as a float32, and the rest.
_ROOT_HALF, _ROOT_HALF_LOW = 0.7071067690849304, 1.2101617152815436e-08
# 2^r = 1 + r P(r) for |r| <= 1/2; relative error 2e-9.
_POWER = (0.6931472, 0.24022645, 0.055503603, 0.009618505, 0.0013391025, 0.00015327196)
_POWER_ROUNDER = 1.5 * 2.0**23 + 127.0  # a sum with it ends with the exponent of a float32
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
    shifted, centred = _nearest_eighth(to, size)
    indices = registers(to, to.bits(shifted), "i32")
    slope = _polynomial_from(to, indices, centred, _ERF_TABLES[1:])
    value = _from_table(to, indices, _ERF_TABLES[0])
    # A sixteenth is as near to an eighth as to 0, and the sum's last bit is even: it belongs to 0.
    is_near = to.compare("ole", size, to.constant(_STEP / 2))
    y = to.fma(slope, centred, to.select(is_near, size, value))
    return to.call("copysign", y, x)  # NaN stays


def _nearest_eighth(to: Text, size: str) -> tuple[str, str]:
    """A number with the nearest eighth in its last bits, and what is left."""
    rounder = to.constant(1.5 * 2.0**23 * _STEP)
    shifted = to.op("fadd", size, rounder)
    return shifted, to.op("fsub", size, to.op("fsub", shifted, rounder))


def erfc(to: Text, x: str) -> str:
    """``exp(-x^2)`` times a function near 1 / (1 + x); of numbers below 0 it is 2 minus that."""
    size = to.call("fabs", x)
    if has_registers(to):
        y = _near_erfc_looked_up(to, size)
        y = _unless_far(to, x, y, _ONE_AFTER, _far_erfc_looked_up)
    else:
        y = _unless_far(to, x, _near(to, size, _ERFC), _ERFC.end, _far_erfc)
    is_negative = to.compare("olt", x, to.constant(0.0))
    return to.select(is_negative, to.op("fsub", to.constant(2.0), y), y)


def ndtr(to: Text, x: str) -> str:
    """The normal distribution function: as ``erfc``, of ``-x`` over the root of 2."""
    if has_registers(to):
        return _by_erfc(to, _negated(to, x), erfc)
    size = to.call("fabs", x)
    y = _near(to, size, _NORMAL)
    y = _unless_far(to, _negated(to, x), y, _NORMAL.end, _far_normal)
    is_positive = to.compare("ogt", x, to.constant(0.0))
    return to.select(is_positive, to.op("fsub", to.constant(1.0), y), y)


def _far_normal(to: Text, size: str) -> str:
    return _by_erfc(to, size, _far_erfc)


def _by_erfc(to: Text, x: str, of_quotient: Callable[[Text, str], str]) -> str:
    """Half of ``erfc`` of ``x`` over the root of 2, with what rounding has taken off that."""
    factor, half = to.constant(_ROOT_HALF), to.constant(0.5)
    z = to.op("fmul", x, factor)
    lost = to.fma(x, factor, _negated(to, z))
    lost = to.fma(x, to.constant(_ROOT_HALF_LOW), lost)
    y, middle = of_quotient(to, z), to.constant(_NOT_ALL / 2)
    # The slope of the logarithm is nearly -2 z, above 0; below, the function is nearly 2.
    counts = to.compare("olt", to.call("fabs", to.op("fsub", z, middle)), middle)
    change = to.select(counts, to.op("fmul", z, lost), to.constant(0.0))
    # Not by their product, which may be subnormal where the result is not.
    return to.fma(y, _negated(to, change), to.op("fmul", y, half))


def _near(to: Text, size: str, tail: _Tail) -> str:
    """By a power of two whose exponent is a square, and a polynomial.

    Short chains of operations: what takes time is that each waits for the one before.
    """
    size = _at_most(to, size, tail.end)
    bits = to.constant(_WHOLE_SQUARES)
    shifted = to.op("fadd", size, bits)
    # So many of its bits, and the shift.
    first = to.op("fsub", shifted, to.constant(_WHOLE_SQUARES - tail.shift))
    last = to.op("fsub", size, to.op("fsub", shifted, bits))
    slope, rounder = to.op("fmul", first, to.constant(-tail.rate)), to.constant(_POWER_ROUNDER)
    shifted = to.fma(slope, first, rounder)
    r = to.fma(slope, first, to.op("fsub", rounder, shifted))
    r = to.fma(slope, to.op("fadd", last, last), r)
    power = to.of_bits(to.op("shl", to.bits(shifted), to.constant(23, "i32"), "i32"))
    centred, c = to.op("fsub", size, to.constant(tail.centre)), to.constant(tail.coefficients[0])
    p = to.fma(_by_twos(to, centred, tail.coefficients[1:]), centred, c)
    p = to.op("fmul", p, power)
    return to.fma(to.op("fmul", p, r), to.polynomial(r, _POWER), p)


def _by_twos(to: Text, x: str, coefficients: Sequence[float]) -> str:
    """A polynomial of which even and odd powers do not wait for each other."""
    squared = to.op("fmul", x, x)
    even = to.polynomial(squared, coefficients[::2])
    return to.fma(to.polynomial(squared, coefficients[1::2]), x, even)


def _far_erfc(to: Text, size: str) -> str:
    """By the inverse, with an exponential of the square and what that lacks."""
    size = _at_most(to, size, _VANISHES)
    square = to.op("fmul", size, size)
    of_square = to.fma(size, size, _negated(to, square))
    shifted, part = exp_parts(to, _negated(to, square), of_square)
    return times_power(to, _by_inverse(to, size, part), shifted)


def _by_inverse(to: Text, size: str, part: str) -> str:
    """``(1 + part) erfc(x) exp(x^2)``, by the inverse of ``x + 7/4``."""
    inverse, lost = _inverse(to, size)
    centred = to.op("fadd", to.op("fsub", inverse, to.constant(_CENTRE)), lost)
    slope, first = _by_twos(to, centred, _COMPLEMENT[1:]), to.constant(_COMPLEMENT[0])
    p = to.fma(slope, centred, first)
    # What p lacks after its rounding goes into one sum with the other small parts.
    less = to.fma(slope, centred, to.op("fsub", first, p))
    small = to.fma(to.fma(p, part, less), inverse, to.op("fmul", p, lost))
    return to.fma(p, inverse, small)


def _near_erfc_looked_up(to: Text, size: str) -> str:
    """By a polynomial around the nearest eighth: of numbers that are larger, of the last one."""
    shifted, centred = _nearest_eighth(to, _at_most(to, size, _ONE_AFTER))
    return _polynomial_from(to, registers(to, to.bits(shifted), "i32"), centred, _ERFC_TABLES)


def _unless_far(to: Text, x: str, y: str, bound: float, beyond: Callable[[Text, str], str]) -> str:
    """``y``, or ``beyond`` of those ``x`` that are beyond the bound: few are.

    Both are chosen by element, so the result does not depend on its neighbours.
    """
    kind, function = to.type("float"), f"@{beyond.__name__.strip('_')}.{to.suffix()}"
    to.call("fabs", x)  # for its declaration
    far = Text([0], to.width)
    found = beyond(far, "%x")
    to.needs |= far.needs
    any_far = "or i1 %is_far, %is_far"
    if to.width:
        any_of = f"@llvm.vector.reduce.or.v{to.width}i1"
        to.needs.add(f"declare i1 {any_of}({to.type('i1')})")
        any_far = f"call i1 {any_of}({to.type('i1')} %is_far)"
    lines = "\n  ".join(far.lines)
    # Out of line: LLVM would keep the tables of both ways in registers, which are too few.
    to.needs.add(f"""
define internal {kind} {function}.part({kind} %x) noinline cold {{
entry:
  {lines}
  ret {kind} {found}
}}
define internal {kind} {function}({kind} %x, {kind} %y) alwaysinline {{
entry:
  %is_far = fcmp oge {kind} %x, {to.constant(bound)}
  %any = {any_far}
  br i1 %any, label %far, label %near
near:
  ret {kind} %y
far:
  %found = call {kind} {function}.part({kind} %x)
  %each = select {to.type("i1")} %is_far, {kind} %found, {kind} %y
  ret {kind} %each
}}""")
    return to.line(f"call {kind} {function}({kind} {x}, {kind} {y})")


def _far_erfc_looked_up(to: Text, size: str) -> str:
    """By a polynomial for each of some intervals, with an exponential in two parts."""
    size = _at_most(to, size, _VANISHES)
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
