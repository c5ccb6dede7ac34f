"""map_coordinates, RegularGridInterpolator, vq and trapezoid against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
import scipy.interpolate
import scipy.ndimage

import tracebridge as tb
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    UnsupportedArgumentError,
)
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose, check_grads

SCIPY_MODES = {"constant": "grid-constant", "wrap": "grid-wrap"}
MODES = ["constant", "nearest", "wrap", "mirror", "reflect"]
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 1, 3)], ids=str)
def test_map_coordinates(shape: tuple[int, ...], order: int, mode: str) -> None:
    """Inside and far outside, in every mode."""
    image = RANDOM.normal(size=shape).astype(np.float32)
    where = RANDOM.uniform(-12, 12, (len(shape), 4, 7)).astype(np.float32)
    expected = scipy.ndimage.map_coordinates(
        image, where, order=order, mode=SCIPY_MODES.get(mode, mode), cval=1.5
    )
    run = tb.jit(lambda x, c: tb.scipy.ndimage.map_coordinates(x, c, order, mode, 1.5))

    assert_allclose(run(image, where), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_map_coordinates_derivatives(mode: str) -> None:
    """Of the image and of the coordinates, against differences; and over a batch."""
    with tb.enable_x64(True):
        image = RANDOM.normal(size=(4, 5))
        where = RANDOM.uniform(-3, 7, (2, 6)) + 0.013

        def run(x: Any, c: Any) -> Any:
            return tb.scipy.ndimage.map_coordinates(x, c, 1, mode)

        check_grads(run, (image, where), order=1)
        stacked = tb.vmap(run, in_axes=(0, None))(np.stack([image, 2 * image]), where)
        assert_allclose(stacked[1], 2 * np.asarray(run(image, where)), rtol=1e-12)


def test_map_coordinates_of_integers() -> None:
    """Integer images give rounded integers; integer coordinates take pixels as they are."""
    image = np.arange(12).reshape(3, 4)
    found = tb.scipy.ndimage.map_coordinates(image, [[0.5, 1.2], [1.25, 2.0]], 1)

    assert "int32" == found.dtype
    assert [3, 7] == found.tolist()
    assert [1, 11] == tb.scipy.ndimage.map_coordinates(image, [[0, 2], [1, 3]], 1).tolist()


def test_map_coordinates_errors() -> None:
    """Errors say what was expected."""
    run, x = tb.scipy.ndimage.map_coordinates, np.ones((2, 3))
    with pytest.raises(ShapeMismatchError, match="got 1 coordinates for an image of 2 axes"):
        run(x, [[0.0]], 1)
    with pytest.raises(UnsupportedArgumentError, match="order is 3, expected 0 or 1"):
        run(x, x, 3)
    with pytest.raises(ArgumentValueError, match="mode is 'grid', expected one of"):
        run(x, x, 1, "grid")
    with pytest.raises(ArgumentTypeError, match="expected a sequence of arrays"):
        run(x, 1.0, 1)


@pytest.mark.parametrize("fill", [np.nan, None, -2.0])
@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("extra", [(), (2,)], ids=str)
def test_grid_interpolator(extra: tuple[int, ...], method: str, fill: Any) -> None:
    """Uneven grids, inside and outside, with further axes of values."""
    points = (np.array([0.0, 0.5, 2.0]), np.array([-1.0, 0.0, 0.25, 3.0]))
    values = RANDOM.normal(size=(3, 4, *extra))
    xi = RANDOM.uniform(-2, 4, (5, 6, 2))
    theirs = scipy.interpolate.RegularGridInterpolator(
        points, values, method=method, bounds_error=False, fill_value=fill
    )
    with tb.enable_x64(True):
        ours = tb.scipy.interpolate.RegularGridInterpolator(
            points, values, method=method, fill_value=fill
        )
        assert_allclose(tb.jit(ours)(xi), theirs(xi), rtol=1e-10, atol=1e-12)
        assert_allclose(ours((xi[0, :, 0], 0.1)), theirs((xi[0, :, 0], 0.1)), rtol=1e-10)
        assert_allclose(ours(xi[0, 0]), theirs(xi[0, 0]), rtol=1e-10)
        assert np.isnan(np.asarray(ours(np.array([np.nan, 0.0])))).all()


def test_grid_interpolator_derivatives() -> None:
    """Of values and of points, where they lie inside and outside."""
    grid = (np.array([0.0, 0.5, 2.0]), np.array([-1.0, 0.0, 0.25]))
    xi = np.array([[0.3, 0.1], [1.1, -0.7], [2.5, 0.1]])

    def run(values: Any, xi: Any) -> Any:
        return tb.scipy.interpolate.RegularGridInterpolator(grid, values, fill_value=None)(xi)

    with tb.enable_x64(True):
        check_grads(run, (RANDOM.normal(size=(3, 3)), xi), order=1)


def test_grid_interpolator_errors() -> None:
    """Errors say what was expected."""
    make, x = tb.scipy.interpolate.RegularGridInterpolator, np.arange(3.0)
    with pytest.raises(ArgumentValueError, match="method is 'cubic'"):
        make((x,), x, "cubic")
    with pytest.raises(UnsupportedArgumentError, match="bounds_error=True"):
        make((x,), x, bounds_error=True)
    with pytest.raises(RankError, match="2 axes of points for values of 1"):
        make((x, x), x)
    with pytest.raises(RankError, match=r"points\[0\] has 2 axes"):
        make((np.ones((3, 1)),), x)
    with pytest.raises(ShapeMismatchError, match=r"points\[0\] has length 2, axis 0 of values 3"):
        make((x[:2],), x)
    with pytest.raises(ArgumentValueError, match=r"points\[0\] neither ascend nor"):
        make((x * 0,), x)
    with pytest.raises(ShapeMismatchError, match="got points of 3 coordinates, expected 1"):
        make((x,), x)(np.ones((2, 3)))


def test_vq() -> None:
    """Codes and distances; numbers count as vectors of one component."""
    obs, book = RANDOM.normal(size=(7, 3)), RANDOM.normal(size=(4, 3))
    for a, b in ((obs, book), (obs[:, 0], book[:, 0])):
        code, distance = tb.scipy.cluster.vq.vq(a, b)
        expected = scipy.cluster.vq.vq(a, b)

        assert expected[0].tolist() == code.tolist()
        assert_allclose(distance, expected[1], rtol=1e-5, atol=1e-6)
    with tb.enable_x64(True):
        check_grads(lambda a, b: tb.scipy.cluster.vq.vq(a, b)[1], (obs, book), order=1)


def test_vq_of_a_code() -> None:
    """The derivative of a distance of zero is zero, not NaN."""
    slope = tb.grad(lambda x: tb.scipy.cluster.vq.vq(x, np.ones(2, np.float32))[1].sum())

    assert [0.0, 1.0] == slope(np.float32([1.0, 3.0])).tolist()
    with pytest.raises(RankError, match="expected two matrices or two vectors"):
        tb.scipy.cluster.vq.vq(np.ones(3), np.ones((3, 1)))
    with pytest.raises(ShapeMismatchError, match="expected rows of the same length"):
        tb.scipy.cluster.vq.vq(np.ones((3, 2)), np.ones((3, 1)))


def test_trapezoid() -> None:
    """The integral along an axis, with even and uneven spacing."""
    y, x = RANDOM.normal(size=(3, 4)), np.sort(RANDOM.normal(size=4))

    for args in ((), (x,), (None, 0.5), (None, 2.0, 0)):
        expected = scipy.integrate.trapezoid(y, *args)
        assert_allclose(tb.scipy.integrate.trapezoid(y, *args), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_points_that_descend(method: str) -> None:
    """They and the values along them are turned round, as SciPy does."""
    points = (np.array([3.0, 1.0, 0.5]), np.array([0.0, 2.0]))
    values = np.random.default_rng(0).normal(size=(3, 2, 2))
    where = np.array([[0.6, 0.3], [2.9, 1.9], [1.0, 0.0], [4.0, 1.0]])

    found = tb.scipy.interpolate.RegularGridInterpolator(points, values, method)(where)
    expected = scipy.interpolate.RegularGridInterpolator(points, values, method, False)(where)
    np.testing.assert_allclose(found, expected, 1e-5)
    with pytest.raises(ArgumentValueError, match=r"points\[1\] neither ascend nor descend"):
        tb.scipy.interpolate.RegularGridInterpolator((points[0], np.zeros(2)), values)


def test_images_without_pixels() -> None:
    """Everything is outside of them."""
    x, mapped = np.zeros((0, 2), np.int32), tb.scipy.ndimage.map_coordinates

    assert [7, 7] == mapped(x, [np.zeros(2), np.ones(2)], 1, cval=7.0).tolist()
    assert (0,) == mapped(x, [np.zeros(0)] * 2, 0, mode="wrap").shape
    with pytest.raises(ValueError, match="no pixels"):
        mapped(x, [np.zeros(2)] * 2, 1, mode="nearest")


@pytest.mark.parametrize("error", [ValueError, NotImplementedError])
def test_other_modes_are_not_there(error: type[Exception]) -> None:
    """SciPy's modes of grids are not there, and an unknown one is no value of the argument."""
    with pytest.raises(error, match="grid-wrap"):
        tb.scipy.ndimage.map_coordinates(np.ones(3), [np.ones(2)], 1, "grid-wrap")


def test_fill_values_are_of_the_kind_of_values() -> None:
    """What lies outside of a real grid is real; integers fill floats, and floats complex values."""
    make, x = tb.scipy.interpolate.RegularGridInterpolator, np.arange(3.0)
    with pytest.raises(ArgumentValueError, match=r"fill_value is 1j, but values are float"):
        make((x,), x, fill_value=1j)
    with pytest.raises(ValueError, match="fill_value"):
        scipy.interpolate.RegularGridInterpolator((x,), x, fill_value=1j)
    assert [7.0] == make((x,), x, fill_value=7)(np.array([[9.0]])).tolist()
    assert [0.5 + 0j] == make((x,), x * 1j, fill_value=0.5)(np.array([[9.0]])).tolist()
