"""Python functions that write results in place."""

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import CallbackError, EffectError
from tracebridge.experimental import buffer_callback as module
from tracebridge.experimental.buffer_callback import buffer_callback

THREE = tb.ShapeDtypeStruct((3,), np.float32)


def scaled(ctx, out, x, by=2.0):
    np.multiply(x, by, out=np.asarray(out))


def test_what_the_function_gets_and_gives() -> None:
    """Buffers in the structure of arguments and results; eagerly, compiled and for batches."""
    seen = []

    def both(ctx, out, pair, *, z):
        seen.append((ctx.stage, type(out["s"]), type(pair[0]), type(z)))
        np.asarray(out["s"])[...] = np.asarray(pair[0]) + pair[1]
        np.asarray(out["z"])[...] = np.asarray(z) * 2

    call = buffer_callback(both, {"s": THREE, "z": tb.ShapeDtypeStruct((), np.int32)})
    x = tnp.arange(3.0)

    for fun in (call, tb.jit(call)):
        found = fun((x, x), z=np.int32(4))
        assert ([0, 2, 4], 8) == (found["s"].tolist(), int(found["z"]))
    assert (module.ExecutionStage.EXECUTE, *[module.Buffer] * 3) == seen[0]
    each = buffer_callback(scaled, THREE, vmap_method="sequential")
    assert [[2] * 3, [4] * 3] == tb.vmap(each)(tnp.array([[1.0] * 3, [2.0] * 3])).tolist()
    whole = buffer_callback(scaled, THREE, vmap_method="expand_dims", has_side_effect=True)
    assert [[2] * 3, [4] * 3] == tb.vmap(whole)(tnp.array([[1.0] * 3, [2.0] * 3])).tolist()


def test_shared_memory() -> None:
    """An argument may give its memory to a result of its type; the caller's array stays."""
    x = tnp.arange(3.0)

    def add_one(ctx, out, x):
        np.asarray(out)[...] += 1

    found = tb.jit(buffer_callback(add_one, THREE, input_output_aliases={0: 0}))(x)

    assert ([1, 2, 3], [0, 1, 2]) == (found.tolist(), x.tolist())
    for aliases, words in (({1: 0}, "1 inputs"), ({0: 0}, "is not f32")):
        wrong = buffer_callback(add_one, THREE, input_output_aliases=aliases)
        with pytest.raises(ValueError, match=words):
            wrong(tnp.arange(3))


def test_failures() -> None:
    """What the function raises or returns, and transformations that it does not know."""
    fails = buffer_callback(lambda ctx, out, x: 1 / 0, THREE)
    returns = buffer_callback(lambda ctx, out, x: 3, THREE)
    x = tnp.arange(3.0)

    with pytest.raises(CallbackError, match="ZeroDivisionError"):
        tb.block_until_ready(tb.jit(fails)(x))
    with pytest.raises(CallbackError, match="returned int"):
        tb.block_until_ready(returns(x))
    with pytest.raises(EffectError, match="vmap_method"):
        tb.vmap(returns)(tnp.ones((2, 3)))
    with pytest.raises(EffectError, match="derivative is not known"):
        tb.grad(lambda x: returns(x).sum())(x)
    with pytest.raises(TypeError, match="expected: a function"):
        buffer_callback(3, THREE)
