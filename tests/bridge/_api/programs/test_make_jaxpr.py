"""make_jaxpr and eval_shape."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.ir.jaxpr import ClosedJaxpr
from tracebridge.errors import TracerBoolConversionError, UnsupportedDtypeError

X = np.arange(3, dtype=np.float32)


def test_program_of_a_function() -> None:
    """Inputs, equations, results and constants."""
    table = tnp.arange(3.0)

    closed = tb.make_jaxpr(lambda x, t: (tnp.sin(x) * table, t["n"]))(X, {"n": 3})

    assert isinstance(closed, ClosedJaxpr)
    assert ["f32[3]", "i32[]"] == [a.str_short() for a in closed.in_avals]
    assert ["sin", "mul"] == primitives_in(closed)
    assert [table] == [c for c in closed.consts if c is table]


def test_shapes_of_jitted_functions() -> None:
    """Static arguments are given as in calls; wrappers around such functions are plain ones."""
    jitted: Any = tb.jit(lambda x, n, *, flip=False: x * n if flip else x, static_argnums=1,
                         static_argnames=("n", "flip"))  # fmt: skip

    assert (3,) == tb.eval_shape(jitted, X, 2, flip=True).shape
    assert (3,) == tb.eval_shape(tb.jit(lambda x: x), X).shape

    @functools.wraps(jitted)
    def wrapper(x: Any) -> Any:
        return jitted(x, 2)[:2]

    assert (2,) == tb.eval_shape(wrapper, X).shape


def test_name() -> None:
    """It says that a call gives a program and no result."""
    assert "make_jaxpr(sin)" == tb.make_jaxpr(tnp.sin).__name__
    assert "tracebridge" == tb.make_jaxpr(tnp.sin).__module__


def test_stand_ins_and_shapes() -> None:
    """Shapes are enough; the shapes of the result come along on request."""
    stand_in = tb.ShapeDtypeStruct((2, 3), np.float16)

    _, shape = tb.make_jaxpr(lambda x: {"s": x.sum(), "x": x}, return_shape=True)(stand_in)

    assert {"s": tb.ShapeDtypeStruct((), np.float16), "x": stand_in} == shape


def test_static_arguments() -> None:
    """They are Python values in the function and no inputs of the program."""
    closed = tb.make_jaxpr(lambda n, x: x**n if n else x, static_argnums=0)(2, X)

    assert 1 == len(closed.in_avals)
    assert 1 == len(closed.eqns)


def test_axis_environment() -> None:
    """Named axes for collectives outside of a map."""
    closed = tb.make_jaxpr(lambda x: tb.lax.psum(x, "i"), axis_env=[("i", 4)])(X)

    assert "psum" in str(closed)
    with pytest.raises(tb.errors.UnboundAxisNameError):
        tb.make_jaxpr(lambda x: tb.lax.psum(x, "i"))(X)


def test_dead_code_is_dropped() -> None:
    """Equations that no result needs are not part of the program."""

    def f(x: Any) -> Any:
        tnp.sin(x)
        return tnp.cos(x)

    assert ["cos"] == primitives_in(tb.make_jaxpr(f)(1.0))


def test_shapes_without_computing() -> None:
    """eval_shape gives what the function would, weak types included."""

    def f(x: Any, *, k: Any) -> Any:
        return {"a": x @ x.T, "b": (k, x.astype(int))}

    shape = tb.eval_shape(f, tb.ShapeDtypeStruct((2, 3), "float32"), k=1.0)

    assert tb.ShapeDtypeStruct((2, 2), "float32") == shape["a"]
    assert tb.ShapeDtypeStruct((), "float32", weak_type=True) == shape["b"][0]
    assert tb.ShapeDtypeStruct((2, 3), "int32") == shape["b"][1]


def test_anything_with_shape_and_dtype_is_a_stand_in() -> None:
    """Duck typing; 64-bit dtypes follow the 64-bit rule."""

    class Spec:
        shape = (4,)
        dtype = np.dtype(np.float64)

    assert tb.ShapeDtypeStruct((4,), np.float32) == tb.eval_shape(lambda x: x, Spec())
    with tb.enable_x64():
        assert np.float64 == tb.eval_shape(lambda x: x, Spec()).dtype


def test_stand_ins_are_values() -> None:
    """Immutable, hashable, with the attributes of arrays."""
    s = tb.ShapeDtypeStruct([2, 3], "float32")

    assert ((2, 3), 2, 6, 24, 2) == (s.shape, s.ndim, s.size, s.nbytes, len(s))
    assert s == tb.ShapeDtypeStruct((2, 3), np.float32)
    assert hash(s) == hash(tb.ShapeDtypeStruct((2, 3), np.float32))
    assert s != s.update(dtype="int32")
    assert s != "f32"
    with pytest.raises(AttributeError, match="immutable"):
        s.shape = (1,)  # type: ignore[misc]  # the point of the test
    with pytest.raises(TypeError, match=r"unknown fields \['size'\]"):
        s.update(size=3)
    with pytest.raises(ValueError, match="dtype is None"):
        tb.ShapeDtypeStruct((1,), None)
    assert "ShapeDtypeStruct(shape=(2, 3), dtype=float32)" == repr(s)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("float64", "float32"), ("int64", "int32"), ("uint64", "uint32"), (complex, "complex64")],
)
def test_stand_ins_keep_64_bits(wide: Any, narrow: str) -> None:
    """Their dtype is the one that was given; what is traced with them obeys enable_x64."""
    s = tb.ShapeDtypeStruct((2,), wide)
    double = lambda x: x + x

    assert np.dtype(wide) == s.dtype
    assert 2 * np.dtype(wide).itemsize == s.nbytes
    assert tb.ShapeDtypeStruct((2,), narrow) == tb.eval_shape(double, s)
    assert tb.ShapeDtypeStruct((2,), narrow) == tb.jit(double).lower(s).out_info
    assert narrow == tb.typeof(s).dtype.name
    assert [narrow] * 2 == [tnp.zeros_like(s).dtype.name, tb.lax.zeros_like(s).dtype.name]
    with tb.enable_x64(True):
        assert s == tb.eval_shape(double, s)
    copies = [pickle.loads(pickle.dumps(s)), s.update(shape=(2,)), tb.ShapeDtypeStruct.like(s)]
    assert [s] * 3 == copies


def test_stand_ins_of_arrays_keep_their_dtype() -> None:
    """An array of 64 bits stays one while enable_x64 is off, and so does its type."""
    with tb.enable_x64(True):
        x = tnp.ones(2, "float64")

    shape = tb.eval_shape(lambda x: x, x)
    structs = [shape, tb.ShapeDtypeStruct.like(x), pickle.loads(pickle.dumps(shape))]
    structs += [shape.update(shape=(3,))]

    assert ["float64"] * 4 == [tb.typeof(s).dtype.name for s in structs]
    assert "float32" == tb.typeof(shape.update(dtype=np.float64)).dtype.name


def test_placements_of_stand_ins() -> None:
    """A sharding that fits, or a PartitionSpec of the mesh that is in force."""
    mesh = tb.make_mesh((2,), ("x",))
    spec = tb.sharding.PartitionSpec("x")
    expected = tb.sharding.NamedSharding(mesh, spec)
    s = tb.ShapeDtypeStruct((4, 2), "float32", sharding=spec)
    with tb.set_mesh(mesh):
        assert expected == s.sharding
    assert s == s.update(weak_type=False) != s.update(sharding=None)
    assert expected == tb.ShapeDtypeStruct((4, 2), "float32", sharding=expected).sharding
    with pytest.raises(ValueError, match="no mesh is in force"):
        _ = s.sharding
    with pytest.raises(ValueError, match="splits axis 0 of shape"):
        tb.ShapeDtypeStruct((3, 2), "float32", sharding=expected)
    with pytest.raises(ValueError, match="sharding is 'x' of type str"):
        tb.ShapeDtypeStruct((3, 2), "float32", sharding="x")


def test_stand_ins_like_other_things() -> None:
    """Arrays, numbers, traced values, stand-ins."""
    like = tb.ShapeDtypeStruct.like

    assert tb.ShapeDtypeStruct((2,), "int8") == like(np.ones(2, np.int8))
    assert tb.ShapeDtypeStruct((), "float32", weak_type=True) == like(1.5)
    assert like(tb.ShapeDtypeStruct((2,), "int8")) == like(tnp.ones(2, "int8"))
    assert tb.typeof(tnp.ones(2, "int8")) == tb.typeof(tb.ShapeDtypeStruct((2,), "int8"))
    seen = []
    tb.jit(lambda x: seen.append(like(x)))(tnp.ones(2, "int8"))
    assert [tb.ShapeDtypeStruct((2,), "int8")] == seen
    device = tb.devices()[0]
    committed = tb.device_put(tnp.ones(2), device)
    assert committed.sharding == like(committed).sharding


def test_leaves_must_be_arrays() -> None:
    """The leaf is named by parameter and key path."""
    with pytest.raises(UnsupportedDtypeError, match=r"eval_shape\(<lambda>\): argument t\['a'\]"):
        tb.eval_shape(lambda x, t: x, 1.0, {"a": "x"})
    with pytest.raises(UnsupportedDtypeError, match=r"make_jaxpr\(<lambda>\): argument k is 'x'"):
        tb.make_jaxpr(lambda x, k: x)(1.0, k="x")


def test_python_control_flow_on_tracers() -> None:
    """The error says which argument the value depends on."""

    def f(x: Any, params: Any) -> Any:
        return x if params["flag"] else -x

    with pytest.raises(TracerBoolConversionError, match=r"argument params\['flag'\] of f"):
        tb.make_jaxpr(f)(1.0, {"flag": True})


def test_eval_shape_of_shapes():
    """Shapes without data may be among the results, beside arrays, and stay what they are."""
    struct = tb.ShapeDtypeStruct((2, 3), "int8", weak_type=True)

    def f(x):
        inner = tb.eval_shape(lambda: {"s": struct})
        return inner, x, np.zeros((2,), tb.float0), [struct, x + 1.0]

    shapes = tb.eval_shape(f, X)

    assert shapes[0] == {"s": struct}
    assert shapes[3][0] is struct
    assert (shapes[1].shape, shapes[2].dtype, shapes[3][1].shape) == ((3,), tb.float0, (3,))
    assert tb.eval_shape(lambda: struct) is struct
    with pytest.raises(UnsupportedDtypeError, match="the result is 'x' of type str"):
        tb.eval_shape(lambda: "x")


def test_eval_shape_traces_once_for_like_arguments() -> None:
    """A pure function is traced once for each structure, shape, dtype and set of options."""
    traces: list[object] = []

    def f(x: Any) -> Any:
        traces.append(x)
        return {"y": x["a"] * 2, "s": tb.ShapeDtypeStruct((3,), "int32")}

    first = tb.eval_shape(f, {"a": 1.0})

    assert first == tb.eval_shape(f, {"a": 5.0})
    assert len(traces) == 1
    with tb.enable_x64(True):
        assert tb.eval_shape(f, {"a": 1.0})["y"].dtype == "float64"
    tb.eval_shape(f, {"a": np.ones(2, np.float32)})
    assert len(traces) == 3


def test_eval_shape_of_functions_with_references_is_traced_each_time() -> None:
    """What a reference holds is no part of the arguments."""
    traces: list[object] = []
    ref = tb.new_ref(1.0)

    def f(x: Any) -> Any:
        traces.append(x)
        return x * ref[...]

    tb.eval_shape(f, 1.0)
    tb.eval_shape(f, 1.0)

    assert len(traces) == 2


def test_names_of_results() -> None:
    """Programs say what the results of their function are called, wherever they were traced."""

    def f(x: Any) -> Any:
        return {"twice": 2 * x, "parts": [x, (x,)]}

    names = ("result['parts'][0]", "result['parts'][1][0]", "result['twice']")
    assert names == tb.make_jaxpr(f)(1.0).jaxpr.debug_info.result_paths
    traced = tb.jit(f).trace(1.0)
    assert names == traced.jaxpr.jaxpr.debug_info.result_paths
    assert names[2] in traced.lower().as_text(debug_info=True)
    assert ("result",) == tb.make_jaxpr(lambda x: x)(1.0).jaxpr.debug_info.result_paths


def test_a_program_that_is_called_again_is_the_same_object() -> None:
    """What others keep by the id of a called program is found again."""
    double = tb.jit(lambda x: x * 2.0)
    first, second = [tb.make_jaxpr(lambda x: double(x))(1.0).eqns[0] for _ in range(2)]

    assert first.params["jaxpr"] is second.params["jaxpr"]
