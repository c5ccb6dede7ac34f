"""Quaternions ``(x, y, z, w)`` along the last axis, and what they stand for.

Every formula has its derivatives at the identity, where lengths of vectors have none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tracebridge.numpy as tnp
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.linalg.eigh import eigh
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

# Below this square of an angle, series have the last digit of float64.
_SMALL = 1e-3


def columns(name: str, x: Any, *sizes: int) -> Any:
    """Floats whose last axes have these sizes."""
    (x,) = promote_inexact(x)
    if x.shape[max(x.ndim - len(sizes), 0) :] != sizes:
        last = ", ".join([str(n) for n in sizes])
        msg = f"Rotation.{name}: got {x.aval.str_short()}"
        raise ShapeMismatchError(msg, expected=f"an array of shape (..., {last})")
    return x


def _wide(x: Value) -> Any:
    return tnp.expand_dims(x, -1)


def _square(v: Any) -> Any:
    return (v * v).sum(axis=-1)


def length(v: Any) -> Any:
    """The length of vectors; its derivative at 0 is 0."""
    square = _square(v)
    none = square == 0
    return tnp.where(none, 0, tnp.sqrt(tnp.where(none, 1, square)))


def _angle(y: Value, x: Value) -> Any:
    """``arctan2``; its derivative at the origin is 0."""
    none = (x == 0) & (y == 0)
    return tnp.arctan2(y, tnp.where(none, 1, x))


def _polynomial(x: Value, *coefficients: float) -> Any:
    total: Any = tnp.zeros_like(x)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def _normalized(quat: Any) -> Any:
    quat = columns("from_quat", quat, 4)
    return quat / tnp.sqrt(_wide(_square(quat)))


def _turned_up(quat: Any) -> Any:
    """The same rotation, with w that is not negative."""
    return tnp.where(quat[..., 3:] < 0, -quat, quat)


def _canonical(quat: Any) -> Any:
    """The same rotation, whose last number that is not 0 (of w, x, y, z in turn) is positive."""
    x, y, z, w = [quat[..., i] for i in range(4)]
    sign: Any = tnp.sign(z)
    for part in (y, x, w):
        sign = tnp.where(part == 0, sign, tnp.sign(part))
    return tnp.where(_wide(sign < 0), -quat, quat)


def _as_quat(quat: Any, canonical: bool, scalar_first: bool) -> Any:
    if canonical:
        quat = _canonical(quat)
    return tnp.roll(quat, 1, axis=-1) if scalar_first else quat


def _from_rotvec(rotvec: Any, degrees: bool) -> Any:
    rotvec = columns("from_rotvec", rotvec, 3)
    if degrees:
        rotvec = rotvec * (math.pi / 180)
    square = _square(rotvec)
    small = square < _SMALL
    angle = tnp.sqrt(tnp.where(small, 1, square))
    near = tnp.where(small, square, 0)
    scale = _polynomial(near, 1 / 2, -1 / 48, 1 / 3840, -1 / 645120)
    scale = tnp.where(small, scale, tnp.sin(angle / 2) / angle)
    w = _polynomial(near, 1, -1 / 8, 1 / 384, -1 / 46080)
    w = tnp.where(small, w, tnp.cos(angle / 2))
    return tnp.concatenate([rotvec * _wide(scale), _wide(w)], axis=-1)


def _as_rotvec(quat: Any, degrees: bool) -> Any:
    quat = _turned_up(quat)
    v, w = quat[..., :3], quat[..., 3]
    square = _square(v)
    small = square < _SMALL * w * w
    size = tnp.sqrt(tnp.where(small, 1, square))
    safe = tnp.where(small, w, 1)
    near = tnp.where(small, square, 0) / (safe * safe)
    scale = _polynomial(near, 1, -1 / 3, 1 / 5, -1 / 7, 1 / 9) / safe
    scale = 2 * tnp.where(small, scale, tnp.arctan2(size, tnp.where(small, 1, w)) / size)
    return v * _wide(scale * (180 / math.pi) if degrees else scale)


def _magnitude(quat: Any) -> Any:
    return 2 * tnp.arctan2(length(quat[..., :3]), tnp.abs(quat[..., 3]))


def _from_mrp(mrp: Any) -> Any:
    mrp = columns("from_mrp", mrp, 3)
    square = _wide(_square(mrp))
    return tnp.concatenate([2 * mrp, 1 - square], axis=-1) / (1 + square)


def _as_mrp(quat: Any) -> Any:
    quat = _turned_up(quat)
    return quat[..., :3] / (1 + quat[..., 3:])


def _as_matrix(quat: Any) -> Any:
    x, y, z, w = [quat[..., i] for i in range(4)]
    rows = [
        [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
    ]
    return tnp.stack([tnp.stack(row, axis=-1) for row in rows], axis=-2)


def _from_matrix(matrix: Any) -> Any:
    """By the largest of the numbers (Shepperd 1978): four multiples of the quaternion."""
    matrix = columns("from_matrix", matrix, 3, 3)
    m = [[matrix[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    multiples: list[Any] = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts: list[Any] = [None] * 4
        parts[i] = 1 - trace + 2 * m[i][i]
        parts[j], parts[k] = m[j][i] + m[i][j], m[k][i] + m[i][k]
        parts[3] = m[k][j] - m[j][k]
        multiples.append(tnp.stack(parts, axis=-1))
    last = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace]
    multiples.append(tnp.stack(last, axis=-1))
    best = tnp.argmax(tnp.stack([m[0][0], m[1][1], m[2][2], trace], axis=-1), axis=-1)
    chosen = tnp.take_along_axis(tnp.stack(multiples, axis=-2), best[..., None, None], axis=-2)
    return _normalized(chosen[..., 0, :])


def product(p: Any, q: Any) -> Any:
    """The rotation by ``q``, then by ``p``."""
    a, b, v, w = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    shape = tnp.broadcast_shapes(a.shape, v.shape)
    cross = tnp.cross(tnp.broadcast_to(a, shape), tnp.broadcast_to(v, shape))
    vector = b * v + w * a + cross
    return tnp.concatenate([vector, b * w - (a * v).sum(axis=-1, keepdims=True)], axis=-1)


def _product(p: Any, q: Value) -> Any:
    p, q = promote_inexact(p, q)
    return _normalized(product(p, q))


def _inverse(quat: Any) -> Any:
    return tnp.concatenate([-quat[..., :3], quat[..., 3:]], axis=-1)


def _apply(quat: Any, vectors: Any, inverse: bool) -> Any:
    quat, vectors = promote_inexact(quat, columns("apply", vectors, 3))
    matrix: Any = _as_matrix(_inverse(quat) if inverse else quat)
    return (matrix * tnp.expand_dims(vectors, -2)).sum(axis=-1)


def _from_euler(angles: Any, seq: str, degrees: bool) -> Any:
    (angles,) = promote_inexact(angles)
    if len(seq) == 1 and angles.ndim == 0:
        angles = _wide(angles)
    if angles.ndim == 0 or angles.shape[-1] != len(seq):
        msg = f"Rotation.from_euler: got {angles.aval.str_short()} for seq={seq!r}"
        raise ShapeMismatchError(msg, expected=f"an array of shape (..., {len(seq)})")
    half = angles * (math.pi / 360) if degrees else angles / 2
    total: Any = None
    for i, letter in enumerate(seq):
        sine, cosine = tnp.sin(half[..., i]), tnp.cos(half[..., i])
        parts = [tnp.zeros_like(sine)] * 3
        parts["xyz".index(letter.lower())] = sine
        one = tnp.stack([*parts, cosine], axis=-1)
        if total is None:
            total = one
        else:  # capitals: axes that turn with the body
            total = product(total, one) if letter.isupper() else product(one, total)
    return _normalized(total)


def _as_euler(quat: Any, seq: str, degrees: bool) -> Any:
    """Source: Bernardes, Viollet (2022), PLoS ONE 17(11), e0276302."""
    extrinsic = seq.islower()
    i, j, k = ["xyz".index(c) for c in (seq if extrinsic else seq[::-1].lower())]
    symmetric = i == k
    if symmetric:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    x, y, z, w = [quat[..., n] for n in (i, j, k, 3)]
    z = z * sign
    a, b, c, d = (w, x, y, z) if symmetric else (w - y, x + z, y + w, z - x)
    ab, cd = length(tnp.stack([a, b], axis=-1)), length(tnp.stack([c, d], axis=-1))
    middle = 2 * tnp.arctan2(cd, ab)
    half_sum, half_difference = _angle(b, a), _angle(d, c)
    bound = max(1e-7, 8 * float(tnp.finfo(quat.dtype).eps))
    low, high = tnp.abs(middle) <= bound, tnp.abs(middle - math.pi) <= bound
    first, third = half_sum - half_difference, half_sum + half_difference
    # Where only their sum or difference is known, the last angle of the result is 0.
    whole = tnp.where(low, 2 * half_sum, half_difference * (-2 if extrinsic else 2))
    if extrinsic:
        first, third = tnp.where(low | high, whole, first), tnp.where(low | high, 0, third)
    else:
        first, third = tnp.where(low | high, 0, first), tnp.where(low | high, whole, third)
    if not symmetric:
        third, middle = third * sign, middle - math.pi / 2
    angles = tnp.stack([first, middle, third] if extrinsic else [third, middle, first], axis=-1)
    angles = tnp.where(angles < -math.pi, angles + 2 * math.pi, angles)
    angles = tnp.where(angles > math.pi, angles - 2 * math.pi, angles)
    return angles * (180 / math.pi) if degrees else angles


def _mean(quat: Any, weights: Any) -> Any:
    """The rotation whose distances to the others have the smallest sum of squares."""
    quat, weights = promote_inexact(quat, weights)
    if quat.ndim != 2 or weights.shape != quat.shape[:1]:
        msg = f"Rotation.mean: rotations are {quat.aval.str_short()}, weights "
        msg += weights.aval.str_short()
        raise ShapeMismatchError(msg, expected="several rotations, and a weight for each")
    vectors, _ = eigh((_wide(weights) * quat).T @ quat)
    return vectors[:, -1]


def _slerp(times: Any, at: Any, deltas: Any, quats: Any, rotvecs: Any) -> Any:
    times, at, deltas, quats, rotvecs = promote_inexact(times, at, deltas, quats, rotvecs)
    n = times.shape[0]
    which = tnp.clip(tnp.searchsorted(times, at, side="right") - 1, 0, n - 2)
    share = (at - times[which]) / deltas[which]
    share = tnp.where((at >= times[0]) & (at <= times[-1]), share, math.nan)
    return _normalized(product(quats[which], _from_rotvec(rotvecs[which] * _wide(share), False)))


NORMALIZED = StagedFunction(_normalized, "Rotation.from_quat")
AS_QUAT = StagedFunction(_as_quat, "Rotation.as_quat")
FROM_ROTVEC = StagedFunction(_from_rotvec, "Rotation.from_rotvec")
AS_ROTVEC = StagedFunction(_as_rotvec, "Rotation.as_rotvec")
MAGNITUDE = StagedFunction(_magnitude, "Rotation.magnitude")
FROM_MRP = StagedFunction(_from_mrp, "Rotation.from_mrp")
AS_MRP = StagedFunction(_as_mrp, "Rotation.as_mrp")
AS_MATRIX = StagedFunction(_as_matrix, "Rotation.as_matrix")
FROM_MATRIX = StagedFunction(_from_matrix, "Rotation.from_matrix")
PRODUCT = StagedFunction(_product, "Rotation.__mul__")
INVERSE = StagedFunction(_inverse, "Rotation.inv")
APPLY = StagedFunction(_apply, "Rotation.apply")
FROM_EULER = StagedFunction(_from_euler, "Rotation.from_euler")
AS_EULER = StagedFunction(_as_euler, "Rotation.as_euler")
MEAN = StagedFunction(_mean, "Rotation.mean")
SLERP = StagedFunction(_slerp, "Slerp")
