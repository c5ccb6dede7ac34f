"""Operations on arrays without implicit promotion, and the primitives that they bind."""

from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames
from tracebridge.core.collectives.all_gather import all_gather as all_gather
from tracebridge.core.collectives.all_gather import all_gather_p as all_gather_p
from tracebridge.core.collectives.all_gather import psum_scatter as psum_scatter
from tracebridge.core.collectives.all_gather import reduce_scatter_p as reduce_scatter_p
from tracebridge.core.collectives.axes import axis_size as axis_size
from tracebridge.core.collectives.axis_index import axis_index as axis_index
from tracebridge.core.collectives.axis_index import axis_index_p as axis_index_p
from tracebridge.core.collectives.permute import all_to_all as all_to_all
from tracebridge.core.collectives.permute import all_to_all_p as all_to_all_p
from tracebridge.core.collectives.permute import ppermute as ppermute
from tracebridge.core.collectives.permute import ppermute_p as ppermute_p
from tracebridge.core.collectives.permute import pshuffle as pshuffle
from tracebridge.core.collectives.permute import pswapaxes as pswapaxes
from tracebridge.core.collectives.psum import pbroadcast as pbroadcast
from tracebridge.core.collectives.psum import pmax as pmax
from tracebridge.core.collectives.psum import pmax_p as pmax_p
from tracebridge.core.collectives.psum import pmean as pmean
from tracebridge.core.collectives.psum import pmin as pmin
from tracebridge.core.collectives.psum import pmin_p as pmin_p
from tracebridge.core.collectives.psum import psum as psum
from tracebridge.core.collectives.psum import psum_p as psum_p
from tracebridge.core.control.branches.cond import cond_p as cond_p
from tracebridge.core.control.branches.platform_dependent import (
    platform_dependent as platform_dependent,
)
from tracebridge.core.control.branches.switch import cond as cond
from tracebridge.core.control.branches.switch import switch as switch
from tracebridge.core.control.calls.composite import composite as composite
from tracebridge.core.control.calls.composite import composite_p as composite_p
from tracebridge.core.control.loops.associative_scan import associative_scan as associative_scan
from tracebridge.core.control.loops.fori import fori_loop as fori_loop
from tracebridge.core.control.loops.map import map as map
from tracebridge.core.control.loops.scatter_apply import scatter_apply as scatter_apply
from tracebridge.core.control.loops.while_loop import while_loop as while_loop
from tracebridge.core.control.loops.while_primitive import while_p as while_p
from tracebridge.core.control.scan.forward import scan as scan
from tracebridge.core.control.scan.primitive import scan_p as scan_p
from tracebridge.core.control.solve.custom_linear_solve import (
    custom_linear_solve as custom_linear_solve,
)
from tracebridge.core.control.solve.custom_linear_solve import linear_solve_p as linear_solve_p
from tracebridge.core.control.solve.custom_root import custom_root as custom_root
from tracebridge.core.control.tokens import after_all as after_all
from tracebridge.core.control.tokens import create_token as create_token
from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.core.lax.ad_util import stop_gradient as stop_gradient
from tracebridge.core.lax.ad_util import stop_gradient_p as stop_gradient_p
from tracebridge.core.lax.annotations import stage as stage
from tracebridge.core.lax.annotations import stage_p as stage_p
from tracebridge.core.lax.barriers import optimization_barrier as optimization_barrier
from tracebridge.core.lax.barriers import optimization_barrier_p as optimization_barrier_p
from tracebridge.core.lax.contract.dot import DotDimensionNumbers as DotDimensionNumbers
from tracebridge.core.lax.contract.dot import batch_matmul as batch_matmul
from tracebridge.core.lax.contract.dot import dot as dot
from tracebridge.core.lax.contract.dot import dot_general as dot_general
from tracebridge.core.lax.contract.dot import dot_general_p as dot_general_p
from tracebridge.core.lax.contract.precision import DotAlgorithm as DotAlgorithm
from tracebridge.core.lax.contract.precision import DotAlgorithmPreset as DotAlgorithmPreset
from tracebridge.core.lax.contract.precision import Precision as Precision
from tracebridge.core.lax.contract.precision import PrecisionLike as PrecisionLike
from tracebridge.core.lax.device_put import device_put_p as device_put_p
from tracebridge.core.lax.dtype_of import dtype as dtype
from tracebridge.core.lax.elementwise.accuracy import AccuracyMode as AccuracyMode
from tracebridge.core.lax.elementwise.accuracy import Tolerance as Tolerance
from tracebridge.core.lax.elementwise.arithmetic import abs as abs
from tracebridge.core.lax.elementwise.arithmetic import abs_p as abs_p
from tracebridge.core.lax.elementwise.arithmetic import add as add
from tracebridge.core.lax.elementwise.arithmetic import add_p as add_p
from tracebridge.core.lax.elementwise.arithmetic import div as div
from tracebridge.core.lax.elementwise.arithmetic import div_p as div_p
from tracebridge.core.lax.elementwise.arithmetic import max as max
from tracebridge.core.lax.elementwise.arithmetic import max_p as max_p
from tracebridge.core.lax.elementwise.arithmetic import min as min
from tracebridge.core.lax.elementwise.arithmetic import min_p as min_p
from tracebridge.core.lax.elementwise.arithmetic import mul as mul
from tracebridge.core.lax.elementwise.arithmetic import mul_p as mul_p
from tracebridge.core.lax.elementwise.arithmetic import mulhi as mulhi
from tracebridge.core.lax.elementwise.arithmetic import mulhi_p as mulhi_p
from tracebridge.core.lax.elementwise.arithmetic import neg as neg
from tracebridge.core.lax.elementwise.arithmetic import neg_p as neg_p
from tracebridge.core.lax.elementwise.arithmetic import reciprocal as reciprocal
from tracebridge.core.lax.elementwise.arithmetic import rem as rem
from tracebridge.core.lax.elementwise.arithmetic import rem_p as rem_p
from tracebridge.core.lax.elementwise.arithmetic import sign as sign
from tracebridge.core.lax.elementwise.arithmetic import sign_p as sign_p
from tracebridge.core.lax.elementwise.arithmetic import square as square
from tracebridge.core.lax.elementwise.arithmetic import square_p as square_p
from tracebridge.core.lax.elementwise.arithmetic import sub as sub
from tracebridge.core.lax.elementwise.arithmetic import sub_p as sub_p
from tracebridge.core.lax.elementwise.bitwise import and_p as and_p
from tracebridge.core.lax.elementwise.bitwise import bitwise_and as bitwise_and
from tracebridge.core.lax.elementwise.bitwise import bitwise_not as bitwise_not
from tracebridge.core.lax.elementwise.bitwise import bitwise_or as bitwise_or
from tracebridge.core.lax.elementwise.bitwise import bitwise_xor as bitwise_xor
from tracebridge.core.lax.elementwise.bitwise import clz as clz
from tracebridge.core.lax.elementwise.bitwise import clz_p as clz_p
from tracebridge.core.lax.elementwise.bitwise import not_p as not_p
from tracebridge.core.lax.elementwise.bitwise import or_p as or_p
from tracebridge.core.lax.elementwise.bitwise import population_count as population_count
from tracebridge.core.lax.elementwise.bitwise import population_count_p as population_count_p
from tracebridge.core.lax.elementwise.bitwise import shift_left as shift_left
from tracebridge.core.lax.elementwise.bitwise import shift_left_p as shift_left_p
from tracebridge.core.lax.elementwise.bitwise import (
    shift_right_arithmetic as shift_right_arithmetic,
)
from tracebridge.core.lax.elementwise.bitwise import (
    shift_right_arithmetic_p as shift_right_arithmetic_p,
)
from tracebridge.core.lax.elementwise.bitwise import shift_right_logical as shift_right_logical
from tracebridge.core.lax.elementwise.bitwise import shift_right_logical_p as shift_right_logical_p
from tracebridge.core.lax.elementwise.bitwise import xor_p as xor_p
from tracebridge.core.lax.elementwise.compare import eq as eq
from tracebridge.core.lax.elementwise.compare import eq_p as eq_p
from tracebridge.core.lax.elementwise.compare import eq_to_p as eq_to_p
from tracebridge.core.lax.elementwise.compare import ge as ge
from tracebridge.core.lax.elementwise.compare import ge_p as ge_p
from tracebridge.core.lax.elementwise.compare import gt as gt
from tracebridge.core.lax.elementwise.compare import gt_p as gt_p
from tracebridge.core.lax.elementwise.compare import le as le
from tracebridge.core.lax.elementwise.compare import le_p as le_p
from tracebridge.core.lax.elementwise.compare import le_to_p as le_to_p
from tracebridge.core.lax.elementwise.compare import lt as lt
from tracebridge.core.lax.elementwise.compare import lt_p as lt_p
from tracebridge.core.lax.elementwise.compare import lt_to_p as lt_to_p
from tracebridge.core.lax.elementwise.compare import ne as ne
from tracebridge.core.lax.elementwise.compare import ne_p as ne_p
from tracebridge.core.lax.elementwise.complex import complex as complex
from tracebridge.core.lax.elementwise.complex import complex_p as complex_p
from tracebridge.core.lax.elementwise.complex import conj as conj
from tracebridge.core.lax.elementwise.complex import conj_p as conj_p
from tracebridge.core.lax.elementwise.complex import imag as imag
from tracebridge.core.lax.elementwise.complex import imag_p as imag_p
from tracebridge.core.lax.elementwise.complex import real as real
from tracebridge.core.lax.elementwise.complex import real_p as real_p
from tracebridge.core.lax.elementwise.convert import bitcast_convert_type as bitcast_convert_type
from tracebridge.core.lax.elementwise.convert import (
    bitcast_convert_type_p as bitcast_convert_type_p,
)
from tracebridge.core.lax.elementwise.convert import convert_element_type as convert_element_type
from tracebridge.core.lax.elementwise.convert import (
    convert_element_type_p as convert_element_type_p,
)
from tracebridge.core.lax.elementwise.convert import copy_p as copy_p
from tracebridge.core.lax.elementwise.convert import reduce_precision as reduce_precision
from tracebridge.core.lax.elementwise.convert import reduce_precision_p as reduce_precision_p
from tracebridge.core.lax.elementwise.exp_log import exp as exp
from tracebridge.core.lax.elementwise.exp_log import exp2 as exp2
from tracebridge.core.lax.elementwise.exp_log import exp2_p as exp2_p
from tracebridge.core.lax.elementwise.exp_log import exp_p as exp_p
from tracebridge.core.lax.elementwise.exp_log import expm1 as expm1
from tracebridge.core.lax.elementwise.exp_log import expm1_p as expm1_p
from tracebridge.core.lax.elementwise.exp_log import log as log
from tracebridge.core.lax.elementwise.exp_log import log1p as log1p
from tracebridge.core.lax.elementwise.exp_log import log1p_p as log1p_p
from tracebridge.core.lax.elementwise.exp_log import log_p as log_p
from tracebridge.core.lax.elementwise.exp_log import logistic as logistic
from tracebridge.core.lax.elementwise.exp_log import logistic_p as logistic_p
from tracebridge.core.lax.elementwise.hyperbolic import acosh as acosh
from tracebridge.core.lax.elementwise.hyperbolic import acosh_p as acosh_p
from tracebridge.core.lax.elementwise.hyperbolic import asinh as asinh
from tracebridge.core.lax.elementwise.hyperbolic import asinh_p as asinh_p
from tracebridge.core.lax.elementwise.hyperbolic import atanh as atanh
from tracebridge.core.lax.elementwise.hyperbolic import atanh_p as atanh_p
from tracebridge.core.lax.elementwise.hyperbolic import cosh as cosh
from tracebridge.core.lax.elementwise.hyperbolic import cosh_p as cosh_p
from tracebridge.core.lax.elementwise.hyperbolic import sinh as sinh
from tracebridge.core.lax.elementwise.hyperbolic import sinh_p as sinh_p
from tracebridge.core.lax.elementwise.hyperbolic import tanh as tanh
from tracebridge.core.lax.elementwise.hyperbolic import tanh_p as tanh_p
from tracebridge.core.lax.elementwise.power import cbrt as cbrt
from tracebridge.core.lax.elementwise.power import cbrt_p as cbrt_p
from tracebridge.core.lax.elementwise.power import integer_pow as integer_pow
from tracebridge.core.lax.elementwise.power import integer_pow_p as integer_pow_p
from tracebridge.core.lax.elementwise.power import pow as pow
from tracebridge.core.lax.elementwise.power import pow_p as pow_p
from tracebridge.core.lax.elementwise.power import rsqrt as rsqrt
from tracebridge.core.lax.elementwise.power import rsqrt_p as rsqrt_p
from tracebridge.core.lax.elementwise.power import sqrt as sqrt
from tracebridge.core.lax.elementwise.power import sqrt_p as sqrt_p
from tracebridge.core.lax.elementwise.rounding import RoundingMethod as RoundingMethod
from tracebridge.core.lax.elementwise.rounding import ceil as ceil
from tracebridge.core.lax.elementwise.rounding import ceil_p as ceil_p
from tracebridge.core.lax.elementwise.rounding import floor as floor
from tracebridge.core.lax.elementwise.rounding import floor_p as floor_p
from tracebridge.core.lax.elementwise.rounding import is_finite as is_finite
from tracebridge.core.lax.elementwise.rounding import is_finite_p as is_finite_p
from tracebridge.core.lax.elementwise.rounding import nextafter as nextafter
from tracebridge.core.lax.elementwise.rounding import nextafter_p as nextafter_p
from tracebridge.core.lax.elementwise.rounding import round as round
from tracebridge.core.lax.elementwise.rounding import round_p as round_p
from tracebridge.core.lax.elementwise.select import clamp as clamp
from tracebridge.core.lax.elementwise.select import clamp_p as clamp_p
from tracebridge.core.lax.elementwise.select import select as select
from tracebridge.core.lax.elementwise.select import select_n as select_n
from tracebridge.core.lax.elementwise.select import select_n_p as select_n_p
from tracebridge.core.lax.elementwise.trig import acos as acos
from tracebridge.core.lax.elementwise.trig import acos_p as acos_p
from tracebridge.core.lax.elementwise.trig import asin as asin
from tracebridge.core.lax.elementwise.trig import asin_p as asin_p
from tracebridge.core.lax.elementwise.trig import atan as atan
from tracebridge.core.lax.elementwise.trig import atan2 as atan2
from tracebridge.core.lax.elementwise.trig import atan2_p as atan2_p
from tracebridge.core.lax.elementwise.trig import atan_p as atan_p
from tracebridge.core.lax.elementwise.trig import cos as cos
from tracebridge.core.lax.elementwise.trig import cos_p as cos_p
from tracebridge.core.lax.elementwise.trig import sin as sin
from tracebridge.core.lax.elementwise.trig import sin_p as sin_p
from tracebridge.core.lax.elementwise.trig import tan as tan
from tracebridge.core.lax.elementwise.trig import tan_p as tan_p
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_index_in_dim as dynamic_index_in_dim
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_slice as dynamic_slice
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_slice_in_dim as dynamic_slice_in_dim
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_slice_p as dynamic_slice_p
from tracebridge.core.lax.indexing.dynamic_slice import (
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
)
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_update_slice as dynamic_update_slice
from tracebridge.core.lax.indexing.dynamic_slice import (
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
)
from tracebridge.core.lax.indexing.dynamic_slice import (
    dynamic_update_slice_p as dynamic_update_slice_p,
)
from tracebridge.core.lax.indexing.gather import gather as gather
from tracebridge.core.lax.indexing.gather import gather_p as gather_p
from tracebridge.core.lax.indexing.gather import index_take as index_take
from tracebridge.core.lax.indexing.modes import GatherDimensionNumbers as GatherDimensionNumbers
from tracebridge.core.lax.indexing.modes import GatherScatterMode as GatherScatterMode
from tracebridge.core.lax.indexing.modes import ScatterDimensionNumbers as ScatterDimensionNumbers
from tracebridge.core.lax.indexing.scatter import scatter_add_p as scatter_add_p
from tracebridge.core.lax.indexing.scatter import scatter_max_p as scatter_max_p
from tracebridge.core.lax.indexing.scatter import scatter_min_p as scatter_min_p
from tracebridge.core.lax.indexing.scatter import scatter_mul_p as scatter_mul_p
from tracebridge.core.lax.indexing.scatter import scatter_p as scatter_p
from tracebridge.core.lax.indexing.scatter import scatter_sub_p as scatter_sub_p
from tracebridge.core.lax.indexing.scatter_functions import scatter as scatter
from tracebridge.core.lax.indexing.scatter_functions import scatter_add as scatter_add
from tracebridge.core.lax.indexing.scatter_functions import scatter_max as scatter_max
from tracebridge.core.lax.indexing.scatter_functions import scatter_min as scatter_min
from tracebridge.core.lax.indexing.scatter_functions import scatter_mul as scatter_mul
from tracebridge.core.lax.indexing.scatter_functions import scatter_sub as scatter_sub
from tracebridge.core.lax.indexing.slice import index_in_dim as index_in_dim
from tracebridge.core.lax.indexing.slice import slice as slice
from tracebridge.core.lax.indexing.slice import slice_in_dim as slice_in_dim
from tracebridge.core.lax.indexing.slice import slice_p as slice_p
from tracebridge.core.lax.like import empty as empty
from tracebridge.core.lax.like import full as full
from tracebridge.core.lax.like import full_like as full_like
from tracebridge.core.lax.like import ones_like as ones_like
from tracebridge.core.lax.like import zeros_like as zeros_like
from tracebridge.core.lax.reduce.argminmax import argmax as argmax
from tracebridge.core.lax.reduce.argminmax import argmax_p as argmax_p
from tracebridge.core.lax.reduce.argminmax import argmin as argmin
from tracebridge.core.lax.reduce.argminmax import argmin_p as argmin_p
from tracebridge.core.lax.reduce.cumulative import cumlogsumexp as cumlogsumexp
from tracebridge.core.lax.reduce.cumulative import cumlogsumexp_p as cumlogsumexp_p
from tracebridge.core.lax.reduce.cumulative import cummax as cummax
from tracebridge.core.lax.reduce.cumulative import cummax_p as cummax_p
from tracebridge.core.lax.reduce.cumulative import cummin as cummin
from tracebridge.core.lax.reduce.cumulative import cummin_p as cummin_p
from tracebridge.core.lax.reduce.cumulative import cumprod as cumprod
from tracebridge.core.lax.reduce.cumulative import cumprod_p as cumprod_p
from tracebridge.core.lax.reduce.cumulative import cumsum as cumsum
from tracebridge.core.lax.reduce.cumulative import cumsum_p as cumsum_p
from tracebridge.core.lax.reduce.reductions import reduce_and as reduce_and
from tracebridge.core.lax.reduce.reductions import reduce_and_p as reduce_and_p
from tracebridge.core.lax.reduce.reductions import reduce_max as reduce_max
from tracebridge.core.lax.reduce.reductions import reduce_max_p as reduce_max_p
from tracebridge.core.lax.reduce.reductions import reduce_min as reduce_min
from tracebridge.core.lax.reduce.reductions import reduce_min_p as reduce_min_p
from tracebridge.core.lax.reduce.reductions import reduce_or as reduce_or
from tracebridge.core.lax.reduce.reductions import reduce_or_p as reduce_or_p
from tracebridge.core.lax.reduce.reductions import reduce_prod as reduce_prod
from tracebridge.core.lax.reduce.reductions import reduce_prod_p as reduce_prod_p
from tracebridge.core.lax.reduce.reductions import reduce_sum as reduce_sum
from tracebridge.core.lax.reduce.reductions import reduce_sum_p as reduce_sum_p
from tracebridge.core.lax.reduce.reductions import reduce_xor as reduce_xor
from tracebridge.core.lax.reduce.reductions import reduce_xor_p as reduce_xor_p
from tracebridge.core.lax.reduce.sort import sort as sort
from tracebridge.core.lax.reduce.sort import sort_key_val as sort_key_val
from tracebridge.core.lax.reduce.sort import sort_p as sort_p
from tracebridge.core.lax.reduce.top_k import approx_max_k as approx_max_k
from tracebridge.core.lax.reduce.top_k import approx_min_k as approx_min_k
from tracebridge.core.lax.reduce.top_k import top_k as top_k
from tracebridge.core.lax.reduce.top_k import top_k_p as top_k_p
from tracebridge.core.lax.rng import RandomAlgorithm as RandomAlgorithm
from tracebridge.core.lax.rng import rng_bit_generator as rng_bit_generator
from tracebridge.core.lax.rng import rng_bit_generator_p as rng_bit_generator_p
from tracebridge.core.lax.rng import rng_uniform as rng_uniform
from tracebridge.core.lax.rng import rng_uniform_p as rng_uniform_p
from tracebridge.core.lax.shape.broadcast import broadcast as broadcast
from tracebridge.core.lax.shape.broadcast import broadcast_in_dim as broadcast_in_dim
from tracebridge.core.lax.shape.broadcast import broadcast_in_dim_p as broadcast_in_dim_p
from tracebridge.core.lax.shape.broadcast import broadcast_like as broadcast_like
from tracebridge.core.lax.shape.broadcast import broadcast_shapes as broadcast_shapes
from tracebridge.core.lax.shape.broadcast import broadcast_to_rank as broadcast_to_rank
from tracebridge.core.lax.shape.concatenate import concatenate as concatenate
from tracebridge.core.lax.shape.concatenate import concatenate_p as concatenate_p
from tracebridge.core.lax.shape.concatenate import stack as stack
from tracebridge.core.lax.shape.iota import broadcasted_iota as broadcasted_iota
from tracebridge.core.lax.shape.iota import iota as iota
from tracebridge.core.lax.shape.iota import iota_p as iota_p
from tracebridge.core.lax.shape.iota import shape_as_value as shape_as_value
from tracebridge.core.lax.shape.pad import pad as pad
from tracebridge.core.lax.shape.pad import pad_p as pad_p
from tracebridge.core.lax.shape.padtype import padtype_to_pads as padtype_to_pads
from tracebridge.core.lax.shape.reshape import collapse as collapse
from tracebridge.core.lax.shape.reshape import expand_dims as expand_dims
from tracebridge.core.lax.shape.reshape import reshape as reshape
from tracebridge.core.lax.shape.reshape import reshape_p as reshape_p
from tracebridge.core.lax.shape.reshape import squeeze as squeeze
from tracebridge.core.lax.shape.reshape import squeeze_p as squeeze_p
from tracebridge.core.lax.shape.rev import rev as rev
from tracebridge.core.lax.shape.rev import rev_p as rev_p
from tracebridge.core.lax.shape.split import split as split
from tracebridge.core.lax.shape.split import split_p as split_p
from tracebridge.core.lax.shape.split import tile as tile
from tracebridge.core.lax.shape.split import unstack as unstack
from tracebridge.core.lax.shape.transpose import transpose as transpose
from tracebridge.core.lax.shape.transpose import transpose_p as transpose_p
from tracebridge.core.lax.sharding_constraint import (
    sharding_constraint_p as sharding_constraint_p,
)
from tracebridge.core.lax.sharding_constraint import (
    with_sharding_constraint as with_sharding_constraint,
)
from tracebridge.core.lax.sink import dce_sink as dce_sink
from tracebridge.core.lax.sink import dce_sink_p as dce_sink_p
from tracebridge.core.lax.special.erf import erf as erf
from tracebridge.core.lax.special.erf import erf_inv as erf_inv
from tracebridge.core.lax.special.erf import erf_inv_p as erf_inv_p
from tracebridge.core.lax.special.erf import erf_p as erf_p
from tracebridge.core.lax.special.erf import erfc as erfc
from tracebridge.core.lax.special.erf import erfc_p as erfc_p
from tracebridge.core.lax.special.gamma import digamma as digamma
from tracebridge.core.lax.special.gamma import digamma_p as digamma_p
from tracebridge.core.lax.special.gamma import lgamma as lgamma
from tracebridge.core.lax.special.gamma import lgamma_p as lgamma_p
from tracebridge.core.lax.special.gamma import polygamma as polygamma
from tracebridge.core.lax.special.gamma import polygamma_p as polygamma_p
from tracebridge.core.lax.special.gamma import zeta as zeta
from tracebridge.core.lax.special.gamma import zeta_p as zeta_p

if TYPE_CHECKING:
    from tracebridge.core.fft.fft import FftType as FftType
    from tracebridge.core.fft.fft import fft as fft
    from tracebridge.core.fft.fft import fft_p as fft_p

# What programs use less often is loaded at its first use: module -> names. The packages that these
# modules belong to stand above the core of operations, see [tool.importlinter] in pyproject.toml.
_LATER = _LazyNames(
    __name__,
    {
        "tracebridge.core.fft.fft": "FftType fft fft_p",
    },
    submodules=(),
)

# A call of an elementwise function takes little longer than a boundary around it.
_publish(globals(), __name__, "tracebridge.core.lax.elementwise")

_NOT_OURS = ("TYPE_CHECKING", "annotations")
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604 - computed from what is imported
    *_LATER.names(),
    *[
        _name
        for _name, _value in globals().items()
        if not (_name.startswith("_") or _name in _NOT_OURS or isinstance(_value, _ModuleType))
    ],
]


def __dir__() -> list[str]:
    return [*__all__, *_LATER.submodules]


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
