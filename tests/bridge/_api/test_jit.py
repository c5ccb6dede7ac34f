"""jit: caching, static and donated arguments, placement, attributes, errors."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.util.caching import all_caches
from tracebridge.errors import (
    ArgumentSpecError,
    DeletedArrayError,
    DevicePlacementError,
    DonationError,
    NonHashableStaticArgumentError,
    UnsupportedDtypeError,
)

X = np.arange(3, dtype=np.float32)


class Counter:
    """A function that counts how often it is traced."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun
        self.traces = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.traces += 1
        return self.fun(*args, **kwargs)


def test_compiled_functions_give_the_same() -> None:
    """Values, structures and dtypes are those of the function."""

    def f(t: Any, y: Any) -> Any:
        return {"a": t["x"] * y, "b": (tnp.sum(t["x"]), None, 3)}

    expected = f({"x": tnp.asarray(X)}, 2.0)
    actual = tb.jit(f)({"x": X}, 2.0)

    assert tb.tree.structure(expected) == tb.tree.structure(actual)
    np.testing.assert_array_equal(expected["a"], actual["a"])
    assert 3 == int(actual["b"][2])
    assert actual["b"][2].weak_type


def test_traced_once_per_kind_of_argument() -> None:
    """Shape, dtype, weak type and structure count; values do not."""
    f = Counter(lambda x: x * 2)
    g = tb.jit(f)
    a = tb.device_put(X)

    for _ in range(3):
        g(a)
        g(a + 1)
    assert 1 == f.traces
    g(X)
    assert 1 == f.traces
    g(a.astype(np.float16))
    g(a[:2])
    g(2.0)
    g(3.0)
    g(np.float32(2))
    assert 5 == f.traces


def test_all_ways_to_call_agree() -> None:
    """Arrays, ndarrays, numbers, keywords in any order, trees: first and later calls."""

    def f(x: Any, y: Any, z: Any = 1.0) -> Any:
        return x - 2 * y + z

    g = tb.jit(f)
    a = tb.device_put(X)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((a, a), {}),
        ((X, X), {}),
        ((X, 3.0), {}),
        ((3.0, a), {"z": X}),
        ((a,), {"y": a + 1}),
        ((a,), {"z": a * 3, "y": 2}),
        ((), {"z": a * 3, "y": a, "x": X}),
        ((), {"y": a * 3, "z": a, "x": a}),
        ((), {"x": a * 3, "y": a, "z": a}),
    ]

    for _ in range(2):
        for args, kwargs in calls:
            bound = inspect.signature(f).bind(*args, **kwargs)
            bound.apply_defaults()
            x, y, z = (np.asarray(v) for v in bound.args)
            np.testing.assert_allclose(g(*args, **kwargs), x - 2 * y + z)


def test_trees_after_flat_arguments() -> None:
    """A function may be called with arrays first and with trees later."""
    g = tb.jit(lambda x: tb.tree.map(lambda v: v + 1, x))

    for _ in range(2):
        assert [1.0, 2.0, 3.0] == g(X).tolist()
        assert [1.0, 2.0, 3.0] == g({"a": X})["a"].tolist()
        assert [1.0, 2.0, 3.0] == g({"a": tb.device_put(X)})["a"].tolist()
        assert 2.0 == float(g(tnp.float32(1)))


def test_zero_arguments_and_results() -> None:
    """Both are allowed."""
    assert 3.0 == float(tb.jit(lambda: 3.0)())
    assert tb.jit(lambda x: None)(1.0) is None
    assert () == tb.jit(lambda: ())()


