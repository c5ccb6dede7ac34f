"""One call of each public function, for laws that hold for all of them.

A row is a function of arrays and the arrays: a name alone is a function that is called with them.
``tests/bridge/numpy/tables`` has the functions of ``numpy``, ``tests/core/lax/op_table.py`` the
elementwise ones of ``lax``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge import image, lax, nn, ops, random
from tracebridge import scipy as sc

Host = np.ndarray[Any, Any]
Row = tuple[Callable[..., Any], tuple[Host, ...]]
F64 = np.float64

_random = np.random.default_rng(0)
V = np.array([0.3, 1.2, 0.7, 2.1, 0.9, 1.6])
W = np.array([1.1, 0.4, 1.9, 0.8, 1.3, 0.6])
U = np.array([0.15, 0.35, 0.8, 0.55, 0.25, 0.65])
X = np.array([[0.3, 1.2, -0.7], [2.1, -0.9, 0.6]])
M = np.array([[2.0, 0.3, -0.4], [0.1, 1.5, 0.2], [-0.3, 0.6, 1.8]])
S = M @ M.T + np.eye(3)
L = np.linalg.cholesky(S)
R = np.array([[1.0, 0.2], [-0.5, 0.8], [0.3, -1.1]])
T4 = _random.normal(size=(1, 2, 5, 5))
K4 = _random.normal(size=(3, 2, 2, 2))
N = np.array([2, 0, 1, 3, 1, 0], np.int32)
B = np.array([True, False, True, True, False, True])
Z = V + 1j * W
KEY = np.array([1, 2], np.uint32)


def rows(module: Any, text: str, *arrays: Host) -> dict[str, Row]:
    """Functions of a module that take these arrays."""
    return {name: (getattr(module, name), arrays) for name in text.split()}


LINALG: dict[str, Row] = {
    **rows(tnp.linalg, "cholesky eigh eigvalsh", S),
    **rows(tnp.linalg, "cond det inv pinv matrix_norm slogdet svdvals qr norm", M),
    **rows(tnp.linalg, "diagonal trace matrix_transpose", M),
    **rows(tnp.linalg, "cross outer", V[:3], W[:3]),
    **rows(tnp.linalg, "vecdot", V, W),
    **rows(tnp.linalg, "vector_norm", V),
    **rows(tnp.linalg, "matmul", M, R),
    **rows(tnp.linalg, "solve", M, R),
    **rows(tnp.linalg, "lstsq", R, V[:3]),
    **rows(tnp.linalg, "tensordot", M, M),
    **rows(tnp.linalg, "matrix_rank", M),
    **rows(tnp.linalg, "eig eigvals", M),
    "svd": (lambda x: tnp.linalg.svd(x, full_matrices=False)[1], (R,)),
    "matrix_power": (lambda x: tnp.linalg.matrix_power(x, 3), (M,)),
    "multi_dot": (lambda x, y: tnp.linalg.multi_dot([x, x, y]), (M, R)),
    "tensorinv": (lambda x: tnp.linalg.tensorinv(x, 1), (M,)),
    "tensorsolve": (tnp.linalg.tensorsolve, (M, V[:3])),
}
FFT: dict[str, Row] = {
    **rows(tnp.fft, "fft ifft fftshift ifftshift hfft", Z),
    **rows(tnp.fft, "rfft ihfft", V),
    **rows(tnp.fft, "irfft", Z),
    **rows(tnp.fft, "fft2 fftn ifft2 ifftn irfft2 irfftn", X + 1j),
    **rows(tnp.fft, "rfft2 rfftn", X),
    "fftfreq": (lambda: tnp.fft.fftfreq(5), ()),
    "rfftfreq": (lambda: tnp.fft.rfftfreq(5), ()),
}
NN: dict[str, Row] = {
    **rows(
        nn,
        """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu
        log1mexp log_sigmoid log_softmax logmeanexp logsumexp mish relu relu6 selu sigmoid silu
        soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus standardize swish tanh""",
        V,
    ),
    "one_hot": (lambda i: nn.one_hot(i, 4), (N,)),
    "dot_product_attention": (
        nn.dot_product_attention,
        tuple(_random.normal(size=(3, 1, 4, 2, 3))),
    ),
}
SPECIAL: dict[str, Row] = {
    **rows(
        sc.special,
        """dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit factorial fresnel gamma
        gammaln gammasgn i0 i0e i1 i1e log_ndtr log_softmax loggamma logit logsumexp ndtr ndtri
        sici softmax spence""",
        U,
    ),
    **rows(
        sc.special,
        """beta betaln boxcox boxcox1p comb gammainc gammaincc kl_div owens_t poch rel_entr
        xlog1py xlogy""",
        V,
        U,
    ),
    **rows(sc.special, "betainc hyp1f1", V, W, U),
    "hyp2f1": (lambda a, b, x: sc.special.hyp2f1(a, b, b + 1.5, x), (V, W, U)),
    "bernoulli": (lambda: sc.special.bernoulli(4), ()),
    "bessel_jn": (lambda x: sc.special.bessel_jn(x, v=2), (V,)),
    "expn": (lambda x: sc.special.expn(2, x), (V,)),
    "lpmn": (lambda x: sc.special.lpmn(3, 3, x), (U,)),
    "lpmn_values": (lambda x: sc.special.lpmn_values(2, 3, x, True), (U,)),
    "multigammaln": (lambda x: sc.special.multigammaln(x, 2), (V + 2,)),
    "polygamma": (lambda x: sc.special.polygamma(2, x), (V,)),
    "zeta": (lambda x: sc.special.zeta(3.0, x), (V,)),
    "wofz": (sc.special.wofz, (Z,)),
    "sph_harm_y": (
        lambda t, p: sc.special.sph_harm_y(np.array([2]), np.array([1]), t, p, n_max=2),
        (V[:1], W[:1]),
    ),
}
QUASI = np.array([[True, True, True], [True, True, True], [False, False, True]])
SLINALG: dict[str, Row] = {
    **rows(sc.linalg, "cholesky", S),
    **rows(sc.linalg, "det inv expm polar qr schur hessenberg lu lu_factor svd sqrtm", M),
    **rows(sc.linalg, "solve", M, V[:3]),
    **rows(sc.linalg, "block_diag", M, R),
    **rows(sc.linalg, "circulant companion fiedler toeplitz hankel fiedler_companion", V),
    **rows(sc.linalg, "leslie", V, U[:5]),
    **rows(sc.linalg, "expm_frechet", M, S),
    **rows(sc.linalg, "solve_sylvester", M, S, M),
    **rows(sc.linalg, "eigh", S),
    "eigh_tridiagonal": (
        lambda d, e: sc.linalg.eigh_tridiagonal(d, e, eigvals_only=True), (V, U[:5]),
    ),
    "cho_factor": (lambda x: sc.linalg.cho_factor(x)[0], (S,)),
    "cho_solve": (lambda c, b: sc.linalg.cho_solve((c, True), b), (L, V[:3])),
    "lu_solve": (lambda x, b: sc.linalg.lu_solve(sc.linalg.lu_factor(x), b), (M, V[:3])),
    "solve_triangular": (lambda x, b: sc.linalg.solve_triangular(x, b, lower=True), (L, R)),
    "convolution_matrix": (lambda x: sc.linalg.convolution_matrix(x, 4), (V,)),
    "funm": (lambda x: sc.linalg.funm(x, tnp.exp), (M,)),
    "qr_multiply": (lambda x, c: sc.linalg.qr_multiply(x, c)[0], (M, M)),
    "rsf2csf": (
        lambda t, z: sc.linalg.rsf2csf(tnp.where(QUASI, t, 0.0), z),
        (M, np.eye(3)),
    ),
    **{
        name: (lambda name=name: getattr(sc.linalg, name)(4), ())
        for name in ("dft", "hadamard", "helmert", "hilbert", "invhilbert", "invpascal", "pascal")
    },
}  # fmt: skip
SCIPY: dict[str, Row] = {
    **rows(sc.stats, "mode rankdata sem", V),
    "dirichlet": (sc.stats.dirichlet.logpdf, (U[:3], U[:3])),
    "multinomial": (lambda x, p: sc.stats.multinomial.logpmf(x, 6, p), (N, U)),
    "multivariate_normal": (sc.stats.multivariate_normal.logpdf, (V[:3], W[:3], S)),
    "gaussian_kde": (lambda x: sc.stats.gaussian_kde(x).pdf(x), (V,)),
    "Rotation": (
        lambda v: sc.spatial.transform.Rotation.from_rotvec(v).as_euler("xyz"), (V[:3],),
    ),
    "Slerp": (
        lambda v, t: sc.spatial.transform.Slerp.init(
            np.array([0.0, 1.0]), sc.spatial.transform.Rotation.from_rotvec(v)
        )(t).as_quat(),
        (np.stack([V[:3], W[:3]]), U),
    ),
    "RegularGridInterpolator": (
        lambda v, t: sc.interpolate.RegularGridInterpolator((np.arange(6.0),), v)(t[:, None]),
        (V, U + 1.3),
    ),
    **rows(sc.signal, "convolve correlate fftconvolve", V, W),
    **rows(sc.signal, "convolve2d correlate2d", M, M),
    **rows(sc.signal, "detrend", V),
    "csd": (lambda x, y: sc.signal.csd(x, y, nperseg=4), (V, W)),
    "welch": (lambda x: sc.signal.welch(x, nperseg=4), (V,)),
    "stft": (lambda x: sc.signal.stft(x, nperseg=4), (V,)),
    "istft": (lambda x: sc.signal.istft(x, nperseg=4), (M + 1j,)),
    **rows(sc.fft, "dct idct dctn idctn", V),
    "map_coordinates": (
        lambda x, c: sc.ndimage.map_coordinates(x, [c, c], order=1), (M, U),
    ),
    "trapezoid": (sc.integrate.trapezoid, (V, np.sort(W))),
    "vq": (sc.cluster.vq.vq, (R, R[:2])),
    "cg": (lambda a, b: sc.sparse.linalg.cg(a, b)[0], (S, V[:3])),
    "gmres": (lambda a, b: sc.sparse.linalg.gmres(a, b)[0], (M, V[:3])),
    "bicgstab": (lambda a, b: sc.sparse.linalg.bicgstab(a, b)[0], (M, V[:3])),
    "minimize": (
        lambda x: sc.optimize.minimize(lambda y: tnp.sum((y - x) ** 2), x * 0, method="BFGS").x,
        (V[:2],),
    ),
}  # fmt: skip
IMAGE_OPS: dict[str, Row] = {
    "resize": (lambda x: image.resize(x, (2, 4), "linear"), (M,)),
    "scale_and_translate": (
        lambda x, s, t: image.scale_and_translate(x, (3, 3), (0, 1), s, t, "linear"),
        (M, V[:2], U[:2]),
    ),
    **{
        name: (lambda x, i, name=name: getattr(ops, name)(x, i, 4), (V, N))
        for name in ("segment_max", "segment_min", "segment_prod", "segment_sum")
    },
}


def drawn(name: str, *fixed: Any, **kwargs: Any) -> Row:
    """A distribution with a key of the table; array arguments are of the table too."""
    arrays = tuple([x for x in fixed if isinstance(x, np.ndarray)])
    given = tuple([x for x in fixed if not isinstance(x, np.ndarray)])
    return lambda key, *xs: getattr(random, name)(key, *xs, *given, **kwargs), (KEY, *arrays)


RANDOM: dict[str, Row] = {
    **{
        name: drawn(name, shape=(3,), dtype=F64)
        for name in [
            "cauchy",
            "double_sided_maxwell",
            "exponential",
            "gumbel",
            "laplace",
            "logistic",
            "maxwell",
            "normal",
            "uniform",
            "wald",
            "rayleigh",
        ]
        if name not in ("double_sided_maxwell", "wald", "rayleigh")
    },
    "double_sided_maxwell": drawn("double_sided_maxwell", V, W, dtype=F64),
    "wald": drawn("wald", V, dtype=F64),
    "rayleigh": drawn("rayleigh", V, dtype=F64),
    "ball": drawn("ball", 3, dtype=F64),
    "bernoulli": drawn("bernoulli", U),
    "beta": drawn("beta", V, W, dtype=F64),
    "binomial": (lambda k, p: random.binomial(k, 5.0, p), (KEY, U)),
    "bits": drawn("bits", (3,)),
    "categorical": drawn("categorical", V),
    "chisquare": drawn("chisquare", V, dtype=F64),
    "choice": drawn("choice", V),
    "dirichlet": drawn("dirichlet", V, dtype=F64),
    "f": drawn("f", V, W, dtype=F64),
    "gamma": drawn("gamma", V, dtype=F64),
    "generalized_normal": (lambda k: random.generalized_normal(k, 1.5, (3,), F64), (KEY,)),
    "geometric": drawn("geometric", U),
    "loggamma": drawn("loggamma", V, dtype=F64),
    "lognormal": drawn("lognormal", V, dtype=F64),
    "multinomial": (lambda k, p: random.multinomial(k, 5.0, p / p.sum()), (KEY, U)),
    "multivariate_normal": (random.multivariate_normal, (KEY, V[:3], S)),
    "orthogonal": (lambda k: random.orthogonal(k, 3), (KEY,)),
    "pareto": drawn("pareto", V, dtype=F64),
    "permutation": drawn("permutation", V),
    "poisson": drawn("poisson", V),
    "rademacher": drawn("rademacher", (3,)),
    "randint": (lambda k: random.randint(k, (3,), 0, 9), (KEY,)),
    "t": drawn("t", V, dtype=F64),
    "triangular": (lambda k: random.triangular(k, 0.0, 0.5, 1.0, (3,), F64), (KEY,)),
    "truncated_normal": (lambda k: random.truncated_normal(k, -1.0, 1.0, (3,), F64), (KEY,)),
    "weibull_min": (lambda k: random.weibull_min(k, 1.0, 2.0, (3,), F64), (KEY,)),
    "split": (random.split, (KEY,)),
    "fold_in": (lambda k: random.fold_in(k, 3), (KEY,)),
    "clone": (random.clone, (KEY,)),
}


def _window(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "VALID")


def _scatter(name: str) -> Row:
    dnums = lax.ScatterDimensionNumbers((), (0,), (0,))
    return (
        lambda x, i, u: getattr(lax, name)(x, i[:, None], u, dnums),
        (V, N[[0, 1, 3]], W[:3]),
    )


LAX: dict[str, Row] = {
    **rows(lax, "cumlogsumexp cummax cummin cumprod cumsum sort", V),
    **rows(lax, "batch_matmul", M[None], R[None]),
    **rows(lax, "dot", M, R),
    **rows(lax, "betainc", V, W, U),
    **rows(lax, "igamma igammac igamma_grad_a random_gamma_grad", V, W),
    **rows(lax, "full_like", V, np.float64(2)),
    **rows(lax, "ones_like zeros_like stop_gradient optimization_barrier", V),
    **rows(lax, "complex", V, W),
    **rows(lax, "select", B, V, W),
    "argmax": (lambda x: lax.argmax(x, 0, np.int32), (V,)),
    "argmin": (lambda x: lax.argmin(x, 0, np.int32), (V,)),
    "approx_max_k": (lambda x: lax.approx_max_k(x, 2), (V,)),
    "approx_min_k": (lambda x: lax.approx_min_k(x, 2), (V,)),
    "top_k": (lambda x: lax.top_k(x, 2), (V,)),
    "associative_scan": (lambda x: lax.associative_scan(lax.add, x), (V,)),
    "bitcast_convert_type": (lambda x: lax.bitcast_convert_type(x, np.int64), (V,)),
    "broadcast": (lambda x: lax.broadcast(x, (2,)), (V,)),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 6), (1,)), (V,)),
    "broadcast_to_rank": (lambda x: lax.broadcast_to_rank(x, 2), (V,)),
    "broadcast_like": (lambda x, y: lax.broadcast_like(x, y), (V[:3], M)),
    "broadcasted_iota": (lambda: lax.broadcasted_iota(np.int32, (2, 3), 1), ()),
    "collapse": (lambda x: lax.collapse(x, 0, 2), (M,)),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 0), (V, W)),
    "cond": (lambda x: lax.cond(x[0] < 1, lax.sin, lax.cos, x), (V,)),
    "conv": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), (T4, K4)),
    "conv_general_dilated": (
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", rhs_dilation=(2, 1)), (T4, K4),
    ),
    "conv_general_dilated_local": (
        lambda x, k: lax.conv_general_dilated_local(x, k, (1, 1), "VALID", (1, 1)),
        (T4[..., :2, :2], _random.normal(size=(3, 2, 2, 2))),
    ),
    "conv_general_dilated_patches": (
        lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID"), (T4,),
    ),
    "conv_transpose": (
        lambda x, k: lax.conv_transpose(
            x, k, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        ),
        (T4, K4),
    ),
    "conv_with_general_padding": (
        lambda x, k: lax.conv_with_general_padding(x, k, (1, 1), [(1, 0), (0, 1)], None, None),
        (T4, K4),
    ),
    "convert_element_type": (lambda x: lax.convert_element_type(x, np.float32), (V,)),
    "custom_linear_solve": (
        lambda a, b: lax.custom_linear_solve(
            lambda x: a @ x, b, lambda _, y: tnp.linalg.solve(a, y), symmetric=True
        ),
        (S, V[:3]),
    ),
    "custom_root": (
        lambda a: lax.custom_root(
            lambda x: x * x - a, a, lambda _, x: tnp.sqrt(a) + 0 * x, lambda g, y: y / g(1.0)
        ),
        (np.float64(2),),
    ),
    "dot_general": (
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))), (M, R),
    ),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i,), (2,)), (V, np.int32(1))),
    "dynamic_slice_in_dim": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 2), (V, np.int32(1))),
    "dynamic_index_in_dim": (lambda x, i: lax.dynamic_index_in_dim(x, i), (V, np.int32(1))),
    "dynamic_update_slice": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), (V, W[:2], np.int32(1)),
    ),
    "dynamic_update_slice_in_dim": (
        lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 0), (V, W[:2], np.int32(1)),
    ),
    "dynamic_update_index_in_dim": (
        lambda x, u, i: lax.dynamic_update_index_in_dim(x, u, i, 0), (V, W[0], np.int32(1)),
    ),
    "expand_dims": (lambda x: lax.expand_dims(x, (0,)), (V,)),
    "fft": (lambda x: lax.fft(x, "fft", (6,)), (Z,)),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: c + x * i, x), (V,)),
    "full": (lambda: lax.full((3,), 2.0), ()),
    "gather": (
        lambda x, i: lax.gather(x, i[:, None], lax.GatherDimensionNumbers((), (0,), (0,)), (1,)),
        (V, N),
    ),
    "index_in_dim": (lambda x: lax.index_in_dim(x, 2), (V,)),
    "index_take": (lambda x, i: lax.index_take(x, (i,), (0,)), (V, N)),
    "integer_pow": (lambda x: lax.integer_pow(x, -3), (V,)),
    "ragged_dot": (lax.ragged_dot, (S, np.stack([M, S]), np.array([1, 2], np.int32))),
    "select_n": (lax.select_n, (B, V, W)),
    "iota": (lambda: lax.iota(np.int32, 4), ()),
    "map": (lambda x: lax.map(lax.sin, x), (V,)),
    "pad": (lambda x, v: lax.pad(x, v, ((1, 1, 1),)), (V, np.float64(1))),
    "reduce": (lambda x: lax.reduce(x, np.float64(0), lax.add, (0,)), (V,)),
    "reduce_max": (lambda x: lax.reduce_max(x, (0,)), (V,)),
    "reduce_min": (lambda x: lax.reduce_min(x, (0,)), (V,)),
    "reduce_sum": (lambda x: lax.reduce_sum(x, (0,)), (V,)),
    "reduce_prod": (lambda x: lax.reduce_prod(x, (0,)), (V,)),
    "reduce_and": (lambda x: lax.reduce_and(x, (0,)), (B,)),
    "reduce_or": (lambda x: lax.reduce_or(x, (0,)), (B,)),
    "reduce_xor": (lambda x: lax.reduce_xor(x, (0,)), (N,)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 10), (V,)),
    "reduce_window": (_window, (M,)),
    "reshape": (lambda x: lax.reshape(x, (2, 3)), (V,)),
    "rev": (lambda x: lax.rev(x, (0,)), (V,)),
    "roll": (lambda x: lax.roll(x, 2, 0), (V,)),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x), (V,)),
    "switch": (lambda x: lax.switch(1, [lax.sin, lax.cos], x), (V,)),
    "while_loop": (
        lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, x), (V,),
    ),
    **{
        name: _scatter(name)
        for name in (
            "scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
        )
    },
    "scatter_apply": (
        lambda x, i: lax.scatter_apply(
            x, i[:, None], lax.sin, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(3,)
        ),
        (V, N[[0, 1, 3]]),
    ),
    "slice": (lambda x: lax.slice(x, (1,), (4,)), (V,)),
    "slice_in_dim": (lambda x: lax.slice_in_dim(x, 1, 4), (V,)),
    "sort_key_val": (lax.sort_key_val, (V, W)),
    "split": (lambda x: lax.split(x, (2, 4)), (V,)),
    "squeeze": (lambda x: lax.squeeze(x, (0,)), (V[None],)),
    "stack": (lambda x, y: lax.stack([x, y], 0), (V, W)),
    "unstack": (lambda x: lax.unstack(x, 0), (M,)),
    "tile": (lambda x: lax.tile(x, (2,)), (V,)),
    "transpose": (lambda x: lax.transpose(x, (1, 0)), (X,)),
    "shape_as_value": (lambda: lax.shape_as_value((2, 3)), ()),
    "empty": (lambda: lax.empty((2,), np.float32).shape, ()),
}  # fmt: skip
LAX_LINALG: dict[str, Row] = {
    **rows(lax.linalg, "cholesky eigh tridiagonal", S),
    **rows(lax.linalg, "lu qdwh hessenberg schur qr", M),
    **rows(lax.linalg, "eig", M),
    **rows(lax.linalg, "householder_product", R, U[:2]),
    **rows(lax.linalg, "cholesky_update", L.T, V[:3]),
    **rows(lax.linalg, "tridiagonal_solve", U[:3] * [0, 1, 1], V[:3] + 2, W[:3] * [1, 1, 0], R),
    **rows(lax.linalg, "symmetric_product", R, S),
    **rows(lax.linalg, "ormqr", R, U[:2], R),
    "lu_pivots_to_permutation": (
        lambda i: lax.linalg.lu_pivots_to_permutation(i, 4), (np.array([1, 1, 2], np.int32),),
    ),
    "svd": (lambda x: lax.linalg.svd(x, full_matrices=False)[1], (R,)),
    "triangular_solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), (L, R),
    ),
}  # fmt: skip
INITIALIZERS: dict[str, Row] = {
    **{
        name: (lambda k, name=name: getattr(nn.initializers, name)()(k, (3, 4), F64), (KEY,))
        for name in [
        "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal",
        "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "orthogonal",
        "truncated_normal", "uniform", "xavier_normal", "xavier_uniform",
    ]
    },
    "constant": (lambda k: nn.initializers.constant(2.0)(k, (3,), F64), (KEY,)),
    "delta_orthogonal": (
        lambda k: nn.initializers.delta_orthogonal()(k, (3, 2, 2), F64), (KEY,),
    ),
    "ones": (lambda k: nn.initializers.ones(k, (3,), F64), (KEY,)),
    "zeros": (lambda k: nn.initializers.zeros(k, (3,), F64), (KEY,)),
    "variance_scaling": (
        lambda k: nn.initializers.variance_scaling(1.0, "fan_in", "normal")(k, (3, 4), F64),
        (KEY,),
    ),
}  # fmt: skip
TABLES: dict[str, tuple[Any, dict[str, Row]]] = {
    "numpy.linalg": (tnp.linalg, LINALG),
    "numpy.fft": (tnp.fft, FFT),
    "lax": (lax, LAX),
    "lax.linalg": (lax.linalg, LAX_LINALG),
    "nn": (nn, NN),
    "nn.initializers": (nn.initializers, INITIALIZERS),
    "random": (random, RANDOM),
    "scipy.special": (sc.special, SPECIAL),
    "scipy.linalg": (sc.linalg, SLINALG),
}
OTHERS = {"scipy": SCIPY, "image and ops": IMAGE_OPS}
MODULES_OF_OTHERS: dict[str, list[Any]] = {
    "scipy": [
        sc.cluster.vq, sc.fft, sc.integrate, sc.interpolate, sc.ndimage, sc.optimize, sc.signal,
        sc.sparse.linalg, sc.spatial.transform, sc.stats,
    ],
    "image and ops": [image, ops],
}  # fmt: skip
ALL = {
    **{
        f"{module}-{name}": row
        for module, (_, table) in TABLES.items()
        for name, row in table.items()
    },
    **{f"{module}-{name}": row for module, table in OTHERS.items() for name, row in table.items()},
}
