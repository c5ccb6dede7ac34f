"""Programs that together use every primitive: what has to lower and compile for each platform.

One line is a name, a function and its arguments. Elementwise operations come from the systematic
table, all their dtypes in one program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.op_table import TABLE, Op
from tracebridge import lax
from tracebridge.experimental import io_callback, sparse
from tracebridge.experimental.custom_dce import custom_dce


@dataclasses.dataclass(frozen=True)
class Program:
    """A function and what it is called with."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    not_on: str = ""
    """Platforms whose error is expected instead."""

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    def text(self, platform: str) -> str:
        """The program in StableHLO, lowered for a platform."""
        with tb.enable_x64(True):
            traced = tb.jit(self.fun).trace(*self.args)
            return traced.lower(lowering_platforms=(platform,)).as_text()


def spec(*shape: int, dtype: Any = np.float32) -> Any:
    """An argument of float32, or of another dtype."""
    return tb.ShapeDtypeStruct(shape, dtype)


V, M, B = spec(8), spec(6, 8), spec(3, 6, 8)
S, INT, INTS = spec(), spec(dtype=np.int32), spec(8, dtype=np.int32)

WIDE = (np.float64, np.complex128, np.int64, np.uint64)


def gradient(fun: Callable[..., Any], *argnums: int) -> Callable[..., Any]:
    """Value and gradients of the sum of all results."""

    def total(*args: Any) -> Any:
        return sum(tnp.sum(tnp.real(x)) for x in tb.tree.leaves(fun(*args)))

    return tb.value_and_grad(total, argnums or 0)


def elementwise(op: Op) -> Program:
    """The dtypes of an operation in one program.

    Those of 64 bits only where there are no others: TPUs have none, and take from ten seconds to
    minutes to compile what stands for one operation on them.
    """
    dtypes = [t for t in op.dtypes if t not in WIDE] or op.dtypes
    args = [tb.ShapeDtypeStruct(h.shape, h.dtype) for t in dtypes for h in op.args(t)]
    n = len(op.domains)

    def fun(*xs: Any) -> list[Any]:
        return [op.fun(*xs[i : i + n]) for i in range(0, len(xs), n)]

    return Program(str(op), fun, tuple(args))


def _reductions() -> Iterator[Program]:
    for name in ("sum", "prod", "max", "min"):
        fun = getattr(lax, f"reduce_{name}")
        yield Program(f"reduce_{name}", gradient(lambda x, f=fun: f(x, axes=(0,))), (M,))
    for name in ("and", "or", "xor"):
        fun = getattr(lax, f"reduce_{name}")
        yield Program(f"reduce_{name}", lambda x, f=fun: f(x, axes=(0,)), (INTS,))
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        fun = getattr(lax, name)
        yield Program(name, gradient(lambda x, f=fun: f(x, axis=0)), (M,))
    for name in ("argmax", "argmin"):
        fun = getattr(lax, name)
        yield Program(name, lambda x, f=fun: f(x, axis=0, index_dtype=np.int32), (M,))
    yield Program("sort", gradient(lambda x: lax.sort(x, dimension=0)), (M,))
    yield Program("sort of two", lambda x, i: lax.sort((x, i), num_keys=1), (V, INTS))
    yield Program("top_k", gradient(lambda x: lax.top_k(x, 3)[0]), (M,))
    yield Program("approx_min_k", gradient(lambda x: lax.approx_min_k(x, 3)[0]), (M,))
    yield Program("shifted_exp_sum", tb.nn.log_softmax, (M,))
    yield Program("true_positions", lambda x: tnp.nonzero(x, size=3), (M,))
    yield Program(
        "stored",
        lambda k, x: tb.random.categorical(tb.random.wrap_key_data(k), x),
        (spec(2, dtype=np.uint32), M),
    )