# --- static arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"static_argnums": 1}, {"static_argnums": (-1,)}, {"static_argnames": "n"}]
)
def test_static_arguments_are_python_values(options: dict[str, Any]) -> None:
    """By position or by name: each derives the other; equal values share one trace."""
    f = Counter(lambda x, n: x * n if n > 1 else x)
    f.__signature__ = inspect.signature(lambda x, n: None)  # type: ignore[attr-defined]  # a signature for names
    g = tb.jit(f, **options)

    for _ in range(2):
        assert [0.0, 3.0, 6.0] == g(X, 3).tolist()
        assert [0.0, 3.0, 6.0] == g(X, n=3).tolist()
        assert [0.0, 1.0, 2.0] == g(X, 1).tolist()

    # By position and by name are two kinds of calls.
    assert 3 == f.traces


def test_static_values_that_python_calls_equal_are_told_apart() -> None:
    """1, 1.0 and True; 0.0 and -0.0; also inside tuples."""
    g = tb.jit(lambda x, s: x * 0 + (s[0] if isinstance(s, tuple) else s), static_argnums=1)
    x = tb.device_put(np.int32(1))

    for _ in range(2):
        assert [np.int32, np.float32, np.int32] == [g(x, s).dtype for s in (1, 1.0, True)]
        assert [np.int32, np.float32] == [g(x, (s,)).dtype for s in (1, 1.0)]
        assert [0.0, -0.0] == [float(g(np.float32(-1), s)) for s in (0.0, -0.0)]
    constant = tb.jit(tnp.float32, static_argnums=0)
    assert [False, True] == [bool(np.signbit(constant(s))) for s in (0.0, -0.0)]


def test_static_objects_and_defaults() -> None:
    """Any hashable object: functions, classes, dtypes, None; defaults stay defaults."""

    @functools.partial(tb.jit, static_argnames=("op", "dtype", "flag"))
    def g(x: Any, op: Any, *, dtype: Any = None, flag: bool = False) -> Any:
        y = op(x)
        return y.astype(dtype) if dtype is not None else -y if flag else y

    for _ in range(2):
        np.testing.assert_allclose(g(X, tnp.sin), np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(g(X, op=tnp.cos, flag=True), -np.cos(X), rtol=1e-6)
        assert np.int32 == g(X, tnp.cos, dtype=np.int32).dtype
        assert np.float16 == g(X, tnp.cos, dtype=np.dtype("float16")).dtype


def test_static_self() -> None:
    """A decorated method with the object as a static argument."""

    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        @functools.partial(tb.jit, static_argnums=0)
        def __call__(self, x: Any) -> Any:
            return self.k * x

    for k in (2.0, 3.0):
        assert [0.0, k, 2 * k] == Scale(k)(X).tolist()


def test_static_variadic_arguments() -> None:
    """Positions in *args, also from the end."""
    g = tb.jit(lambda *args: args[0] if args[-1] == "first" else args[1], static_argnums=-1)

    for _ in range(2):
        assert 1.0 == float(g(1.0, 2.0, "first"))
        assert 2.0 == float(g(1.0, 2.0, "second"))
        assert 2.0 == float(g(1.0, 2.0, 3.0, "second"))


def test_static_arguments_under_a_trace() -> None:
    """The same function inside grad, vmap and jit."""
    g = tb.jit(lambda x, n: x**n, static_argnums=1)

    assert 12.0 == float(tb.grad(lambda x: g(x, 3))(2.0))
    assert [0.0, 1.0, 4.0] == tb.vmap(lambda x: g(x, 2))(X).tolist()
    assert 8.0 == float(tb.jit(lambda x: g(x, n=3))(2.0))


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.ones(2), {1}])
def test_static_arguments_must_be_hashable(value: Any) -> None:
    """The message names the argument, by position and by name."""
    g = tb.jit(lambda x, n: x, static_argnums=1)

    with pytest.raises(NonHashableStaticArgumentError, match=r"argument 1 \('n'\) is static"):
        g(X, value)
    with pytest.raises(NonHashableStaticArgumentError, match="argument 'n' is static"):
        g(X, n=value)


