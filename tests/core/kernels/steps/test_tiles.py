"""Loops of stencils: neighbours are read where they are, tiles are done by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.kernels.steps import tiles

pytestmark = needs_kernels

Step = Callable[[Any], Any]


def on_a_torus(u: Any) -> Any:
    """Heat, along all axes."""
    around = sum(tnp.roll(u, s, k) for k in range(u.ndim) for s in (1, -1))
    return u + 0.1 * (around - 2 * u.ndim * u)


def between_zeros(u: Any) -> Any:
    """Heat between walls of no heat."""
    inner = (slice(1, -1),) * u.ndim
    wide = tnp.pad(u, 1)
    total = -2.0 * u.ndim * u
    for k in range(u.ndim):
        for part in (slice(0, -2), slice(2, None)):
            total = total + wide[tuple(part if i == k else slice(1, -1) for i in range(u.ndim))]
    return wide[inner] + 0.1 * total


def walls_stay(u: Any) -> Any:
    """What is between the walls changes."""
    inner = 0.5 * u[1:-1] + 0.25 * (u[:-2] + u[2:])
    return tnp.concatenate([u[:1], inner, u[-1:]])


def insulated(u: Any) -> Any:
    """Nothing passes through the walls: what is beside them is there twice."""
    wide = tnp.concatenate([u[:1], u, u[-1:]])
    return u + 0.2 * (wide[2:] - 2 * u + wide[:-2])


def nonlinear(u: Any) -> Any:
    """Burgers' equation, with products of neighbours."""
    right, left = tnp.roll(u, -1, 0), tnp.roll(u, 1, 0)
    return u - 0.05 * u * (right - left) + 0.1 * (right - 2 * u + left)


def of_neighbours_of_neighbours(u: Any) -> Any:
    """A filter twice: what is rolled is itself computed of neighbours."""
    once = 0.25 * (tnp.roll(u, 1, 0) + 2 * u + tnp.roll(u, -1, 0))
    costly = tnp.tanh(once)
    return 0.25 * (tnp.roll(costly, 2, 0) + 2 * costly + tnp.roll(costly, -2, 0))


def along_columns(u: Any) -> Any:
    """Rows do not see each other."""
    return 0.5 * tnp.roll(u, 3, 1) + 0.4 * u


def convolved(u: Any) -> Any:
    """Weights of nine neighbours, by slices of a padded array."""
    wide = tnp.pad(u, 1)
    n, m = u.shape
    parts = [wide[i : i + n, j : j + m] for i in range(3) for j in range(3)]
    weights = [0.05, 0.1, 0.05, 0.1, 0.4, 0.1, 0.05, 0.1, 0.05]
    return sum(w * part for w, part in zip(weights, parts, strict=True))


TWO = [on_a_torus, between_zeros, walls_stay, insulated, nonlinear, of_neighbours_of_neighbours]
ALL = [*TWO, along_columns, convolved]


def loop(step: Step, n: int) -> Callable[..., Any]:
    """So many steps."""
    return lambda u: lax.fori_loop(0, n, lambda _, v: step(v), u)


def kept(step: Step, n: int) -> Callable[..., Any]:
    """Steps that are scaled by a number each, and kept."""

    def body(u: Any, x: Any) -> Any:
        u = x * step(u)
        return u, (u, 2 * u)

    return lambda u, xs: lax.scan(body, u, xs, n)


@pytest.fixture(params=[None, (40, 3), (17, 5), (7, 1)], ids=str)
def sizes(request: Any, monkeypatch: Any, own_rewrites: None) -> Any:
    """Rows of a tile and steps of a round, those that are chosen and others."""
    del own_rewrites  # tiles are chosen once for steps that differ in numbers
    if request.param is not None:
        chosen = request.param

        def take(body: Any, rows: Any, n: int, *others: Any) -> Any:
            return chosen if chosen[0] + 2 * chosen[1] * others[-2] <= n else None

        monkeypatch.setattr(tiles, "_sizes", take)
    return request.param


def fresh(step: Step) -> Step:
    """A step that is another program each time: kernels are kept by content."""
    factor = float(np.random.default_rng().uniform(0.98, 0.99))
    return lambda u: factor * step(u)


@pytest.mark.parametrize("step", ALL)
@pytest.mark.parametrize("n", [7, 8])
def test_steps_in_two_dimensions(step: Step, n: int, sizes: Any) -> None:
    """Odd and even numbers of steps, sizes that vectors do not divide."""
    run = loop(fresh(step), n)
    u = array(133, 67)
    assert kernels_in(run, u) >= 1
    is_as_plain(run, u)


@pytest.mark.parametrize("step", TWO)
def test_steps_in_one_dimension(step: Step, sizes: Any) -> None:
    """Long rows of numbers."""
    run = loop(fresh(step), 9)
    u = array(5003)
    assert kernels_in(run, u) >= 1
    is_as_plain(run, u)


@pytest.mark.parametrize("step", [on_a_torus, between_zeros])
def test_steps_in_three_dimensions(step: Step, sizes: Any) -> None:
    """Bands along two axes."""
    run = loop(fresh(step), 5)
    is_as_plain(run, array(60, 11, 18))


@pytest.mark.parametrize("step", ALL)
def test_gradients(step: Step, sizes: Any) -> None:
    """Of a loop that keeps what it needs: slices are read and written by tiles."""
    step = fresh(step)

    def energy(u: Any, xs: Any) -> Any:
        last, (ys, _) = kept(step, 6)(u, xs)
        return (last**2).sum() + (ys**3).sum()

    xs = np.linspace(0.9, 1.1, 6, dtype=np.float32)
    is_as_plain(tb.grad(energy), array(120, 40), xs, tolerance=3e-6)


