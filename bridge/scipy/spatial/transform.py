"""Rotations in three dimensions, as in ``scipy.spatial.transform``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, final

import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.tree.registry import register_pytree_node_class
from tracebridge.numpy._staging import known_not_to_ascend
from tracebridge.random.uniform import normal
from tracebridge.scipy.spatial import _quaternions as q

__all__ = ["Rotation", "Slerp"]


def _check_sequence(name: str, seq: str, lengths: tuple[int, ...]) -> None:
    letters = set(seq)
    if len(seq) not in lengths or not (letters <= set("xyz") or letters <= set("XYZ")):
        count = " or ".join([str(n) for n in lengths])
        msg = f"Rotation.{name}: seq is {seq!r}, expected {count} letters of 'xyz' or of 'XYZ'"
        raise ArgumentValueError(msg)
    if any([a == b for a, b in itertools.pairwise(seq)]):
        msg = f"Rotation.{name}: seq is {seq!r}, expected axes beside each other to differ"
        raise ArgumentValueError(msg)


@register_pytree_node_class
@final
class Rotation:
    """A rotation in three dimensions, or several, as unit quaternions.

    It is a pytree: rotations are arguments and results of traced programs, and are mapped and
    differentiated, at the identity too.

    Args:
        quat: unit quaternions ``(x, y, z, w)`` of shape ``(4,)`` or ``(n, 4)``, taken as they are;
            ``Rotation.from_quat`` normalises them.

    Attributes:
        quat: the quaternions.

    >>> import tracebridge as tb
    >>> turn = tb.scipy.spatial.transform.Rotation.from_euler("z", 90.0, degrees=True)
    >>> turn.apply(tb.numpy.array([1.0, 0.0, 0.0])).round(3).tolist()
    [0.0, 1.0, 0.0]
    """

    __slots__ = ("quat",)

    quat: Array

    def __init__(self, quat: ArrayLike) -> None:
        object.__setattr__(self, "quat", quat)

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"Rotation: {name} cannot be set, rotations are immutable"
        raise AttributeError(msg)

    def __repr__(self) -> str:
        return f"Rotation(quat={self.quat!r})"

    def tree_flatten(self) -> tuple[tuple[Array], None]:
        """The quaternions, as the leaf of a pytree."""
        return (self.quat,), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: tuple[Any, ...]) -> Rotation:
        """The rotation of such a leaf.

        Args:
            aux_data: not used.
            children: what ``tree_flatten`` gave.
        """
        del aux_data
        return cls(*children)

    # descriptions to rotations -------------------------------------------------------------------

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """Rotations of quaternions of any length but 0, which gives NaN.

        Args:
            quat: numbers ``(x, y, z, w)``, of shape ``(4,)`` or ``(n, 4)``.

        Raises:
            ShapeMismatchError: another shape.
        """
        return cls(q.NORMALIZED((tnp.asarray(quat),)))

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Rotations of orthogonal matrices of determinant 1, which is not checked.

        Args:
            matrix: of shape ``(3, 3)`` or ``(n, 3, 3)``.

        Raises:
            ShapeMismatchError: another shape.
        """
        return cls(q.FROM_MATRIX((tnp.asarray(matrix),)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations around vectors, by their lengths.

        Args:
            rotvec: of shape ``(3,)`` or ``(n, 3)``.
            degrees: whether lengths are degrees, not radians.

        Raises:
            ShapeMismatchError: another shape.
        """
        return cls(q.FROM_ROTVEC((tnp.asarray(rotvec),), (bool(degrees),)))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Rotations of modified Rodrigues parameters: axes times tangents of quarter angles.

        Args:
            mrp: of shape ``(3,)`` or ``(n, 3)``.

        Raises:
            ShapeMismatchError: another shape.
        """
        return cls(q.FROM_MRP((tnp.asarray(mrp),)))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations around one axis after the other.

        Args:
            seq: up to three axes: small letters for those of space, capitals for those of the body,
                which turn with it.
            angles: of shape ``(len(seq),)`` or ``(n, len(seq))``; for one axis also a number.
            degrees: whether angles are degrees, not radians.

        Raises:
            ArgumentValueError: no such axes.
            ShapeMismatchError: another shape.
        """
        _check_sequence("from_euler", seq, (1, 2, 3))
        return cls(q.FROM_EULER((tnp.asarray(angles),), (seq, bool(degrees))))

    @classmethod
    def identity(cls, num: int | None = None, dtype: DTypeLike = float) -> Rotation:
        """No rotation.

        Args:
            num: how many; None for a single one.
            dtype: of the quaternions.
        """
        one = tnp.array([0, 0, 0, 1], dtype)
        return cls(one if num is None else tnp.tile(one, (num, 1)))

    @classmethod
    def random(cls, random_key: ArrayLike, num: int | None = None) -> Rotation:
        """Random rotations, of which none is likelier.

        Args:
            random_key: a random key.
            num: how many; None for a single one.
        """
        return cls.from_quat(normal(random_key, (4,) if num is None else (num, 4)))

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Rotations one after the other, as one object of several.

        Args:
            rotations: single ones, or several.
        """
        return cls(tnp.concatenate([tnp.atleast_2d(r.quat) for r in rotations]))

    # rotations to descriptions -------------------------------------------------------------------

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Unit quaternions.

        Args:
            canonical: whether that of the two is wanted whose w is positive (or where it is 0, the
                first of the others that is not).
            scalar_first: whether the order is ``(w, x, y, z)``.
        """
        return q.AS_QUAT((self.quat,), (bool(canonical), bool(scalar_first)))

    def as_matrix(self) -> Array:
        """Orthogonal matrices, of shape ``(..., 3, 3)``."""
        return q.AS_MATRIX((self.quat,))

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Vectors along the axes, of the length of angles from 0 to pi.

        Args:
            degrees: whether lengths are degrees, not radians.
        """
        return q.AS_ROTVEC((self.quat,), (bool(degrees),))

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters: axes times tangents of quarter angles."""
        return q.AS_MRP((self.quat,))

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles around three axes, one after the other.

        Args:
            seq: the axes, as in ``from_euler``.
            degrees: whether degrees are wanted, not radians.

        Returns:
            Array of shape ``(..., 3)``: the middle angles are in ``[-pi/2, pi/2]``, in ``[0, pi]``
            where the first axis is the third. Where first and third rotation cannot be told apart,
            the third is 0.

        Raises:
            ArgumentValueError: no such axes.
        """
        _check_sequence("as_euler", seq, (3,))
        return q.AS_EULER((self.quat,), (seq, bool(degrees)))

    def magnitude(self) -> Array:
        """The angles of rotations, from 0 to pi; their derivative at 0 is 0."""
        return q.MAGNITUDE((self.quat,))

    # calculation ---------------------------------------------------------------------------------

    @property
    def single(self) -> bool:
        """Whether it is one rotation, without an axis of several."""
        return self.quat.ndim == 1

    def __len__(self) -> int:
        if self.single:
            msg = "Rotation: a single rotation has no length"
            raise ArgumentTypeError(msg)
        return self.quat.shape[0]

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            msg = "Rotation: a single rotation cannot be indexed"
            raise ArgumentTypeError(msg)
        return Rotation(self.quat[indexer])

    def __mul__(self, other: Rotation) -> Rotation:
        if not isinstance(other, Rotation):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's value
            return NotImplemented
        return Rotation(q.PRODUCT((self.quat, other.quat)))

    def inv(self) -> Rotation:
        """The inverse rotations."""
        return Rotation(q.INVERSE((self.quat,)))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Rotated vectors.

        Args:
            vectors: of shape ``(3,)`` or ``(n, 3)``: one turns many vectors, many turn one.
            inverse: whether the inverse rotations are applied.

        Raises:
            ShapeMismatchError: another shape, or as many vectors as there are no rotations.
        """
        return q.APPLY((self.quat, tnp.asarray(vectors)), (bool(inverse),))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The mean of several rotations: that with the smallest sum of squared chordal distances.

        Args:
            weights: of the rotations, of shape ``(n,)``; equal by default.

        Raises:
            ArgumentTypeError: it is a single rotation.
            ShapeMismatchError: not a weight for each.
        """
        given = tnp.ones((len(self),), self.quat.dtype) if weights is None else weights
        return Rotation(q.MEAN((self.quat, tnp.asarray(given))))


@register_pytree_node_class
@final
class Slerp:
    """Rotations between given ones at constant angular speed; ``Slerp.init`` makes it.

    Args:
        times: of the given rotations, ascending, of shape ``(n,)``.
        timedelta: the differences of times.
        rotations: the given ones without the last.
        rotvecs: from one to the next, as vectors of shape ``(n - 1, 3)``.

    >>> import tracebridge as tb
    >>> transform = tb.scipy.spatial.transform
    >>> ends = transform.Rotation.from_euler("x", tb.numpy.array([[0.0], [1.0]]))
    >>> slerp = transform.Slerp.init(tb.numpy.array([0.0, 2.0]), ends)
    >>> slerp(tb.numpy.array(0.5)).magnitude().round(3).tolist()
    0.25
    """

    __slots__ = ("rotations", "rotvecs", "timedelta", "times")

    def __init__(
        self, times: ArrayLike, timedelta: ArrayLike, rotations: Rotation, rotvecs: ArrayLike
    ) -> None:
        self.times = times
        self.timedelta = timedelta
        self.rotations = rotations
        self.rotvecs = rotvecs

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The arrays, as leaves of a pytree."""
        return (self.times, self.timedelta, self.rotations, self.rotvecs), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: tuple[Any, ...]) -> Slerp:
        """The interpolation of such leaves.

        Args:
            aux_data: not used.
            children: what ``tree_flatten`` gave.
        """
        del aux_data
        return cls(*children)

    @classmethod
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """The interpolation between rotations.

        Args:
            times: of the rotations, ascending, of shape ``(n,)``.
            rotations: at least two.

        Raises:
            ArgumentValueError: a single rotation, or times that do not ascend.
            ShapeMismatchError: not as many times as rotations.
        """
        at: Any = tnp.asarray(times)
        if rotations.single or len(rotations) < 2:
            msg = "Slerp.init: got a single rotation, expected at least two"
            raise ArgumentValueError(msg)
        if at.shape != (len(rotations),):
            msg = f"Slerp.init: times are of shape {at.shape}, for {len(rotations)} rotations"
            raise ShapeMismatchError(msg)
        delta = at[1:] - at[:-1]
        if known_not_to_ascend(at):
            msg = "Slerp.init: times do not ascend"
            raise ArgumentValueError(msg)
        first = rotations[:-1]
        return cls(at, delta, first, (first.inv() * rotations[1:]).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """Rotations at times.

        Args:
            times: of shape ``()`` or ``(k,)``; outside of the given ones rotations are NaN.
        """
        given = (self.times, tnp.asarray(times), self.timedelta, self.rotations.quat, self.rotvecs)
        return Rotation(q.SLERP(given))


shield(globals(), __name__)