@pytest.mark.parametrize("wrap", [tnp.float32, float], ids=["array", "number"])
def test_static_arguments_must_be_comparable(wrap: Any) -> None:
    """An __eq__ that raises is named; what __hash__ raises comes out as it is."""

    class Odd:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise NotImplementedError("no comparison")

    class Odder:
        def __hash__(self) -> int:
            raise OverflowError("too long")

    g = tb.jit(lambda x, n: x, static_argnums=1)
    g(wrap(1.0), Odd())
    with pytest.raises(ValueError, match=r"comparison raises NotImplementedError: no comparison"):
        g(wrap(1.0), Odd())
    with pytest.raises(OverflowError, match="too long"):
        g(wrap(1.0), Odder())


def test_traced_values_cannot_be_static() -> None:
    """A tracer is no constant."""
    g = tb.jit(lambda x, n: x, static_argnums=1)

    with pytest.raises(NonHashableStaticArgumentError, match="StagedTracer"):
        tb.jit(lambda n: g(X, n))(3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"static_argnums": 2}, "static_argnums contains 2, but <lambda>(x, n) takes 2"),
        ({"static_argnums": (0, -3)}, "static_argnums contains -3"),
        ({"donate_argnums": 5}, "donate_argnums contains 5"),
        ({"static_argnames": "m"}, "static_argnames contains 'm'"),
        ({"donate_argnames": ("x", "z")}, "donate_argnames contains 'z'"),
        ({"static_argnums": 0, "donate_argnums": 0}, "argument 0 is both static and donated"),
        ({"static_argnames": "n", "donate_argnames": "n"}, "is both static and donated"),
    ],
)
def test_options_must_fit_the_signature(options: dict[str, Any], words: str) -> None:
    """Checked when the function is made."""
    with pytest.raises(ArgumentSpecError) as caught:
        tb.jit(lambda x, n: x, **options)

    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["static", "donate"])
def test_names_that_no_keyword_can_have(kind: str) -> None:
    """Positional-only parameters and ``*args`` have no keyword, also beside ``**kwargs``."""

    def g(a: Any, /, b: Any, *args: Any, **kwargs: Any) -> None:
        del a, b, args, kwargs

    for names in ("a", "args", ("b", "args"), "kwargs"):
        with pytest.raises(ArgumentSpecError, match=f"{kind}_argnames contains"):
            tb.jit(g, **{f"{kind}_argnames": names})
    tb.jit(g, **{f"{kind}_argnames": ("b", "other")})


def test_donated_names_need_a_signature() -> None:
    """Without one nobody knows where the arguments are; static names serve for keywords."""
    with pytest.raises(ArgumentSpecError, match="max has no signature"):
        tb.jit(max, donate_argnames="a")
    tb.jit(max, static_argnames="key")


@pytest.mark.parametrize(
    "options", [{"static_argnums": "0"}, {"static_argnums": 1.5}, {"static_argnames": 3}]
)
def test_options_have_types(options: dict[str, Any]) -> None:
    """Positions are ints and names are strings."""
    with pytest.raises(TypeError, match=r"^jit: static_arg"):
        tb.jit(lambda x, n: x, **options)


# --- donation --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "x"}])
def test_donated_arguments_end(options: dict[str, Any]) -> None:
    """The memory is taken over; a later use names the function."""
    g = tb.jit(lambda x, y: {"z": x["a"] + y}, **options)

    for _ in range(3):
        x, y = {"a": tnp.ones(3)}, tnp.ones(3)
        assert [2.0, 2.0, 2.0] == g(x, y)["z"].tolist()
        assert x["a"].is_deleted()
        assert not y.is_deleted()
        with pytest.raises(DeletedArrayError, match="donated to <lambda>"):
            g(x, y)


def test_donation_by_keyword_and_beside_static_arguments() -> None:
    """Leaves are found behind static positions and among sorted keywords."""
    g = tb.jit(lambda n, x, *, b, a: (x * n, a + b), static_argnums=0, donate_argnames=("x", "a"))

    for _ in range(2):
        x, a, b = tnp.ones(2), tnp.ones(2), tnp.ones(2)
        g(2, x, b=b, a=a)
        assert [True, True, False] == [v.is_deleted() for v in (x, a, b)]


