"""pure_callback: values, types, vmap methods, errors, under every transformation."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, lax


def like(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """The declared type of a result."""
    return tb.ShapeDtypeStruct(shape, dtype)


def double(x: Any) -> Any:
    """On the host."""
    return np.asarray(x) * 2


def doubled(x: Any, **options: Any) -> Any:
    """The callback of the type of its argument."""
    return tb.pure_callback(double, like(x.shape, x.dtype), x, **options)


X = np.arange(3, dtype=np.float32)

WRAPPERS = {"eager": lambda f: f, "jit": tb.jit, "nested jit": lambda f: tb.jit(tb.jit(f))}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_value(wrap: Any) -> None:
    """Eager, under jit and under nested jit the function of the host is applied."""
    assert wrap(lambda x: doubled(x) + 1)(X).tolist() == [1.0, 3.0, 5.0]


def test_function_gets_arrays_and_static_leaves() -> None:
    """Arrays are arrays of ours on the CPU, other leaves come as they are, in their places."""
    seen: list[Any] = []

    def look(tree: Any, word: str, *, scale: Any) -> Any:
        seen.append((type(tree["a"]) is tb.Array, word, scale, tree["b"]))
        return tree["a"]

    def f(x: Any) -> Any:
        return tb.pure_callback(look, like((3,)), {"a": x, "b": "text"}, "word", scale=2.0)

    tb.jit(f)(X)
    flag, word, scale, text = seen[0]

    assert (flag, word, float(scale), text) == (True, "word", 2.0, "text")


NAMES = "bool int8 uint8 int32 uint32 float16 bfloat16 float32 complex64 float8_e4m3fn int4"
DTYPES = NAMES.split()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (2, 3), (0,), (2, 0)], ids=str)
def test_types_go_through(shape: tuple[int, ...], dtype: str) -> None:
    """Any shape and dtype reaches the function and comes back."""
    x = tnp.ones(shape).astype(dtype)
    seen: list[Any] = []

    def look(v: Any) -> Any:
        seen.append((v.shape, v.dtype))
        return v

    out = tb.jit(lambda x: tb.pure_callback(look, like(shape, dtype), x))(x)

    # A result without elements is known, so that nobody has to be asked.
    assert seen == ([(x.shape, x.dtype)] if x.size else [])
    assert (x.shape, x.dtype) == (out.shape, out.dtype)
    assert np.asarray(x).tolist() == np.asarray(out).tolist()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_wide_types_with_x64(dtype: str) -> None:
    """64-bit dtypes are kept where they are on."""
    with tb.enable_x64():
        x = tnp.ones(2).astype(dtype)
        assert doubled(x).dtype == dtype
        assert tb.jit(doubled)(x).dtype == dtype


def test_wide_results_without_x64() -> None:
    """64-bit results become 32-bit ones, Python numbers take the declared dtype."""
    out = tb.pure_callback(lambda: (np.float64(0.5), 2), (like(()), like((), "int8")))
    assert [(float(o), o.dtype.name) for o in out] == [(0.5, "float32"), (2, "int8")]
    with pytest.raises(errors.UnsupportedDtypeError, match="64-bit dtypes are off"):
        tb.pure_callback(double, np.zeros(2), X)


def test_several_results() -> None:
    """Results have the declared structure."""
    spec = {"sum": like(()), "parts": [like((3,)), like((3,), "int32")]}

    def parts(x: Any) -> Any:
        x = np.asarray(x)
        return {"sum": x.sum(), "parts": [x, x.astype(np.int32)]}

    out = tb.jit(lambda x: tb.pure_callback(parts, spec, x))(X)

    assert float(out["sum"]) == 3.0
    assert [p.dtype.name for p in out["parts"]] == ["float32", "int32"]


BAD_RESULTS = {
    "shape": (lambda _: np.zeros(4, np.float32), "float32[4]", "float32[3]"),
    "dtype": (lambda _: np.zeros(3, np.int32), "int32[3]", "float32[3]"),
    "structure": (lambda x: (x, x), "(*, *)", "*"),
    "nothing": (lambda _: None, "None", "*"),
    "text": (lambda _: "text", "str128[]", "float32[3]"),
}


@pytest.mark.parametrize("name", BAD_RESULTS)
@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_wrong_results_are_named(wrap: Any, name: str) -> None:
    """A result of another type is an error that says what came and what was declared."""
    callback, got, expected = BAD_RESULTS[name]
    with pytest.raises(errors.CallbackError) as info:
        wrap(lambda x: tb.pure_callback(callback, like((3,)), x))(X)

    message = str(info.value)
    assert "pure_callback(<lambda>)" in message
    assert expected in message
    assert got in message


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_failures_are_runtime_errors_of_xla(wrap: Any) -> None:
    """Who waits for errors of the runtime gets those of callbacks, and of the compiler, too."""

    def fail(_: Any) -> Any:
        raise KeyError

    with pytest.raises(errors.JaxRuntimeError):
        wrap(lambda x: tb.pure_callback(fail, like((3,)), x))(X)
    with pytest.raises(errors.XlaRuntimeError, match="xla_no_such_flag"):
        tb.jit(tnp.sin, compiler_options={"xla_no_such_flag": True})(1.0)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_exceptions_reach_the_caller(wrap: Any) -> None:
    """The exception of the function is the cause, with its own traceback."""

    def fail(_: Any) -> Any:
        msg = "no such thing"
        raise KeyError(msg)

    f = wrap(lambda x: tb.pure_callback(fail, like((3,)), x) + 1)
    for _ in range(2):
        with pytest.raises(errors.CallbackError, match="KeyError: 'no such thing'") as info:
            f(X)
        cause = info.value.__cause__
        assert isinstance(cause, KeyError)
        frames = []
        tb_ = cause.__traceback__
        while tb_ is not None:
            frames.append(tb_.tb_frame.f_code.co_name)
            tb_ = tb_.tb_next
        assert "fail" in frames


def test_program_works_after_an_exception() -> None:
    """An exception in one call is forgotten in the next one."""

    def sometimes(x: Any) -> Any:
        if x[0] > 0:
            raise ValueError
        return x

    f = tb.jit(lambda x: tb.pure_callback(sometimes, like((1,)), x))
    with pytest.raises(errors.CallbackError):
        f(np.ones(1, np.float32))

    assert f(np.zeros(1, np.float32)).tolist() == [0.0]


def test_requests_to_stop_are_not_wrapped() -> None:
    """KeyboardInterrupt stays what it is."""

    def stop(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tb.jit(lambda x: tb.pure_callback(stop, like((3,)), x))(X)


BAD_ARGUMENTS = {
    "no function": (lambda: tb.pure_callback(1, like((3,)), X), "callback is 1"),
    "no type": (lambda: tb.pure_callback(double, {"a": 3}, X), r"result_shape_dtypes\['a'\] is 3"),
    "method": (lambda: doubled(X, vmap_method="fast"), "vmap_method is 'fast'"),
    "sharding": (lambda: doubled(X, sharding="cpu"), "sharding is 'cpu'"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments(name: str) -> None:
    """Arguments are checked when the function is called."""
    call, message = BAD_ARGUMENTS[name]
    with pytest.raises(ValueError, match=message):
        call()


# transformations ---------------------------------------------------------------------------------

METHODS = {
    "sequential": [((), ())] * 3,
    "sequential_unrolled": [((), ())] * 3,
    "expand_dims": [((3,), (1,))],
    "broadcast_all": [((3,), (3,))],
    "legacy_vectorized": [((3,), ())],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_vmap_methods(wrap: Any, method: str) -> None:
    """Each method calls the function with the shapes that it promises, with the same values."""
    seen: list[Any] = []

    def add(x: Any, y: Any) -> Any:
        seen.append((x.shape, y.shape))
        return np.asarray(x) + np.asarray(y)

    def f(x: Any, y: Any) -> Any:
        return tb.pure_callback(add, like(()), x, y, vmap_method=method)

    out = wrap(tb.vmap(f, in_axes=(0, None)))(X, np.float32(1))

    assert out.tolist() == [1.0, 2.0, 3.0]
    assert seen == METHODS[method]


def test_vmap_needs_a_method() -> None:
    """Without a method vmap says which there are; unmapped arguments need none."""
    with pytest.raises(errors.EffectError, match="vmap_method"):
        tb.vmap(doubled)(X)
    out = tb.vmap(lambda x: x + doubled(tnp.ones(())))(X)
    assert out.tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("size", [0, 40])
def test_vmap_in_sequence_of_any_size(size: int) -> None:
    """Empty and long batches work."""
    x = np.arange(size, dtype=np.float32)
    out = tb.vmap(lambda v: doubled(v, vmap_method="sequential"))(x)
    assert out.tolist() == (2 * x).tolist()


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("mode", ["grad", "jvp"])
def test_derivatives_name_the_way_out(wrap: Any, mode: str) -> None:
    """A derivative is refused with the names of the functions that allow one."""
    f = wrap(lambda x: tnp.sum(doubled(x)))
    with pytest.raises(errors.EffectError, match="custom_jvp or custom_vjp"):
        tb.grad(f)(X) if mode == "grad" else tb.jvp(f, (X,), (X,))
    with pytest.raises(errors.EffectError, match="transposition"):
        tb.linear_transpose(wrap(doubled), X)(X)


def test_derivative_by_rule() -> None:
    """With a rule callbacks are differentiated, forwards and backwards, mapped and looped."""

    @tb.custom_jvp
    def cube(x: Any) -> Any:
        spec = like(x.shape)
        return tb.pure_callback(lambda v: np.asarray(v) ** 3, spec, x, vmap_method="expand_dims")

    @cube.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return cube(x), 3 * x**2 * t

    assert float(tb.grad(cube)(2.0)) == 12.0
    assert float(tb.jit(tb.grad(tb.grad(cube)))(2.0)) == 12.0
    assert tb.vmap(tb.grad(cube))(X).tolist() == [0.0, 3.0, 12.0]
    looped = tb.grad(lambda x: lax.scan(lambda c, _: (cube(c), None), x, None, length=2)[0])
    assert float(looped(1.0)) == 9.0


def test_in_control_flow() -> None:
    """Callbacks run in bodies of loops and in the branch that is chosen."""
    assert lax.fori_loop(0, 3, lambda _, c: doubled(c), tnp.ones(2)).tolist() == [8.0, 8.0]
    big = lax.while_loop(lambda c: c[0] < 5, doubled, tnp.ones(1))
    assert big.tolist() == [8.0]
    chosen = tb.jit(lambda p, x: lax.cond(p, doubled, lambda x: x, x))
    assert [chosen(True, 1.0).item(), chosen(False, 1.0).item()] == [2.0, 1.0]


def test_unused_callback_is_dropped() -> None:
    """A function without side effects whose results nobody needs is not called."""
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(1)
        return x

    @tb.jit
    def f(x: Any) -> Any:
        tb.pure_callback(note, like((3,)), x)
        return x

    f(X)

    assert seen == []


# runtime -----------------------------------------------------------------------------------------


def test_callback_may_use_the_engine() -> None:
    """A function that computes with compiled programs does not block the one that calls it."""
    inner = tb.jit(lambda x: tnp.sum(x @ x))

    def host(x: Any) -> Any:
        return inner(x) + x

    n = 128
    program = tb.jit(lambda x: x @ tb.pure_callback(host, like((n, n)), x @ x))
    x = np.full((n, n), 1 / n, np.float32)
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(program(x)), daemon=True)
    thread.start()
    thread.join(60)

    assert done, "the program did not end"
    assert np.allclose(done[0], x @ (np.sum((x @ x) @ (x @ x)) + x @ x), rtol=1e-4)


def test_callback_does_not_see_a_trace() -> None:
    """While something is traced, a callback of a program that runs computes with numbers."""

    def host(x: Any) -> Any:
        return np.float32(float(tnp.sin(x)))

    program = tb.jit(lambda x: tb.pure_callback(host, like(()), x))
    value = tnp.ones(())
    out = tb.grad(lambda x: x * program(value))(2.0)

    assert np.isclose(float(out), np.sin(1.0))


def test_from_threads() -> None:
    """Threads may call one program at once."""
    program = tb.jit(lambda x: doubled(x) + 1)
    found: list[Any] = []

    def work(k: int) -> None:
        found.extend([(k, program(np.float32(k)).item()) for _ in range(20)])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 80
    assert all([value == 2 * k + 1 for k, value in found])


def test_programs_keep_and_free_their_callbacks() -> None:
    """The function lives as long as the jitted function that calls it, and no longer."""

    def make() -> tuple[Any, weakref.ref[Any]]:
        def host(x: Any) -> Any:
            return np.asarray(x) + 1

        f = tb.jit(lambda x: tb.pure_callback(host, like((3,)), x))
        f(X)
        return f, weakref.ref(host)

    f, host = make()
    gc.collect()
    assert f(X).tolist() == [1.0, 2.0, 3.0]
    assert host() is not None
    del f
    gc.collect()
    # jaxlib lets go of Python objects with the next transfer.
    tb.device_put(X)

    assert host() is None


def test_aot() -> None:
    """Compiled stages call back too."""
    compiled = tb.jit(doubled).lower(X).compile()
    assert compiled(X).tolist() == [0.0, 2.0, 4.0]
