"""What functions of blocks may do: call Python, look at numbers, write references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.control.shard_map.grids import TOL, X, over
from tracebridge import P, lax
from tracebridge.errors import AxisSpecError, ConcretizationTypeError
from tracebridge.experimental import io_callback
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)


@pytest.mark.parametrize("jit", [False, True])
def test_callbacks_over_some_axes(jit: bool) -> None:
    """Python is called once for each block, also inside of loops."""
    seen: list[float] = []

    def f(b: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            tb.debug.callback(lambda v: seen.append(float(v)), b.sum() + i)
            return c

        return lax.fori_loop(0, 2, step, b)

    mapped = over(f, P("x"), P("x"), (2, 4), axis_names={"x"})
    out = (tb.jit(mapped) if jit else mapped)(X)
    tb.effects_barrier()
    halves = X.reshape(2, 32).sum(1)

    assert_allclose(out, X)
    assert_allclose(sorted(seen), sorted([*halves, *(halves + 1)]), **TOL)


GROUPS = [[0, 3, 5, 6], [7, 4, 2, 1]]


def test_groups_of_several_axes() -> None:
    """Positions along the axes together, of which the last one runs fastest."""
    blocks = X.reshape(8, 8)
    sums = {i: blocks[g].sum(0) for g in GROUPS for i in g}

    def mapped(f: Any) -> Any:
        return over(lambda b: f(b[0])[None], P(("x", "y")), P(("x", "y")))(X)

    def total(b: Any) -> Any:
        return lax.psum(b, ("x", "y"), axis_index_groups=GROUPS)

    def gathered(b: Any) -> Any:
        return lax.all_gather(b, ("x", "y"), axis_index_groups=GROUPS).reshape(-1)

    def part(b: Any) -> Any:
        return lax.psum_scatter(b, ("x", "y"), axis_index_groups=GROUPS, tiled=True)

    def exchanged(b: Any) -> Any:
        return lax.all_to_all(b, ("x", "y"), 0, 0, axis_index_groups=GROUPS, tiled=True)

    order = {i: (g, g.index(i)) for g in GROUPS for i in g}
    assert_allclose(mapped(total), np.stack([sums[i] for i in range(8)]), **TOL)
    assert_allclose(mapped(gathered), np.stack([blocks[order[i][0]].reshape(-1) for i in range(8)]))
    assert_allclose(
        mapped(part), np.stack([sums[i].reshape(4, 2)[order[i][1]] for i in range(8)]), **TOL
    )
    assert_allclose(
        mapped(exchanged),
        np.stack(
            [blocks[g].reshape(4, 4, 2)[:, k].reshape(-1) for g, k in map(order.get, range(8))]
        ),
    )


def test_groups_of_several_axes_need_a_mesh() -> None:
    """vmap maps over one of them only."""
    f = tb.vmap(
        tb.vmap(
            lambda x: lax.psum(x, ("i", "j"), axis_index_groups=[[0, 3], [1, 2]]), axis_name="j"
        ),
        axis_name="i",
    )

    with pytest.raises(AxisSpecError, match="of which vmap maps over 'j'"):
        f(tnp.ones((2, 2)))


def test_numbers_that_all_devices_share() -> None:
    """Outside of jit Python code may decide by them, and not by what varies."""

    def f(b: Any, n: Any) -> Any:
        total = lax.psum(b.sum(), ("x", "y"))
        for _ in range(int(n)):
            b = b + 1 if total > 0 else b - 1
        return b

    mapped = over(f, (P("x", "y"), P()), P("x", "y"))

    assert_allclose(mapped(X - X.mean() + 1, 2), X - X.mean() + 3, **TOL)
    assert_allclose(mapped(X - X.mean() - 1, 1), X - X.mean() - 2, **TOL)
    with pytest.raises(ConcretizationTypeError):
        over(lambda b: b if b.sum() > 0 else -b, P("x"), P("x"), (2,))(X)
    with pytest.raises(ConcretizationTypeError):
        tb.jit(mapped)(X, 2)


def test_references_as_arguments() -> None:
    """Each device has a reference to its block; what is written is there afterwards."""
    ref, count = tb.new_ref(tnp.asarray(X)), tb.new_ref(tnp.zeros(()))

    def f(r: Any, n: Any, b: Any) -> Any:
        r[...] = r[...] * 2 + b
        n[...] += lax.psum(1.0, ("x", "y"))
        return r[...].sum()[None]

    mapped = over(f, (P(("x", "y")), P(), P(("x", "y"))), P(("x", "y")))
    out = mapped(ref, count, X)

    assert_allclose(out, 3 * X.sum(1), **TOL)
    assert_allclose(ref[...], 3 * X, **TOL)
    tb.jit(mapped)(ref, count, X)
    assert_allclose(ref[...], 7 * X, **TOL)
    assert 16.0 == float(count[...])


def test_references_of_the_outside() -> None:
    """Devices may read and write them, if all write the same."""
    ref = tb.new_ref(tnp.zeros(8))

    def f(b: Any) -> Any:
        ref[...] += lax.psum(b.sum(0), "x")
        return b + ref[...]

    out = over(f, P("x"), P("x"), (8,))(X)

    assert_allclose(ref[...], X.sum(0), **TOL)
    assert_allclose(out, X + X.sum(0), **TOL)
    with pytest.raises(AxisSpecError, match="reference"):
        over(lambda b: ref.__setitem__(..., b[0]), P("x"), P(), (8,))(X)
    assert np.isfinite(np.asarray(ref[...])).all()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 4)])
def test_each_device_calls_with_its_block(sizes: tuple[int, int], jit: bool) -> None:
    """No way of vmap is asked for: over one device too, blocks are no elements of a batch."""
    seen: list[tuple[int, ...]] = []

    def half(v: Any) -> Any:
        seen.append(np.shape(v))
        return np.asarray(v) / 2

    def f(b: Any) -> Any:
        return lax.map(lambda row: tb.pure_callback(half, like(row), row), b)

    mapped = over(f, P("x", "y"), P("x", "y"), sizes)
    assert_allclose(X / 2, (tb.jit(mapped) if jit else mapped)(X))
    assert {(8 // sizes[1],)} == set(seen)


def like(x: Any) -> Any:
    """The declared type of a result as ``x``."""
    return tb.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("jit", [False, True])
def test_one_device_has_an_order(jit: bool) -> None:
    """Ordered calls of a mesh of one device come in the order of the program."""
    seen: list[float] = []
    printed: list[float] = []

    def double(v: Any) -> Any:
        seen.append(float(v[0]))
        return np.asarray(v) * 2

    def f(b: Any) -> Any:
        for _ in range(3):
            b = io_callback(double, like(b), b, ordered=True)
            tb.debug.callback(lambda v: printed.append(float(v[0])), b, ordered=True)
        return b

    mapped = over(f, P("x"), P("x"), (1,))
    out = (tb.jit(mapped) if jit else mapped)(np.ones(2, np.float32))
    tb.effects_barrier()

    assert [8.0, 8.0] == out.tolist()
    assert ([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]) == (seen, printed)