def test_donated_twice() -> None:
    """The same array cannot be donated and used besides."""
    x = tnp.ones(3)

    with pytest.raises(DonationError, match="argument 0 is donated and is also argument 1"):
        tb.jit(lambda x, y: x + y, donate_argnums=0)(x, x)


def test_numpy_memory_is_not_donated() -> None:
    """An ndarray is copied first and keeps its elements."""
    x = X.copy()

    tb.jit(lambda x: x + 1, donate_argnums=0)(x)

    np.testing.assert_array_equal(x, X)


# --- placement -------------------------------------------------------------------------------


def test_device_options_commit_results() -> None:
    """With a device, backend or sharding the results are committed there."""
    cpu = tb.devices("cpu")[0]
    sharding = tb.sharding.SingleDeviceSharding(cpu)
    for options in (
        {"device": cpu},
        {"backend": "cpu"},
        {"in_shardings": sharding},
        {"in_shardings": (sharding,), "out_shardings": cpu},
        {"out_shardings": {"a": sharding}},
    ):
        result = tb.jit(lambda x: {"a": x + 1}, **options)(X)["a"]
        assert result.committed
        assert cpu == result.device
    assert not tb.jit(lambda x: x + 1, in_shardings=None, out_shardings=None)(X).committed


def test_conflicting_places() -> None:
    """One device at most."""
    cpu = tb.devices("cpu")[0]

    with pytest.raises(DevicePlacementError, match=r"both device=.* and backend='cpu'"):
        tb.jit(lambda x: x, device=cpu, backend="cpu")
    with pytest.raises(DevicePlacementError, match="in_shardings: got 'cpu' of type str"):
        tb.jit(lambda x: x, in_shardings="cpu")


# --- decoration and attributes ---------------------------------------------------------------


def test_forms_of_decoration() -> None:
    """Bare, called with options, and through functools.partial."""

    @tb.jit
    def f(x: Any) -> Any:
        """Documented."""
        return x + 1

    @tb.jit(static_argnums=1)
    def g(x: Any, n: int) -> Any:
        return x * n

    @functools.partial(tb.jit, static_argnames="n")
    def h(x: Any, n: int) -> Any:
        return x * n

    assert ("f", "Documented.") == (f.__name__, f.__doc__)
    assert 2.0 == float(f(1.0)) == float(f.__wrapped__(1.0))
    assert 6.0 == float(g(2.0, 3)) == float(h(2.0, n=3))
    assert isinstance(f, tb.stages.Wrapped)


def test_attributes_of_compiled_functions() -> None:
    """Shapes without running, and forgetting."""
    f = Counter(lambda x: {"y": x @ x})
    g = tb.jit(f)

    shape = g.eval_shape(tb.ShapeDtypeStruct((2, 2), "float32"))
    assert {"y": tb.ShapeDtypeStruct((2, 2), "float32")} == shape
    g(np.ones((2, 2), np.float32))
    g(np.ones((2, 2), np.float32))
    assert 1 == f.traces
    g.clear_cache()
    g(np.ones((2, 2), np.float32))
    assert 2 == f.traces
    tb.clear_caches()
    g(np.ones((2, 2), np.float32))
    assert 3 == f.traces


def test_attributes_of_the_function_are_kept() -> None:
    """What users write on a function is there on its compiled form, beside the methods of jit."""

    def g(x: Any) -> Any:
        """Its documentation."""
        return x + 1

    g.level = 4  # type: ignore[attr-defined]  # functions take any attribute
    g.lower = "mine"  # type: ignore[attr-defined]  # the method of jit has the name
    jitted: Any = tb.jit(g)

    assert (4, g, g.__doc__) == (jitted.level, jitted.__wrapped__, jitted.__doc__)
    assert inspect.signature(g) == inspect.signature(jitted)
    assert "stablehlo" in jitted.lower(1.0).as_text()
    assert 2.0 == float(tb.jit(jitted)(1.0))
    assert isinstance(tb.jit(dict)(a=1.0), dict)


