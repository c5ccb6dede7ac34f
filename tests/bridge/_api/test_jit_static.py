"""jit: static arguments, and options that must fit the signature."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge._api.counting import Counter
from tracebridge.errors import ArgumentSpecError, NonHashableStaticArgumentError

X = np.arange(3, dtype=np.float32)


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

    with pytest.raises(NonHashableStaticArgumentError, match="DynamicJaxprTracer"):
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
