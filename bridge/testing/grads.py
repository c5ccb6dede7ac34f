"""Checks of derivatives against finite differences: check_grads, check_jvp, check_vjp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.tree.tree import flatten, unflatten
from tracebridge.testing.compare import assert_allclose, to_host

Flat = Callable[..., Sequence[Any]]
Host = np.ndarray[Any, Any]
Tolerance = float | Mapping[Any, float] | None

# dtype -> error of first derivatives by central differences. Narrow floats are hardly testable.
_TOLERANCE = {
    dtypes.float64: 1e-5,
    dtypes.complex128: 1e-5,
    dtypes.float32: 2e-2,
    dtypes.complex64: 2e-2,
    dtypes.float16: 2e-1,
    dtypes.bfloat16: 5e-1,
}


def check_grads(
    f: Callable[..., object],
    args: Sequence[object],
    order: int,
    modes: str | Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Fail unless the derivatives of ``f`` agree with finite differences.

    Args:
        f: function of arrays and trees of arrays.
        args: where to check; arguments that are neither floating nor complex stay fixed.
        order: highest order of derivatives.
        modes: "fwd" (jvp), "rev" (vjp) or both; higher orders combine them.
        atol: absolute tolerance, or a dict ``{dtype: tolerance}``; by default by dtype, so use
            float64 where it matters. Reverse mode compares a sum over all elements, where it is
            multiplied by the root of their number.
        rtol: relative tolerance, likewise.
        eps: length of the step of the differences.

    Raises:
        AssertionError: a derivative is wrong.
        ArgumentValueError: ``modes`` contains something else.

    >>> import tracebridge as tb
    >>> from tracebridge.testing import check_grads
    >>> check_grads(tb.lax.sin, (0.5,), order=2)
    """
    if isinstance(modes, str):
        modes = (modes,)
    unknown = set(modes) - {"fwd", "rev"}
    if unknown:
        msg = f"check_grads: modes are 'fwd' and 'rev', got {sorted(unknown)}"
        raise ArgumentValueError(msg)
    flat, values = _flat_function(f, args)
    check_flat(flat, values, order, tuple(modes), atol, rtol, eps)


