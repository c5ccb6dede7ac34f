"""xla_computation: options, results, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    AxisSpecError,
    BackendNotFoundError,
    DevicePlacementError,
    NonHashableStaticArgumentError,
    UnboundAxisNameError,
    UnexpectedTracerError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def f(x: Any, n: Any) -> Any:
    return {"sum": tnp.sum(x) * n, "x": x}


def test_all_forms() -> None:
    """Text, bytes, a graph and a shape of one computation."""
    found = tb.xla_computation(lambda x: tnp.sin(tnp.cos(x)))(3.0)

    assert found.as_hlo_text().startswith("HloModule xla_computation__lambda")
    assert ["cosine(", "sine("] == [w for w in ("cosine(", "sine(") if w in found.as_hlo_text()]
    assert b"cosine" in found.as_serialized_hlo_module_proto()
    assert found.as_hlo_dot_graph().startswith("digraph")
    assert "(p0: f32[]) -> (f32[])" == str(found.program_shape())


def test_static_arguments() -> None:
    """They are part of the program."""
    found = tb.xla_computation(f, static_argnums=1)(X, 3)

    assert "(p0: f32[2,3]) -> (f32[], f32[2,3])" == str(found.program_shape())
    assert "constant(3)" in found.as_hlo_text()


def test_stand_ins_and_shapes_of_results() -> None:
    """Objects with shape and dtype are arguments; the result's shapes come along on request."""
    struct = tb.ShapeDtypeStruct((4, 2), "float32")
    found, shapes = tb.xla_computation(f, return_shape=True)(struct, n=2.0)

    assert {"sum": (), "x": (4, 2)} == {k: s.shape for k, s in shapes.items()}
    assert "(p0: f32[4,2], p1: f32[]) -> (f32[], f32[4,2])" == str(found.program_shape())


def test_tuple_of_arguments() -> None:
    """One argument that is a tuple."""
    found = tb.xla_computation(f, tuple_args=True)(X, 2.0)

    assert "(f32[2,3], f32[])" in str(found.program_shape()).split("->")[0]


def test_donated_arguments() -> None:
    """The program says which memory it may take over."""
    found = tb.xla_computation(f, donate_argnums=0)(X, 2.0)

    assert "alias" in found.as_hlo_text()
    assert "alias" not in tb.xla_computation(f)(X, 2.0).as_hlo_text()


def test_other_platforms() -> None:
    """A platform that is not installed can be lowered for."""
    assert "sine(" in tb.xla_computation(tnp.sin, backend="tpu")(1.0).as_hlo_text()
    with pytest.raises(BackendNotFoundError, match="abacus"):
        tb.xla_computation(tnp.sin, backend="abacus")(1.0)


def test_transformed_functions() -> None:
    """Derivatives and maps have programs like any other function."""
    g = tb.vmap(tb.grad(lambda x: tnp.sin(x) ** 2), axis_size=3)

    assert "(p0: f32[3]) -> (f32[3])" == str(tb.xla_computation(g)(X[0]).program_shape())


def test_axes_of_vmap_do_not_need_axis_env() -> None:
    """A named axis of vmap is gone in the program; one of axis_env has its size."""
    g = tb.vmap(lambda x: x - tb.lax.psum(x, "i"), axis_name="i")
    assert "reduce(" in tb.xla_computation(g)(X[0]).as_hlo_text()

    found = tb.xla_computation(lambda x: x * tb.lax.axis_size("i"), axis_env=[("i", 4)])(2)
    assert "constant(4)" in found.as_hlo_text()


def test_collectives_between_replicas() -> None:
    """The elements of the named axes are replicas, of which groups take part."""

    def g(x: Any) -> Any:
        return tuple(tb.lax.psum(x, names) for names in ("i", "j", ("i", "j")))

    text = tb.xla_computation(g, axis_env=[("i", 4), ("j", 2)])(5.0).as_hlo_text()

    for groups in ("{{0,2,4,6},{1,3,5,7}}", "{{0,1},{2,3},{4,5},{6,7}}", "{{0,1,2,3,4,5,6,7}}"):
        assert f"replica_groups={groups}" in text
    with pytest.raises(UnboundAxisNameError, match="unbound axis name: k"):
        tb.xla_computation(lambda x: tb.lax.psum(x, "k"), axis_env=[("i", 4)])(5.0)


def test_reduced_gradients_need_axes_of_vmap() -> None:
    """Replicas do not tell which values they share."""
    f = tb.grad(lambda w: w * w, reduce_axes=("i",))

    with pytest.raises(AxisSpecError, match="no axis of vmap"):
        tb.xla_computation(f, axis_env=[("i", 4)])(5.0)


@pytest.mark.parametrize(
    ("options", "args", "error", "words"),
    [
        ({"in_parts": 1}, (X, 1), DevicePlacementError, "in_parts=1, expected None"),
        ({"out_parts": (1,)}, (X, 1), DevicePlacementError, "out_parts"),
        ({"static_argnums": 2}, (X, 1), ArgumentSpecError, "static_argnums contains 2"),
        ({"donate_argnums": -3}, (X, 1), ArgumentSpecError, "donate_argnums contains -3"),
        ({"static_argnums": 1}, (X,), ArgumentSpecError, "need at least 2 positional"),
        ({"static_argnums": 1, "donate_argnums": 1}, (X, 1), ArgumentSpecError, "static and don"),
        ({"static_argnums": 0}, (X, 1), NonHashableStaticArgumentError, "argument 0"),
        ({"static_argnums": "n"}, (X, 1), TypeError, "static_argnums is 'n'"),
    ],
)
def test_options_are_checked(
    options: dict[str, Any], args: Any, error: type[Exception], words: str
) -> None:
    """The message names the option."""
    with pytest.raises(error) as caught:
        tb.xla_computation(f, **options)(*args)

    assert words in str(caught.value)


def test_traced_constants_have_no_program() -> None:
    """A value of a running trace is no constant."""
    with pytest.raises(UnexpectedTracerError, match="values of an enclosing trace"):
        tb.jit(lambda x: tb.xla_computation(lambda y: x + y)(1.0))(1.0)