@pytest.mark.parametrize("step", [on_a_torus, walls_stay, nonlinear])
@pytest.mark.parametrize("reverse", [False, True])
def test_slices_of_steps(step: Step, reverse: bool, sizes: Any) -> None:
    """What is read and written step by step, in both directions."""
    step = fresh(step)

    def body(carry: Any, x: Any) -> Any:
        u, count = carry
        u = step(u) + x[0] * x[1]
        return (u, count + 1), (u, x[1] * 2, u > 0.1)

    def run(u: Any, xs: Any, numbers: Any) -> Any:
        return lax.scan(body, (u, 0), (xs, numbers), reverse=reverse)

    args = array(120, 40), array(8, 120, 40), array(8)
    assert kernels_in(run, *args) >= 1
    is_as_plain(run, *args)


def test_coefficients_of_all_places(sizes: Any) -> None:
    """Arrays that no step changes, by rows, by columns and for both."""
    factor = float(np.random.default_rng().uniform(0.98, 0.99))

    def run(u: Any, k: Any, rows: Any, columns: Any, number: Any) -> Any:
        def step(u: Any) -> Any:
            return factor * u + k * rows[:, None] * columns * number * tnp.roll(u, 1, 0)

        return loop(step, 7)(u)

    args = array(96, 96), array(96, 96), array(96), array(96), array()
    assert kernels_in(run, *args) >= 1
    is_as_plain(run, *args)
    is_as_plain(tb.jacfwd(run, argnums=4), *args, tolerance=3e-6)


@pytest.mark.parametrize("step", [on_a_torus, between_zeros, insulated])
def test_not_a_number_spreads_as_far(step: Step, sizes: Any) -> None:
    """NaN and infinities reach the same elements."""
    u = array(133, 67)
    u[0, 5], u[70, 0], u[132, 66], u[31, 31] = np.nan, np.inf, -np.inf, np.nan
    is_as_plain(loop(fresh(step), 6), u)


def test_padding_of_another_sign(sizes: Any) -> None:
    """0.0 and -0.0 are different paddings."""
    factor = float(np.random.default_rng().uniform(0.98, 0.99))

    def step(u: Any) -> Any:
        a = lax.pad(u[1:], -0.0, [(0, 1, 0), (0, 0, 0)])
        b = lax.pad(u[1:], 0.0, [(0, 1, 0), (0, 0, 0)])
        return factor * tnp.where(lax.div(1.0, b) > 0, a, b)

    run = loop(step, 5)
    is_as_plain(run, -np.abs(array(90, 64)), signs=True)


def test_vmap_and_jit(sizes: Any) -> None:
    """A batch of fields, threads share it or the rows."""
    for axis in (0, 2):
        run = tb.vmap(loop(fresh(on_a_torus), 5), axis, axis)
        is_as_plain(run, array(24, 26, 24))


def test_far_neighbours_are_no_tiles(monkeypatch: Any) -> None:
    """Rows far away, the first beside the last one, sums over rows: one part does all."""
    monkeypatch.setattr(tiles, "_sizes", lambda *_: (10, 2))

    def tiled(step: Step) -> bool:
        body = inline_calls(tb.make_jaxpr(step)(array(96, 64)).jaxpr)
        return tiles.tiles_of(body, 0, 1, 5, 2) is not None

    assert tiled(on_a_torus)
    assert tiled(insulated)
    assert not tiled(lambda u: tnp.roll(u, 40, 0) + u)
    assert not tiled(lambda u: u[::-1] + u)
    assert not tiled(lambda u: u - u.sum(0))
    assert not tiled(lambda u: tnp.concatenate([u[-1:], u, u[:1]])[2:] + u)
    assert not tiled(lambda u: tnp.pad(u[48:], [(0, 48), (0, 0)]) + u)
    assert not tiled(lambda u: tnp.roll(u, 1, 0)[:-1] + tnp.pad(u[1:], [(0, 1), (0, 0)])[:-1])


def test_fields_apart_are_no_tiles() -> None:
    """Each tile would do all of a field that does not meet the one that has its rows."""

    def tiled(step: Callable[..., Any], *fields: Any) -> bool:
        body = inline_calls(tb.make_jaxpr(step)(*fields).jaxpr)
        return tiles.tiles_of(body, 0, len(fields), 20, 2) is not None

    u, v = array(512, 512), array(500, 512)
    assert tiled(lambda u, v: (on_a_torus(u), on_a_torus(v) + u), u, u)
    assert tiled(lambda u, n: (on_a_torus(u), n + 1), u, array(8))
    assert not tiled(lambda u, v: (on_a_torus(u), on_a_torus(v)), u, u)
    assert not tiled(lambda u, v: (on_a_torus(u), tnp.roll(v, 1, 0)), u, v)
    is_as_plain(
        lambda u, v: lax.fori_loop(0, 6, lambda _, c: (on_a_torus(c[0]), c[1] * 0.5), (u, v)), u, v
    )


def test_steps_without_elements() -> None:
    """Arrays without elements stay so."""
    assert loop(on_a_torus, 5)(np.zeros((0, 8), "f4")).shape == (0, 8)
    assert loop(between_zeros, 5)(np.zeros((8, 0), "f4")).shape == (8, 0)