def _indexing() -> Iterator[Program]:
    yield Program("gather", gradient(lambda x, i: x[i]), (M, spec(4, dtype=np.int32)))
    for name in ("add", "multiply", "min", "max", "set", "subtract"):

        def update(x: Any, i: Any, u: Any, name: str = name) -> Any:
            return getattr(x.at[i], name)(u)

        yield Program(f"at[].{name}", update, (M, spec(4, dtype=np.int32), spec(4, 8)))
    yield Program(
        "dynamic_slice", gradient(lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3))), (M, INT)
    )
    yield Program(
        "dynamic_update_slice",
        gradient(lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), 0, 1),
        (M, spec(2, 3), INT),
    )
    yield Program("slice", gradient(lambda x: lax.slice(x, (1, 2), (5, 8), (2, 3))), (M,))


def _shapes() -> Iterator[Program]:
    yield Program(
        "broadcast_in_dim", gradient(lambda x: lax.broadcast_in_dim(x, (6, 8), (1,))), (V,)
    )
    yield Program("concatenate", gradient(lambda x, y: lax.concatenate([x, y], 0), 0, 1), (M, M))
    yield Program("pad", gradient(lambda x: lax.pad(x, 0.0, [(1, -1, 2), (0, 2, 0)])), (M,))
    yield Program("reshape", gradient(lambda x: lax.reshape(x, (8, 6)) * 2), (M,))
    yield Program("rev", gradient(lambda x: lax.rev(x, (0,))), (M,))
    yield Program("roll", gradient(lambda x: lax.roll(x, 2, 0)), (M,))
    yield Program("split", gradient(lambda x: lax.split(x, (2, 4), axis=0)), (M,))
    yield Program("tile", gradient(lambda x: lax.tile(x, (2, 3))), (M,))
    yield Program("stack", gradient(lambda x: lax.stack(lax.unstack(x, 1), 0) ** 2), (M,))
    yield Program("tokens", lambda: lax.after_all(lax.create_token()), ())
    yield Program("squeeze", gradient(lambda x: lax.squeeze(x, (0,))), (spec(1, 8),))
    yield Program("transpose", gradient(lambda x: lax.transpose(x, (1, 0))), (M,))
    yield Program("iota", lambda: lax.iota(np.int32, 8), ())


def _contractions() -> Iterator[Program]:
    yield Program("dot_general", gradient(lambda x, y: x @ y, 0, 1), (B, spec(8, 5)))
    yield Program(
        "dot_general of bfloat16",
        lambda x: lax.dot_general(x, x, (([0], [0]), ([], [])), preferred_element_type=np.float32),
        (spec(8, 4, dtype=tnp.bfloat16),),
    )


def _generators() -> Iterator[Program]:
    key = spec(2, dtype=np.uint32)
    yield Program(
        "threefry2x32", lambda k: tb.random.bits(tb.random.wrap_key_data(k), (7,)), (key,)
    )
    yield Program("split of keys", lambda k: tb.random.key_data(
        tb.random.split(tb.random.wrap_key_data(k), 3)), (key,))  # fmt: skip
    yield Program(
        "rng_bit_generator",
        lambda k: lax.rng_bit_generator(k, (7,), dtype=np.uint32),
        (spec(4, dtype=np.uint32),),
    )
    yield Program("rng_uniform", lambda a, b: lax.rng_uniform(a, b, (7,)), (S, S))
    yield Program("normal", lambda k: tb.random.normal(
        tb.random.wrap_key_data(k), (7,), np.float32), (key,))  # fmt: skip


def _linear_loop(a: Any, x: Any) -> Any:
    return lax.scan(lambda c, t: (c * t[0] + t[1], c), tnp.zeros(8, a.dtype), (a, x))