def test_methods_and_partials_are_compiled() -> None:
    """Bound methods, partials and callable objects."""

    class Model:
        def apply(self, x: Any) -> Any:
            return x + 1

        __call__ = apply

    assert 2.0 == float(tb.jit(Model().apply)(1.0))
    assert 2.0 == float(tb.jit(Model())(1.0))
    assert 3.0 == float(tb.jit(functools.partial(lambda y, x: x + y, 2.0))(1.0))


def test_inline() -> None:
    """An inlined function leaves no call behind."""
    inner = tb.jit(lambda x: tnp.sin(x), inline=True)

    assert "jit" not in str(tb.make_jaxpr(lambda x: inner(x))(1.0))
    assert "jit" in str(tb.make_jaxpr(lambda x: tb.jit(tnp.sin)(x))(1.0))


def test_functions_are_not_kept_alive() -> None:
    """Traces and executables go with the function."""

    def f(x: Any) -> Any:
        return x + 1

    g = tb.jit(f)
    g(X)
    g(2.0)
    g(x=2.0)
    g.lower(X)
    alive = weakref.ref(f)
    del f, g
    gc.collect()

    assert alive() is None


def test_ten_thousand_fresh_functions_leave_nothing() -> None:
    """Traces, programs and fast paths of functions that are gone take no memory."""

    def call_fresh(n: int) -> list[weakref.ref[Any]]:
        gone: list[weakref.ref[Any]] = []
        for _ in range(n):
            f = tb.jit(lambda x: x + 1)
            assert 2.0 == float(f(1.0))
            gone.append(weakref.ref(f.__wrapped__))
        return gone

    call_fresh(100)
    gc.collect()
    before = len(gc.get_objects())
    alive = sum([r() is not None for r in call_fresh(10_000)])
    gc.collect()
    after = len(gc.get_objects())

    assert alive <= 1
    assert after - before < 500


def test_one_function_keeps_a_bounded_number_of_programs() -> None:
    """Calls at ever new static values forget the oldest ones."""
    f = tb.jit(lambda x, n: x, static_argnums=1)
    for n in range(9000):
        f(1.0, n)

    sizes = [len(c) for c in all_caches()]
    assert max(sizes) <= 4096


def test_disable_jit() -> None:
    """Python sees concrete values inside the block."""
    seen: list[Any] = []

    @tb.jit
    def f(x: Any) -> Any:
        seen.append(x)
        return x if x > 1 else -x

    with tb.disable_jit():
        assert 2.0 == float(f(2.0))
    assert 2.0 == seen[0]


def test_side_effects_happen_once() -> None:
    """The function body runs when it is traced only."""
    f = Counter(lambda x: x)
    g = tb.jit(f)

    [g(X) for _ in range(5)]

    assert 1 == f.traces


def test_nested_functions_share_their_trace() -> None:
    """An inner function is traced once per kind of argument, also in two outer ones."""
    f = Counter(lambda x: x * 2)
    inner = tb.jit(f)

    tb.jit(lambda x: inner(x) + inner(x + 1))(X)
    tb.jit(lambda x: inner(x) - 1)(X)

    assert 1 == f.traces


def test_options_are_part_of_the_key() -> None:
    """The same function under another option is another program."""
    g = tb.jit(lambda: tnp.arange(3.0))

    assert np.float32 == g().dtype
    with tb.enable_x64():
        assert np.float64 == g().dtype
    assert np.float32 == g().dtype


