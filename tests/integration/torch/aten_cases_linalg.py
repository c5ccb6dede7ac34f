"""More calls of ATen operators by family: linear algebra, samples between pixels, bags."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.integration.torch.aten_cases import Case, b, case, i, r, reseed


def _near(n: int, *batch: int) -> torch.Tensor:
    """Well-conditioned matrices."""
    return r(*batch, n, n) * 0.3 + 2 * torch.eye(n)


def _definite(n: int, *batch: int) -> torch.Tensor:
    x = r(*batch, n, n)
    return x @ x.mT + torch.diag(torch.arange(1.0, n + 1))


def systems() -> list[Case]:
    """Solutions, inverses, determinants and their factors."""
    lu = [torch.linalg.lu_factor(_near(3)), torch.linalg.lu_factor(_near(3, 2))]
    low = torch.linalg.cholesky(_definite(3))
    triangle = torch.tril(_near(3)) + torch.eye(3)
    return [
        case("linalg_cholesky_ex", _definite(3)),
        case("linalg_cholesky_ex", _definite(4, 2), upper=True),
        case("cholesky_solve", r(3, 2), low),
        case("cholesky_solve", r(3, 2), low.mT.contiguous(), True),
        case("cholesky_inverse", low),
        case("linalg_inv_ex", _near(3, 2)),
        case("_linalg_solve_ex", _near(3), r(3)),
        case("_linalg_solve_ex", _near(3, 2), r(2, 3)),
        case("_linalg_solve_ex", _near(3, 2), r(2, 3, 4)),
        case("_linalg_solve_ex", _near(3), r(2, 3), left=False),
        case("_linalg_det", _near(3, 2)),
        case("_linalg_det", -_near(2)),
        case("_linalg_slogdet", -_near(3, 2)),
        case("linalg_lu", _near(3)),
        case("linalg_lu", r(2, 3, 2)),
        case("linalg_lu_factor_ex", r(2, 3, 3)),
        *[case("linalg_lu_solve", *f, r(*f[0].shape[:-1], 2)) for f in lu],
        *[case("linalg_lu_solve", *f, r(*f[0].shape[:-1], 2), adjoint=True) for f in lu],
        *[case("linalg_lu_solve", *f, r(*f[0].shape), left=False) for f in lu],
        case("lu_unpack", *lu[1]),
        case("linalg_solve_triangular", triangle, r(3, 2), upper=False),
        case("linalg_solve_triangular", triangle.mT, r(2, 3), upper=True, left=False),
        case("linalg_solve_triangular", triangle, r(2, 3, 2), upper=False, unitriangular=True),
        case("triangular_solve", r(3, 2), triangle.mT.contiguous()),
        case("triangular_solve", r(3, 2), triangle, False, True),
        case("linalg_matrix_exp", r(3, 3)),
        case("linalg_matrix_exp", r(2, 3, 3) * 3),
    ]


def factors() -> list[Case]:
    """Decompositions whose factors are unique, but for signs that LAPACK chooses."""
    return [
        case("geqrf", r(4, 3)),
        case("geqrf", r(2, 2, 3)),
        case("linalg_qr", r(3, 3)),
        case("linalg_qr", r(2, 4, 3)),
        case("linalg_qr", r(3, 3), "complete"),
        case("linalg_householder_product", r(2, 4, 2), r(2, 2)),
        case("ormqr", r(4, 3), r(3), r(4, 2)),
        case("ormqr", r(2, 3), r(2), r(2, 2)),
        case("ormqr", r(2, 3, 3), r(2, 3), r(2, 2, 3), False, True),
        case("linalg_pinv.atol_rtol_tensor", r(2, 4, 3)),
        case("linalg_pinv.atol_rtol_tensor", _definite(3), hermitian=True),
        case("linalg_pinv.atol_rtol_tensor", torch.complex(r(3, 3), r(3, 3)), hermitian=True),
        case(
            "linalg_pinv.atol_rtol_tensor",
            torch.diag(torch.tensor([3.0, 1.0, 0.01])),
            atol=torch.tensor(0.1),
        ),
    ]


def samples() -> list[Case]:
    """Linear, nearest and cubic, with each kind of padding, inside and outside."""
    plane, grid = r(2, 3, 4, 5), r(2, 3, 2, 2, low=-1.4, high=1.4)
    space, places = r(1, 2, 3, 4, 2), r(1, 2, 1, 3, 3, low=-1.4, high=1.4)
    return [
        *[
            case("grid_sampler_2d", plane, grid, mode, padding, align)
            for mode in (0, 1, 2)
            for padding in (0, 1, 2)
            for align in (False, True)
        ],
        *[
            case("grid_sampler_3d", space, places, mode, padding, align)
            for mode, padding, align in ((0, 0, False), (0, 2, True), (0, 1, False), (1, 2, False))
        ],
        case("grid_sampler_2d", r(1, 1, 1, 1), grid[:1], 0, 2, True),
    ]


def bags() -> list[Case]:
    """Sums, means and maxima; an empty bag, padding, weights."""
    table, rows = r(6, 2), torch.tensor([1, 5, 0, 0, 3, 2])
    starts = torch.tensor([0, 2, 2, 5])
    forward = "_embedding_bag_forward_only"
    return [
        *[case(forward, table, rows, starts, False, mode) for mode in (0, 1, 2)],
        *[
            case(forward, table, rows, starts, False, mode, False, None, False, 0)
            for mode in (0, 1, 2)
        ],
        *[case("_embedding_bag", table, rows, starts, False, mode) for mode in (0, 1)],
        case(forward, table, rows, starts, False, 0, False, r(6)),
        case(forward, table, rows, torch.tensor([0, 2, 6]), False, 1, False, None, True),
    ]


def fixed_sizes() -> list[Case]:
    """Windows and frequencies; bits of elements."""
    kinds = ("bartlett_window", "blackman_window", "hamming_window", "kaiser_window")
    return [
        *[case(name, 6) for name in kinds],
        *[case(f"{name}.periodic", 5, False) for name in kinds],
        case("hamming_window.periodic_alpha", 5, True, 0.5),
        case("hamming_window.periodic_alpha_beta", 5, True, 0.5, 0.4),
        case("kaiser_window.beta", 5, True, 3.0),
        *[case(f"fft_{name}", n, 0.5) for name in ("fftfreq", "rfftfreq") for n in (5, 6)],
        *[case("view.dtype", r(2, 4).detach(), d) for d in (torch.int32, torch.int16)],
        case("view.dtype", i(2, 4).int(), torch.int64),
        case("view.dtype", i(2, 4).int(), torch.float32),
        case("view.dtype", b(4), torch.uint8),
        case("__lshift__.Tensor", i(4, low=0), i(4, low=0)),
        case("__rshift__.Tensor", i(4), i(4, low=0)),
        case("searchsorted.Scalar", torch.tensor([1.0, 3.0, 5.0]), 3.0),
        case("searchsorted.Scalar", torch.tensor([1, 3, 5]), 3, right=True),
    ]


def overlapping() -> list[Case]:
    """Elements at the same place, rows without any, elements of memory."""
    x = r(2, 3, 5, 4)
    y, places = torch.nn.functional.max_pool2d(x, 3, 1, 1, return_indices=True)
    z, deep = torch.nn.functional.max_pool3d(x, 2, 1, return_indices=True)
    gone = r(3, 4)
    gone[1] = gone[0, 2] = -torch.inf
    return [
        case("max_unpool2d", y, places, [5, 4]),
        case("max_unpool3d", z, deep, [3, 5, 4], [1] * 3, [0] * 3),
        case("_safe_softmax", gone, 1),
        case("_safe_softmax", gone.half().float(), -1, dtype=torch.float32),
        case("narrow_copy", r(3, 4), 1, 1, 2),
        case("narrow_copy", i(3, 4), -1, -2, 2),
        case("permute_copy", r(2, 3, 4), [2, 0, -2]),
        case("unbind_copy.int", r(2, 3), 1),
        case("view_copy", r(2, 6), [3, -1]),
        case("as_strided_copy", r(12), [2, 3], [1, 4], 1),
    ]


def masks() -> list[Case]:
    """Elements that a mask names, written in order or by one value, at any axis."""
    x, rows = r(3, 4, 2), torch.tensor([True, False, True])
    both = torch.tensor([[True, False, True, False]] * 2 + [[False] * 4])
    columns = torch.tensor([True, True, False, True])
    return [
        *[case("nonzero_static", both, size=n) for n in (2, 6)],
        case("nonzero_static", x, size=30, fill_value=7),
        case("index_put", x, [rows], r(2, 4, 2)),
        case("index_put", x, [rows], r(4, 2), True),
        case("index_put", x, [both], r(4, 2)),
        case("index_put", x, [both], r(4, 1), True),
        case("index_put", x, [both], r(1, 2)),
        case("index_put", x, [both], r()),
        case("index_put", x, [None, columns], r(3, 3, 2)),
        case("index_put", x, [None, columns], r(3, 1)),
        case("index_put", x, [None, both[0, :, None] & torch.ones(2, dtype=torch.bool)], r(3, 4)),
        case("index_put", x, [None, None, torch.tensor([False, True])], r(4, 1), True),
        case("index_put", x, [torch.zeros(3, dtype=torch.bool)], r(1, 4, 2)),
        case("masked_scatter", r(4), both, r(12)),
    ]


def others() -> list[Case]:
    """The most frequent elements, and constants."""
    return [
        case("mode", i(4, 9, low=0, high=4)),
        case("mode", i(5, 3, low=0, high=3).float(), 0, True),
        case("tril_indices", 3, 4, 1),
        case("triu_indices", 4, 3, -1),
        case("rrelu_with_noise_functional", r(3, 2), torch.zeros(3, 2)),
        case("isnan", b(2).float()),
    ]


POLYNOMIALS = [
    *[f"{kind}chebyshev_polynomial_{k}" for kind in ("", "shifted_") for k in "tuvw"],
    *["hermite_polynomial_h", "hermite_polynomial_he"],
    *["laguerre_polynomial_l", "legendre_polynomial_p"],
]


def polynomials() -> list[Case]:
    """Degrees below 0, of arrays and of numbers; torch has no derivatives."""
    x, n = torch.linspace(-0.9, 1.5, 6), torch.tensor([-1, 0, 1, 2, 5, 3])
    names = [f"special_{name}" for name in POLYNOMIALS]
    return [
        *[case(name, x, n) for name in names],
        *[case(f"{name}.n_scalar", x, 4) for name in names],
        *[case(f"{name}.x_scalar", 0.5, n) for name in names],
        case(names[0], x, n * 1.4),
        case(names[0], n, n),
        case(names[0], x[:0], n[0]),
    ]


BESSEL = [
    *["airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0"],
    *["modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"],
    "spherical_bessel_j0",
]


def special() -> list[Case]:
    """Special functions; extrema that leave out what is no number."""
    x, gaps = r(6, low=0.1, high=2), torch.tensor([1.0, float("nan"), 2.0, -0.5])
    y, places = torch.tensor([1.0, 3.0, float("nan"), 0.5]), torch.tensor([0, 2])
    names = "erfcx i0e i1 i1e modified_bessel_i0 modified_bessel_i1"
    square = r(4, 3)
    both = torch.tensor([-9.0, -2.5, -0.5, 0.0, 1e-3, 1.9, 2.0, 6.0, 40.0, float("inf")])
    return [
        *[case(f"special_{name}", both) for name in BESSEL],
        *[case(f"special_{name}", x - 1) for name in names.split()],
        case("i0", x),
        case("i0", i(3, low=0)),
        case("special_ndtri", x / 2.1),
        *[case(n, torch.tensor([-8.9145, -3.3, -0.4, 9.0])) for n in ("digamma", "lgamma")],
        case("special_log_ndtr", torch.tensor([-9.0, -1.5, 0.0, 4.0, 20.0])),
        case("special_zeta", x + 1.5, x),
        case("igamma", x, x + 0.5),
        case("igammac", x, x + 0.5),
        case("polygamma", 2, x),
        case("fmax", gaps, y),
        case("fmin", gaps, y),
        case("fmax", i(4), i(4)),
        case("ldexp.Tensor", x, i(6, low=0)),  # torch's derivative is 0 at negative ones
        case("frexp.Tensor", torch.cat([x, torch.zeros(1), -x])),
        case("lcm", i(5), i(5)),
        case("dist", r(3, 2), r(2), 3),
        *[
            case("index_reduce", square, 0, places, r(2, 3), mode, include_self=own)
            for mode in ("prod", "mean", "amax", "amin")
            for own in (True, False)
        ],
        *[case(f"index_{name}", r(), 0, torch.tensor([0]), r()) for name in ("add", "copy")],
        case("index_reduce", r(), 0, torch.tensor(0), r(), "prod"),
        case("put", square, torch.tensor([[0, 7], [-1, 2]]), r(2, 2)),
        case("put", square, torch.tensor([0, 7, 7]), r(3), True),
        case("repeat_interleave.Tensor", torch.tensor([1, 0, 3]), output_size=4),
        case("scatter.reduce", square, 0, torch.tensor([[0, 1, 0]]), r(1, 3), reduce="add"),
        case("scatter.value_reduce", square, 1, torch.tensor([[0], [2]]), 5.0, reduce="multiply"),
        case("diagonal_scatter", square, r(3), -1),
        case("as_strided_scatter", square, r(2, 2), [2, 2], [1, 3], 1),
    ]


def counting() -> list[Case]:
    """Histograms and runs of elements."""
    x, weight, edges = r(3, 4), r(3, 4, low=0), torch.tensor([-1.0, -0.2, 0.5, 2.0])
    lengths, offsets = torch.tensor([2, 0, 1, 2]), torch.tensor([[0, 1, 4], [1, 3, 3]])
    runs, rows = r(5, 2), r(2, 5)
    rows[0, :2] = 0.5  # equal extremes share the derivative
    return [
        case("histogram.bin_ct", x, 3),
        case("histogram.bin_ct", torch.ones(3), 3),
        case("histogram.bin_ct", x, 4, range=[-1.0, 1.0], weight=weight, density=True),
        case("histogram.bins_tensor", x, edges),
        case("histogram.bins_tensor", edges, edges, density=True),
        case("_histogramdd_bin_edges", r(5, 2), [2, 3], range=[-1.0, 1.0, 0.0, 2.0]),
        case("_histogramdd_bin_edges", r(5, 2), [2, 3]),
        case("_histogramdd_from_bin_cts", r(9, 2), [2, 3], weight=r(9, low=0)),
        case("_histogramdd_from_bin_tensors", r(9, 2), [edges, edges], density=True),
        *[case("segment_reduce", runs, k, lengths=lengths) for k in ("sum", "mean", "prod", "min")],
        case("segment_reduce", runs, "mean", lengths=lengths, initial=0.5),
        case("segment_reduce", rows, "max", offsets=offsets, axis=1, initial=0.5),
        case("bucketize.Scalar", 0.2, edges, right=True),
        case("new_empty_strided", torch.ones(2), [0, 3], [3, 1], dtype=torch.int64),
    ]


def quantizing() -> list[Case]:
    """Numbers rounded to steps, and products of small integers."""
    x, on, off = r(3, 4) * 3, torch.ones(1, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    scale, zero = torch.tensor([0.2]), torch.tensor([2], dtype=torch.int32)
    scales, zeros = torch.tensor([0.1, 0.5, 2.0]), torch.tensor([0, 3, -2], dtype=torch.int32)
    flagged = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    each = "fake_quantize_per_channel_affine_cachemask"
    small = i(32, 32).to(torch.int8)
    return [
        case("fake_quantize_per_tensor_affine_cachemask", x, 0.1, 3, -20, 20),
        *[case(flagged, x, scale, zero, flag, 0, 15) for flag in (on, off)],
        case(each, x, scales, zeros, 0, -8, 7),
        case(each, x, scales, torch.tensor([0.4, 0.0, -1.3]), 0, -8, 7),
        case("_int_mm", small, small),
    ]


def _seeded(family: Callable[[], list[Case]]) -> Callable[[], list[Case]]:
    """The same numbers whichever families come before: some matrices have no good factors."""

    def cases() -> list[Case]:
        reseed(3)
        return family()

    return cases


FAMILIES = {
    f.__name__: _seeded(f)
    for f in (
        *(systems, factors, samples, bags, others, special),
        *(fixed_sizes, overlapping, masks, counting, quantizing, polynomials),
    )
}
