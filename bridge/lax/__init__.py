"""Operations on arrays without implicit promotion, and the primitives that they bind."""

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames
from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.core.lax.ad_util import *
from tracebridge.core.lax.annotations import *
from tracebridge.core.lax.barriers import *
from tracebridge.core.lax.contract.dot import *
from tracebridge.core.lax.contract.precision import *
from tracebridge.core.lax.device_put import *
from tracebridge.core.lax.dtype_of import *
from tracebridge.core.lax.elementwise.accuracy import *
from tracebridge.core.lax.elementwise.arithmetic import *
from tracebridge.core.lax.elementwise.bitwise import *
from tracebridge.core.lax.elementwise.compare import *
from tracebridge.core.lax.elementwise.complex import *
from tracebridge.core.lax.elementwise.convert import *
from tracebridge.core.lax.elementwise.exp_log import *
from tracebridge.core.lax.elementwise.hyperbolic import *
from tracebridge.core.lax.elementwise.power import *
from tracebridge.core.lax.elementwise.rounding import *
from tracebridge.core.lax.elementwise.select import *
from tracebridge.core.lax.elementwise.trig import *
from tracebridge.core.lax.indexing.dynamic_slice import *
from tracebridge.core.lax.indexing.gather import *
from tracebridge.core.lax.indexing.modes import *
from tracebridge.core.lax.indexing.scatter import *
from tracebridge.core.lax.indexing.scatter_functions import *
from tracebridge.core.lax.indexing.slice import *
from tracebridge.core.lax.like import *
from tracebridge.core.lax.reduce.argminmax import *
from tracebridge.core.lax.reduce.cumulative import *
from tracebridge.core.lax.reduce.reductions import *
from tracebridge.core.lax.reduce.sort import *
from tracebridge.core.lax.reduce.top_k import *
from tracebridge.core.lax.rng import *
from tracebridge.core.lax.shape.broadcast import *
from tracebridge.core.lax.shape.concatenate import *
from tracebridge.core.lax.shape.iota import *
from tracebridge.core.lax.shape.pad import *
from tracebridge.core.lax.shape.padtype import *
from tracebridge.core.lax.shape.reshape import *
from tracebridge.core.lax.shape.rev import *
from tracebridge.core.lax.shape.roll import *
from tracebridge.core.lax.shape.split import *
from tracebridge.core.lax.shape.stack import *
from tracebridge.core.lax.shape.transpose import *
from tracebridge.core.lax.sharding_constraint import *
from tracebridge.core.lax.sink import *
from tracebridge.core.lax.special.erf import *
from tracebridge.core.lax.special.gamma import *
from tracebridge.core.lax.special.zeta import *
from tracebridge.lax import _positions as _positions

