"""Attributes that operations have for XLA, by blocks and by values."""

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.experimental.compute_on import compute_on, compute_on2
from tracebridge.experimental.xla_metadata import set_xla_metadata

SLOW = 'mhlo.frontend_attributes = {pace = "slow"}'


def lines_with(word: str, fun, *args) -> list[str]:
    text = tb.jit(fun).lower(*args).as_text()
    return [line for line in text.split("\n") if word in line]


def test_blocks_mark_their_operations_and_no_others() -> None:
    """Inside, around a jitted function, and after one was compiled for another block."""

    @tb.jit
    def f(x):
        with set_xla_metadata(pace="slow"):
            y = lax.tan(x)
        return lax.tanh(y)

    double = tb.jit(lambda x: x * 2)

    assert SLOW in lines_with("stablehlo.tan ", f, 1.0)[0]
    assert SLOW not in lines_with("tanh", f, 1.0)[0]
    assert SLOW not in double.lower(1.0).as_text()
    with set_xla_metadata(pace="slow"):
        assert SLOW in double.lower(1.0).as_text()
        assert 4.0 == double(2.0)
    assert SLOW not in double.lower(1.0).as_text()


def test_blocks_nest() -> None:
    """The inner one adds, replaces, and takes away with None; texts are those of XLA."""

    def f(x):
        with set_xla_metadata(pace="slow", level=3):
            with set_xla_metadata(pace=None, sure=True):
                y = lax.tan(x)
            return lax.tanh(y)

    assert '{level = "3", sure = "true"}' in lines_with("tan ", f, 1.0)[0]
    assert '{level = "3", pace = "slow"}' in lines_with("tanh", f, 1.0)[0]


def test_bodies_and_derivatives_have_the_attributes() -> None:
    """Of branches, loops and checkpoints; forward and backward."""

    def f(x):
        with set_xla_metadata(pace="slow"):
            y = lax.cond(x > 0, tb.checkpoint(lax.tan), lax.cos, x)
            return lax.fori_loop(0, 3, lambda _, z: z * lax.sin(z), y)

    for fun in (f, tb.grad(f), tb.vmap(f, axis_size=2, in_axes=None), tb.grad(tb.grad(f))):
        for word in ("stablehlo.tan ", "stablehlo.cosine", "stablehlo.sine"):
            found = lines_with(word, fun, 1.0)
            assert all(SLOW in line for line in found), (word, found)
        assert lines_with(SLOW, fun, 1.0)


def test_equations_say_what_was_in_force() -> None:
    """`ctx` has the attributes, and a block that brings them back for interpreters."""

    def f(x):
        with set_xla_metadata(pace="slow"), compute_on("device_host"):
            return lax.tan(x) + 1

    jaxpr = tb.make_jaxpr(f)(1.0)
    ctx = jaxpr.eqns[0].ctx
    with ctx.manager:
        again = tb.make_jaxpr(lax.tan)(1.0)

    assert ("slow", "device_host") == (ctx.xla_metadata["pace"], ctx.compute_type)
    assert ctx.xla_metadata == again.eqns[0].ctx.xla_metadata
    assert {} == tb.make_jaxpr(lax.cos)(1.0).eqns[0].ctx.xla_metadata


def test_decorated_functions_and_values() -> None:
    """Methods of a jitted function run in the block; a value marks what made it."""
    f = set_xla_metadata(pace="slow")(tb.jit(lax.tan))

    assert SLOW in f.lower(1.0).as_text()
    assert tnp.tan(1.0) == f(1.0)
    assert (
        SLOW in lines_with("tan ", lambda x: set_xla_metadata(lax.tan(x), pace="slow") + 1, 1.0)[0]
    )
    assert 1.0 == tb.grad(lambda x: set_xla_metadata([x], pace="slow")[0])(3.0)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("device_host", '_xla_compute_type = "host"'),
        ("device", '_xla_compute_type = "dense"'),
        ("gpu_stream:2", '_xla_stream_annotation = "2", inlineable = "false"'),
    ],
)
def test_places_of_computation(where: str, text: str) -> None:
    """They are attributes for XLA, and values are the same; wrong ones are refused."""

    def f(x):
        with compute_on(where):
            return lax.tan(x)

    moved = compute_on2(lax.tan, compute_type=where, out_memory_spaces=tb.memory.Space.Device)

    assert text in lines_with("tan ", f, 1.0)[0]
    assert text in lines_with("stablehlo.tan ", moved, 1.0)[0]
    assert tnp.tan(1.0) == f(1.0)
    with pytest.raises(ValueError, match="'cellar'"):
        compute_on("cellar")
    with pytest.raises(TypeError, match="of type int"):
        compute_on(1)
