"""What distributions share: location and scale, support, invalid parameters, signatures."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import strong_array
from tracebridge.scipy._special.elementwise import floats, with_slopes
from tracebridge.scipy._special.far_tails import least_share

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

Formula = Callable[..., Any]
_WORDS = {
    "logpdf": "Logarithm of the density",
    "pdf": "Density",
    "logpmf": "Logarithm of the probability",
    "pmf": "Probability",
    "cdf": "Probability of at most ``x``",
    "logcdf": "Logarithm of the probability of at most ``x``",
    "sf": "Probability of more than ``x``",
    "logsf": "Logarithm of the probability of more than ``x``",
    "ppf": "Quantile: the inverse of ``cdf``",
    "isf": "The inverse of ``sf``",
}


@dataclasses.dataclass(frozen=True)
class Distribution:
    """One distribution of numbers, described at location 0 and scale 1.

    ``log_density`` holds inside of ``[low, high]``; ``inner`` is a number there, for which
    formulas are computed where they do not hold. ``shapes`` are the names of parameters, ``valid``
    says for which values there is a distribution. ``functions`` are formulas of others of its
    functions by name, at location 0 and scale 1 too, ``discrete`` ones have probabilities of whole
    numbers.
    """

    name: str
    title: str
    shapes: tuple[str, ...]
    log_density: Formula
    valid: Formula = lambda *shapes: True
    low: Formula = lambda *shapes: -math.inf
    high: Formula = lambda *shapes: math.inf
    inner: Formula = lambda *shapes: 0.5
    functions: dict[str, Formula] = dataclasses.field(default_factory=dict)
    discrete: bool = False
    placed: tuple[str, ...] = ("loc", "scale")
    example: str = "0.7"
    # What the argument of quantiles is called: keyword calls of the peer's programs use its name.
    quantile: str = "q"
    # Whether scalar parameters are repeated to the shape of the result.
    repeats: bool = False
    # Where the density is 0 inside: its logarithm may have an infinite slope there.
    vanishes: Formula = lambda y, *shapes: False
    # Whether formulas of probabilities hold at the ends too, with the slopes from inside.
    closed: bool = False
    # ``logcdf`` and ``logsf`` of probabilities that underflow, from the same arguments.
    far: dict[str, Formula] = dataclasses.field(default_factory=dict)

    def function(self, kind: str) -> Callable[..., Array]:
        """The public function of this kind."""
        first = self.quantile if kind in ("ppf", "isf") else "k" if self.discrete else "x"
        staged = floats(f"{self.name}.{kind}", self._formula(kind), full=self.repeats)
        return _public(self, kind, first, staged)

    def _formula(self, kind: str) -> Formula:
        body = self._quantile if kind in ("ppf", "isf") else self._value

        def run(x: Any, *parameters: Any) -> Any:
            count = len(self.shapes)
            shapes, placed = parameters[:count], parameters[count:]
            loc = placed[0] if "loc" in self.placed else tnp.zeros_like(x)
            scale = placed[1] if "scale" in self.placed else tnp.ones_like(x)
            good = (scale > 0) & self.valid(*shapes)
            scale = tnp.where(scale > 0, scale, 1)
            # An infinite place of an infinite argument, too, is none.
            place = x if kind in ("ppf", "isf") else (x - loc) / scale
            value = body(kind, x, shapes, loc, scale)
            return strong_array(tnp.where(good & ~tnp.isnan(place), value, math.nan))

        return run

    def _value(self, kind: str, x: Value, shapes: Any, loc: Any, scale: Any) -> Any:
        y = (x - loc) / scale
        low, high = self.low(*shapes), self.high(*shapes)
        if kind in ("pdf", "logpdf", "pmf", "logpmf"):
            inside = _is_between(y, low, high)
            if self.discrete:
                inside = inside & (y == tnp.floor(y))
            if not kind.startswith("log"):
                inside = inside & ~tnp.asarray(self.vanishes(y, *shapes))
            # Of the point alone: a slope of 0 times the infinite one of a logarithm is NaN.
            safe = tnp.where(inside, y, lax.stop_gradient(self.inner(*shapes)))
            if kind in self.functions:
                value = self.functions[kind](safe, *shapes)
                return tnp.where(inside, value if self.discrete else value / scale, 0)
            log = self.log_density(safe, *shapes)
            if not self.discrete:
                log = log - tnp.log(scale)
            log = tnp.where(inside, log, -math.inf)
            return log if kind.startswith("log") else tnp.exp(log)
        if self.discrete:
            y = tnp.floor(y)
        # The logarithm of 0 has no slope.
        open_low = not self.discrete and (not self.closed or kind == "logcdf")
        below = y <= low if open_low else y < low
        open_high = not self.closed or kind == "logsf"
        above = y >= high if open_high else (y > high) | tnp.isinf(y)
        safe = tnp.where(below | above, lax.stop_gradient(self.inner(*shapes)), y)
        inner = self._probability(kind, safe, shapes)
        ends = {"cdf": (0, 1), "sf": (1, 0), "logcdf": (-math.inf, 0), "logsf": (0, -math.inf)}
        first, last = ends[kind]
        return tnp.where(below, first, tnp.where(above, last, inner))

    def _probability(self, kind: str, y: Value, shapes: Any) -> Any:
        if kind in self.functions:
            return self.functions[kind](y, *shapes)
        if kind.startswith("log"):
            share = self._probability(kind[3:], y, shapes)
            rest = "sf" if kind == "logcdf" else "cdf"
            if rest not in self.functions:
                return _log_or_end(share)
            # Of a share close to 1 the rest has the digits.
            left = tnp.where(share > 0.5, self._probability(rest, y, shapes), 0)
            if kind not in self.far:
                return _log_of_share(share, left)
            few = share < least_share(share)
            for s in shapes:
                few = few & tnp.isfinite(s)
            log = self.far[kind](tnp.where(few, y, 0.5), *[tnp.where(few, s, 1) for s in shapes])
            return tnp.where(few, log, _log_of_share(tnp.where(few, 1, share), left))
        return 1 - self._probability("cdf" if kind == "sf" else "sf", y, shapes)

    def _quantile(self, kind: str, q: Value, shapes: Any, loc: Any, scale: Any) -> Any:
        inside = (q >= 0) & (q <= 1)
        safe = tnp.where(inside, q, 0.5)
        if kind in self.functions:
            y = self.functions[kind](safe, *shapes)
        else:
            y = self.functions["ppf" if kind == "isf" else "isf"](1 - safe, *shapes)
        return tnp.where(inside, y * scale + loc, math.nan)


def _is_between(y: Value, low: Any, high: Any) -> Any:
    """Where a finite number is between two ends; each comparison is a pass over flags."""
    no_low, no_high = (type(x) is float and math.isinf(x) for x in (low, high))
    inside = (y > low if no_low else y >= low) & (y < high if no_high else y <= high)
    # Ends that are arrays may be infinite.
    return inside if type(low) is type(high) is float else inside & ~tnp.isinf(y)


def _log_or_end(share: Value) -> Any:
    """The logarithm of a probability; one that has vanished has no slope."""
    none = share == 0
    return tnp.where(none, -math.inf, tnp.log(tnp.where(none, 1, share)))


def _slope_of_log(_: Any, share: Value, left: Value) -> Any:
    none = share == 0
    return tnp.where(none, 0, 1 / tnp.where(none, 1, share))


# One slope for both: that of the one which is not chosen may be infinite.
_log_of_share = with_slopes(
    lambda share, left: tnp.where(share > 0.5, tnp.log1p(-left), _log_or_end(share)),
    _slope_of_log,
    None,
)


def _public(d: Distribution, kind: str, first: str, staged: StagedFunction) -> Callable[..., Array]:
    keep = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"loc": 0, "scale": 1}
    # Distributions of whole numbers have no scale.
    names = [first, *d.shapes, *d.placed]
    signature = inspect.Signature(
        [
            inspect.Parameter(n, keep, default=defaults.get(n, inspect.Parameter.empty))
            for n in names
        ]
    )

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return staged(bound.args)

    call.__name__ = call.__qualname__ = kind
    call.__module__ = f"tracebridge.scipy.stats.{d.name}"
    call.__doc__ = _text(d, kind, first)
    vars(call)["__signature__"] = signature
    return call


def _text(d: Distribution, kind: str, first: str) -> str:
    lines = [f"{_WORDS[kind].replace('``x``', f'``{first}``')}, of {d.title}.", "", "Args:"]
    is_share = kind in ("ppf", "isf")
    lines += [f"    {first}: {'probabilities' if is_share else 'where to compute it'}."]
    lines += [f"    {s}: parameter of the distribution." for s in d.shapes]
    lines += [f"    {p}: {'location' if p == 'loc' else 'scale, positive'}." for p in d.placed]
    lines += ["", "NaN where a parameter is invalid."]
    given = f"0.5, {d.example}" if d.shapes else "0.5"
    call = f"tb.scipy.stats.{d.name}.{kind}({given})"
    lines += ["", ">>> import tracebridge as tb", f">>> {call}.shape", "()"]
    return "\n".join(lines)
