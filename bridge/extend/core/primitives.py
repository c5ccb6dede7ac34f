"""The engine's own primitives, for tables of rules and for interpreters."""

from __future__ import annotations

from tracebridge.core.collectives.all_gather import (
    all_gather_p,
)
from tracebridge.core.collectives.axis_index import (
    axis_index_p,
)
from tracebridge.core.collectives.permute import (
    all_to_all_p,
    ppermute_p,
)
from tracebridge.core.collectives.psum import (
    pmax_p,
    pmin_p,
    psum_p,
)
from tracebridge.core.control.branches.cond import cond_p
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.calls.closed_call import closed_call_p as call_p
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_lin import custom_lin_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.jit.jit import jit_p
from tracebridge.core.control.loops.while_primitive import while_p
from tracebridge.core.control.remat.checkpoint import checkpoint_p as remat_p
from tracebridge.core.control.scan.primitive import (
    scan_p,
)
from tracebridge.core.control.solve.custom_linear_solve import linear_solve_p
from tracebridge.core.control.tokens import after_all_p, create_token_p
from tracebridge.core.conv.primitive import conv_general_dilated_p
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.fft.fft import fft_p
from tracebridge.core.lax.ad_util import (
    stop_gradient_p,
)
from tracebridge.core.lax.annotations import (
    name_p,
)
from tracebridge.core.lax.contract.dot import (
    dot_general_p,
)
from tracebridge.core.lax.device_put import (
    device_put_p,
)
from tracebridge.core.lax.elementwise.arithmetic import (
    abs_p,
    add_p,
    div_p,
    max_p,
    min_p,
    mul_p,
    neg_p,
    rem_p,
    sign_p,
    square_p,
    sub_p,
)
from tracebridge.core.lax.elementwise.arithmetic import add_p as add_jaxvals_p
from tracebridge.core.lax.elementwise.bitwise import (
    and_p,
    clz_p,
    not_p,
    or_p,
    population_count_p,
    shift_left_p,
    shift_right_arithmetic_p,
    shift_right_logical_p,
    xor_p,
)
from tracebridge.core.lax.elementwise.compare import (
    eq_p,
    eq_to_p,
    ge_p,
    gt_p,
    le_p,
    le_to_p,
    lt_p,
    lt_to_p,
    ne_p,
)
from tracebridge.core.lax.elementwise.complex import (
    complex_p,
    conj_p,
    imag_p,
    real_p,
)
from tracebridge.core.lax.elementwise.convert import (
    bitcast_convert_type_p,
    convert_element_type_p,
    copy_p,
    reduce_precision_p,
)
from tracebridge.core.lax.elementwise.exp_log import (
    exp2_p,
    exp_p,
    expm1_p,
    log1p_p,
    log_p,
    logistic_p,
)
from tracebridge.core.lax.elementwise.hyperbolic import (
    acosh_p,
    asinh_p,
    atanh_p,
    cosh_p,
    sinh_p,
    tanh_p,
)
from tracebridge.core.lax.elementwise.power import (
    cbrt_p,
    integer_pow_p,
    pow_p,
    rsqrt_p,
    sqrt_p,
)
from tracebridge.core.lax.elementwise.rounding import (
    ceil_p,
    floor_p,
    is_finite_p,
    nextafter_p,
    round_p,
)
from tracebridge.core.lax.elementwise.select import (
    clamp_p,
    select_n_p,
)
from tracebridge.core.lax.elementwise.trig import (
    acos_p,
    asin_p,
    atan2_p,
    atan_p,
    cos_p,
    sin_p,
    tan_p,
)
from tracebridge.core.lax.indexing.dynamic_slice import (
    dynamic_slice_p,
    dynamic_update_slice_p,
)
from tracebridge.core.lax.indexing.gather import (
    gather_p,
)
from tracebridge.core.lax.indexing.scatter import (
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
)
from tracebridge.core.lax.indexing.slice import (
    slice_p,
)
from tracebridge.core.lax.reduce.argminmax import (
    argmax_p,
    argmin_p,
)
from tracebridge.core.lax.reduce.cumulative import (
    cumlogsumexp_p,
    cummax_p,
    cummin_p,
    cumprod_p,
    cumsum_p,
)
from tracebridge.core.lax.reduce.reductions import (
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
)
from tracebridge.core.lax.reduce.sort import (
    sort_p,
)
from tracebridge.core.lax.reduce.top_k import (
    approx_top_k_p,
    top_k_p,
)
from tracebridge.core.lax.rng import (
    rng_bit_generator_p,
    rng_uniform_p,
    threefry2x32_p,
)
from tracebridge.core.lax.shape.broadcast import (
    broadcast_in_dim_p,
)
from tracebridge.core.lax.shape.concatenate import (
    concatenate_p,
)
from tracebridge.core.lax.shape.iota import (
    iota_p,
)
from tracebridge.core.lax.shape.pad import (
    pad_p,
)
from tracebridge.core.lax.shape.reshape import (
    reshape_p,
    squeeze_p,
)
from tracebridge.core.lax.shape.rev import (
    rev_p,
)
from tracebridge.core.lax.shape.transpose import (
    transpose_p,
)
from tracebridge.core.lax.sharding_constraint import sharding_constraint_p
from tracebridge.core.lax.special.erf import (
    erf_inv_p,
    erf_p,
    erfc_p,
)
from tracebridge.core.lax.special.gamma import (
    digamma_p,
    lgamma_p,
)
from tracebridge.core.lax.special.zeta import polygamma_p, zeta_p
from tracebridge.core.linalg.cholesky import cholesky_p
from tracebridge.core.linalg.eig import eig_p
from tracebridge.core.linalg.eigh import eigh_p
from tracebridge.core.linalg.hessenberg import hessenberg_p, tridiagonal_p
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.qr import householder_product_p, qr_p
from tracebridge.core.linalg.schur import schur_p
from tracebridge.core.linalg.svd import svd_p
from tracebridge.core.linalg.triangular import triangular_solve_p
from tracebridge.core.linalg.tridiagonal import tridiagonal_solve_p
from tracebridge.core.special.bessel import bessel_i0e_p, bessel_i1e_p
from tracebridge.core.special.incomplete_beta import regularized_incomplete_beta_p
from tracebridge.core.special.incomplete_gamma import igamma_grad_a_p, igamma_p, igammac_p
from tracebridge.core.windows.reduce import reduce_p
from tracebridge.core.windows.reduce_window import (
    reduce_window_max_p,
    reduce_window_min_p,
    reduce_window_p,
    reduce_window_sum_p,
)
from tracebridge.core.windows.select import (
    select_and_gather_add_p,
    select_and_scatter_add_p,
    select_and_scatter_p,
)

