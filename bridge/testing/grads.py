"""Checks of derivatives against finite differences: check_grads, check_jvp, check_vjp."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

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
from tracebridge.testing.compare import Tolerance, assert_allclose, to_host
from tracebridge.testing.steps import OTHER_STEP, Slopes, are_resolved, fits_either

Flat = Callable[..., Sequence[Any]]
Host = np.ndarray[Any, Any]

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
        eps: length of the step of the differences; without it two are tried.

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
    flat, values = flat_function(f, args)
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
        eps: length of the step of the differences; without it two are tried.
        err_msg: added to the message.

    >>> import tracebridge as tb
    >>> from tracebridge.testing import check_jvp
    >>> def f_jvp(primals, tangents):
    ...     return tb.lax.sin(*primals), tb.lax.mul(tb.lax.cos(*primals), *tangents)
    >>> check_jvp(tb.lax.sin, f_jvp, (0.5,))
    """
    flat, values = flat_function(f, args)
    _, tree = flatten(tuple(args))
    tangents = random_like(values, seed=1)
    out, tangent_out = f_jvp(unflatten(tree, values), unflatten(tree, tangents))
    want = [to_host(o) for o in flat(*values)]
    assert_allclose([to_host(o) for o in flatten(out)[0]], want, err_msg=f"value. {err_msg}")
    found = flatten(tangent_out)[0]
    fits_either(
        lambda slopes: _compare(found, slopes, atol, rtol, f"jvp. {err_msg}"),
        numeric_jvp(flat, values, tangents, eps),
        None if eps is not None else lambda: _other_jvp(flat, values, tangents, want),
    )


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
        eps: length of the step of the differences; without it two are tried.
        err_msg: added to the message.

    >>> import tracebridge as tb
    >>> from tracebridge.testing import check_vjp
    >>> def f_vjp(x):
    ...     return tb.lax.sin(x), lambda ct: (tb.lax.mul(tb.lax.cos(x), ct),)
    >>> check_vjp(tb.lax.sin, f_vjp, (0.5,))
    """
    flat, values = flat_function(f, args)
    _, tree = flatten(tuple(args))
    out, pullback = f_vjp(*unflatten(tree, values))
    leaves, out_tree = flatten(out)
    cts = random_like([as_value(o) for o in leaves], seed=2)
    gradients = flatten(pullback(unflatten(out_tree, cts)))[0]
    tangents = random_like(values, seed=1)
    want = [to_host(o) for o in flat(*values)]
    assert_allclose([to_host(o) for o in leaves], want, err_msg=f"value. {err_msg}")
    left = [np.asarray(pair(tangents, gradients))]
    like = [t for t in (*tangents, *cts) if t is not None]
    fits_either(
        lambda slopes: _compare(
            left, [np.asarray(pair(cts, slopes))], atol, rtol, f"vjp. {err_msg}", like=like
        ),
        numeric_jvp(flat, values, tangents, eps),
        None if eps is not None else lambda: _other_jvp(flat, values, tangents, want),
    )


def flat_function(f: Callable[..., object], args: Sequence[object]) -> tuple[Flat, list[Any]]:
    """``f`` as a function of the leaves of its arguments, and these as arrays."""
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
    flat: Flat, values: Sequence[Any], tangents: Sequence[object], eps: float | None = None
) -> list[Host | None]:
    """Central differences of a flat function along ``tangents``; None for inactive results."""
    step = default_step(values, flat(*values)) if eps is None else eps
    plus, minus = (flat(*_all_moved(values, tangents, s)) for s in (step, -step))
    return _slopes(plus, minus, step)


def _other_jvp(
    flat: Flat, values: Sequence[Any], tangents: Sequence[object], outs: Sequence[object]
) -> Slopes | None:
    """The differences at the other step; None if the numbers do not resolve it."""
    slopes = numeric_jvp(flat, values, tangents, OTHER_STEP)
    return slopes if are_resolved(values, outs, slopes) else None


def _slopes(plus: Sequence[object], minus: Sequence[object], step: float) -> list[Host | None]:
    """Results after a step forth less those after a step back, by the length of both."""
    slopes: list[Host | None] = []
    for p, m in zip(map(to_host, plus), map(to_host, minus), strict=True):
        if not dtypes.is_inexact(p.dtype):
            slopes.append(None)
            continue
        high = np.complex128 if dtypes.is_complex(p.dtype) else np.float64
        slopes.append((p.astype(high) - m.astype(high)) / (2 * step))
    return slopes


def default_step(values: Sequence[Any], outs: Sequence[object]) -> float:
    """Where truncation and rounding errors balance: the cube root of the rounding error."""
    seen = [v.aval.dtype for v in values if is_active(v)]
    seen += [o.dtype for o in map(to_host, outs) if dtypes.is_inexact(o.dtype)]
    return max([float(finfo(dtype).eps) for dtype in seen], default=1.0) ** (1 / 3)


def _all_moved(values: Sequence[Any], tangents: Sequence[object], step: float) -> list[Any]:
    return [_moved(v, t, step) for v, t in zip(values, tangents, strict=True)]


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
        active_tangents = iter(xs[n:])
        tangents = [as_value(next(active_tangents)) if a else None for a in active]
        outs, out_tangents = jvp_flat(flat, [as_value(x) for x in xs[:n]], tangents)
        return [
            zeros_of(o.aval.tangent) if t is None else t
            for o, t in zip(outs, out_tangents, strict=True)
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


def together(functions: Sequence[Flat], compiled: Callable[[Flat], Flat]) -> Callable[..., Any]:
    """Several flat functions of the same arguments as one, which gives a list for each."""
    lengths: list[int] = []

    def flat(*xs: object) -> list[Any]:
        results = [f(*xs) for f in functions]
        lengths[:] = map(len, results)
        return [r for some in results for r in some]

    program = compiled(flat)

    def run(*xs: object) -> list[list[Any]]:
        outs = iter(program(*xs))
        return [list(itertools.islice(outs, n)) for n in lengths]

    return run


@final
class _Derivative:
    """The jvp or the vjp of a flat function ``f`` at given tangents and cotangents.

    A function of the arguments of ``f``; ``f`` may be such a derivative itself.
    """

    def __init__(
        self, f: Flat, name: str, mode: str, tangents: Sequence[Any], cts: Sequence[Any]
    ) -> None:
        self.f = f
        self.mode = mode
        self.name = name + ("jvp" if mode == "fwd" else "vjp")
        self.tangents = tangents
        self.cts = cts
        self.extra = tangents if mode == "fwd" else cts

    def __call__(self, *values: Any) -> Sequence[Any]:
        make = jvp_of if self.mode == "fwd" else vjp_of
        return make(self.f, [is_active(as_value(v)) for v in values])(*values, *self.extra)

    def compare(
        self, results: Sequence[Any], slopes: Slopes, atol: Tolerance, rtol: Tolerance
    ) -> None:
        """Fail unless ``results`` are what the differences of ``f`` tell."""
        if self.mode == "fwd":
            _compare(results, slopes, atol, rtol, self.name)
            return
        left = np.asarray(pair(self.tangents, results))
        right = np.asarray(pair(self.cts, slopes))
        like = [*self.tangents, *self.cts]
        _compare([left], [right], atol, rtol, self.name, like=like)


def check_flat(
    flat: Flat,
    values: Sequence[Any],
    order: int,
    modes: tuple[str, ...],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    compiled: Callable[[Flat], Flat] = lambda f: f,
) -> None:
    """``check_grads`` of a flat function; ``compiled`` may speed up what is evaluated.

    All derivatives of one order are one program. Its results are also the values whose
    differences those of the next order are compared with.
    """
    if not any(is_active(v) for v in values):
        return
    tangents = random_like(values, seed=1)
    along = [t for t in tangents if t is not None]
    functions: list[tuple[Flat, str]] = [(flat, "")]
    run = together([flat], compiled)
    for _ in range(order):
        outs = run(*values)
        all_slopes = _slopes_of_each(run, values, tangents, outs, eps)
        other = None if eps is not None else _other_slopes(run, values, tangents, outs)
        derivatives: list[_Derivative] = []
        for (f, name), out in zip(functions, outs, strict=True):
            cts = [c for c in random_like([as_value(o) for o in out], seed=2) if c is not None]
            derivatives += [_Derivative(f, name, mode, along, cts) for mode in modes]
        run = together(derivatives, compiled)
        for i, (derivative, results) in enumerate(zip(derivatives, run(*values), strict=True)):
            index = i // len(modes)
            fits_either(
                functools.partial(derivative.compare, results, atol=atol, rtol=rtol),
                all_slopes[index],
                None if other is None else functools.partial(other, index),
            )
        functions = [(d, f"{d.name}, then ") for d in derivatives]


def _slopes_of_each(
    run: Callable[..., list[list[Any]]],
    values: Sequence[Any],
    tangents: Sequence[object],
    outs: Sequence[Sequence[object]],
    eps: float | None,
) -> list[list[Host | None]]:
    """``numeric_jvp`` of each function that ``run`` evaluates; ``outs`` are their values."""
    steps = [default_step(values, out) if eps is None else eps for out in outs]
    at = {
        step: run(*_all_moved(values, tangents, step))
        for step in {*steps, *[-step for step in steps]}
    }
    return [_slopes(at[step][i], at[-step][i], step) for i, step in enumerate(steps)]


def _other_slopes(
    run: Callable[..., list[list[Any]]],
    values: Sequence[Any],
    tangents: Sequence[object],
    outs: Sequence[Sequence[object]],
) -> Callable[[int], Slopes | None]:
    """The differences at the other step by the index of the function, computed when asked for."""
    found: list[list[Host | None]] = []

    def slopes_of(index: int) -> Slopes | None:
        if not found:
            found[:] = _slopes_of_each(run, values, tangents, outs, OTHER_STEP)
        slopes = found[index]
        return slopes if are_resolved(values, outs[index], slopes) else None

    return slopes_of


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
