"""Traced, Lowered, Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.errors import (
    ArgumentMismatchError,
    BackendNotFoundError,
    CompileError,
    DeletedArrayError,
    UnexpectedTracerError,
    UnsupportedDtypeError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def f(params: Any, x: Any) -> Any:
    """A function of a tree."""
    return {"y": tnp.tanh(x @ params["w"]), "n": 1}


PARAMS = {"w": np.ones((3, 2), np.float32)}


def test_stages_lead_to_the_function() -> None:
    """Trace, lower, compile, call: the same result as calling at once."""
    traced = tb.jit(f).trace(PARAMS, X)
    lowered = traced.lower()
    compiled = lowered.compile()

    expected = tb.jit(f)(PARAMS, X)
    actual = compiled(PARAMS, X)

    assert tb.tree.structure(expected) == tb.tree.structure(actual)
    np.testing.assert_array_equal(expected["y"], actual["y"])
    assert 1 == int(compiled.call(PARAMS, X)["n"])


def test_facts_of_all_stages() -> None:
    """Structures, avals and names are there in each stage."""
    traced = tb.jit(f).trace(PARAMS, tb.ShapeDtypeStruct((2, 3), "float32"))
    for stage in (traced, traced.lower(), traced.lower().compile()):
        (params, x), kwargs = stage.args_info
        assert ((3, 2), np.float32, False) == (
            params["w"].shape,
            params["w"].dtype,
            params["w"].donated,
        )
        assert (2, 3) == x.shape
        assert {} == kwargs
        assert tb.tree.structure((({"w": 0}, 0), {})) == stage.in_tree
        assert tb.tree.structure({"y": 0, "n": 0}) == stage.out_tree
        assert tb.ShapeDtypeStruct((2, 2), "float32") == stage.out_info["y"].update(sharding=None)
        assert "f32[3,2]" == stage.in_avals[0][0]["w"].str_short()
        assert "f32[2,2]" == stage.out_avals["y"].str_short()
        assert "f" == stage.fun_name
        assert "f" in repr(stage)


def test_traced_program() -> None:
    """The Jaxpr of the function."""
    traced = tb.jit(f).trace(PARAMS, X)

    assert ["dot_general", "tanh"] == primitives_in(traced.jaxpr)


def test_texts() -> None:
    """StableHLO, HLO, and the optimized HLO of the compiled program."""
    lowered = tb.jit(f).lower(PARAMS, X)

    assert "stablehlo.tanh" in lowered.as_text()
    assert "module @jit_f" in str(lowered.compiler_ir())
    assert "HloModule jit_f" in lowered.as_text("hlo")
    assert "HloModule jit_f" in lowered.compiler_ir("hlo").as_hlo_text()
    assert "HloModule jit_f" in lowered.compile().as_text()
    with pytest.raises(ValueError, match="unknown dialect 'llvm'"):
        lowered.as_text("llvm")


def test_costs() -> None:
    """XLA's estimates, before and after compilation."""
    lowered = tb.jit(lambda x: x @ x).lower(np.ones((16, 16), np.float32))
    compiled = lowered.compile()

    assert 2 * 16**3 == lowered.cost_analysis()["flops"]
    assert compiled.cost_analysis()["flops"] >= 2 * 16**3
    assert 16 * 16 * 4 == compiled.memory_analysis().argument_size_in_bytes
    assert compiled.runtime_executable() is not None


def test_shardings() -> None:
    """One sharding per argument and result."""
    compiled = tb.jit(f).lower(PARAMS, X).compile()
    cpu = tb.devices("cpu")[0]

    assert cpu == compiled.input_shardings[0][0]["w"].device
    assert cpu == compiled.output_shardings["y"].device


def test_static_arguments_are_left_out() -> None:
    """They belong to the program; a compiled program is called without them."""
    lowered = tb.jit(lambda n, x: x * n, static_argnums=0).lower(3, X)

    compiled = lowered.compile()

    np.testing.assert_array_equal(compiled(X), 3 * X)
    with pytest.raises(ArgumentMismatchError, match="leave static arguments out"):
        compiled(3, X)


def test_keywords() -> None:
    """Keyword arguments stay keyword arguments."""
    compiled = tb.jit(lambda x, *, k: x * k).lower(X, k=2.0).compile()

    np.testing.assert_array_equal(compiled(X, k=4.0), 4 * X)
    with pytest.raises(ArgumentMismatchError, match="another structure"):
        compiled(X, 4.0)


