"""Cases of linear algebra and of Fourier transforms: many small matrices, single ones, products."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as onp
from api import width

Make = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
Add = Callable[[str, str], Callable[[Any], Any]]
WEAK, STRONG = "linear algebra and fft", "linear algebra and fft, where XLA does well"
COUNT = 1000


def floats(*shape: int, dtype: str = "float32") -> onp.ndarray[Any, Any]:
    """Random numbers of a dtype."""
    random = onp.random.default_rng(list(shape))
    x = random.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * random.standard_normal(shape)
    return x.astype(dtype)


def positive(n: int) -> onp.ndarray[Any, Any]:
    """Symmetric positive definite matrices."""
    a = floats(COUNT, n, n)
    return a @ a.swapaxes(1, 2) + onp.eye(n, dtype="float32")


def single(n: int, dtype: str = "float32") -> onp.ndarray[Any, Any]:
    """One symmetric positive definite matrix."""
    a = floats(n, n, dtype=dtype)
    return a @ a.T + n * onp.eye(n, dtype=dtype)


def triangle(n: int) -> onp.ndarray[Any, Any]:
    """One lower triangular matrix, well conditioned."""
    return onp.tril(floats(n, n) / n) + onp.eye(n, dtype="float32")


def solved(api: Any) -> Callable[..., Any]:
    """Triangular systems from the left."""
    solve = api.lax.linalg.triangular_solve
    return lambda a, b: solve(a, b, left_side=True, lower=True)


def _small(n: int) -> dict[str, Make]:
    a, b = floats(COUNT, n, n), floats(COUNT, n, 1)
    name = f"{COUNT} of {n}x{n}"
    return {
        f"inv, {name}": lambda api: (api.np.linalg.inv, (a,)),
        f"solve, {name}": lambda api: (api.np.linalg.solve, (a, b)),
        f"cholesky, {name}": lambda api: (api.lax.linalg.cholesky, (positive(n),)),
        f"lu, {name}": lambda api: (api.lax.linalg.lu, (a,)),
        f"triangular solve, {name}": lambda api: (solved(api), (a, b)),
    }


def _factored(n: int) -> dict[str, Make]:
    return {
        f"cholesky, one of {n}{suffix}": lambda api, dtype=dtype: (
            api.np.linalg.cholesky,
            (single(n, dtype),),
        )
        for suffix, dtype in (("", "float32"), (" f64", "float64"))
    }


def _product(*shapes: tuple[int, ...], dtype: str = "float32") -> Make:
    arrays = tuple(floats(*s, dtype=dtype) for s in shapes)
    return lambda api: (api.np.matmul, arrays)


def _transform(name: str, *shape: int, dtype: str) -> Make:
    return lambda api: (getattr(api.np.fft, name), (floats(*shape, dtype=dtype),))


WEAK_CASES: dict[str, Make] = {
    **_small(2),
    **_small(3),
    "triangular solve, 1000 of 6x6": lambda api: (
        solved(api),
        (floats(COUNT, 6, 6), floats(COUNT, 6, 1)),
    ),
    "triangular solve, one of 512": lambda api: (solved(api), (triangle(512), floats(512, 1))),
    "matmul, 1000 of 4x4": _product((COUNT, 4, 4), (COUNT, 4, 4)),
    "matmul, 1000 of 8x8": _product((COUNT, 8, 8), (COUNT, 8, 8)),
    "matmul, 1000 of 8x8 complex": _product((COUNT, 8, 8), (COUNT, 8, 8), dtype="complex64"),
    "outer products, k = 4": _product((1000, 4), (4, 1000)),
    "outer products, k = 4, complex": _product((1000, 4), (4, 1000), dtype="complex64"),
}
STRONG_CASES: dict[str, Make] = {
    **_small(8),
    **_factored(32),
    **_factored(256),
    **_factored(1000),
    "det, 1000 of 2x2": lambda api: (api.np.linalg.det, (floats(COUNT, 2, 2),)),
    "det, 1000 of 3x3": lambda api: (api.np.linalg.det, (floats(COUNT, 3, 3),)),
    "det, 1000 of 3x3 f64": lambda api: (
        api.np.linalg.det,
        (floats(COUNT, 3, 3, dtype="float64"),),
    ),
    "det, 1e5 of 3x3": lambda api: (api.np.linalg.det, (floats(100 * COUNT, 3, 3),)),
    "det of 100 of 16x16, dx": lambda api: (
        api.root.grad(lambda a: api.np.linalg.det(a).sum()),
        (floats(100, 16, 16),),
    ),
    "exponential, one of 100 f64": lambda api: (
        importlib.import_module(f"{api.package}.scipy.linalg").expm,
        (floats(100, 100, dtype="float64") / 10,),
    ),
    "det, 3x3": lambda api: (api.np.linalg.det, (floats(3, 3),)),
    "matmul, 1000 of 16x16 by vectors": _product((COUNT, 16, 16), (COUNT, 16, 1)),
    "matmul, 256": _product((256, 256), (256, 256)),
    "solve, one of 256": lambda api: (api.np.linalg.solve, (floats(256, 256), floats(256, 1))),
    "inv, one of 256": lambda api: (api.np.linalg.inv, (floats(256, 256),)),
    "qr, one of 256": lambda api: (lambda a: tuple(api.np.linalg.qr(a)), (floats(256, 256),)),
    "fft, 1024": _transform("fft", 1024, dtype="complex64"),
    "fft, 10000 of 64": _transform("fft", 10000, 64, dtype="complex64"),
    "rfft, 1000 of 256": _transform("rfft", 1000, 256, dtype="float32"),
    "fft, 65536": _transform("fft", 65536, dtype="complex64"),
}


def register(case: Add) -> None:
    """Add the cases to both groups."""
    for group, cases in ((WEAK, WEAK_CASES), (STRONG, STRONG_CASES)):
        for name, make in cases.items():
            case(group, name)(lambda api, make=make, name=name: timed(api, make, name))


def timed(api: Any, make: Make, name: str = "") -> tuple[Callable[[], Any], int]:
    """One compiled call, and how many make a sample of some milliseconds."""
    function, arrays = make(api)
    program = api.jit(lambda *xs: function(*xs))
    with width(api, name):
        args = [api.np.asarray(x) for x in arrays]

    def run() -> None:
        with width(api, name):
            api.block(program(*args))

    # Of a small program, even a context that does nothing is seen.
    return run if "f64" in name else lambda: api.block(program(*args)), 20