if TYPE_CHECKING:
    from tracebridge.core.collectives.all_gather import all_gather as all_gather
    from tracebridge.core.collectives.all_gather import all_gather_p as all_gather_p
    from tracebridge.core.collectives.all_gather import psum_scatter as psum_scatter
    from tracebridge.core.collectives.all_gather import reduce_scatter_p as reduce_scatter_p
    from tracebridge.core.collectives.axes import axis_size as axis_size
    from tracebridge.core.collectives.axis_index import axis_index as axis_index
    from tracebridge.core.collectives.axis_index import axis_index_p as axis_index_p
    from tracebridge.core.collectives.casts import pcast as pcast
    from tracebridge.core.collectives.exchange import precv as precv
    from tracebridge.core.collectives.exchange import psend as psend
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
    from tracebridge.core.collectives.ragged import ragged_all_to_all as ragged_all_to_all
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
    from tracebridge.core.control.tokens import after_all_p as after_all_p
    from tracebridge.core.control.tokens import create_token as create_token
    from tracebridge.core.control.tokens import create_token_p as create_token_p
    from tracebridge.core.conv.functions import conv as conv
    from tracebridge.core.conv.functions import conv_general_dilated as conv_general_dilated
    from tracebridge.core.conv.functions import (
        conv_general_dilated_local as conv_general_dilated_local,
    )
    from tracebridge.core.conv.functions import (
        conv_general_dilated_patches as conv_general_dilated_patches,
    )
    from tracebridge.core.conv.functions import conv_transpose as conv_transpose
    from tracebridge.core.conv.functions import (
        conv_with_general_padding as conv_with_general_padding,
    )
    from tracebridge.core.conv.numbers import ConvDimensionNumbers as ConvDimensionNumbers
    from tracebridge.core.conv.numbers import (
        ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    )
    from tracebridge.core.conv.numbers import conv_dimension_numbers as conv_dimension_numbers
    from tracebridge.core.conv.numbers import conv_general_permutations as conv_general_permutations
    from tracebridge.core.conv.numbers import conv_general_shape_tuple as conv_general_shape_tuple
    from tracebridge.core.conv.numbers import conv_shape_tuple as conv_shape_tuple
    from tracebridge.core.conv.numbers import (
        conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    )
    from tracebridge.core.conv.primitive import conv_general_dilated_p as conv_general_dilated_p
    from tracebridge.core.fft.fft import FftType as FftType
    from tracebridge.core.fft.fft import fft as fft
    from tracebridge.core.fft.fft import fft_p as fft_p
    from tracebridge.core.products.ragged_functions import (
        RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    )
    from tracebridge.core.products.ragged_functions import ragged_dot as ragged_dot
    from tracebridge.core.products.ragged_functions import ragged_dot_general as ragged_dot_general
    from tracebridge.core.products.scaled import scaled_dot as scaled_dot
    from tracebridge.core.special.bessel import bessel_i0e as bessel_i0e
    from tracebridge.core.special.bessel import bessel_i0e_p as bessel_i0e_p
    from tracebridge.core.special.bessel import bessel_i1e as bessel_i1e
    from tracebridge.core.special.bessel import bessel_i1e_p as bessel_i1e_p
    from tracebridge.core.special.incomplete_beta import betainc as betainc
    from tracebridge.core.special.incomplete_beta import (
        regularized_incomplete_beta_p as regularized_incomplete_beta_p,
    )
    from tracebridge.core.special.incomplete_gamma import igamma as igamma
    from tracebridge.core.special.incomplete_gamma import igamma_grad_a as igamma_grad_a
    from tracebridge.core.special.incomplete_gamma import igamma_grad_a_p as igamma_grad_a_p
    from tracebridge.core.special.incomplete_gamma import igamma_p as igamma_p
    from tracebridge.core.special.incomplete_gamma import igammac as igammac
    from tracebridge.core.special.incomplete_gamma import igammac_p as igammac_p
    from tracebridge.core.special.incomplete_gamma import random_gamma_grad as random_gamma_grad
    from tracebridge.core.windows.geometry import (
        reduce_window_shape_tuple as reduce_window_shape_tuple,
    )
    from tracebridge.core.windows.reduce import reduce as reduce
    from tracebridge.core.windows.reduce import reduce_p as reduce_p
    from tracebridge.core.windows.reduce_window import reduce_window as reduce_window
    from tracebridge.core.windows.reduce_window import reduce_window_max_p as reduce_window_max_p
    from tracebridge.core.windows.reduce_window import reduce_window_min_p as reduce_window_min_p
    from tracebridge.core.windows.reduce_window import reduce_window_p as reduce_window_p
    from tracebridge.core.windows.reduce_window import reduce_window_sum_p as reduce_window_sum_p
    from tracebridge.core.windows.select import (
        select_and_gather_add_p as select_and_gather_add_p,
    )
    from tracebridge.core.windows.select import (
        select_and_scatter_add_p as select_and_scatter_add_p,
    )
    from tracebridge.core.windows.select import select_and_scatter_p as select_and_scatter_p
    from tracebridge.lax import linalg as linalg

