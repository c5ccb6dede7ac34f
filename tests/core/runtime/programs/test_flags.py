"""What the library's options add to the XLA flags of a program."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core._jaxlib.xla import QUICK_COMPILE
from tracebridge.core.config.scopes import scope
from tracebridge.core.runtime.programs.flags import with_flags

LEVEL = "xla_backend_optimization_level"


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)


def test_optimizations_are_left_to_xla() -> None:
    """Unless the option is on."""
    with scope("disable_most_optimizations", False):
        assert LEVEL not in dict(with_flags((), "cpu"))


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_the_option_asks_for_little_work(platform: str) -> None:
    with scope("disable_most_optimizations", True):
        flags = with_flags((("a", 1),), platform)

    assert {"a": 1, **dict(QUICK_COMPILE)}.items() <= dict(flags).items()


def test_other_choices_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the caller go first, and so does XLA's variable."""
    with scope("disable_most_optimizations", True):
        assert dict(with_flags(((LEVEL, 2),), "cpu"))[LEVEL] == 2
        monkeypatch.setenv("XLA_FLAGS", f"--{LEVEL}=1")
        assert LEVEL not in dict(with_flags((), "cpu"))


def test_programs_are_compiled_again() -> None:
    """A program that was compiled with all optimizations is not taken for one without."""

    @tb.jit
    def f(x: tb.Array) -> tb.Array:
        return tnp.tanh(x) * 2.0

    sizes = []
    for quick in (False, True, False):
        with scope("disable_most_optimizations", quick):
            f(tnp.ones(8))
            sizes.append(f._cache_size())

    assert sizes == [1, 2, 2]


def test_results_are_the_same() -> None:
    """One device, many, and operations called by themselves."""
    x = tnp.linspace(-2.0, 2.0, 64).reshape(8, 8)

    def values() -> list[np.ndarray]:
        over_devices = tb.pmap(lambda row: tnp.cumsum(tnp.exp(row)))
        return [np.asarray(v) for v in (tb.jit(tnp.tanh)(x), over_devices(x), tnp.exp(x) @ x)]

    with scope("disable_most_optimizations", True):
        quick = values()
    with scope("disable_most_optimizations", False):
        for a, b in zip(quick, values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_dtypes_that_quick_compilation_does_not_know() -> None:
    """XLA's plain emitter has no conversions to all floats of 8 bits: the usual one does it."""
    numbers = np.arange(2).astype(np.float32).astype(ml_dtypes.float8_e4m3b11fnuz)
    with scope("disable_most_optimizations", True):
        constant, _ = tb.jit(lambda x: (tnp.asarray(numbers), x))(1.0)

    assert constant.dtype == numbers.dtype
    np.testing.assert_array_equal(np.asarray(constant), numbers)


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"])
@pytest.mark.parametrize("kind", ["bfloat16", "float32", "float64"])
def test_small_negative_numbers_become_zero(name: str, kind: str) -> None:
    """Dtypes without -0 have NaN in its place; XLA's quick way of making code gave that."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.array([-1e-30, -1e-9, -0.0, 0.0, 1e-30, -1.5]).astype(kind)
    with scope("disable_most_optimizations", True):
        narrow = tb.jit(lambda x: x.astype(dtype))(x)

    np.testing.assert_array_equal([0, 0, 0, 0, 0, -1.5], np.asarray(narrow).astype(np.float32))
