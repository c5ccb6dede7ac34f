"""scipy.spatial.transform against SciPy: descriptions of rotations, calculation, derivatives."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.spatial import transform as reference

import tracebridge as tb
from tracebridge.scipy.spatial.transform import Rotation, Slerp

RANDOM = np.random.RandomState(0).randn(4, 4)
# Small angles on both sides of the series, none, half turns, and negative w.
QUATS = np.vstack(
    [RANDOM, -RANDOM[:1], [[0, 0, 0, 1], [0, 0, 0, -1], [1, 0, 0, 0], [0.6, -0.8, 0, 0]],
     [[1e-9, 0, 2e-9, 1], [0.01, 0.01, 0, 1], [0.02, 0.03, 0, 1]]]
)  # fmt: skip
THEIRS = reference.Rotation.from_quat(QUATS)
VECTOR = np.array([1.0, 2, -3])


@pytest.fixture(autouse=True)
def _wide_floats() -> Iterator[None]:
    """Compare with SciPy in its dtype."""
    with tb.enable_x64():
        yield


def agree(actual: Any, expected: Any) -> None:
    """The same shape and, up to rounding, values."""
    assert np.shape(actual) == np.shape(expected)

    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12, atol=1e-14)


def test_descriptions() -> None:
    """Of rotations of any size, in both units."""
    ours = Rotation.from_quat(QUATS)

    agree(ours.quat, THEIRS.as_quat())
    agree(ours.as_quat(True, True), THEIRS.as_quat(canonical=True, scalar_first=True))
    agree(ours.as_matrix(), THEIRS.as_matrix())
    agree(ours.as_rotvec(), THEIRS.as_rotvec())
    agree(ours.as_rotvec(degrees=True), THEIRS.as_rotvec(degrees=True))
    agree(ours.as_mrp(), THEIRS.as_mrp())
    agree(ours.magnitude(), THEIRS.magnitude())


def test_rotations_of_descriptions() -> None:
    """There and back; the single one is the first of several."""
    for name in ("quat", "matrix", "rotvec", "mrp"):
        given = getattr(THEIRS, f"as_{name}")()
        make = getattr(Rotation, f"from_{name}")
        expected = getattr(reference.Rotation, f"from_{name}")(given)

        agree(make(given).as_matrix(), expected.as_matrix())
        agree(make(given[0]).quat, make(given).quat[0])
    half_turn = np.array([90.0, 0, 0])
    agree(Rotation.from_rotvec(half_turn, degrees=True).as_rotvec(), [np.pi / 2, 0, 0])


@pytest.mark.parametrize("seq", ["xyz", "XYZ", "ZXZ", "yzy", "zYx".upper()])
def test_three_angles(seq: str) -> None:
    """Around axes of space and of the body, also where two of them are not determined."""
    angles = np.array([[0.3, 0.4, -2.5], [3.0, -1.2, 0.1], [0.3, 0.0, 0.4], [0.3, np.pi / 2, 0.4]])
    theirs = reference.Rotation.from_euler(seq, angles)
    ours = Rotation.from_euler(seq, angles)

    agree(ours.quat, theirs.as_quat())
    back = ours.as_euler(seq)
    with pytest.warns(UserWarning, match="Gimbal"):
        expected = theirs.as_euler(seq)
    np.testing.assert_allclose(np.asarray(back), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(np.asarray(ours.as_euler(seq, degrees=True)), np.degrees(back))


def test_one_or_two_angles() -> None:
    """In each shape that SciPy takes."""
    make, expected = Rotation.from_euler, reference.Rotation.from_euler
    for seq, angles in (
        ("x", 0.3), ("Z", np.array([0.3])),
        ("y", np.array([[0.3], [0.4]])), ("xz", np.array([0.3, 0.4])), ("YX", np.ones((2, 2))),
    ):  # fmt: skip
        agree(make(seq, angles, True).quat, expected(seq, angles, True).as_quat())


def test_calculation() -> None:
    """Products, inverses, means and vectors, single ones against several."""
    ours, last = Rotation.from_quat(QUATS), Rotation.from_quat(QUATS[3])
    theirs_last = reference.Rotation.from_quat(QUATS[3])
    many = np.outer(np.arange(len(QUATS)), VECTOR)

    agree((ours * last).as_matrix(), (THEIRS * theirs_last).as_matrix())
    agree((last * ours).as_matrix(), (theirs_last * THEIRS).as_matrix())
    agree((ours * ours.inv()).magnitude(), np.zeros(len(QUATS)))
    for rotation, expected, vectors in (
        (ours, THEIRS, VECTOR), (ours, THEIRS, many), (last, theirs_last, many),
        (last, theirs_last, VECTOR),
    ):  # fmt: skip
        for inverse in (False, True):
            agree(rotation.apply(vectors, inverse), expected.apply(vectors, inverse))
    weights = np.arange(1.0, 5)
    agree(ours[:4].mean().as_matrix(), THEIRS[:4].mean().as_matrix())
    agree(ours[:4].mean(weights).as_matrix(), THEIRS[:4].mean(weights).as_matrix())


def test_containers() -> None:
    """Lengths, parts, several in one, none at all, random ones."""
    ours = Rotation.from_quat(QUATS)

    assert len(ours) == len(QUATS)
    assert ours[0].single
    agree(Rotation.concatenate([ours[0], ours[1:]]).quat, ours.quat)
    agree(Rotation.identity(2).quat, [[0, 0, 0, 1]] * 2)
    drawn = Rotation.random(tb.random.key(0), 500)
    agree(tb.numpy.linalg.norm(drawn.quat, axis=1), np.ones(500))
    assert np.abs(np.asarray(drawn.as_matrix()).mean(axis=0)).max() < 0.1
    for wrong in (lambda: len(ours[0]), lambda: ours[0][0]):
        with pytest.raises(TypeError, match="single rotation"):
            wrong()
    with pytest.raises(AttributeError, match="immutable"):
        ours.quat = QUATS


def test_what_is_no_rotation() -> None:
    """Shapes and axes."""
    for wrong in (
        lambda: Rotation.from_quat(np.ones(3)), lambda: Rotation.from_matrix(np.eye(4)),
        lambda: Rotation.from_euler("xyz", np.ones(2)),
        lambda: Rotation.from_quat(QUATS).apply(np.ones((2, 3))),
        lambda: Rotation.from_euler("xX", np.ones(2)),
        lambda: Rotation.from_euler("zz", np.ones(2)),
        lambda: Rotation.identity().as_euler("x"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"Rotation|broadcast"):
            wrong()


def test_derivatives_at_the_identity() -> None:
    """Where angles are 0 nothing is NaN, and vectors turn as the cross product says."""
    zero, one = np.zeros(3), np.array([0.0, 0, 0, 1])

    def turned(v: Any) -> Any:
        return Rotation.from_rotvec(v).apply(VECTOR)

    cross = np.array([[0, -3, -2], [3, 0, 1], [2, -1, 0.0]])
    agree(tb.jacobian(turned)(zero), cross)
    parts = np.hstack([2 * np.eye(3), np.zeros((3, 1))])
    for function, expected in (
        (lambda q: Rotation.from_quat(q).as_rotvec(), parts),
        (lambda q: Rotation.from_quat(q).as_euler("xyz"), parts),
        (lambda q: Rotation.from_quat(q).as_mrp(), parts / 4),
        (lambda q: Rotation.from_quat(q).magnitude(), np.zeros(4)),
    ):
        agree(tb.jit(tb.jacobian(function))(one), expected)
    hessian = tb.jit(tb.hessian(lambda v: turned(v)[0]))(zero)
    agree(hessian, [[0, 1, -1.5], [1, -1, 0], [-1.5, 0, -1]])


def test_derivatives_elsewhere() -> None:
    """Through each description, on both sides of the limits of series."""

    def through(v: Any) -> Any:
        matrix = Rotation.from_rotvec(v).as_matrix()
        return Rotation.from_matrix(matrix).as_euler("xyz")

    vectors = np.array([[0.01, 0.005, 0.02], [0.3, -0.2, 0.5]])
    tb.testing.check_grads(tb.jit(tb.vmap(through)), (vectors,), order=1, rtol=1e-4)


def test_rotations_are_arguments_of_programs() -> None:
    """They are traced, mapped and given back."""
    ours = Rotation.from_quat(QUATS)
    twice = tb.jit(tb.vmap(lambda r: r * r))(ours)

    assert type(twice) is Rotation
    agree(twice.as_matrix(), (THEIRS * THEIRS).as_matrix())


def test_interpolation() -> None:
    """At, between and outside of the given times; traced; with a gradient."""
    times, at = np.array([0.0, 1, 3]), np.array([0.0, 0.25, 1, 2.9, 3])
    expected = reference.Slerp(times, THEIRS[:3])(at)
    slerp = Slerp.init(times, Rotation.from_quat(QUATS[:3]))

    agree(slerp(at).as_matrix(), expected.as_matrix())
    agree(tb.jit(lambda s, t: s(t).as_matrix())(slerp, 0.25), expected[1].as_matrix())
    assert np.isnan(np.asarray(slerp(np.array([-0.1, 3.1])).quat)).all()
    speed = tb.grad(lambda t: slerp(t).magnitude())(0.25)
    assert np.isfinite(float(speed))
    for wrong in (lambda: Slerp.init(times[::-1], THEIRS), lambda: Slerp.init(times[:2], THEIRS)):
        with pytest.raises((ValueError, TypeError), match="Slerp"):
            wrong()


def test_products_with_what_is_no_rotation() -> None:
    """They are errors of the operator, and the other side may know better."""
    with pytest.raises(TypeError, match=r"unsupported operand.*Rotation.*int"):
        operator.mul(Rotation.identity(), 3)