__all__ = [
    "abs_p",
    "acos_p",
    "acosh_p",
    "add_jaxvals_p",
    "add_p",
    "after_all_p",
    "all_gather_p",
    "all_to_all_p",
    "and_p",
    "approx_top_k_p",
    "argmax_p",
    "argmin_p",
    "asin_p",
    "asinh_p",
    "atan2_p",
    "atan_p",
    "atanh_p",
    "axis_index_p",
    "bessel_i0e_p",
    "bessel_i1e_p",
    "bitcast_convert_type_p",
    "broadcast_in_dim_p",
    "call_p",
    "cbrt_p",
    "ceil_p",
    "cholesky_p",
    "clamp_p",
    "closed_call_p",
    "clz_p",
    "complex_p",
    "concatenate_p",
    "cond_p",
    "conj_p",
    "conv_general_dilated_p",
    "convert_element_type_p",
    "copy_p",
    "cos_p",
    "cosh_p",
    "create_token_p",
    "cumlogsumexp_p",
    "cummax_p",
    "cummin_p",
    "cumprod_p",
    "cumsum_p",
    "custom_jvp_call_p",
    "custom_lin_p",
    "custom_vjp_call_p",
    "device_put_p",
    "digamma_p",
    "div_p",
    "dot_general_p",
    "dynamic_slice_p",
    "dynamic_update_slice_p",
    "eig_p",
    "eigh_p",
    "eq_p",
    "eq_to_p",
    "erf_inv_p",
    "erf_p",
    "erfc_p",
    "exp2_p",
    "exp_p",
    "expm1_p",
    "fft_p",
    "floor_p",
    "gather_p",
    "ge_p",
    "gt_p",
    "hessenberg_p",
    "householder_product_p",
    "igamma_grad_a_p",
    "igamma_p",
    "igammac_p",
    "imag_p",
    "integer_pow_p",
    "iota_p",
    "is_finite_p",
    "jit_p",
    "le_p",
    "le_to_p",
    "lgamma_p",
    "linear_solve_p",
    "log1p_p",
    "log_p",
    "logistic_p",
    "lt_p",
    "lt_to_p",
    "lu_p",
    "max_p",
    "min_p",
    "mul_p",
    "name_p",
    "ne_p",
    "neg_p",
    "nextafter_p",
    "not_p",
    "or_p",
    "pad_p",
    "pmax_p",
    "pmin_p",
    "polygamma_p",
    "population_count_p",
    "pow_p",
    "ppermute_p",
    "psum_p",
    "qr_p",
    "real_p",
    "reduce_and_p",
    "reduce_max_p",
    "reduce_min_p",
    "reduce_or_p",
    "reduce_p",
    "reduce_precision_p",
    "reduce_prod_p",
    "reduce_sum_p",
    "reduce_window_max_p",
    "reduce_window_min_p",
    "reduce_window_p",
    "reduce_window_sum_p",
    "reduce_xor_p",
    "regularized_incomplete_beta_p",
    "rem_p",
    "remat_p",
    "reshape_p",
    "rev_p",
    "rng_bit_generator_p",
    "rng_uniform_p",
    "round_p",
    "rsqrt_p",
    "scan_p",
    "scatter_add_p",
    "scatter_max_p",
    "scatter_min_p",
    "scatter_mul_p",
    "scatter_p",
    "schur_p",
    "select_and_gather_add_p",
    "select_and_scatter_add_p",
    "select_and_scatter_p",
    "select_n_p",
    "sharding_constraint_p",
    "shift_left_p",
    "shift_right_arithmetic_p",
    "shift_right_logical_p",
    "sign_p",
    "sin_p",
    "sinh_p",
    "slice_p",
    "sort_p",
    "sqrt_p",
    "square_p",
    "squeeze_p",
    "stop_gradient_p",
    "sub_p",
    "svd_p",
    "tan_p",
    "tanh_p",
    "threefry2x32_p",
    "top_k_p",
    "transpose_p",
    "triangular_solve_p",
    "tridiagonal_p",
    "tridiagonal_solve_p",
    "while_p",
    "xor_p",
    "zeta_p",
]

_shield(globals(), __name__)
