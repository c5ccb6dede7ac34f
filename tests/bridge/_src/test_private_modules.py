"""The private modules of the peer that libraries import from."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import pickle
import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tracebridge as tb
from tracebridge._src import _table, traceback_util
from tracebridge.core.compat import sequences

ROWS = [
    (name, entry.partition("=")[0])
    for name, rows in _table.NAMES.items()
    for _, names in rows
    for entry in names.split()
]


@pytest.mark.parametrize(("module", "name"), ROWS)
def test_names_of_the_table_are_there(module: str, name: str) -> None:
    """Each name can be had."""
    assert getattr(importlib.import_module(f"tracebridge._src.{module}"), name) is not None


@pytest.mark.parametrize("name", sorted(_table.MODULES))
def test_modules_look_into_modules_that_exist(name: str) -> None:
    """A private module has the names of the public ones that it is said to have."""
    module = importlib.import_module(f"tracebridge._src.{name}")

    for source in _table.MODULES[name]:
        public = importlib.import_module(source)
        for own in getattr(public, "__all__", ())[:3]:
            assert getattr(module, own) is not None


def test_names_are_ours() -> None:
    """A private name is the same object as the public one."""
    from tracebridge._src import core, dtypes
    from tracebridge._src.lax.lax import add_p
    from tracebridge._src.numpy.lax_numpy import linspace

    assert core.Primitive is tb.core.Primitive
    assert dtypes.TypePromotionError is tb.dtypes.TypePromotionError
    assert add_p is tb.extend.core.primitives.add_p
    assert linspace is tb.numpy.linspace


def test_unknown_names_and_modules_raise_as_elsewhere() -> None:
    """Libraries try several places, and catch these errors."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tracebridge._src.earray")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tb._src.core.nothing
    with pytest.raises(ImportError):
        exec("from tracebridge._src.util import nothing")


def test_replaced_functions_are_in_force() -> None:
    """A library that replaces a function for a while replaces ours."""
    from tracebridge._src import compiler

    inner, seen = compiler.backend_compile_and_load, []

    def watched(backend: object, *args: object, **kwargs: object) -> object:
        seen.append(backend.platform)
        return inner(backend, *args, **kwargs)

    compiler.backend_compile_and_load = watched
    try:
        tb.jit(lambda x: tb.numpy.cbrt(x) * 17.25)(np.float32(8.0))
    finally:
        compiler.backend_compile_and_load = inner
    tb.jit(lambda x: tb.numpy.cbrt(x) * 18.25)(np.float32(8.0))

    assert seen == ["cpu"]


def test_patches_are_undone() -> None:
    """A patch of a name that nobody looked up before ends where the name comes from, too."""
    source = importlib.import_module("tracebridge.core.runtime.programs.compile_or_load")
    module = importlib.import_module("tracebridge._src.compiler")
    vars(module).pop("backend_compile_and_load", None)
    inner = source.compile_and_load

    for _ in range(2):
        with mock.patch("tracebridge._src.compiler.backend_compile_and_load", len):
            assert source.compile_and_load is len

        assert source.compile_and_load is inner
        assert module.backend_compile_and_load is inner
    with pytest.raises(AttributeError):
        del module.nothing


def test_modules_are_modules() -> None:
    """Python finds, lists, copies and pickles a private module by its name."""
    from tracebridge._src import util

    assert importlib.util.find_spec("tracebridge._src.util").name == util.__name__
    assert "unzip2" in dir(util)
    assert "sequences" in util.__doc__
    assert pickle.loads(pickle.dumps(util)) is util
    assert copy.deepcopy(util) is util


def test_paths_are_left_out_of_tracebacks_until_they_are_removed() -> None:
    """Frames of a file are hidden from its registration until it is taken from the list."""
    frame = sys._getframe()
    path = frame.f_code.co_filename

    assert traceback_util.include_frame(frame)
    traceback_util.register_exclusion(path)
    try:
        assert path in traceback_util._exclude_paths
        assert not traceback_util.include_frame(frame)
    finally:
        traceback_util._exclude_paths.remove(path)
    assert traceback_util.include_frame(frame)


def test_nodes_come_apart_and_together() -> None:
    """An entry of the registry takes a node apart and puts it together with other children."""
    registry = tb._src.tree_util._registry

    for node in ({"b": 1, "a": 2}, [1, 2], (1, 2), None):
        entry = registry[type(node)]
        children, rest = entry.to_iter(node)
        again = entry.from_iter(rest, [float(c) for c in children])

        assert tb.tree.structure(node) == tb.tree.structure(again)
    assert float not in registry
    assert registry.get(float) is None
    with pytest.raises(KeyError):
        registry[float]