def check_jvp(
    f: Callable[..., object],
    f_jvp: Callable[..., Any],
    args: Sequence[object],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Fail unless ``f_jvp(args, tangents)`` gives the value and the derivative of ``f``.

    Args:
        f: function of arrays and trees of arrays.
        f_jvp: function of a tuple of arguments and a tuple of tangents: ``(value, tangent)``.
        args: where to check: floating or complex leaves.
        atol: absolute tolerance, or a dict ``{dtype: tolerance}``; by default by dtype.
        rtol: relative tolerance, likewise.
        eps: length of the step of the differences.
        err_msg: added to the message.

    >>> import tracebridge as tb
    >>> from tracebridge.testing import check_jvp
    >>> def f_jvp(primals, tangents):
    ...     return tb.lax.sin(*primals), tb.lax.mul(tb.lax.cos(*primals), *tangents)
    >>> check_jvp(tb.lax.sin, f_jvp, (0.5,))
    """
    flat, values = _flat_function(f, args)
    _, tree = flatten(tuple(args))
    tangents = random_like(values, seed=1)
    out, tangent_out = f_jvp(unflatten(tree, values), unflatten(tree, tangents))
    want, want_tangents = (
        [to_host(o) for o in flat(*values)],
        numeric_jvp(flat, values, tangents, eps),
    )
    assert_allclose([to_host(o) for o in flatten(out)[0]], want, err_msg=f"value. {err_msg}")
    _compare(flatten(tangent_out)[0], want_tangents, atol, rtol, f"jvp. {err_msg}")


def check_vjp(
    f: Callable[..., object],
    f_vjp: Callable[..., Any],
    args: Sequence[object],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Fail unless ``f_vjp(*args)`` gives the value of ``f`` and its pullback.

    Args:
        f: function of arrays and trees of arrays.
        f_vjp: function of the arguments: ``(value, pullback)``; the pullback maps a cotangent of
            the value to a tuple of cotangents of the arguments.
        args: where to check: floating or complex leaves.
        atol: absolute tolerance, or a dict ``{dtype: tolerance}``; by default by dtype.
        rtol: relative tolerance, likewise.
        eps: length of the step of the differences.
        err_msg: added to the message.

    >>> import tracebridge as tb
    >>> from tracebridge.testing import check_vjp
    >>> def f_vjp(x):
    ...     return tb.lax.sin(x), lambda ct: (tb.lax.mul(tb.lax.cos(x), ct),)
    >>> check_vjp(tb.lax.sin, f_vjp, (0.5,))
    """
    flat, values = _flat_function(f, args)
    _, tree = flatten(tuple(args))
    out, pullback = f_vjp(*unflatten(tree, values))
    leaves, out_tree = flatten(out)
    cts = random_like([as_value(o) for o in leaves], seed=2)
    gradients = flatten(pullback(unflatten(out_tree, cts)))[0]
    tangents = random_like(values, seed=1)
    numeric = numeric_jvp(flat, values, tangents, eps)
    want = [to_host(o) for o in flat(*values)]
    assert_allclose([to_host(o) for o in leaves], want, err_msg=f"value. {err_msg}")
    _compare(
        [np.asarray(pair(tangents, gradients))], [np.asarray(pair(cts, numeric))], atol, rtol,
        f"vjp. {err_msg}", like=[t for t in (*tangents, *cts) if t is not None],
    )  # fmt: skip


def _flat_function(f: Callable[..., object], args: Sequence[object]) -> tuple[Flat, list[Any]]:
    leaves, tree = flatten(tuple(args))

    def flat(*values: object) -> list[Any]:
        return flatten(f(*unflatten(tree, values)))[0]

    return flat, [array_of(x) for x in leaves]


def array_of(x: object) -> Any:
    """An engine array with the dtype that ``x`` has; Python scalars become weakly typed arrays."""
    if isinstance(x, np.ndarray | np.generic):
        return put_numpy(np.asarray(x))
    value = as_value(x)
    if hasattr(value, "_buf"):
        return value
    aval = value.aval
    return put_numpy(np.asarray(value.value).astype(aval.dtype), weak_type=aval.weak_type)


def is_active(x: Any) -> bool:
    """Whether a value can be differentiated."""
    return dtypes.is_inexact(x.aval.dtype)


def random_like(values: Sequence[Any], seed: int) -> list[Any]:
    """Normally distributed tangents of values; those of inactive ones are ``None``."""
    random = np.random.default_rng(seed)
    found: list[Any] = []
    for v in values:
        if not is_active(v):
            found.append(None)
            continue
        sample = random.standard_normal(v.aval.shape)
        if dtypes.is_complex(v.aval.dtype):
            sample = sample + 1j * random.standard_normal(v.aval.shape)
        host = np.asarray(sample).astype(v.aval.dtype)
        found.append(put_numpy(host, weak_type=v.aval.weak_type))
    return found


def numeric_jvp(
    flat: Flat, values: Sequence[object], tangents: Sequence[object], eps: float | None = None
) -> list[Host | None]:
    """Central differences of a flat function along ``tangents``; None for inactive results."""

    def at(step: float) -> list[Host]:
        moved = [_moved(v, t, step) for v, t in zip(values, tangents, strict=True)]
        return [to_host(o) for o in flat(*moved)]

    step = default_step(flat, values) if eps is None else eps
    plus, minus = at(step), at(-step)
    slopes: list[Host | None] = []
    for p, m in zip(plus, minus, strict=True):
        if not dtypes.is_inexact(p.dtype):
            slopes.append(None)
            continue
        high = np.complex128 if dtypes.is_complex(p.dtype) else np.float64
        slopes.append((p.astype(high) - m.astype(high)) / (2 * step))
    return slopes


def default_step(flat: Flat, values: Sequence[Any]) -> float:
    """Where truncation and rounding errors balance: the cube root of the rounding error."""
    seen = [v.aval.dtype for v in values if is_active(v)]
    seen += [o.dtype for o in map(to_host, flat(*values)) if dtypes.is_inexact(o.dtype)]
    return max([float(finfo(dtype).eps) for dtype in seen], default=1.0) ** (1 / 3)


def _moved(value: Any, tangent: object, step: float) -> Any:
    """``value + step * tangent``, rounded once to the dtype of the value."""
    if tangent is None:
        return value
    x, t = to_host(value), to_host(tangent)
    high = np.complex128 if dtypes.is_complex(x.dtype) else np.float64
    moved = np.asarray(x.astype(high) + step * t.astype(high)).astype(x.dtype)
    return put_numpy(moved, weak_type=value.aval.weak_type)


def jvp_of(flat: Flat, active: Sequence[bool]) -> Flat:
    """The flat function ``(values, tangents of the active ones) -> tangents of the results``.

    Results that have no tangent are left out; symbolic zeros become zeros.
    """
    n = len(active)

    def run(*xs: object) -> list[Any]:
        given = iter(xs[n:])
        tangents = [as_value(next(given)) if a else None for a in active]
        outs, found = jvp_flat(flat, [as_value(x) for x in xs[:n]], tangents)
        return [
            zeros_of(o.aval.tangent) if t is None else t
            for o, t in zip(outs, found, strict=True)
            if is_active(o)
        ]

    return run


def vjp_of(flat: Flat, active: Sequence[bool]) -> Flat:
    """The flat function ``(values, cotangents of results) -> cotangents of active values``."""
    n = len(active)

    def run(*xs: object) -> list[Any]:
        primals = [as_value(x) for x in xs[:n]]
        outs, linear = linearize_flat(flat, primals, active)
        given = iter(xs[n:])
        cts = [as_value(next(given)) if is_active(o) else None for o in outs]
        found = backward(linear, cts, current_trace().process)
        return [
            zeros_of(a) if ct is None else ct for a, ct in zip(linear.in_avals, found, strict=True)
        ]

    return run


def pair(left: Sequence[object], right: Sequence[object]) -> float:
    """The real part of the sum of the plain products: how cotangents meet tangents."""
    right = [r for r in right if r is not None]
    total = 0.0
    for x, y in zip([v for v in left if v is not None], right, strict=True):
        a, b = to_host(x), to_host(y)
        high = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
        total += float(np.sum(a.astype(high) * b.astype(high)).real)
    return total


def check_flat(
    flat: Flat,
    values: Sequence[object],
    order: int,
    modes: tuple[str, ...],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    compiled: Callable[[Flat], Flat] = lambda f: f,
    path: str = "",
) -> None:
    """``check_grads`` of a flat function; ``compiled`` may speed up what is evaluated."""
    active = [is_active(v) for v in values]
    if not any(active):
        return
    run = compiled(flat)
    tangents = random_like(values, seed=1)
    numeric = [t for t in numeric_jvp(run, values, tangents, eps) if t is not None]
    nonzero_tangents = [t for t in tangents if t is not None]
    if "fwd" in modes:
        derivatives = compiled(jvp_of(flat, active))(*values, *nonzero_tangents)
        _compare(derivatives, numeric, atol, rtol, f"{path}jvp")
    cts = [c for c in random_like([as_value(o) for o in run(*values)], seed=2) if c is not None]
    if "rev" in modes:
        back = compiled(vjp_of(flat, active))(*values, *cts)
        left, right = np.asarray(pair(nonzero_tangents, back)), np.asarray(pair(cts, numeric))
        _compare([left], [right], atol, rtol, f"{path}vjp", like=[*nonzero_tangents, *cts])
    if order > 1:
        for mode, make, extra in (("fwd", jvp_of, nonzero_tangents), ("rev", vjp_of, cts)):
            if mode in modes and extra:
                derived = _partial(make(flat, active), len(values), extra)
                check_flat(
                    derived, values, order - 1, modes, atol, rtol, eps, compiled,
                    f"{path}{'jvp' if mode == 'fwd' else 'vjp'}, then ",
                )  # fmt: skip


def _partial(flat: Flat, n: int, fixed: Sequence[object]) -> Flat:
    def run(*xs: object) -> Sequence[Any]:
        return flat(*xs[:n], *fixed)

    return run


def _compare(
    derivatives: Sequence[object],
    numeric: Sequence[object],
    atol: Tolerance,
    rtol: Tolerance,
    text: str,
    like: Sequence[Any] | None = None,
) -> None:
    """Compare derivatives with differences, by the tolerance of the dtype of the derivatives."""
    wanted = [x for x in numeric if x is not None]
    for f, n in zip(map(to_host, derivatives), wanted, strict=True):
        dtype = f.dtype if like is None else max([t.dtype for t in like], key=_tolerance)
        # A pairing sums many products, so its error is relative to their sizes.
        scale = 1.0 if like is None else max(1.0, float(np.sqrt(sum([t.size for t in like]))))
        assert_allclose(
            f,
            n,
            rtol=_tolerance(dtype, rtol) * (1.0 if rtol is None else scale),
            atol=_tolerance(dtype, atol) * scale,
            err_msg=f"{text} against finite differences",
        )


def _tolerance(dtype: Any, tolerance: Tolerance = None) -> float:
    """The tolerance for a dtype; entries of a dict replace those of the table."""
    if tolerance is None or isinstance(tolerance, Mapping):
        default = _TOLERANCE.get(np.dtype(dtype), 1.0)
        return {np.dtype(k): v for k, v in (tolerance or {}).items()}.get(np.dtype(dtype), default)
    return tolerance