# What programs use less often is loaded at its first use: module -> names. The packages that these
# modules belong to stand above the core of operations, see [tool.importlinter] in pyproject.toml.
_LATER = _LazyNames(
    __name__,
    {
        "tracebridge.core.collectives.all_gather": (
            "all_gather all_gather_p psum_scatter reduce_scatter_p"
        ),
        "tracebridge.core.collectives.axes": "axis_size",
        "tracebridge.core.collectives.axis_index": "axis_index axis_index_p",
        "tracebridge.core.collectives.casts": "pcast",
        "tracebridge.core.collectives.exchange": "precv psend",
        "tracebridge.core.collectives.permute": (
            "all_to_all all_to_all_p ppermute ppermute_p pshuffle pswapaxes"
        ),
        "tracebridge.core.collectives.ragged": "ragged_all_to_all",
        "tracebridge.core.collectives.psum": "pbroadcast pmax pmax_p pmean pmin pmin_p psum psum_p",
        "tracebridge.core.control.branches.cond": "cond_p",
        "tracebridge.core.control.branches.platform_dependent": "platform_dependent",
        "tracebridge.core.control.branches.switch": "cond switch",
        "tracebridge.core.control.calls.composite": "composite composite_p",
        "tracebridge.core.control.loops.associative_scan": "associative_scan",
        "tracebridge.core.control.loops.fori": "fori_loop",
        "tracebridge.core.control.loops.map": "map",
        "tracebridge.core.control.loops.scatter_apply": "scatter_apply",
        "tracebridge.core.control.loops.while_loop": "while_loop",
        "tracebridge.core.control.loops.while_primitive": "while_p",
        "tracebridge.core.control.scan.forward": "scan",
        "tracebridge.core.control.scan.primitive": "scan_p",
        "tracebridge.core.control.solve.custom_linear_solve": "custom_linear_solve linear_solve_p",
        "tracebridge.core.control.solve.custom_root": "custom_root",
        "tracebridge.core.control.tokens": "after_all after_all_p create_token create_token_p",
        "tracebridge.core.fft.fft": "FftType fft fft_p",
        "tracebridge.core.special.bessel": "bessel_i0e bessel_i0e_p bessel_i1e bessel_i1e_p",
        "tracebridge.core.special.incomplete_beta": "betainc regularized_incomplete_beta_p",
        "tracebridge.core.special.incomplete_gamma": (
            "igamma igamma_grad_a igamma_grad_a_p igamma_p igammac igammac_p random_gamma_grad"
        ),
        "tracebridge.core.conv.functions": (
            "conv conv_general_dilated conv_general_dilated_local conv_general_dilated_patches "
            "conv_transpose conv_with_general_padding"
        ),
        "tracebridge.core.conv.numbers": (
            "ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers conv_dimension_numbers "
            "conv_general_permutations conv_general_shape_tuple conv_shape_tuple "
            "conv_transpose_shape_tuple"
        ),
        "tracebridge.core.conv.primitive": "conv_general_dilated_p",
        "tracebridge.core.products.ragged_functions": (
            "RaggedDotDimensionNumbers ragged_dot ragged_dot_general"
        ),
        "tracebridge.core.products.scaled": "scaled_dot",
        "tracebridge.core.windows.geometry": "reduce_window_shape_tuple",
        "tracebridge.core.windows.reduce": "reduce reduce_p",
        "tracebridge.core.windows.reduce_window": (
            "reduce_window reduce_window_max_p reduce_window_min_p reduce_window_p "
            "reduce_window_sum_p"
        ),
        "tracebridge.core.windows.select": (
            "select_and_gather_add_p select_and_scatter_add_p select_and_scatter_p"
        ),
    },
    submodules=("linalg",),
)

# A call of an elementwise function takes little longer than a boundary around it.
_publish(globals(), __name__, "tracebridge.core.lax.elementwise")