def test_debug_nans_checks_every_call() -> None:
    """Also calls that find their program, whether the option is global or scoped."""
    g = tb.jit(tnp.log)
    g(1.0)
    for _ in range(2):
        with tb.debug_nans(), pytest.raises(tb.errors.NonFiniteError, match="NaN"):
            g(-1.0)
    tb.config.update("debug_nans", True)
    try:
        for _ in range(2):
            with pytest.raises(tb.errors.NonFiniteError, match="NaN"):
                g(-1.0)
    finally:
        tb.config.update("debug_nans", False)
    assert np.isnan(float(g(-1.0)))


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([(X,)], "compiled, because this is its first call"),
        ([(X,), (X[:2],)], "x: f32[2] instead of f32[3]"),
        ([(X,), (X.astype(np.int32),)], "x: i32[3] instead of f32[3]"),
        ([(np.float32(1),), (1.0,)], "x: a Python number instead of an array"),
        ([(X,), ({"a": X},)], "the structure of x: "),
    ],
)
def test_cache_misses_are_explained(
    calls: list[Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the argument that changed, compared with the most similar call."""
    g = tb.jit(lambda x: x)

    with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
        for args in calls:
            caplog.clear()
            g(*args)

    assert f"jit(<lambda>): {'compiled' if len(calls) == 1 else 'compiled again, '}" in caplog.text
    assert words in caplog.text


def test_fresh_functions_are_explained(caplog: pytest.LogCaptureFixture) -> None:
    """The commonest reason of all: a new function object in each round of a loop."""
    with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
        for _ in range(2):
            tb.jit(lambda x: x + 3)(1.0)

    first, second = caplog.messages
    assert "its first call" in first
    assert "a new function object, made by the same lines" in second
    assert "test_jit.py" in second


def test_static_cache_misses_are_explained(caplog: pytest.LogCaptureFixture) -> None:
    """The values of static arguments are shown."""
    g = tb.jit(lambda x, n: x, static_argnums=1)

    with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
        g(X, 3)
        g(X, (3, "a"))

    assert "static argument n: (3, 'a') instead of 3" in caplog.text


def test_compiler_options() -> None:
    """XLA flags are passed on, and unknown ones are an error."""
    f = tb.jit(lambda x: x + 1, compiler_options={"xla_cpu_enable_fast_math": True})

    assert 2.0 == float(f(1.0))
    with pytest.raises((tb.errors.CompileError, tb.errors.XlaRuntimeError)):
        tb.jit(lambda x: x + 1, compiler_options={"xla_no_such_flag": True})(1.0)


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["text", object(), np.array(["a"]), np.array([None])])
def test_arguments_must_be_arrays(bad: Any) -> None:
    """The message names the argument and its place in the tree."""
    with pytest.raises(UnsupportedDtypeError) as caught:
        tb.jit(lambda x, t: x)(1.0, {"a": (1.0, bad)})
    if not isinstance(bad, np.ndarray):
        assert "t['a'][1] is" in str(caught.value)


def test_results_must_be_arrays() -> None:
    """The message names the function and the leaf."""
    with pytest.raises(UnsupportedDtypeError, match=r"the result\[1\] is 'a' of type str"):
        tb.jit(lambda x: (x, "a"))(1.0)


def test_function_must_be_callable() -> None:
    """Checked at once."""
    with pytest.raises(TypeError, match=r"^jit: got 3 of type int"):
        tb.jit(3)
    with pytest.raises(TypeError, match="staticmethod"):
        tb.jit(staticmethod(abs))


def test_wrong_call_is_pythons_own_error() -> None:
    """Missing and surplus arguments are reported by Python."""
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        tb.jit(lambda x, y: x)(1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        tb.jit(lambda x: x)(1.0, y=2.0)


def test_tracebacks_show_user_code_only() -> None:
    """No frame of the engine lies between the call and the failing line."""

    def fails(x: Any) -> Any:
        return tnp.reshape(x, (2, 2))

    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever reshape raises
        tb.jit(lambda x: tb.grad(lambda y: fails(y))(x))(X)

    files = {entry.path.name for entry in caught.traceback}
    assert {"test_jit.py"} <= files
    assert not {"jit.py", "fastpath.py", "staging.py", "linearize.py"} & files
