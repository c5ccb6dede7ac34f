"""Portable artifacts: versions, constants, what is refused."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core import lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.export.portable import portable_program, smaller_version
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.mlir.attrs import string
from tracebridge.core.mlir.context import building, mlir_context
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.symbolic.scope import symbolic_shape

VECTOR = ShapedArray((3,), np.float32)


@final
class _Foreign(Primitive):
    """Lowers to a call of a library function, or of a Python function."""

    name = "foreign"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        return avals[0]

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        if params["callback"]:
            ctx.callbacks.append(print)
        attributes = {"call_target_name": string("my_library_call")}
        return ctx.op1("stablehlo.custom_call", operands, ctx.aval_out, attributes)


foreign_p = _Foreign()


def program(fun: Any, *avals: ShapedArray, **options: Any) -> Any:
    """The artifact of ``fun``."""
    return portable_program(stage(fun, avals), "f", **options)


def text_of(data: bytes) -> str:
    """The StableHLO text of an artifact."""
    with building():
        return str(mlir.deserialize_portable_artifact(data, mlir_context()))


def test_artifact_says_which_version_it_needs() -> None:
    """The target is in the header, so that older consumers can read it."""
    data = program(lambda x: [lax.sin(x)], VECTOR, target="1.8.0").data

    assert b"StableHLO_v1.8.0" in data
    assert "stablehlo.sine" in text_of(data)


def test_compiler_options_stay_behind() -> None:
    """They are for the compiler of this process: the artifact is that of the plain function."""
    plain, tuned = (
        program(lambda x, f=f: [f(x)], VECTOR)
        for f in (tb.jit(lax.sin), tb.jit(lax.sin, compiler_options={"xla_a": True}))
    )
    assert text_of(plain.data) == text_of(tuned.data)


@pytest.mark.parametrize(
    "fun", [lax.erf, lax.asin, lax.digamma, lax.acosh], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("shape", ["3", "b, 2"])
def test_nothing_is_left_that_old_consumers_do_not_know(fun: Any, shape: str) -> None:
    """Operations that serialization would make composites of are expanded."""
    aval = ShapedArray(symbolic_shape(shape), np.float32)
    text = text_of(program(lambda x: [fun(x)], aval, target="1.8.0").data)

    assert "composite" not in text
    assert "chlo." not in text


def test_large_constants_are_arguments() -> None:
    """They come before the inputs; small ones stand in the program."""
    large, small = put_numpy(np.ones((40, 40), np.float32)), put_numpy(np.ones(2, np.float32))
    made = program(lambda x: [lax.mul(x, large), lax.neg(small)], ShapedArray((40, 40), np.float32))

    assert [c.shape for c in made.constants] == [(40, 40)]
    assert "@main(%arg0: tensor<40x40xf32>, %arg1: tensor<40x40xf32>)" in text_of(made.data)


def test_platform_index_is_the_first_argument() -> None:
    """Consumers that know several platforms pass the number of theirs."""
    data = program(lambda x: [lax.sin(x)], VECTOR, platforms=("cpu", "tpu")).data

    assert "@main(%arg0: tensor<i32>, %arg1: tensor<3xf32>)" in text_of(data)


def test_composites_of_programs_whose_functions_take_more_than_operands() -> None:
    """They are calls: the decomposition takes the number of the platform, or a size, as well."""
    named = tb.lax.composite(lambda x: lax.sin(lax.neg(x)), "my.sine")
    unknown = ShapedArray(symbolic_shape("b"), np.float32)
    for_several = program(lambda x: [named(x)], VECTOR, platforms=("cpu", "tpu")).data
    of_any_size = program(lambda x, y: [named(x), lax.neg(y)], VECTOR, unknown).data
    plain = program(lambda x: [named(x)], VECTOR).data

    for data in (for_several, of_any_size):
        assert "composite" not in text_of(data)
        assert "call @my.sine" in text_of(data)
    assert 'stablehlo.composite "my.sine"' in text_of(plain)


def test_library_calls_are_refused() -> None:
    """The message names them; a consumer that knows them can allow them."""

    def fun(x: Any) -> list[Any]:
        return [foreign_p.bind(x, callback=False)]

    with pytest.raises(ExportError, match="export of f: the program calls my_library_call"):
        program(fun, VECTOR)
    assert "my_library_call" in text_of(program(fun, VECTOR, allowed=["my_library_call"]).data)


def test_callbacks_are_refused() -> None:
    """Another process cannot reach Python functions of this one."""
    with pytest.raises(ExportError, match=r"calls 1 Python function\(s\)"):
        program(lambda x: [foreign_p.bind(x, callback=True)], VECTOR, allowed=["my_library_call"])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tb.debug.print("{}", x),
        lambda x: tb.pure_callback(np.sin, x, x),
        lambda x: tb.experimental.io_callback(np.sin, x, x, ordered=True),
    ],
    ids=["print", "pure", "ordered"],
)
def test_functions_for_callbacks_are_refused(call: Any) -> None:
    """The error is that of exports, whatever kind of callback it is."""

    def fun(x: Any) -> list[Any]:
        result = call(x)
        return [x if result is None else result]

    with pytest.raises(ExportError, match="Python functions of this process"):
        program(fun, VECTOR)


def _split(n_devices: int, axis: str | None = "d") -> NamedSharding:
    return NamedSharding(AbstractMesh((n_devices,), ("d",)), PartitionSpec(axis))


SPLITTING: dict[str, Any] = {
    "constraint": lambda x, s: tb.lax.with_sharding_constraint(x * 2, s),
    "in a function": lambda x, s: tb.jit(lambda y: tb.lax.with_sharding_constraint(y, s))(x),
    "in a loop": lambda x, s: tb.lax.fori_loop(
        0, 2, lambda _, y: tb.lax.with_sharding_constraint(y, s), x
    ),
    "derivative": lambda x, s: tb.grad(lambda y: tb.lax.with_sharding_constraint(y * y, s).sum())(
        x
    ),
}


@pytest.mark.parametrize("name", SPLITTING)
def test_shardings_are_refused(name: str) -> None:
    """Consumers run the program on one device; what splits nothing stays."""
    fun = SPLITTING[name]

    with pytest.raises(ExportError, match="export of f: the program splits a value as"):
        program(lambda x: [fun(x, _split(4))], ShapedArray((4,), np.float32))
    for whole in (_split(1), _split(4, None)):
        program(lambda x, s=whole: [fun(x, s)], ShapedArray((4,), np.float32))


def test_smaller_version_compares_numbers() -> None:
    """1.9.0 is older than 1.13.7, though not as text."""
    assert smaller_version("1.9.0", "1.13.7") == "1.9.0"
    assert smaller_version("1.17.0", "1.13.7") == "1.13.7"
