"""shard_map and smap: their arguments, and what they say when something does not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import P, lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import (
    AxisSizeError,
    AxisSpecError,
    TreeMismatchError,
)
from tracebridge.experimental.shard_map import shard_map as older
from tracebridge.sharding import AxisType
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
X = np.random.default_rng(0).normal(size=(8, 8)).astype("f4")
MESH = tb.sharding.AbstractMesh((2, 4), ("x", "y"))
GRID = P("x", "y")


def mesh() -> Any:
    """Eight devices in two rows."""
    return tb.make_mesh((2, 4), ("x", "y"), AxisType.Auto)


def total(b: Any) -> Any:
    """The sum of blocks over y."""
    return lax.psum(b, "y")


TOTAL = X.reshape(8, 4, 2).sum(1)


def test_ways_to_say_it() -> None:
    """As a function, a decorator, with the mesh in force, with the older arguments."""

    @tb.shard_map(mesh=mesh(), in_specs=(GRID,), out_specs=P("x"))
    def decorated(b: Any) -> Any:
        """Documented."""
        return total(b)

    assert ("decorated", "Documented.") == (decorated.__name__, decorated.__doc__)
    assert_allclose(decorated(X), TOTAL, rtol=1e-5)
    for block in (tb.set_mesh(mesh()), mesh()):
        with block:
            assert_allclose(tb.shard_map(total, in_specs=GRID, out_specs=P("x"))(X), TOTAL,
                            rtol=1e-5)  # fmt: skip
    assert_allclose(older(total, mesh(), GRID, P("x"), check_rep=False)(X), TOTAL, rtol=1e-5)
    with mesh():
        here = older(total, None, P(None, "y"), P(), auto=frozenset({"x"}))(X)
    assert_allclose(here, TOTAL, rtol=1e-5)
    assert_allclose(older(total, mesh(), P(None, "y"), P(), auto=frozenset({"x"}))(X), TOTAL,
                    rtol=1e-5)  # fmt: skip


def test_trees_of_specifications() -> None:
    """Specifications are prefixes of trees; None is an array that all devices get whole."""
    f = tb.shard_map(
        lambda tree, w, nothing: {"sum": total(tree["a"]), "rest": (w, [tree["b"][0] * w[0]])},
        mesh=mesh(),
        in_specs=({"a": GRID, "b": P("x")}, None, None),
        out_specs={"sum": P("x"), "rest": (None, P("x"))},
    )
    out = f({"a": X, "b": (X, X)}, X[0], None)

    assert_allclose(out["sum"], TOTAL, rtol=1e-5)
    assert_allclose(out["rest"][0], X[0])
    assert_allclose(out["rest"][1][0], X * X[0, 0])


def test_specifications_of_the_arguments() -> None:
    """Without in_specs arguments are split as they are spread; traced ones are not known."""
    f = tb.shard_map(total, mesh=mesh(), out_specs=P("x"))
    spread = tb.device_put(X, tb.NamedSharding(mesh(), GRID))

    assert_allclose(f(spread), TOTAL, rtol=1e-5)
    assert_allclose(tb.shard_map(lambda b: b, mesh=mesh(), out_specs=P())(X), X)
    message = r"in_specs was not specified, and the type of argument b does not say how"
    with pytest.raises(ArgumentTypeError, match=message):
        tb.jit(f)(spread)


def test_arguments_that_are_no_arrays() -> None:
    """Those without a specification reach the function as they are."""
    thing = object()

    def f(b: Any, shape: tuple[int, ...], other: object) -> Any:
        assert other is thing
        return b + tb.numpy.ones(shape)

    g = tb.shard_map(f, mesh=mesh(), in_specs=(P("x"), None, None), out_specs=P("x"))

    for shape in ((4, 8), (1, 8)):
        assert_allclose(g(X, shape, thing), X + 1)
        assert_allclose(tb.jit(lambda x, shape=shape: g(x, shape, thing))(X), X + 1)


def test_types_of_blocks() -> None:
    """They are split over the Explicit axes that are left; whole results over all."""
    explicit = mesh().abstract_mesh.update(axis_types=(tb.sharding.AxisType.Explicit,) * 2)
    seen: list[Any] = []

    def f(b: Any) -> Any:
        seen.append(tb.typeof(b).sharding.spec)
        return b.T

    def g(x: Any) -> Any:
        with tb.sharding.use_abstract_mesh(explicit):
            out = tb.shard_map(f, out_specs=P("x"), axis_names={"x"})(x)
        seen.append(tb.typeof(out).sharding.spec)
        return out

    x = tb.ShapeDtypeStruct((8, 8), "float32", sharding=tb.NamedSharding(explicit, GRID))
    tb.make_jaxpr(g)(x)

    assert [P(None, "y"), P(("x", "y"), None)] == seen


def test_residuals_lie_along_all_axes() -> None:
    """A mapped axis that spmd_axis_name would spread stays whole beside them."""
    f = tb.shard_map(tb.numpy.sin, mesh=mesh(), in_specs=P("y"), out_specs=P("y"))
    xs = np.arange(32, dtype="f4").reshape(4, 8)

    assert_allclose(tb.vmap(tb.grad(lambda x: f(x).sum()), spmd_axis_name="x")(xs), np.cos(xs))


def test_smap() -> None:
    """One axis of the mesh in force, by the number of an axis of the array; also nested."""

    def rows(b: Any) -> Any:
        return tb.smap(total, in_axes=-1, out_axes=None, axis_name="y")(b)

    with tb.set_mesh(mesh()):
        f = tb.smap(in_axes=0, out_axes=0, axis_name="x")(rows)
        spread = tb.device_put(X, GRID)
        inferred = tb.smap(total, out_axes=None, axis_name="y")(spread)

        assert_allclose(f(X), TOTAL, rtol=1e-5)
        assert_allclose(tb.jit(f)(X), TOTAL, rtol=1e-5)
        assert_allclose(inferred, TOTAL, rtol=1e-5)
        with pytest.raises(AxisSpecError, match=r"in_axes is 2 for argument b, which has 2 axes"):
            tb.smap(total, in_axes=2, out_axes=None, axis_name="y")(X)
        with pytest.raises(AxisSpecError, match=r"axis_name 'z' is no axis of Mesh\('x': 2"):
            tb.smap(total, in_axes=0, out_axes=None, axis_name="z")(X)


def test_texts() -> None:
    """Programs show what is split, and the operation that devices run on their own."""
    f = tb.shard_map(total, mesh=mesh(), in_specs=GRID, out_specs=P("x"))

    assert "in_places=(P('x', 'y'),)" in str(tb.make_jaxpr(f)(X))
    assert 'in_shardings=[<@mesh, [{"x"}, {"y"}]>]' in tb.jit(f).lower(X).as_text()


SPECS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "does not divide": (
        {"in_specs": P(None, GRID[0]), "x": X[:, :7]},
        AxisSizeError,
        (
            "shard_map(total): axis 1 of argument b, f32[8,7], has size 7, which in_specs "
            "P(None, 'x') splits over the mesh axis 'x' of size 2 into 2 blocks\n"
            "    expected: a size divisible by 2\n"
            "    way out: pad the array, or leave the axis whole (None)"
        ),
    ),
    "too long": (
        {"in_specs": GRID, "x": X[0]},
        AxisSpecError,
        (
            "shard_map(total): in_specs is P('x', 'y'), which has length 2, for argument b, "
            "which has rank 1\n"
            "    expected: at most 1 entries, one for each axis"
        ),
    ),
    "no such axis": (
        {"in_specs": P("z")},
        AxisSpecError,
        (
            "shard_map(total): in_specs is P('z',) for argument b, but 'z' is no "
            "axis of "
            "AbstractMesh('x': 2, 'y': 4, axis_types=(Auto, Auto))\n"
            "    expected: names from ('x', 'y')"
        ),
    ),
    "left to the compiler": (
        {"in_specs": P("x"), "axis_names": {"y"}},
        AxisSpecError,
        (
            "shard_map(total): in_specs is P('x',) for argument b, but 'x' is "
            "not one that "
            "it splits by itself"
        ),
    ),
    "twice": (
        {"in_specs": P("x", "x")},
        AxisSpecError,
        "shard_map(total): in_specs is P('x', 'x') for argument b: it repeats a name",
    ),
    "unconstrained": (
        {"in_specs": P(P.UNCONSTRAINED)},
        AxisSpecError,
        (
            "shard_map(total): in_specs is P(UNCONSTRAINED,) for argument b\n"
            "    expected: names of axes, or None: blocks have one size"
        ),
    ),
    "a string": (
        {"in_specs": "x"},
        AxisSpecError,
        (
            "shard_map(total): in_specs contains 'x' of type str\n"
            "    expected: PartitionSpec, None, and trees of them\n"
            "    way out: write P() for tuples of names: P(('x', 'y')), P('x', None)"
        ),
    ),
    "another tree": (
        {"in_specs": (P("x"), P("x"))},
        TreeMismatchError,
        "shard_map(total): the structure of in_specs does not fit the arguments",
    ),
    "varies": (
        {"in_specs": GRID, "out_specs": P()},
        AxisSpecError,
        (
            "shard_map(total): the result (f32[4,2] on each device) varies over the axis "
            "'x' of the "
            "mesh, as is statically inferred, but out_specs has P() for it, which require "
            "replication: the same on all devices of that axis\n"
            "    way out: name 'x' in out_specs, combine the values of the devices with lax.psum, "
            "lax.pmean, lax.pmax or lax.all_gather over 'x', or, if they are equal for "
            "another reason, "
            "give check_vma=False"
        ),
    ),
    "no mesh": (
        {"in_specs": GRID, "mesh": None},
        AxisSpecError,
        (
            "shard_map(total): no mesh is given, and none is in force\n"
            "    way out: give mesh=..., or call it inside of `with tracebridge.set_mesh(mesh):`"
        ),
    ),
    "no mesh at all": (
        {"in_specs": GRID, "mesh": 3},
        AxisSpecError,
        "shard_map(total): mesh is 3 of type int\n    expected: a Mesh, an AbstractMesh, or None",
    ),
    "no argument": (
        {"in_specs": GRID, "x": "text"},
        TypeError,
        "shard_map(total): argument b is 'text' of type str; expected arrays, numbers, and trees",
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_what_is_refused(name: str) -> None:
    """Messages name the argument, its axis, its size and the specification."""
    options, kind, text = SPECS[name]
    given = {"mesh": MESH, "out_specs": P("x"), **options}
    x = given.pop("x", X)

    with pytest.raises(kind, match=re.escape(text)):
        tb.shard_map(total, **given)(x)


def test_calls_that_are_refused() -> None:
    """Keyword arguments have no specification; axes of a shard_map around are taken."""
    f = tb.shard_map(total, mesh=MESH, in_specs=GRID, out_specs=P("x"))
    again = tb.shard_map(lambda b: f(b), mesh=MESH, in_specs=GRID, out_specs=P("x"))
    first = {"mesh": MESH, "in_specs": P(), "out_specs": P(), "axis_names": {"x"}}
    twice = tb.shard_map(tb.shard_map(lambda b: b, **first), **first)

    with pytest.raises(ArgumentTypeError, match=r"got the keyword arguments b"):
        f(b=X)
    with pytest.raises(AxisSpecError, match=r"a shard_map around it has all axes of"):
        tb.eval_shape(again, X)
    with pytest.raises(AxisSpecError, match=r"the axis 'x' is one of a shard_map around it"):
        tb.eval_shape(twice, X)
    with pytest.raises(AxisSpecError, match=r"axis_names: 'z' is no axis of AbstractMesh"):
        tb.eval_shape(tb.shard_map(total, mesh=MESH, out_specs=P(), axis_names={"z"}), X)


def test_a_list_is_no_specification_of_a_tuple() -> None:
    """Specifications have the types of containers of what they specify."""
    with pytest.raises(ValueError, match="out_specs is a list"):
        tb.shard_map(lambda x: (x, x), mesh=mesh(), in_specs=GRID, out_specs=[GRID, GRID])(X)
    with pytest.raises(ValueError, match="in_specs is a list"):
        tb.shard_map(lambda x: x, mesh=mesh(), in_specs=[GRID], out_specs=GRID)(X)


def test_batches_keep_the_entries_of_specifications() -> None:
    """A result of vmap has the entries of out_specs behind that of its own axis."""
    grid = tb.make_mesh((2, 4), ("x", "y"), AxisType.Explicit)
    rows = tb.device_put(X, tb.NamedSharding(grid, P("x", "y")))
    f = tb.shard_map(total, mesh=grid, in_specs=P("y"), out_specs=P(None))

    with tb.set_mesh(grid):
        for g in (tb.vmap(f), tb.jit(tb.vmap(f))):
            assert P("x", None) == g(rows).sharding.spec


def test_smap_needs_in_axes() -> None:
    """Types, or the places of arrays, say how arguments are split; other arrays say nothing."""
    with (
        tb.set_mesh(mesh()),
        pytest.raises(ArgumentTypeError, match="in_axes was not specified"),
    ):
        tb.smap(lambda x: x, out_axes=0, axis_name="x")(X)
    with tb.set_mesh(tb.make_mesh((2, 4), ("x", "y"), AxisType.Explicit)):
        x = tb.device_put(X, P("x"))
        out = tb.smap(lambda x: x * 2, out_axes=0, axis_name="x")(x)

    assert_allclose(out, 2 * X)


def test_collectives_keep_the_splits_of_other_axes() -> None:
    """Over one axis of a mesh, of blocks that the other one, of type Explicit, splits."""
    mesh = tb.make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
    x = np.arange(64.0, dtype="f4").reshape(8, 8)

    def f(x: Any) -> Any:
        every = lax.all_gather(x, "x")
        rows = lax.all_gather(x, "x", axis=0, tiled=True)
        swapped = lax.all_to_all(every, "x", 0, 2)
        scattered = lax.psum_scatter(every, "x", scatter_dimension=0)
        return lax.psum(x, "x"), lax.pmax(x, "x"), every, rows, swapped, scattered

    with tb.set_mesh(mesh):
        mapped = tb.shard_map(
            f, in_specs=P("x", None), out_specs=P("x"), axis_names={"x"}, check_vma=False
        )
        outs = tb.jit(mapped)(tb.device_put(x, P("x", "y")))
    whole = P("x", "y")
    middle = P("x", None, "y")
    assert [whole, whole, middle, whole, P("x", "y", None), whole] == [
        out.sharding.spec for out in outs
    ]
    blocks = x.reshape(4, 2, 8)
    assert_allclose(outs[0], np.tile(blocks.sum(0), (4, 1)))
    assert_allclose(outs[1], np.tile(blocks.max(0), (4, 1)))
    assert_allclose(outs[2], np.tile(blocks, (4, 1, 1)))
    assert_allclose(outs[3], np.tile(x, (4, 1)))
    assert_allclose(outs[4], np.concatenate([np.stack([b] * 4, -1) for b in blocks]))
    assert_allclose(outs[5], 4 * x)