def test_donation() -> None:
    """Donated arguments end, and are marked in all stages."""
    lowered = tb.jit(lambda x, y: x + y, donate_argnums=0).lower(X, X)
    assert (0,) == lowered.donate_argnums
    assert [True, False] == [a.donated for a in lowered.args_info[0]]
    assert "tf.aliasing_output" in lowered.as_text()
    compiled = lowered.compile()

    x, y = tb.device_put(X), tb.device_put(X)
    np.testing.assert_array_equal(compiled(x, y), 2 * X)

    assert [True, False] == [x.is_deleted(), y.is_deleted()]
    with pytest.raises(DeletedArrayError):
        compiled(x, y)


def test_unused_arguments() -> None:
    """They are dropped, or kept on request; calls are the same."""
    for keep in (False, True):
        lowered = tb.jit(lambda x, y: x + 1, keep_unused=keep).lower(X, X)
        assert keep is ("%arg1" in lowered.as_text())
        np.testing.assert_array_equal(lowered.compile()(X, X), X + 1)


def test_other_platforms() -> None:
    """Lowering for a platform that is not there; compiling for it is an error."""
    lowered = tb.jit(tnp.sin).lower(1.0, lowering_platforms=("tpu",))

    assert "stablehlo.sine" in lowered.as_text()
    with pytest.raises(BackendNotFoundError, match="'tpu'"):
        lowered.compile()
    with pytest.raises(BackendNotFoundError, match="a sequence of one platform"):
        tb.jit(tnp.sin).lower(1.0, lowering_platforms=("cpu", "tpu"))


def test_compiler_options_of_maps() -> None:
    """XLA flags for one program; unknown ones are refused."""
    lowered = tb.pmap(lambda x: 2 * x).lower(tnp.ones(1))

    compiled = lowered.compile(compiler_options={"xla_cpu_enable_fast_math": True})

    np.testing.assert_array_equal(compiled(tnp.ones(1)), [2.0])
    with pytest.raises(CompileError, match="xla_no_such_flag"):
        lowered.compile(compiler_options={"xla_no_such_flag": True})


def test_compiler_options() -> None:
    """Flags of the function and of the call are joined."""
    lowered = tb.jit(tnp.sin, compiler_options={"xla_cpu_enable_fast_math": True}).lower(1.0)

    assert float(lowered.compile({"xla_backend_optimization_level": 1})(0.0)) == 0.0
    with pytest.raises((tb.errors.CompileError, tb.errors.XlaRuntimeError)):
        lowered.compile({"xla_no_such_flag": 1})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((X, X), "args"),
        (({"w": X}, X), r"argument params\['w'\] is f32\[2,3\].*compiled for f32\[3,2\]"),
        ((PARAMS, X.astype(np.float16)), r"argument x is f16\[2,3\].*compiled for f32\[2,3\]"),
        ((PARAMS,), "another structure"),
    ],
)
def test_other_arguments(args: Any, words: str) -> None:
    """The message names the argument and both types."""
    compiled = tb.jit(f).lower(PARAMS, X).compile()

    with pytest.raises(ArgumentMismatchError, match=words):
        compiled(*args)


def test_every_different_argument_is_named() -> None:
    """One message for all of them; weak types make no difference."""
    compiled = tb.jit(lambda a, b, c: a + b + c).lower(X, X, 1.0).compile()

    with pytest.raises(ArgumentMismatchError) as caught:
        compiled(X[0], X, np.int32(1))
    words = str(caught.value)
    assert [True, False, True] == [f"argument {name} is" in words for name in "abc"]
    np.testing.assert_array_equal(compiled(X, X, np.float32(2)), 2 * X + 2)


def test_programs_as_text() -> None:
    """Jaxpr, StableHLO and HLO, before and after optimization."""
    traced = tb.jit(lambda x: tnp.sin(x) * 2).trace(X)
    lowered = traced.lower()

    assert str(traced.jaxpr) == traced.as_text() == lowered.as_text("jaxpr")
    assert "b:f32[2,3] = sin a" in traced.as_text()
    assert "stablehlo.sine" in lowered.as_text("stablehlo")
    assert "sine(" in lowered.as_text("hlo")
    assert "HloModule" in lowered.compile().as_text()
    with pytest.raises(ValueError, match="unknown dialect 'llvm'"):
        lowered.as_text("llvm")