def _control() -> Iterator[Program]:
    yield Program("cond", gradient(lambda p, x: lax.cond(p > 0, tnp.sin, tnp.cos, x), 1), (S, V))
    yield Program("switch", lambda i, x: lax.switch(i, [tnp.sin, tnp.cos, tnp.exp], x), (INT, V))
    yield Program(
        "while", lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2 + 1, x), (V,)
    )
    yield Program("fori_loop", lambda n, x: lax.fori_loop(0, n, lambda i, c: c + i, x), (INT, V))
    yield Program(
        "scan", gradient(lambda x: lax.scan(lambda c, t: (tnp.sin(c) * t, c), x[0], x)), (M,)
    )
    yield Program("scan of a linear recurrence", gradient(_linear_loop, 0, 1), (M, M))
    yield Program(
        "associative_scan", gradient(lambda x: lax.associative_scan(tnp.multiply, x)), (M,)
    )
    yield Program("jit", gradient(tb.jit(lambda x: tnp.sin(x) * 2)), (V,))
    yield Program("checkpoint", gradient(tb.checkpoint(lambda x: tnp.sin(tnp.sin(x)))), (V,))
    yield Program(
        "custom_linear_solve",
        gradient(
            lambda a, b: lax.custom_linear_solve(
                lambda x: a * x, b, lambda _, y: y / a, lambda _, y: y / a
            ),
            1,
        ),
        (V, V),
    )
    yield Program(
        "composite", lax.composite(lambda x: tnp.sin(x) + 1, "house.sine", version=1), (V,)
    )
    yield Program("optimization_barrier", gradient(lambda x: lax.optimization_barrier(x)), (V,))
    yield Program("stop_gradient", gradient(lambda x: lax.stop_gradient(x) * x), (V,))
    yield Program(
        "platform_dependent",
        lambda x: lax.platform_dependent(
            x, cpu=tnp.sin, cuda=tnp.cos, tpu=tnp.exp, default=tnp.exp
        ),
        (V,),
    )


def _rules_of_users() -> Iterator[Program]:
    @tb.custom_jvp
    def twice(x: Any) -> Any:
        return x * 2

    twice.defjvp(lambda p, t: (twice(p[0]), t[0] * 2))

    @tb.custom_vjp
    def thrice(x: Any) -> Any:
        return x * 3

    thrice.defvjp(lambda x: (thrice(x), None), lambda _, ct: (ct * 3,))

    @tb.custom_batching.custom_vmap
    def halved(x: Any) -> Any:
        return x / 2

    halved.def_vmap(lambda size, batched, x: (x / 2, batched[0]))

    @custom_dce
    def both(x: Any) -> Any:
        return tnp.sin(x), tnp.cos(x)

    both.def_dce(lambda used, x: (tnp.sin(x) if used[0] else None, tnp.cos(x) if used[1] else None))

    @tb.custom_transpose.custom_transpose
    def scaled(r: Any, x: Any) -> Any:
        return r * x

    scaled.def_transpose(lambda r, ct: r * ct)

    yield Program("custom_jvp", lambda x: (twice(x), gradient(twice)(x)), (V,))
    yield Program("custom_vjp", lambda x: (thrice(x), gradient(thrice)(x)), (V,))
    yield Program("custom_vmap", halved, (V,))
    yield Program("custom_dce", both, (V,))
    yield Program("custom_transpose", gradient(lambda r, x: scaled(x, r, x), 1), (V, V))
    yield Program(
        "linear_call",
        gradient(
            lambda a, x: tb.custom_derivatives.linear_call(
                lambda r, y: r * y, lambda r, ct: r * ct, a, x
            ),
            1,
        ),
        (V, V),
    )
    yield Program("named", lambda x: tb.ad_checkpoint.checkpoint_name(tnp.sin(x), "sine"), (V,))


def _gamma_numbers(key: Any, a: Any) -> Any:
    # With numbers of 64 bits the default would be float64.
    return tb.random.gamma(tb.random.wrap_key_data(key), a, (7, 8), a.dtype)


