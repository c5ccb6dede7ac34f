"""The NumPy API on engine arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames
from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.numpy.bits import *
from tracebridge.numpy.closeness import *
from tracebridge.numpy.conversion import *
from tracebridge.numpy.creation import *
from tracebridge.numpy.cumulative import *
from tracebridge.numpy.divisors import *
from tracebridge.numpy.dtype_functions import *
from tracebridge.numpy.elementwise_arithmetic import *
from tracebridge.numpy.elementwise_complex import *
from tracebridge.numpy.elementwise_exp_trig import *
from tracebridge.numpy.elementwise_extrema import *
from tracebridge.numpy.elementwise_float import *
from tracebridge.numpy.elementwise_logic import *
from tracebridge.numpy.elementwise_powers import *
from tracebridge.numpy.elementwise_round import *
from tracebridge.numpy.indexing_functions import *
from tracebridge.numpy.joining import *
from tracebridge.numpy.linear_products import *
from tracebridge.numpy.manipulation import *
from tracebridge.numpy.positions import *
from tracebridge.numpy.ranges import *
from tracebridge.numpy.rearrangement import *
from tracebridge.numpy.reductions import *
from tracebridge.numpy.searching import *
from tracebridge.numpy.selection import *
from tracebridge.numpy.sorting import *
from tracebridge.numpy.splitting import *
from tracebridge.numpy.ufuncs import *
from tracebridge.numpy.variances import *
from tracebridge.numpy.vector_products import *

if TYPE_CHECKING:
    from tracebridge.numpy import fft as fft
    from tracebridge.numpy import linalg as linalg
    from tracebridge.numpy.array_api import ArrayNamespaceInfo as ArrayNamespaceInfo
    from tracebridge.numpy.array_api import __array_api_version__ as __array_api_version__
    from tracebridge.numpy.array_api import __array_namespace_info__ as __array_namespace_info__
    from tracebridge.numpy.bessel import i0 as i0
    from tracebridge.numpy.differences import diff as diff
    from tracebridge.numpy.differences import ediff1d as ediff1d
    from tracebridge.numpy.differences import gradient as gradient
    from tracebridge.numpy.differences import trapezoid as trapezoid
    from tracebridge.numpy.differences import unwrap as unwrap
    from tracebridge.numpy.editing import delete as delete
    from tracebridge.numpy.editing import insert as insert
    from tracebridge.numpy.editing import repeat as repeat
    from tracebridge.numpy.editing import resize as resize
    from tracebridge.numpy.editing import rollaxis as rollaxis
    from tracebridge.numpy.editing import trim_zeros as trim_zeros
    from tracebridge.numpy.einstein_sums import einsum as einsum
    from tracebridge.numpy.einstein_sums import einsum_path as einsum_path
    from tracebridge.numpy.grids import diag_indices as diag_indices
    from tracebridge.numpy.grids import diag_indices_from as diag_indices_from
    from tracebridge.numpy.grids import indices as indices
    from tracebridge.numpy.grids import ix_ as ix_
    from tracebridge.numpy.grids import mask_indices as mask_indices
    from tracebridge.numpy.grids import meshgrid as meshgrid
    from tracebridge.numpy.grids import ravel_multi_index as ravel_multi_index
    from tracebridge.numpy.grids import tril_indices as tril_indices
    from tracebridge.numpy.grids import tril_indices_from as tril_indices_from
    from tracebridge.numpy.grids import triu_indices as triu_indices
    from tracebridge.numpy.grids import triu_indices_from as triu_indices_from
    from tracebridge.numpy.grids import unravel_index as unravel_index
    from tracebridge.numpy.histograms import bincount as bincount
    from tracebridge.numpy.histograms import digitize as digitize
    from tracebridge.numpy.histograms import histogram as histogram
    from tracebridge.numpy.histograms import histogram2d as histogram2d
    from tracebridge.numpy.histograms import histogram_bin_edges as histogram_bin_edges
    from tracebridge.numpy.histograms import histogramdd as histogramdd
    from tracebridge.numpy.index_objects import c_ as c_
    from tracebridge.numpy.index_objects import index_exp as index_exp
    from tracebridge.numpy.index_objects import mgrid as mgrid
    from tracebridge.numpy.index_objects import ogrid as ogrid
    from tracebridge.numpy.index_objects import r_ as r_
    from tracebridge.numpy.index_objects import s_ as s_
    from tracebridge.numpy.interpolation import interp as interp
    from tracebridge.numpy.io import array_repr as array_repr
    from tracebridge.numpy.io import array_str as array_str
    from tracebridge.numpy.io import from_dlpack as from_dlpack
    from tracebridge.numpy.io import frombuffer as frombuffer
    from tracebridge.numpy.io import fromfile as fromfile
    from tracebridge.numpy.io import fromiter as fromiter
    from tracebridge.numpy.io import fromstring as fromstring
    from tracebridge.numpy.io import get_printoptions as get_printoptions
    from tracebridge.numpy.io import load as load
    from tracebridge.numpy.io import printoptions as printoptions
    from tracebridge.numpy.io import save as save
    from tracebridge.numpy.io import savez as savez
    from tracebridge.numpy.io import set_printoptions as set_printoptions
    from tracebridge.numpy.matrices import diag as diag
    from tracebridge.numpy.matrices import diagflat as diagflat
    from tracebridge.numpy.matrices import diagonal as diagonal
    from tracebridge.numpy.matrices import eye as eye
    from tracebridge.numpy.matrices import identity as identity
    from tracebridge.numpy.matrices import tri as tri
    from tracebridge.numpy.matrices import tril as tril
    from tracebridge.numpy.matrices import triu as triu
    from tracebridge.numpy.matrices import vander as vander
    from tracebridge.numpy.nan_reductions import nanmax as nanmax
    from tracebridge.numpy.nan_reductions import nanmean as nanmean
    from tracebridge.numpy.nan_reductions import nanmedian as nanmedian
    from tracebridge.numpy.nan_reductions import nanmin as nanmin
    from tracebridge.numpy.nan_reductions import nanpercentile as nanpercentile
    from tracebridge.numpy.nan_reductions import nanprod as nanprod
    from tracebridge.numpy.nan_reductions import nanquantile as nanquantile
    from tracebridge.numpy.nan_reductions import nanstd as nanstd
    from tracebridge.numpy.nan_reductions import nansum as nansum
    from tracebridge.numpy.nan_reductions import nanvar as nanvar
    from tracebridge.numpy.padding import pad as pad
    from tracebridge.numpy.polynomial import convolve as convolve
    from tracebridge.numpy.polynomial import correlate as correlate
    from tracebridge.numpy.polynomial import polyadd as polyadd
    from tracebridge.numpy.polynomial import polyder as polyder
    from tracebridge.numpy.polynomial import polydiv as polydiv
    from tracebridge.numpy.polynomial import polyint as polyint
    from tracebridge.numpy.polynomial import polymul as polymul
    from tracebridge.numpy.polynomial import polysub as polysub
    from tracebridge.numpy.polynomial import polyval as polyval
    from tracebridge.numpy.polynomial_fits import poly as poly
    from tracebridge.numpy.polynomial_fits import polyfit as polyfit
    from tracebridge.numpy.polynomial_fits import roots as roots
    from tracebridge.numpy.quantiles import median as median
    from tracebridge.numpy.quantiles import percentile as percentile
    from tracebridge.numpy.quantiles import quantile as quantile
    from tracebridge.numpy.sets import intersect1d as intersect1d
    from tracebridge.numpy.sets import isin as isin
    from tracebridge.numpy.sets import setdiff1d as setdiff1d
    from tracebridge.numpy.sets import setxor1d as setxor1d
    from tracebridge.numpy.sets import union1d as union1d
    from tracebridge.numpy.statistics import average as average
    from tracebridge.numpy.statistics import corrcoef as corrcoef
    from tracebridge.numpy.statistics import cov as cov
    from tracebridge.numpy.unique_elements import unique as unique
    from tracebridge.numpy.unique_elements import unique_all as unique_all
    from tracebridge.numpy.unique_elements import unique_counts as unique_counts
    from tracebridge.numpy.unique_elements import unique_inverse as unique_inverse
    from tracebridge.numpy.unique_elements import unique_values as unique_values
    from tracebridge.numpy.vectorization import apply_along_axis as apply_along_axis
    from tracebridge.numpy.vectorization import apply_over_axes as apply_over_axes
    from tracebridge.numpy.vectorization import fromfunction as fromfunction
    from tracebridge.numpy.vectorization import vectorize as vectorize
    from tracebridge.numpy.windows import bartlett as bartlett
    from tracebridge.numpy.windows import blackman as blackman
    from tracebridge.numpy.windows import hamming as hamming
    from tracebridge.numpy.windows import hanning as hanning
    from tracebridge.numpy.windows import kaiser as kaiser

# What is loaded at its first use: module -> names, and submodules.
_LATER = _LazyNames(
    __name__,
    {
        "tracebridge.numpy.differences": "diff ediff1d gradient trapezoid unwrap",
        "tracebridge.numpy.editing": "delete insert repeat resize rollaxis trim_zeros",
        "tracebridge.numpy.einstein_sums": "einsum einsum_path",
        "tracebridge.numpy.grids": (
            "diag_indices diag_indices_from indices ix_ mask_indices meshgrid ravel_multi_index "
            "tril_indices tril_indices_from triu_indices triu_indices_from unravel_index"
        ),
        "tracebridge.numpy.histograms": (
            "bincount digitize histogram histogram2d histogram_bin_edges histogramdd"
        ),
        "tracebridge.numpy.index_objects": "c_ index_exp mgrid ogrid r_ s_",
        "tracebridge.numpy.interpolation": "interp",
        "tracebridge.numpy.io": (
            "array_repr array_str from_dlpack frombuffer fromfile fromiter fromstring "
            "get_printoptions load printoptions save savez set_printoptions"
        ),
        "tracebridge.numpy.matrices": "diag diagflat diagonal eye identity tri tril triu vander",
        "tracebridge.numpy.nan_reductions": (
            "nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar"
        ),
        "tracebridge.numpy.padding": "pad",
        "tracebridge.numpy.polynomial": (
            "convolve correlate polyadd polyder polydiv polyint polymul polysub polyval"
        ),
        "tracebridge.numpy.quantiles": "median percentile quantile",
        "tracebridge.numpy.sets": "intersect1d isin setdiff1d setxor1d union1d",
        "tracebridge.numpy.statistics": "average corrcoef cov",
        "tracebridge.numpy.unique_elements": (
            "unique unique_all unique_counts unique_inverse unique_values"
        ),
        "tracebridge.numpy.vectorization": (
            "apply_along_axis apply_over_axes fromfunction vectorize"
        ),
        "tracebridge.numpy.array_api": (
            "ArrayNamespaceInfo __array_api_version__ __array_namespace_info__"
        ),
        "tracebridge.numpy.bessel": "i0",
        "tracebridge.numpy.polynomial_fits": "poly polyfit roots",
        "tracebridge.numpy.windows": "bartlett blackman hamming hanning kaiser",
    },
    submodules=("fft", "linalg"),
)

_publish(globals(), __name__)

# Written by .ci/exports: after a merge conflict, run it again.
__all__ = [
    "ArrayNamespaceInfo", "ComplexWarning", "abs", "absolute", "acos", "acosh", "add", "all",
    "allclose", "amax", "amin", "angle", "any", "append", "apply_along_axis", "apply_over_axes",
    "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax",
    "argmin", "argpartition", "argsort", "argwhere", "around", "array", "array_equal",
    "array_equiv", "array_repr", "array_split", "array_str", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett",
    "bfloat16", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool",
    "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "c_", "can_cast", "cbrt",
    "cdouble", "ceil", "character", "choose", "clip", "column_stack", "complex128", "complex64",
    "complex_", "complexfloating", "compress", "concat", "concatenate", "conj", "conjugate",
    "convolve", "copy", "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov",
    "cross", "csingle", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad",
    "degrees", "delete", "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal",
    "diff", "digitize", "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e",
    "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp",
    "exp2", "expand_dims", "expm1", "extract", "eye", "fabs", "fill_diagonal", "finfo",
    "flatnonzero", "flexible", "flip", "fliplr", "flipud", "float16", "float32", "float4_e2m1fn",
    "float64", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float_", "float_power", "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp",
    "from_dlpack", "frombuffer", "fromfile", "fromfunction", "fromiter", "frompyfunc", "fromstring",
    "full", "full_like", "gcd", "generic", "geomspace", "get_printoptions", "gradient", "greater",
    "greater_equal", "hamming", "hanning", "heaviside", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo",
    "imag", "index_exp", "indices", "inexact", "inf", "inner", "insert", "int1", "int16", "int2",
    "int32", "int4", "int64", "int8", "int_", "integer", "interp", "intersect1d", "invert",
    "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_",
    "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linspace",
    "load", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logspace", "mask_indices", "matmul",
    "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid", "min",
    "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
    "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "number", "object_", "ogrid", "ones",
    "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "pi",
    "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul",
    "polysub", "polyval", "positive", "pow", "power", "printoptions", "prod", "promote_types",
    "ptp", "put", "put_along_axis", "quantile", "r_", "rad2deg", "radians", "ravel",
    "ravel_multi_index", "real", "reciprocal", "remainder", "repeat", "reshape", "resize",
    "result_type", "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "s_",
    "save", "savez", "searchsorted", "select", "set_printoptions", "setdiff1d", "setxor1d", "shape",
    "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size", "sort",
    "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace",
    "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros",
    "triu", "triu_indices", "triu_indices_from", "true_divide", "trunc", "ufunc", "uint", "uint1",
    "uint16", "uint2", "uint32", "uint4", "uint64", "uint8", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unpackbits", "unravel_index",
    "unsignedinteger", "unstack", "unwrap", "vander", "var", "vdot", "vecdot", "vecmat",
    "vectorize", "vsplit", "vstack", "where", "zeros", "zeros_like",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *_LATER.submodules]


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