def test_state_of_traces() -> None:
    """Nothing is traced outside of transformations; something is inside of each."""
    from tracebridge._src.core import trace_state_clean

    seen = []

    def f(x):
        seen.append(trace_state_clean())
        return x * x

    for transformed in (tb.jit(f), tb.grad(f), tb.vmap(f)):
        transformed(np.ones(3, np.float32) if len(seen) == 2 else np.float32(1.0))

    assert [False] * 3 == seen
    assert trace_state_clean()


def test_positions_and_names_of_arguments() -> None:
    """Positions follow from names, and names from positions; keyword-only names have none."""
    from tracebridge._src.api_util import infer_argnums_and_argnames as infer

    sig = inspect.signature(lambda x, y, *, z: x)

    assert ((), ()) == infer(sig, None, None)
    assert ((1,), ("y", "z")) == infer(sig, None, ["y", "z"])
    assert ((0, 1), ("x", "y")) == infer(sig, (0, 1), None)
    assert ((0,), ("y",)) == infer(sig, 0, "y")


def test_lists_are_cut_and_merged() -> None:
    """Merging undoes partitioning, and wrong lengths are errors."""
    marks, values = [True, False, True, False], "abcd"

    assert list(values) == sequences.merge_lists(marks, *sequences.partition_list(marks, values))
    assert [["a"], [], ["b", "c", "d"]] == sequences.split_list(values, [1, 0])
    for wrong in (
        lambda: sequences.merge_lists(marks, "abc", "d"),
        lambda: sequences.split_list("ab", [3]),
        lambda: sequences.safe_zip("ab", "c"),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - Python's own message for zip
            wrong()


def test_a_process_alone() -> None:
    """Where no others are, this is process 0 of 1."""
    state = tb._src.distributed.global_state

    assert (0, 1, None) == (state.process_id, state.num_processes, state.client)


def test_dtypes_of_users() -> None:
    """A library's dtype says by its rules what it is stored as."""
    from tracebridge._src import core, dtypes

    class Rules:
        @staticmethod
        def physical_element_aval(dtype):
            return tb.core.ShapedArray((2,), dtype.stored)

    class Pair(dtypes.ExtendedDType):
        type = tb.dtypes.extended
        name = "pair"
        stored = np.float32
        _rules = Rules

    aval = tb.core.ShapedArray((3,), Pair())

    assert tb.core.ShapedArray((3, 2), "float32") == core.physical_aval(aval)
    assert [True, False, True] == [
        dtypes.supports_inf(d) for d in ("float32", "float8_e4m3fn", "bfloat16")
    ]


def test_lines_of_equations_are_known() -> None:
    """By their source, by the traceback in it, and not where there is none."""
    from tracebridge._src import source_info_util

    (equation,) = tb.make_jaxpr(lambda x: tb.numpy.sin(x))(1.0).eqns
    frame = source_info_util.user_frame(equation.source_info)

    own = test_lines_of_equations_are_known.__name__
    assert (__file__, f"{own}.<locals>.<lambda>") == (frame.file_name, frame.function_name)
    assert frame.start_line == frame.end_line > 0
    assert frame == source_info_util.user_frame(equation.source_info.traceback)
    assert source_info_util.user_frame(source_info_util.new_source_info()) is None


def test_axes_are_counted_from_the_first() -> None:
    """Those that there are not raise."""
    from tracebridge._src import util

    assert [0, 1, 0, 1] == [util.canonicalize_axis(axis, 2) for axis in (0, 1, -2, np.int8(-1))]
    for axis in (2, -3):
        with pytest.raises(ValueError, match="out of"):
            util.canonicalize_axis(axis, 2)


def test_shardings_are_those_of_types() -> None:
    """A specification is of the mesh in force, and a mesh loses its devices."""
    from tracebridge._src import sharding_impls

    mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
    rows = tb.sharding.NamedSharding(mesh, tb.P("x"))
    expected = tb.typeof(tb.device_put(np.ones(2), rows)).sharding
    with tb.set_mesh(mesh):
        for given in (rows, tb.P("x"), expected):
            assert expected == sharding_impls.canonicalize_sharding(given, "map")
    for nothing in (None, tb.typeof(1.0).sharding):
        assert sharding_impls.canonicalize_sharding(nothing, "map") is None
    with pytest.raises(tb.errors.NoMeshError):
        sharding_impls.canonicalize_sharding(tb.P("x"), "map")


@pytest.mark.parametrize("transform", [tb.jit, tb.vmap, tb.pmap, tb.grad])
def test_transformed_functions_are_recognised(transform: Any) -> None:
    """Libraries ask for the function within, and for a name among the globals of its caller."""

    def f(x: object) -> object:
        return x

    transformed = transform(f)
    assert f is inspect.unwrap(transformed) is not transformed
    assert "api_boundary" in transformed.__globals__


def test_numbers_with_dtypes_are_numbers() -> None:
    """They keep their dtype in copies, and are weakly typed operands."""
    from tracebridge._src import literals

    numbers = [
        literals.TypedInt(3, "int16"),
        literals.TypedFloat(0.5, "float64"),
        literals.TypedComplex(2j, "complex64"),
    ]

    for number, kind in zip(numbers, (int, float, complex), strict=True):
        again = pickle.loads(pickle.dumps(number))
        assert (again, again.dtype, type(again)) == (number, number.dtype, type(number))
        assert copy.copy(number).dtype == number.dtype
        assert isinstance(number, kind)
        assert kind(number) == tb.jit(lambda x: x)(number)
        assert tb.typeof(number).weak_type
    assert repr(numbers[0]) == "TypedInt(3, dtype=int16)"
    assert (np.float16(1) + tb.numpy.ones(2, "float16") * numbers[1]).dtype == np.float16


def test_operands_of_one_inexact_dtype() -> None:
    """The common dtype, and a float where it is none; numbers do not decide."""
    from tracebridge._src.numpy.util import promote_dtypes_inexact

    half = tb.numpy.ones(2, "float16")

    assert [x.dtype for x in promote_dtypes_inexact(half, 2.0)] == [np.float16] * 2
    assert [x.dtype for x in promote_dtypes_inexact(half, np.float32(2))] == [np.float32] * 2
    assert [x.dtype for x in promote_dtypes_inexact(np.arange(3), True)] == [np.float32] * 2
    assert [x.dtype for x in promote_dtypes_inexact(1, 2j)] == [np.complex64] * 2
    assert promote_dtypes_inexact() == []


def test_sizes_and_kernels_of_images() -> None:
    """What copies of the peer's resampling take: shapes of integers, and kernels by method."""
    from tracebridge._src import core
    from tracebridge._src.image.scale import ResizeMethod, _kernels

    (n,) = tb.export.symbolic_shape("n")

    assert core.canonicalize_shape((np.int32(2), n)) == (2, n)
    assert core.canonicalize_shape(3) == (3,)
    with pytest.raises(ValueError, match=r"map: shape .* negative"):
        core.canonicalize_shape((2, -1), "map")
    assert _kernels[ResizeMethod.LINEAR](np.float32([0.0, 0.25, 2.0])).tolist() == [1, 0.75, 0]


def test_the_release_of_the_interface_as_text() -> None:
    """It is that of the number."""
    text = vars(tb.version)["_version"]

    assert tuple(map(int, text.split("."))) == tb.__version_info__


def test_trace_context_is_that_of_the_place() -> None:
    """The same object within a trace, another one outside of it and in an inner one."""
    from tracebridge._src import core

    found = []

    def f(x: Any) -> Any:
        found.append((core.trace_ctx.trace, core.trace_ctx.trace))
        assert not core.trace_ctx.is_top_level()
        return x + 1

    outside = core.trace_ctx.trace
    tb.jit(lambda x: tb.vmap(f)(f(x)))(np.zeros(3))
    assert core.trace_ctx.is_top_level()
    assert outside is core.trace_ctx.trace
    assert all([first is second for first, second in found])
    assert 3 == len({id(t) for t in (outside, found[0][0], found[1][0])})


def test_generators_by_the_names_of_their_parts() -> None:
    """Words of a seed, of a split key and of a sample are those of the public functions."""
    from tracebridge._src.random import threefry2x32

    words = threefry2x32.threefry_seed(tb.numpy.asarray(7))
    key = tb.random.key(7, impl="threefry2x32")
    np.testing.assert_array_equal(tb.random.key_data(key), words)
    np.testing.assert_array_equal(
        tb.random.key_data(tb.random.split(key, 2)), threefry2x32.threefry_split(words, (2,))
    )
    np.testing.assert_array_equal(
        tb.random.bits(key, (5,)), threefry2x32.threefry_random_bits(words, 32, (5,))
    )


def test_places_that_are_no_prefix() -> None:
    """Each place of a difference has an error that names the tree as it is asked to."""
    from tracebridge._src.tree_util import prefix_errors

    one, two = prefix_errors({"a": (1, 2), "b": [3]}, {"a": (1, 2, 3), "b": 3})

    with pytest.raises(ValueError, match=r"in_axes\['a'\]"):
        raise one("in_axes")
    with pytest.raises(ValueError, match=r"out_axes\['b'\]"):
        raise two("out_axes")
    assert [] == prefix_errors((1, None), ((2, 3), None))


def test_values_that_partial_evaluation_does_not_know() -> None:
    """Their class is known by the name that the peer has for it."""
    from tracebridge._src.api import _dtype
    from tracebridge.interpreters import partial_eval as pe

    seen: list[Any] = []
    unknown = pe.PartialVal.unknown(tb.core.ShapedArray((), "float32"))
    pe.trace_to_jaxpr_nounits(lambda x: [seen.append(x) or x * 2], [unknown])

    assert isinstance(seen[0], pe.JaxprTracer)
    assert [np.dtype("float32"), np.dtype("int32")] == [_dtype(1.0), _dtype(2)]