def _special() -> Iterator[Program]:
    for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad"):
        yield Program(name, getattr(lax, name), (V, V))
    wide = spec(8, dtype=np.float64)
    for name in ("igamma", "random_gamma_grad"):
        yield Program(f"{name} of float64", getattr(lax, name), (wide, wide))
    yield Program(
        "reduce_precision of float64",
        lambda x: [lax.reduce_precision(x, 11, bits) for bits in (10, 25)],
        (wide,),
    )
    for name in ("igamma", "igammac"):
        yield Program(f"gradient of {name}", gradient(getattr(lax, name), 0, 1), (V, V))
    for name in ("bessel_i0e", "bessel_i1e"):
        yield Program(f"gradient of {name}", gradient(getattr(lax, name)), (V,))
    yield Program("bessel_i0", lambda x: (tnp.i0(x), tb.grad(lambda y: tnp.i0(y).sum())(x)), (V,))
    yield Program("betainc", gradient(lax.betainc, 0, 1, 2), (V, V, V))
    yield Program("betaln", tb.scipy.special.betaln, (V, V))
    slopes = gradient(tb.scipy.special.betaln, 0, 1)
    yield Program("gradient of betaln", slopes, (V, V))
    yield Program("second derivative of betaln", gradient(slopes, 0, 1), (V, V))
    yield Program("gamma", gradient(_gamma_numbers, 1), (spec(2, dtype=np.uint32), V))
    yield Program(
        "small numbers of events",
        lambda k, a: (
            tb.random.poisson(tb.random.wrap_key_data(k), a, (7, 8)),
            tb.random.binomial(tb.random.wrap_key_data(k), 10, a, (7, 8)),
        ),
        (spec(2, dtype=np.uint32), V),
    )


def _transforms() -> Iterator[Program]:
    yield Program("fft", gradient(lambda x: tnp.fft.fft2(x)), (M,))
    yield Program("irfft", gradient(lambda x: tnp.fft.irfft2(x)), (M,))