def test_texts_with_names_and_lines() -> None:
    """Arguments, results and operations by name, with the lines that they come from."""

    def g(x: Any, *rest: Any, **options: Any) -> Any:
        total = tnp.sin(x["a"]) + rest[1]
        return {"t": total, "l": [options["k"] * 2]}

    lowered = tb.jit(g).lower({"a": 1.0}, 2.0, 3.0, k=4.0)
    text = lowered.as_text(debug_info=True)
    for name in ("x['a']", "rest[1]", "options['k']", "jit(g)/sin"):
        assert f'loc("{name}"' in text
    assert "rest[0]" not in text  # the program does not take it
    assert "result['l'][0]" in text
    assert "result['t']" in text
    line = g.__code__.co_firstlineno + 1
    assert f'test_stages.py":{line}:' in text
    assert "staged_functions.py" not in text  # frames of the engine are left out
    hlo = lowered.as_text("hlo", debug_info=True)
    assert 'op_name="jit(g)/sin"' in hlo
    assert "metadata=" not in lowered.as_text("hlo")
    np.testing.assert_allclose(3.841471, lowered.compile()({"a": 1.0}, 2.0, 3.0, k=4.0)["t"])


def test_texts_of_loops_and_branches() -> None:
    """Operations within bodies have locations too."""

    def g(x: Any) -> Any:
        x, _ = tb.lax.scan(lambda c, _: (tnp.sin(c), None), x, None, length=3)
        return tb.lax.cond(x > 0, tnp.cos, tb.jit(tnp.tanh), x)

    text = tb.jit(g).lower(1.0).as_text(debug_info=True)
    for name in (
        "while",
        "while/body/sin",
        "cond",
        "cond/branch_1_fun/cos",
        "cond/branch_0_fun/jit(tanh)",
        "tanh",
    ):
        assert f'loc("jit(g)/{name}"' in text


def test_texts_name_the_program_that_an_operation_is_in() -> None:
    """Functions, loops and second computations, with the transformations of the functions."""

    @tb.jit
    def inner(x: Any) -> Any:
        return tnp.sin(x)

    @tb.named_scope("part")
    def g(x: Any) -> Any:
        x = tb.lax.while_loop(lambda y: y < 3, lambda y: y + tnp.cos(y), x)
        return inner(x)

    def text(f: Any) -> str:
        return tb.jit(f).lower(1.0).as_text("hlo", debug_info=True)

    for path in ("part/while/cond/lt", "part/while/body/cos", "part/jit(inner)"):
        assert f'op_name="jit(g)/{path}"' in text(g)
    assert "/transpose(jit(inner))" in text(tb.grad(inner))
    assert "checkpoint/rematted_computation" in text(tb.grad(tb.checkpoint(tnp.sin)))


def test_number_of_programs() -> None:
    """One for each kind of arguments, until they are forgotten."""
    g: Any = tb.jit(lambda x: x + 1)
    for x in (X, X + 1, X[0], 1.0):
        g(x)

    assert 3 == g.cache_size()
    g.clear_cache()
    assert 0 == g.cache_size()


def test_compiled_programs_cannot_be_transformed() -> None:
    """A traced argument is an error that says what to do."""
    compiled = tb.jit(tnp.sin).lower(1.0).compile()

    for transform in (tb.grad, tb.jit, lambda f: lambda x: tb.vmap(f)(tnp.ones(3) * x)):
        with pytest.raises(ArgumentMismatchError, match=r"is a traced value of type f32\[\]"):
            transform(compiled)(1.0)


def test_functions_with_traced_constants_cannot_be_lowered() -> None:
    """A function that closes over a value of a running trace has no program of its own."""

    def outer(x: Any) -> Any:
        return tb.jit(lambda y: x + y).lower(1.0)

    with pytest.raises(UnexpectedTracerError, match="values of an enclosing trace"):
        tb.jit(outer)(1.0)


def test_arguments_must_be_arrays() -> None:
    """The argument is named."""
    with pytest.raises(UnsupportedDtypeError, match=r"jit\(f\): argument params\['w'\] is 'a'"):
        tb.jit(f).lower({"w": "a"}, X)


def test_arguments_beside_float0() -> None:
    """They are named in programs and messages, though float0 arrays take no placeholders."""
    nothing = np.zeros(3, tb.dtypes.float0)
    jitted = tb.jit(lambda x, y: (x, y * 2))
    assert 'loc("y")' in jitted.lower(nothing, 1.0).as_text(debug_info=True)
    with pytest.raises(ArgumentMismatchError, match=r"argument y is f32\[3\]"):
        jitted.lower(nothing, 1.0).compile()(nothing, np.ones(3, np.float32))


def test_results_of_compiled_programs_say_where_they_are() -> None:
    """Before it is compiled, a program leaves that open."""
    lowered = tb.jit(lambda x: (x, x + 1)).lower(np.ones(3, np.float32))
    compiled = lowered.compile()

    assert [None, None] == [info.sharding for info in lowered.out_info]
    assert compiled.output_shardings == tuple(info.sharding for info in compiled.out_info)