# Written by .ci/exports: after a merge conflict, run it again.
__all__ = [
    "AccuracyMode", "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "DotAlgorithm",
    "DotAlgorithmPreset", "DotDimensionNumbers", "FftType", "GatherDimensionNumbers",
    "GatherScatterMode", "Precision", "PrecisionLike", "RaggedDotDimensionNumbers",
    "RandomAlgorithm", "RoundingMethod", "ScatterDimensionNumbers", "Tolerance", "abs", "abs_p",
    "acos", "acos_p", "acosh", "acosh_p", "add", "add_p", "after_all", "after_all_p", "all_gather",
    "all_gather_p", "all_to_all", "all_to_all_p", "and_p", "approx_max_k", "approx_min_k",
    "approx_top_k_p", "argmax", "argmax_p", "argmin", "argmin_p", "asin", "asin_p", "asinh",
    "asinh_p", "associative_scan", "atan", "atan2", "atan2_p", "atan_p", "atanh", "atanh_p",
    "axis_index", "axis_index_p", "axis_size", "batch_matmul", "bessel_i0e", "bessel_i0e_p",
    "bessel_i1e", "bessel_i1e_p", "betainc", "bitcast_convert_type", "bitcast_convert_type_p",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast", "broadcast_in_dim",
    "broadcast_in_dim_p", "broadcast_like", "broadcast_shapes", "broadcast_to_rank",
    "broadcasted_iota", "cbrt", "cbrt_p", "ceil", "ceil_p", "clamp", "clamp_p", "clz", "clz_p",
    "collapse", "complex", "complex_p", "composite", "composite_p", "concatenate", "concatenate_p",
    "cond", "cond_p", "conj", "conj_p", "conv", "conv_dimension_numbers", "conv_general_dilated",
    "conv_general_dilated_local", "conv_general_dilated_p", "conv_general_dilated_patches",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose",
    "conv_transpose_shape_tuple", "conv_with_general_padding", "convert_element_type",
    "convert_element_type_p", "copy_p", "cos", "cos_p", "cosh", "cosh_p", "create_token",
    "create_token_p", "cumlogsumexp", "cumlogsumexp_p", "cummax", "cummax_p", "cummin", "cummin_p",
    "cumprod", "cumprod_p", "cumsum", "cumsum_p", "custom_linear_solve", "custom_root", "dce_sink",
    "dce_sink_p", "device_put_p", "digamma", "digamma_p", "div", "div_p", "dot", "dot_general",
    "dot_general_p", "dtype", "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
    "dynamic_slice_p", "dynamic_update_index_in_dim", "dynamic_update_slice",
    "dynamic_update_slice_in_dim", "dynamic_update_slice_p", "empty", "eq", "eq_p", "eq_to_p",
    "erf", "erf_inv", "erf_inv_p", "erf_p", "erfc", "erfc_p", "exp", "exp2", "exp2_p", "exp_p",
    "expand_dims", "expm1", "expm1_p", "fft", "fft_p", "floor", "floor_p", "fori_loop", "full",
    "full_like", "gather", "gather_p", "ge", "ge_p", "gt", "gt_p", "igamma", "igamma_grad_a",
    "igamma_grad_a_p", "igamma_p", "igammac", "igammac_p", "imag", "imag_p", "index_in_dim",
    "index_take", "integer_pow", "integer_pow_p", "iota", "iota_p", "is_finite", "is_finite_p",
    "le", "le_p", "le_to_p", "lgamma", "lgamma_p", "linear_solve_p", "log", "log1p", "log1p_p",
    "log_p", "logistic", "logistic_p", "lt", "lt_p", "lt_to_p", "map", "max", "max_p", "min",
    "min_p", "mul", "mul_p", "mulhi", "mulhi_p", "ne", "ne_p", "neg", "neg_p", "nextafter",
    "nextafter_p", "not_p", "ones_like", "optimization_barrier", "optimization_barrier_p", "or_p",
    "pad", "pad_p", "padtype_to_pads", "pbroadcast", "pcast", "platform_dependent", "pmax",
    "pmax_p", "pmean", "pmin", "pmin_p", "polygamma", "polygamma_p", "population_count",
    "population_count_p", "pow", "pow_p", "ppermute", "ppermute_p", "precv", "psend", "pshuffle",
    "psum", "psum_p", "psum_scatter", "pswapaxes", "ragged_all_to_all", "ragged_dot",
    "ragged_dot_general", "random_gamma_grad", "real", "real_p", "reciprocal", "reduce",
    "reduce_and", "reduce_and_p", "reduce_max", "reduce_max_p", "reduce_min", "reduce_min_p",
    "reduce_or", "reduce_or_p", "reduce_p", "reduce_precision", "reduce_precision_p", "reduce_prod",
    "reduce_prod_p", "reduce_scatter_p", "reduce_sum", "reduce_sum_p", "reduce_window",
    "reduce_window_max_p", "reduce_window_min_p", "reduce_window_p", "reduce_window_shape_tuple",
    "reduce_window_sum_p", "reduce_xor", "reduce_xor_p", "regularized_incomplete_beta_p", "rem",
    "rem_p", "reshape", "reshape_p", "rev", "rev_p", "rng_bit_generator", "rng_bit_generator_p",
    "rng_uniform", "rng_uniform_p", "roll", "roll_p", "round", "round_p", "rsqrt", "rsqrt_p",
    "scaled_dot", "scan", "scan_p", "scatter", "scatter_add", "scatter_add_p", "scatter_apply",
    "scatter_max", "scatter_max_p", "scatter_min", "scatter_min_p", "scatter_mul", "scatter_mul_p",
    "scatter_p", "scatter_sub", "scatter_sub_p", "select", "select_and_gather_add_p",
    "select_and_scatter_add_p", "select_and_scatter_p", "select_n", "select_n_p", "shape_as_value",
    "sharding_constraint_p", "shift_left", "shift_left_p", "shift_right_arithmetic",
    "shift_right_arithmetic_p", "shift_right_logical", "shift_right_logical_p", "sign", "sign_p",
    "sin", "sin_p", "sinh", "sinh_p", "slice", "slice_in_dim", "slice_p", "sort", "sort_key_val",
    "sort_p", "split", "split_p", "sqrt", "sqrt_p", "square", "square_p", "squeeze", "squeeze_p",
    "stack", "stack_p", "stage", "stage_p", "stop_gradient", "stop_gradient_p", "sub", "sub_p",
    "switch", "tan", "tan_p", "tanh", "tanh_p", "tile", "tile_p", "top_k", "top_k_p", "transpose",
    "transpose_p", "unstack", "unstack_p", "while_loop", "while_p", "with_sharding_constraint",
    "xor_p", "zeros_like", "zeta", "zeta_p",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *_LATER.submodules]


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