def _windows() -> Iterator[Program]:
    for name, start in (("add", 0.0), ("max", -np.inf), ("min", np.inf), ("mul", 1.0)):
        op = getattr(lax, name)
        yield Program(
            f"reduce with {name}", lambda x, o=op, s=start: lax.reduce(x, s, o, (0,)), (M,)
        )
        yield Program(
            f"reduce_window with {name}",
            lambda x, o=op, s=start: lax.reduce_window(x, s, o, (2, 3), (1, 2), "SAME"),
            (M,),
        )
    for name in ("and", "or"):
        op = getattr(lax, f"bitwise_{name}")
        yield Program(
            f"reduce_window with {name}",
            lambda x, o=op, s=name == "and": lax.reduce_window(x > 0, s, o, (2, 3), (1, 2), "SAME"),
            (M,),
        )

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID")

    def pool_images(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    yield Program("max pooling", gradient(pool), (M,))
    yield Program("max pooling of images", gradient(pool_images), (spec(2, 8, 8, 3),))
    yield Program("tangents of max pooling", lambda x, t: tb.jvp(pool, (x,), (t,)), (M, M))
    yield Program(
        "reduce of two",
        lambda x, y: lax.reduce((x, y), (0.0, 0.0), lambda a, b: (a[0] + b[1], a[1] * b[0]), (0,)),
        (M, M),
    )


def _products() -> Iterator[Program]:
    ragged, sizes = spec(20, 6), spec(4, dtype=np.int32)
    yield Program(
        "ragged_dot",
        lambda x, y, s: gradient(lambda x, y: lax.ragged_dot(x, y, s), 0, 1)(x, y),
        (ragged, spec(4, 6, 8), sizes),
    )
    yield Program(
        "sparse_dot",
        gradient(lambda d, i, x: sparse.BCOO((d, i), shape=(6, 5), indices_sorted=True) @ x, 0, 2),
        (spec(7), spec(7, 2, dtype=np.int32), spec(5, 8)),
    )
    image, kernel = spec(2, 4, 9, 9), spec(6, 4, 3, 3)
    conv = lax.conv_general_dilated
    yield Program("conv", gradient(lambda x, k: conv(x, k, (2, 2), "SAME"), 0, 1), (image, kernel))
    yield Program(
        "depthwise conv",
        gradient(lambda x, k: conv(x, k, (1, 1), "VALID", feature_group_count=4), 0, 1),
        (image, spec(8, 1, 3, 3)),
    )
    yield Program(
        "conv_transpose",
        lambda x, k: lax.conv_transpose(x, k, (2,), "SAME"),
        (spec(2, 9, 4), spec(3, 4, 5)),
    )


def _linear_algebra() -> Iterator[Program]:
    square = spec(3, 5, 5)
    for dtype in (np.float32, np.complex64):
        a = tb.ShapeDtypeStruct((3, 5, 5), dtype)
        kind = np.dtype(dtype).name
        yield Program(f"cholesky of {kind}", gradient(lax.linalg.cholesky), (a,))
        yield Program(f"lu of {kind}", gradient(lambda x: lax.linalg.lu(x)[0]), (a,))
        yield Program(f"qr of {kind}", gradient(lax.linalg.qr), (a,))
        yield Program(f"eigh of {kind}", gradient(lambda x: tnp.linalg.eigh(x)), (a,))
        yield Program(f"svd of {kind}", gradient(lambda x: lax.linalg.svd(x)), (a,))
        yield Program(f"det of {kind}", gradient(tnp.linalg.det), (a,))
        yield Program(f"det alone of {kind}", tnp.linalg.det, (a,))
        yield Program(f"solve of {kind}", gradient(tnp.linalg.solve, 0, 1), (a, a))
        yield Program(f"hessenberg of {kind}", lax.linalg.hessenberg, (a,))
        yield Program(f"tridiagonal of {kind}", lax.linalg.tridiagonal, (a,))
        yield Program(f"eig of {kind}", tnp.linalg.eig, (a,))
        yield Program(f"schur of {kind}", gradient(lax.linalg.schur), (a,))
        yield Program(f"qr with pivots of {kind}", lambda x: lax.linalg.qr(x, pivoting=True), (a,))
    yield Program(
        "triangular_solve",
        gradient(lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), 0, 1),
        (square, square),
    )
    yield Program(
        "reflectors",
        lambda a, b: (
            lax.linalg.householder_product(a, b[..., 0]),
            lax.linalg.ormqr(a, b[..., 0], b, left=True, transpose=True),
        ),
        (square, square),
    )
    yield Program(
        "lu_pivots_to_permutation",
        lambda p: lax.linalg.lu_pivots_to_permutation(p, 8),
        (INTS,),
    )
    yield Program("qdwh", gradient(lambda x: lax.linalg.qdwh(x)[:2]), (spec(5, 5),))
    yield Program(
        "tridiagonal_solve",
        gradient(lax.linalg.tridiagonal_solve, 0, 1, 2, 3),
        (V, V, V, spec(8, 2)),
    )
    yield Program(
        "symmetric_product",
        gradient(lambda a, c: lax.linalg.symmetric_product(a, c), 0, 1),
        (spec(4, 3), spec(4, 4)),
    )
    yield Program("symmetric product alone", lax.linalg.symmetric_product, (spec(4, 3), spec(4, 4)))
    yield Program("cholesky_update", lax.linalg.cholesky_update, (spec(5, 5), spec(5)))


def _host() -> Iterator[Program]:
    yield Program("device_put", lambda x: tb.device_put(x) + 1, (V,))
    yield Program("pure_callback", lambda x: tb.pure_callback(np.sin, x, x), (V,), "tpu")
    yield Program("io_callback", lambda x: io_callback(np.sin, x, x, ordered=True), (V,), "tpu")
    yield Program("debug_callback", lambda x: tb.debug.callback(print, x), (V,), "tpu")


def _kinds_of_transforms() -> Iterator[Program]:
    for kind in ("FFT", "IFFT", "RFFT", "IRFFT"):

        def run(x: Any, kind: str = kind) -> Any:
            return lax.fft(x[:, :5] if kind == "IRFFT" else x, kind, (6, 8))

        yield Program(
            kind, gradient(run), (M if kind == "RFFT" else spec(6, 8, dtype="complex64"),)
        )


PROGRAMS = [
    *map(elementwise, TABLE),
    *_reductions(),
    *_indexing(),
    *_shapes(),
    *_contractions(),
    *_transforms(),
    *_generators(),
    *_control(),
    *_rules_of_users(),
    *_special(),
    *_kinds_of_transforms(),
    *_windows(),
    *_products(),
    *_linear_algebra(),
    *_host(),
]
