"""check_rules: one call checks every rule of an operation against each other and a reference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracebridge.core._jaxlib.xla import QUICK_COMPILE
from tracebridge.core.control.jit.cached_call import make_jit
from tracebridge.core.control.jit.jit import JitOptions
from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.testing.compare import assert_allclose, to_host
from tracebridge.testing.grads import (
    Flat,
    array_of,
    check_flat,
    is_active,
    jvp_of,
    random_like,
    together,
    vjp_of,
)

BATCH = 3
Dims = tuple[int | None, ...]
CompilerOptions = tuple[tuple[str, Any], ...]


def check_rules(
    fun: Callable[..., object],
    *args: object,
    reference: Callable[..., object] | None = None,
    order: int = 2,
    modes: Sequence[str] = ("fwd", "rev"),
    vmap: bool = True,
    widen: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    grad_rtol: float | None = None,
    grad_atol: float | None = None,
    eps: float | None = None,
) -> None:
    """Fail unless all rules of an operation agree: value, staging, jit, jvp, vjp, vmap.

    Args:
        fun: function of arrays that gives an array or a sequence of arrays, such as one
            application of a primitive.
        *args: arrays (NumPy arrays keep their dtype, also 64-bit ones) or Python scalars.
        reference: the same function on NumPy arrays.
        order: highest order of derivatives to compare with finite differences; 0 for none.
        modes: "fwd", "rev" or both.
        vmap: check batching, of the operation and of its derivatives.
        widen: take derivatives at float64 (complex128) copies of the arguments.
        rtol: relative tolerance of values, by default by dtype.
        atol: absolute tolerance of values, likewise.
        grad_rtol: relative tolerance of derivatives.
        grad_atol: absolute tolerance of derivatives.
        eps: step of the finite differences.

    Raises:
        AssertionError: two rules disagree.

    >>> import numpy as np, tracebridge as tb
    >>> from tracebridge.testing import check_rules
    >>> check_rules(tb.lax.sin, np.array([0.5, 1.0]), reference=np.sin)
    """
    values = [array_of(a) for a in args]

    def flat(*xs: object) -> list[Any]:
        out = fun(*xs)
        return list(out) if isinstance(out, list | tuple) else [out]

    outs = [array_of(o) for o in flat(*values)]
    if reference is not None:
        want = reference(*[to_host(v) for v in values])
        want = list(want) if isinstance(want, list | tuple) else [want]
        assert_allclose(
            [to_host(o) for o in outs], [np.asarray(w) for w in want],
            rtol=rtol, atol=atol, err_msg="value against the reference",
        )  # fmt: skip
    check_staging(flat, values, outs, rtol, atol)
    if vmap:
        check_batching(flat, values, tuple(all_dims(values)), rtol, atol, "vmap")
    if order:
        wide = [widened(v) for v in values] if widen else values
        check_derivatives(flat, wide, order, tuple(modes), grad_rtol, grad_atol, eps, vmap=vmap)


def compiled(flat: Flat, options: CompilerOptions = ()) -> Flat:
    """A flat function as one program."""

    def run(*xs: object) -> tuple[Any, ...]:
        return tuple(flat(*xs))

    return make_jit(run, JitOptions(compiler_options=options))[0]


def quickly_compiled(flat: Flat) -> Flat:
    """A flat function as one program that XLA hardly optimises.

    Most of a check's time is XLA's, and what derivatives and batching have to agree on does not
    depend on how it fuses. The operation itself is compiled as users have it.
    """
    return compiled(flat, QUICK_COMPILE)


def widened(value: Any) -> Any:
    """A float array as float64, a complex one as complex128; others as they are."""
    if not is_active(value):
        return value
    wide = np.complex128 if dtypes.is_complex(value.aval.dtype) else np.float64
    return put_numpy(to_host(value).astype(wide), weak_type=value.aval.weak_type)


def check_staging(
    flat: Flat, values: Sequence[Any], outs: Sequence[Any], rtol: float | None, atol: float | None
) -> None:
    """Eager results have the avals that staging finds, and equal those of one program."""
    jaxpr = stage(flat, [v.aval for v in values])
    for found, out in zip(jaxpr.out_avals, outs, strict=True):
        if found is not out.aval:
            msg = f"staging gives {found!r}, eager evaluation {out.aval!r}"
            raise AssertionError(msg)
    assert_allclose(
        [to_host(o) for o in compiled(flat)(*values)], [to_host(o) for o in outs],
        rtol=rtol, atol=atol, check_dtype=True, err_msg="jit against eager evaluation",
    )  # fmt: skip


# Units in the last place by which mapped derivatives may differ from those of single elements.
_MAPPED = 256
_NARROW = 1e-6  # a unit from which on that would say nothing


def check_derivatives(
    flat: Flat,
    values: Sequence[Any],
    order: int,
    modes: tuple[str, ...],
    rtol: float | None,
    atol: float | None,
    eps: float | None,
    *,
    vmap: bool,
) -> None:
    """Jvp and vjp agree with differences, keep avals, and batch."""
    active = [is_active(v) for v in values]
    if not any(active):
        return
    check_flat(flat, values, order, modes, atol, rtol, eps, quickly_compiled)
    outs = [as_value(o) for o in compiled(flat)(*values)]
    tangents = [t for t in random_like(values, seed=3) if t is not None]
    cts = [c for c in random_like(outs, seed=4) if c is not None]
    n, m = len(values), len(values) + len(tangents)

    def derived(*xs: object) -> list[Any]:
        forward = jvp_of(flat, active)(*xs[:m]) if "fwd" in modes else []
        back = vjp_of(flat, active)(*xs[:n], *xs[m:]) if "rev" in modes and cts else []
        return [*forward, *back]

    wanted = [o for o in outs if is_active(o)] if "fwd" in modes else []
    wanted += [v for v in values if is_active(v)] if "rev" in modes and cts else []
    inputs = [*values, *tangents, *cts]
    derived_avals = stage(derived, [v.aval for v in inputs]).out_avals
    for aval, like in zip(derived_avals, wanted, strict=True):
        if (aval.shape, aval.dtype) != (like.aval.shape, like.aval.dtype):
            msg = f"a derivative (of {', '.join(modes)}) is {aval!r}, expected {like.aval!r}"
            raise AssertionError(msg)
    if vmap:
        every = tuple([0] * len(inputs))
        only_extra = tuple([None] * n + [0] * (len(inputs) - n))
        text = "vmap of derivatives"
        # Sums of products cancel, and come in another order where they are mapped.
        unit = max([float(finfo(o.aval.dtype).eps) for o in wanted], default=1.0)
        close = _MAPPED * unit if unit < _NARROW else None
        check_batching(derived, inputs, (every, only_extra), close, close, text, quickly_compiled)


def all_dims(values: Sequence[Any]) -> Iterator[Dims]:
    """Choices of batch axes: all first, all last, and each argument alone."""
    n = len(values)
    yield tuple([0] * n)
    if any([v.aval.ndim for v in values]):
        yield tuple([v.aval.ndim for v in values])
    if n > 1:
        for i in range(n):
            yield tuple([0 if k == i else None for k in range(n)])
            if values[i].aval.ndim:
                yield tuple([values[i].aval.ndim if k == i else None for k in range(n)])


def check_batching(
    flat: Flat,
    values: Sequence[Any],
    choices: Sequence[Dims],
    rtol: float | None,
    atol: float | None,
    text: str,
    compiled: Callable[[Flat], Flat] = compiled,
) -> None:
    """Mapping over an axis equals calling once per element.

    The first choice is a program by ``compiled``, all others are one that is compiled quickly.
    """
    run = compiled(flat)
    samples = [_variants(to_host(v)) for v in values]
    weak = [v.aval.weak_type for v in values]
    first, *others = dict.fromkeys(choices)
    programs = [([first], compiled), (others, quickly_compiled)]
    for some, compiles in programs if others else programs[:1]:
        stacked = [
            [
                v if d is None else put_numpy(np.stack(s, axis=d), weak_type=w)
                for v, s, d, w in zip(values, samples, dims, weak, strict=True)
            ]
            for dims in some
        ]
        for dims, actual in zip(some, _mapped(flat, stacked, some, compiles), strict=True):
            single = [
                [
                    v if d is None else put_numpy(s[k], weak_type=w)
                    for v, s, d, w in zip(values, samples, dims, weak, strict=True)
                ]
                for k in range(BATCH)
            ]
            columns = zip(*[[to_host(o) for o in run(*row)] for row in single], strict=True)
            assert_allclose(
                actual, [np.stack(column) for column in columns],
                rtol=rtol, atol=atol, check_dtype=True, err_msg=f"{text} with in_dims {dims}",
            )  # fmt: skip


def _mapped(
    flat: Flat,
    stacked: Sequence[Sequence[object]],
    choices: Sequence[Dims],
    compiled: Callable[[Flat], Flat],
) -> list[list[np.ndarray[Any, Any]]]:
    """The function mapped in each of several ways, each over its own arguments, in one program."""
    n = len(stacked[0])
    out_dims: list[list[int | None]] = [[] for _ in choices]

    def one(k: int, *xs: object) -> list[Any]:
        own = [as_value(x) for x in xs[k * n : (k + 1) * n]]
        outs, out_dims[k] = batch_flat(flat, own, choices[k], BATCH)
        return outs

    functions = [functools.partial(one, k) for k in range(len(choices))]
    results = together(functions, compiled)(*[x for one in stacked for x in one])
    return [
        [
            np.broadcast_to(r, (BATCH, *r.shape)) if d is None else np.moveaxis(r, d, 0)
            for r, d in zip(map(to_host, outs), dims, strict=True)
        ]
        for outs, dims in zip(results, out_dims, strict=True)
    ]


def _variants(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """``x`` and others of its kind: permuted elements, so that all stay in the domain."""
    if x.size < 2:
        # A single number is varied a little, by less than tests keep away from edges.
        scale = [1.0, 0.99, 1.01] if dtypes.is_inexact(x.dtype) else [1] * BATCH
        return [np.asarray(x * s).astype(x.dtype).reshape(x.shape) for s in scale]
    random = np.random.default_rng(0)
    shuffled = [random.permutation(x.reshape(-1)).reshape(x.shape) for _ in range(BATCH - 1)]
    return [x, *shuffled]
