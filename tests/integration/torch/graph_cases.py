"""Functions of arrays for the tests of ``to_graph_module``, with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax


class Case(NamedTuple):
    """A function and its arguments; ``tolerance`` of values, a tenth of that of gradients."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    tolerance: float = 1e-5


def normal(*shape: int) -> torch.Tensor:
    """The same numbers for a shape in every run."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


X = normal(3, 6)
MATRIX = normal(2, 4, 4)
POSITIVE = MATRIX @ MATRIX.mT + 4 * torch.eye(4)
POOL = {"padding": ((0, 0), (1, 0), (1, 1)), "base_dilation": (1, 2, 1)}


def pool(computation: Any, init: float) -> Any:
    return lambda x: lax.reduce_window(
        x, init, computation, (1, 2, 3), (1, 1, 2), window_dilation=(1, 1, 2), **POOL
    )


def conv(**options: Any) -> Any:
    return lambda x, w: lax.conv_general_dilated(x, w, **options)


@tb.custom_jvp
def scaled_jvp(x: Any, y: Any) -> Any:
    return x * y + 1


scaled_jvp.defjvp(lambda p, t: (scaled_jvp(*p), 3 * p[0] * t[0] * p[1] + tnp.sin(p[0]) * t[1]))


@tb.custom_jvp
def user_softmax(x: Any) -> Any:
    e = tnp.exp(x - tnp.max(x))
    return e / tnp.sum(e)


@user_softmax.defjvp
def _(p: Any, t: Any) -> Any:
    y = user_softmax(*p)
    return y, y * (t[0] - y @ t[0])


@tb.custom_vjp
def scaled_vjp(x: Any, y: Any) -> Any:
    return tnp.sin(x) * y


scaled_vjp.defvjp(
    lambda x, y: (scaled_vjp(x, y), (x, y)), lambda r, g: (g * r[0] * 5, g * tnp.cos(r[1]))
)


def at(x: Any, *index: Any) -> Any:
    return x.at[index]


SHAPES = {
    "reflected": Case(lambda x: tnp.pad(x, ((1, 2), (0, 1)), mode="reflect"), (X,)),
    "padded inside": Case(lambda x: lax.pad(x, 1.5, ((1, -1, 2), (-1, 2, 0))), (X,)),
    "cut and padded": Case(lambda x: lax.pad(x, 1.5, ((-5, 4, 0), (7, -9, 1))), (X,)),
    "padded with -0": Case(lambda x: 1 / lax.pad(x, -0.0, ((0, 1, 0), (0, 0, 1))), (X,)),
    "rolled": Case(lambda x: tnp.roll(x, 2, 1), (X,)),
    "split": Case(lambda x: tnp.split(x, [2, 3], axis=1), (X,)),
    "tree": Case(lambda p: {"a": p["b"][0].T, "c": (p["b"][1], None)}, ({"b": [X, X[0]]},)),
    "kron": Case(lambda x: tnp.kron(x, x), (X,)),
    "clamped": Case(lambda x: lax.clamp(-0.5, x, 0.5), (torch.tensor([-0.5, 0.2, 0.5, 3.0]),)),
    "clamped by NaN": Case(
        lambda x, low: lax.clamp(low, x, 0.5), (torch.tensor([-1.0, 3.0]), torch.tensor(torch.nan))
    ),
    "64 bits": Case(lambda x: tnp.sin(x) @ x.T, (X.double(),)),
    "bfloat16": Case(lambda x: tb.nn.softmax(x @ x.T), (X.bfloat16(),), 2e-2),
    "complex": Case(lambda x: tnp.real((x + 1j * x) ** 2 / (1 + x * 1j)), (X,)),
    "number": Case(lambda x, y: x * y, (X, 2.0)),
}
INDEXING = {
    "rows": Case(lambda x, i: x[i], (X, ints(0, -1, 2))),
    "elements": Case(lambda x, i, j: x[i, j], (X, ints(0, 2), ints(5, -1))),
    "outside": Case(lambda x, i: x.at[i].get(mode="fill", fill_value=2.0), (X, ints(9, 0))),
    "clamped": Case(lambda x, i: x.at[i].get(mode="clip"), (X, ints(9, -9))),
    "mapped": Case(tb.vmap(lambda r, i: r[i]), (X, ints(0, 5, -1))),
    "slice": Case(lambda x, i: lax.dynamic_slice(x, (i, 4), (2, 3)), (X, ints(5)[0])),
    "update": Case(lambda x, i: lax.dynamic_update_slice(x, x[:2, :2], (i, 3)), (X, ints(5)[0])),
    "set": Case(lambda x, i: x.at[i].set(x[0]), (X, ints(2, 9))),
    "set twice": Case(lambda x, i, y: x.at[i].set(y), (X, ints(2, 0, 9, 2), normal(4, 6))),
    "add": Case(lambda x, i: x.at[i, i].add(1.5), (X, ints(1, 1, 2))),
    "multiply": Case(lambda x, i: x.at[i].multiply(x[1]), (X, ints(2))),
    "max": Case(lambda x, i: x.at[i, i].max(0.1), (X, ints(0, 1))),
    "mapped set": Case(tb.vmap(lambda r, i: r.at[i].set(3.0)), (X, ints(0, 5, 1))),
    "along": Case(lambda x: tnp.take_along_axis(x, tnp.argsort(x, 1), 1), (X,)),
}
REDUCTIONS = {
    "var": Case(tnp.var, (X,)),
    "max with ties": Case(lambda x: tnp.max(x, 1), (torch.tensor([[1.0, 1.0, 0.0]]),)),
    "prod": Case(lambda x: tnp.prod(x, 0), (X,)),
    "argmax": Case(
        lambda x: tnp.argmax(x, 1), (torch.tensor([[0.0, 1.0, 1.0], [0, torch.nan, 3]]),)
    ),
    "cumsum": Case(lambda x: tnp.cumsum(x, 1), (X,)),
    "cumprod": Case(lambda x: lax.cumprod(x, axis=1, reverse=True), (X,)),
    "cummax": Case(lambda x: lax.cummax(x, axis=1), (X,)),
    "cumlogsumexp": Case(lambda x: lax.cumlogsumexp(x, axis=1), (X,)),
    "recurrence": Case(lambda x: lax.associative_scan(tnp.multiply, x), (X,)),
    "sort": Case(lambda x: (tnp.sort(x, axis=0), tnp.argsort(x, axis=1)), (X,)),
    "two keys": Case(lambda x, i: lax.sort((i, x), num_keys=2), (normal(4), ints(1, 0, 1, 0))),
    "top k": Case(lambda x: lax.top_k(x, 2), (X,)),
    "least with NaN": Case(
        lambda x: lax.approx_min_k(x, 3), (torch.tensor([1.0, torch.nan, 2.0, -torch.inf]),)
    ),
    "quantile": Case(lambda x: tnp.quantile(x, 0.3), (X,)),
    "unique": Case(lambda x: tnp.unique(x, size=8), (ints(3, 1, 3, 2),)),
    "nonzero": Case(lambda x: tnp.nonzero(x > 0, size=5), (X,)),
    "bits": Case(lambda i: tnp.bitwise_xor.reduce(i), (ints(3, 5, 17),)),
    "window sum": Case(pool(lax.add, 0.0), (normal(2, 5, 7),)),
    "window max": Case(pool(lax.max, -float("inf")), (normal(2, 5, 7),)),
    "window min": Case(pool(lax.min, float("inf")), (normal(2, 5, 7),)),
    "no window": Case(
        lambda x: lax.reduce_window(x, -float("inf"), lax.max, (9, 1), (1, 1), "VALID"), (X,)
    ),
    "window product": Case(pool(lax.mul, 1.0), (normal(2, 5, 7),)),
    "window of a function": Case(pool(lambda a, b: a + b + a * b, 0.0), (normal(2, 5, 7),)),
    "ties in windows": Case(
        lambda x: lax.reduce_window(x, -float("inf"), lax.max, (2, 2), (2, 2), "SAME"),
        ((normal(5, 5) > 0).float(),),
    ),
    "slope of windows": Case(
        tb.grad(lambda x: (pool(lax.max, -float("inf"))(x) ** 2).sum()), (normal(2, 5, 7),)
    ),
    "reduce": Case(lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + a * b, (1,)), (X,)),
}
PRODUCTS = {
    "einsum": Case(
        lambda x, y: tnp.einsum("bij,bkj->kbi", x, y), (normal(2, 3, 4), normal(2, 5, 4))
    ),
    "integers": Case(lambda x: x @ x, (ints(1, 2, 3),)),
    "booleans": Case(lambda x: (x > 0) @ (x < 0).T, (X,)),
    "integers that wrap": Case(
        conv(window_strides=(1,), padding="SAME"),
        (
            ints(*range(2**31 - 7, 2**31 - 1)).reshape(1, 2, 3),
            ints(*range(-9, -5)).reshape(2, 2, 1) * 2**27 + 1,
        ),
    ),
    "unsigned that wrap": Case(
        lambda x: conv(window_strides=(1,), padding="SAME")(x.astype("uint32"), x.astype("uint32")),
        (ints(*range(-6, 0)).reshape(1, 2, 3),),
    ),
    "smaller than the window": Case(
        conv(window_strides=(1,), padding="VALID"), (normal(2, 3, 2), normal(4, 3, 5))
    ),
    "groups": Case(
        conv(
            window_strides=(2, 1),
            padding=((1, 2), (0, 1)),
            rhs_dilation=(1, 2),
            feature_group_count=2,
        ),
        (normal(2, 4, 7, 8), normal(6, 2, 3, 3)),
        1e-4,
    ),
    "transposed": Case(
        conv(window_strides=(1, 1), padding=((1, -1), (2, 1)), lhs_dilation=(2, 3)),
        (normal(2, 4, 5, 4), normal(6, 4, 3, 3)),
        1e-4,
    ),
    "channels last": Case(
        conv(window_strides=(1, 1), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (normal(2, 5, 6, 3), normal(3, 3, 3, 4)),
        1e-4,
    ),
    "batch groups": Case(
        conv(
            window_strides=(1,),
            padding="VALID",
            batch_group_count=2,
            dimension_numbers=("NCH", "OIH", "NCH"),
        ),
        (normal(4, 3, 6), normal(4, 3, 2)),
        1e-4,
    ),
    "rfft": Case(lambda x: tnp.real(tnp.fft.rfft(x)), (X,)),
    "irfft": Case(lambda x: tnp.fft.irfft(x, n=5), (X,)),
    "cholesky": Case(tnp.linalg.cholesky, (POSITIVE,), 1e-4),
    "solve": Case(tnp.linalg.solve, (POSITIVE, normal(2, 4, 3)), 1e-4),
    "slogdet": Case(tnp.linalg.slogdet, (MATRIX,), 1e-3),
    "qr": Case(tnp.linalg.qr, (normal(2, 5, 3),), 1e-4),
    "svd": Case(lambda a: tnp.linalg.svd(a, full_matrices=False)[1], (normal(5, 3),), 1e-4),
    "eigh": Case(lambda a: tnp.linalg.eigh(a)[0], (POSITIVE,), 1e-4),
    "lu": Case(lax.linalg.lu, (MATRIX,), 1e-3),
    "triangular": Case(
        lambda a, y: lax.linalg.triangular_solve(
            a, y, left_side=True, lower=True, transpose_a=True
        ),
        (POSITIVE, normal(2, 4, 3)),
        1e-4,
    ),
}
CONTROL = {
    "fori": Case(lambda x: lax.fori_loop(0, 4, lambda i, c: tnp.sin(c) * x, x), (X,)),
    "integers carried": Case(
        lambda x: lax.scan(lambda c, _: ((c[0] + 1, tnp.sin(c[1]) * x), c[0]), (0, x), None, 4),
        (X,),
    ),
    "reverse": Case(lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x, reverse=True), (X,)),
    "nothing carried": Case(lambda x: lax.map(tnp.sin, x), (X,)),
    "no steps": Case(lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x[:0]), (X,)),
    "cond": Case(lambda x: lax.cond(x.sum() > 0, tnp.sin, tnp.cos, x), (X,)),
    "switch": Case(lambda i, x: lax.switch(i, [tnp.sin, tnp.cos, tnp.tan], x), (ints(7)[0], X)),
    "slope of scan": Case(
        tb.grad(lambda x: lax.scan(lambda c, r: (tnp.sin(c * r), c), 1.0, x)[0]), (X[0],)
    ),
    "integers of branches": Case(
        lambda x: lax.cond(x[0] > 0, lambda: (x * 2, 1), lambda: (x[::-1], 2)), (X[0],)
    ),
    "checkpoint": Case(
        tb.grad(lambda x: tb.checkpoint(lambda y: tnp.sin(tnp.sin(y)))(x).sum()), (X,)
    ),
    "custom jvp": Case(scaled_jvp, (X, X + 1)),
    "custom at infinity": Case(user_softmax, (torch.tensor([-torch.inf, 1.0, 2.0]),)),
    "custom vjp": Case(scaled_vjp, (X, X + 1)),
}
SPECIAL = {
    name: Case(getattr(tb.scipy.special, name), (torch.tensor([0.4, 0.7]),) * count, 1e-3)
    for name, count in {
        "gammainc": 2,
        "i0": 1,
        "i1e": 1,
        "ndtri": 1,
        "betaln": 2,
        "logsumexp": 1,
        "log_ndtr": 1,
        "expi": 1,
        "xlogy": 2,
    }.items()
} | {
    "polygamma": Case(lambda x: tb.scipy.special.polygamma(2, x), (torch.tensor([0.4, 2.0]),)),
    "zeta": Case(lambda x: tb.scipy.special.zeta(2.5, x), (torch.tensor([0.4, 2.0]),)),
    "relu at 0": Case(tb.nn.relu, (torch.tensor([-1.0, 0.0, 1.0]),)),
    "cube root at 0": Case(tnp.cbrt, (torch.tensor([0.0, -0.0, -8.0]),)),
    "half precision": Case(
        lambda x: lax.reduce_precision(x, 5, 10), (torch.tensor([1e-5, -6e4, 7e4, 1.0001]),)
    ),
    "unsigned power": Case(
        lax.pow, (torch.tensor([1.0, 0.5]), torch.full((2,), 2**64 - 2, dtype=torch.uint64))
    ),
    "gelu": Case(tb.nn.gelu, (X,)),
    "log_softmax": Case(tb.nn.log_softmax, (X,)),
}


def of_key(draw: Callable[[Any], Any]) -> Case:
    words = torch.tensor([7, 2**32 - 3], dtype=torch.uint32)
    return Case(lambda k: draw(tb.random.wrap_key_data(k)), (words,))


KEY = tb.random.key(7)
RANDOM = {
    "a known key": Case(lambda x: x + tb.random.normal(KEY, (6,)), (X,)),
    "floats beside keys": Case(
        lambda x: lax.scan(lambda k, r: (tb.random.split(k)[0], r * tb.random.uniform(k)), KEY, x)[
            1
        ],
        (X,),
    ),
    "normal": of_key(lambda k: tb.random.normal(k, (5,))),
    "bits": of_key(lambda k: tb.random.bits(k, (5,))),
    "bytes": of_key(lambda k: tb.random.bits(k, (5,), "uint8")),
    "randint": of_key(lambda k: tb.random.randint(k, (9,), 0, 10)),
    "permutation": of_key(lambda k: tb.random.permutation(k, 10)),
    "gamma": of_key(lambda k: tb.random.gamma(k, 2.0, (4,))),
    "poisson": of_key(lambda k: tb.random.poisson(k, 3.0, (4,))),
    "split": of_key(lambda k: tb.vmap(lambda q: tb.random.normal(q, (2,)))(tb.random.split(k, 3))),
    "steps": of_key(
        lambda k: lax.scan(
            lambda c, _: (tb.random.split(c)[0], tb.random.normal(c)), k, None, length=3
        )[1]
    ),
}
FAMILIES = {
    "shapes": SHAPES,
    "indexing": INDEXING,
    "reductions": REDUCTIONS,
    "products": PRODUCTS,
    "control": CONTROL,
    "special": SPECIAL,
    "random": RANDOM,
}
CASES = {
    f"{family}-{name}": case for family, some in FAMILIES.items() for name, case in some.items()
}
