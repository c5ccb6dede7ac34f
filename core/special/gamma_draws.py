"""Gamma numbers from one key each, by rejection.

Source: Marsaglia, Tsang (2000), ACM Trans. Math. Softw. 26(3). A shape below 1 is served by the
shape above it: the product with a power of a uniform number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import uint32
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.special.lanes import (
    Keys,
    child,
    encrypt,
    normal_of,
    packed,
    unit_of,
    unpacked,
)
from tracebridge.core.special.rejection import PENDING, Rejection, on_cpu, some, where_needed

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_NOT_POSITIVE = -2.0


def _number(like: Any, x: float) -> Any:
    return full_of(like.aval.strong.update(shape=()), x)


def _slope_and_scale(a: Value) -> tuple[Any, Any]:
    """The ``d`` and ``c`` of the source."""
    one, third = _number(a, 1), _number(a, 1 / 3)
    d = lax.sub(lax.select(lax.ge(a, one), a, lax.add(a, one)), third)
    return d, lax.div(third, lax.sqrt(d))


def _is_rejected(d: Any, square: Any, v: Value, u: Value) -> Any:
    """Whether a normal number of this square, with its cube ``v``, fails against ``u``."""
    one = _number(d, 1)
    slow = lax.ge(u, lax.sub(one, lax.mul(_number(d, 0.0331), lax.mul(square, square))))
    bound = lax.mul(d, lax.add(lax.sub(one, v), lax.log(v)))
    bound = lax.add(lax.mul(square, _number(d, 0.5)), bound)
    return lax.bitwise_and(slow, lax.ge(lax.log(u), bound))


@final
class GammaDraw(Rejection):
    """Operands: the key, the counters of the elements, the shapes. With ``log_space`` logarithms.

    Each element has a key of its own. Numbers are cubes of ``v`` of the source.
    """

    name = "gamma_draw"

    def _trial(self, outer: Keys, normals: Keys, d: Any, c: Any) -> Any:
        """The cube, -1 where it is rejected and -2 where it is not positive."""
        dtype = d.aval.dtype
        x = normal_of(child(normals, 1), dtype)
        v = lax.add(_number(d, 1), lax.mul(x, c))
        cube = lax.mul(lax.mul(v, v), v)
        u = unit_of(child(outer, 2), dtype)
        rejected = _is_rejected(d, lax.mul(x, x), cube, u)
        number = lax.select_n(rejected, cube, full_of(cube.aval, PENDING))
        return lax.select_n(lax.le(v, _number(d, 0)), number, full_of(cube.aval, _NOT_POSITIVE))

    def attempt(self, *xs: Any, **params: Any) -> Any:
        *words, a = xs
        outer = child(_keys(words), 0)
        return self._trial(outer, child(outer, 1), *_slope_and_scale(a))

    def settle(self, active: Any, *xs: Any, **params: Any) -> Any:
        *words, a = xs
        d, c = (lax.broadcast_like(v, active) for v in _slope_and_scale(a))

        def step(carry: Any) -> Any:
            number, outer, normals = carry
            outer, normals = unpacked(outer), unpacked(normals)
            # A number that is not positive takes the next normal number, a rejected one the next
            # of both.
            again = lax.lt(number, PENDING)
            outer = _stored(_chosen(again, outer, child(outer, 0)))
            which = lax.select_n(again, _word(again, 1), _word(again, 0))
            normals = _stored(child(_chosen(again, normals, outer), which))
            new = self._trial(outer, normals, d, c)
            number = lax.select(_is_pending(number), new, number)
            return number, packed(outer), packed(normals)

        keys = lax.broadcast_like(packed(_keys(words)), active)
        start = lax.select_n(active, full_of(d.aval, 1), full_of(d.aval, PENDING))
        return while_loop(lambda carry: some(_is_pending(carry[0])), step, (start, keys, keys))[0]

    def complete(self, number: Any, *xs: Any, **params: Any) -> Any:
        *words, a = xs
        d, _ = _slope_and_scale(a)
        one = _number(a, 1)
        small = lax.broadcast_like(lax.lt(a, one), number)

        def boost() -> Any:
            uniform = lax.sub(one, unit_of(child(_keys(words), 1), a.aval.dtype))
            power = lax.div(one, a)
            if not params["log_space"]:
                return lax.select(small, lax.pow(uniform, power), full_of(number.aval, 1))
            log = lax.log(uniform)
            none = lax.bitwise_or(lax.bitwise_not(small), lax.eq(log, _number(a, 0)))
            return lax.select(none, full_of(number.aval, 0), lax.mul(log, power))

        if not params["log_space"]:
            extra = where_needed(small, full_of(number.aval, 1), boost)
            return lax.mul(lax.mul(d, number), extra)
        extra = where_needed(small, full_of(number.aval, 0), boost)
        return lax.add(lax.add(lax.log(d), lax.log(number)), extra)


def _keys(words: Any) -> Keys:
    """The keys of elements: those of one key, which encrypts their counters."""
    k0, k1, high, low = words
    return encrypt((k0, k1), high, low)


def _stored(keys: Keys) -> Keys:
    """Keys that are computed once, whatever uses them."""
    return unpacked(lax.stored(packed(keys)))


def _is_pending(number: Any) -> Any:
    return lax.lt(number, _number(number, 0))


def _word(like: Any, x: int) -> Any:
    return full_of(like.aval.strong.update(dtype=uint32), x)


def _chosen(which: Any, yes: Keys, no: Keys) -> Keys:
    first, second = (lax.select(which, y, n) for y, n in zip(yes, no, strict=True))
    return first, second


gamma_draw_p = GammaDraw()
on_cpu(gamma_draw_p)
