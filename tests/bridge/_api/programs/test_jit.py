"""jit: values, ways to call, donation, placement, attributes, errors."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge._api.counting import Counter
from tests.equations import primitives_in
from tracebridge.core.control.calls.compiler_options import lifted_options
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.calls import dispatch
from tracebridge.errors import (
    ArgumentValueError,
    DeletedArrayError,
    DevicePlacementError,
    DonationError,
    UnsupportedDtypeError,
)

X = np.arange(3, dtype=np.float32)


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
        assert result._committed  # the name that programs written for the peer use
        assert cpu == result.device
    assert not tb.jit(lambda x: x + 1, in_shardings=None, out_shardings=None)(X).committed


def test_conflicting_places() -> None:
    """One device at most."""
    cpu = tb.devices("cpu")[0]

    with pytest.raises(DevicePlacementError, match=r"both device=.* and backend='cpu'"):
        tb.jit(lambda x: x, device=cpu, backend="cpu")
    with pytest.raises(DevicePlacementError, match="in_shardings: got 'cpu' of type str"):
        tb.jit(lambda x: x, in_shardings="cpu")


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


def test_shapes_of_results_have_the_shardings_of_the_options() -> None:
    """What ``out_shardings`` names stands in the shapes; the rest is open."""
    mesh = tb.make_mesh((1,), ("x",))
    over_mesh = tb.NamedSharding(mesh, tb.P("x"))
    here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    x = np.arange(8.0, dtype=np.float32)
    for wanted in (over_mesh, here):
        f = tb.jit(lambda x: (x * 2, x), out_shardings=(wanted, None))
        lowered = f.lower(x)
        for shapes in (
            f.eval_shape(x),
            tb.eval_shape(f, x),
            f.trace(x).out_info,
            lowered.out_info,
        ):
            assert [wanted, None] == [s.sharding for s in shapes]
        assert wanted == lowered.compile().out_info[0].sharding

    @functools.wraps(f)
    def wrapper(x: object) -> object:
        return f(x)[0]

    assert (None, (8,)) == (tb.eval_shape(wrapper, x).sharding, tb.eval_shape(wrapper, x).shape)
    with tb.set_mesh(mesh):
        named = tb.jit(lambda x: x, out_shardings=tb.P("x"))
        assert over_mesh == tb.eval_shape(named, x).sharding


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


def test_compiled_functions_have_the_signature_of_the_function() -> None:
    """Whether ``__wrapped__`` is followed or not; transformations between do not matter."""

    def fun(a: Any, /, b: float = 2.0, *rest: Any, c: int, **more: Any) -> Any:
        return a, b, rest, c, more

    bound = functools.partial(fun, 1, c=3)
    for f in (fun, bound, tb.vmap(fun)):
        for jitted in (tb.jit(f), tb.jit(tb.jit(f))):
            for follow in (True, False):
                found = inspect.signature(jitted, follow_wrapped=follow)
                assert inspect.signature(f) == found
    assert inspect.signature(tb.jit(fun, static_argnames="c")) == inspect.signature(fun)
    assert {"a": 3.0} == tb.jit(dict)(a=3.0)  # Python knows no signature of it


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


def test_compiler_options() -> None:
    """XLA flags are passed on, and unknown ones are an error."""
    f = tb.jit(lambda x: x + 1, compiler_options={"xla_cpu_enable_fast_math": True})

    assert 2.0 == float(f(1.0))
    with pytest.raises((tb.errors.CompileError, tb.errors.XlaRuntimeError)):
        tb.jit(lambda x: x + 1, compiler_options={"xla_no_such_flag": True})(1.0)


def test_effort_options() -> None:
    """How much effort XLA spends is no flag, but is given like one."""
    efforts = {"exec_time_optimization_effort": 0.5, "memory_fitting_effort": 0.0}
    levels = {"optimization_level": 1, "memory_fitting_level": 0}
    f = tb.jit(lambda x: x + 1, compiler_options={**efforts, **levels})

    assert 2.0 == float(f(1.0))


FAST = {"xla_cpu_enable_fast_math": True}


@pytest.mark.parametrize(
    "within",
    [
        tb.jit,
        lambda f: tb.jit(tb.vmap(f)),
        lambda f: tb.jit(tb.grad(lambda x: f(x).sum())),
        lambda f: lambda x: tb.lax.scan(lambda c, y: (c, f(y)), 0.0, x),
        lambda f: lambda x: tb.lax.cond(True, f, lambda x: x, x),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_compiler_options_inside_another_program(within: Any, inline: bool) -> None:
    """They could not be kept: an error, instead of a program without them."""
    f = within(tb.jit(lambda x: x * x, compiler_options=FAST, inline=inline))
    with pytest.raises(ArgumentValueError, match="compiler_options"):
        f(tnp.arange(3.0))


def test_options_of_a_program_made_of_jitted_functions() -> None:
    """Who compiles a function of a user whole gets its options, if there is one choice."""
    f = tb.jit(lambda x: x * x, compiler_options=FAST)
    program = stage(lambda x: [f(x) + 1], [ShapedArray((3,), np.float32)])
    whole, options = lifted_options(program)
    assert (tuple(FAST.items()), ["jit", "add"]) == (
        options,
        primitives_in(whole),
    )
    assert "compiler_options" not in whole.equations[0][0].params
    plain = stage(lambda x: [tb.jit(tnp.sin)(x)], program.in_avals)
    assert (plain, ()) == lifted_options(plain)

    other = tb.jit(tnp.cos, compiler_options={"xla_cpu_enable_fast_math": False})
    with pytest.raises(ArgumentValueError, match="compiler_options"):
        lifted_options(stage(lambda x: [f(x) + other(x)], program.in_avals))


def test_compiler_options_of_transformed_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """vmap and grad of a jitted function compile with its options."""
    seen: list[Any] = []
    real = dispatch.compile_jaxpr

    def spy(*args: Any, compiler_options: Any = (), **kwargs: Any) -> Any:
        seen.append(compiler_options)
        return real(*args, compiler_options=compiler_options, **kwargs)

    monkeypatch.setattr(dispatch, "compile_jaxpr", spy)
    f = tb.jit(lambda x: x * x + 2, compiler_options=FAST)

    assert [2.0, 3.0, 6.0] == tb.vmap(f)(tnp.arange(3.0)).tolist()
    assert [tuple(FAST.items())] == seen
    seen.clear()
    assert tb.grad(f)(3.0) == 6.0
    assert tuple(FAST.items()) in seen


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
