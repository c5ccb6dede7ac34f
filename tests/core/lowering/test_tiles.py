"""Elementwise programs whose rows do not fit tiles are compiled without XLA's emitter for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core._jaxlib.xla import (
    CompileOptions,
    make_compile_options,
    with_flag,
    without_tiles,
)
from tracebridge.core.config.scopes import scope
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.lowering.tiles import is_faster_without_tiles
from tracebridge.core.runtime.programs import compile

SWITCH = b"xla_cpu_disable_tiled_emitter"


def _is_found(f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float32) -> bool:
    avals = [ShapedArray(shape, np.dtype(dtype)) for shape in shapes]
    return is_faster_without_tiles(stage(lambda *x: tb.tree.leaves(f(*x)), avals))


@tb.custom_jvp
def _with_own_derivative(x: Any) -> Any:
    return tnp.exp(x)


@_with_own_derivative.defjvp
def _rule(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return primals[0], tangents[0]


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (tnp.exp, [(300, 100)]),
        (tnp.tanh, [(30, 10, 1001)]),
        (tnp.add, [(300, 100), (300, 100)]),
        (tnp.greater, [(300, 100), (300, 100)]),
        (lambda x, a: tnp.log(x * a) + 1, [(300, 100), ()]),
        (tb.jit(lambda x, y: tnp.where(x > y, x, tnp.exp(y))), [(300, 100), (300, 100)]),
        (_with_own_derivative, [(300, 100)]),
    ],
)
def test_elementwise_programs_of_broken_rows(f: Any, shapes: list[tuple[int, ...]]) -> None:
    """Also with numbers beside arrays, and behind calls."""
    assert _is_found(f, *shapes)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (tnp.exp, [(300, 128)]),  # whole vectors
        (tnp.exp, [(3000, 30)]),  # short rows
        (tnp.exp, [(20, 1001)]),  # few rows, which several threads would have to share
        (tnp.exp, [(300_001,)]),  # the same
        (tnp.exp, [(70, 100)]),  # small
        (tnp.exp, [()]),
        (lambda x: x, [(300, 100)]),
        (tnp.transpose, [(300, 100)]),
        (lambda x: tnp.exp(x).sum(), [(300, 100)]),
        (lambda x, y: x + y, [(300, 100), (100,)]),
        (tb.jit(lambda x: tnp.exp(x).T), [(300, 100)]),
        (lambda x, y: (x * 2, y * 2), [(300, 100), (300, 128)]),
    ],
)
def test_other_programs(f: Any, shapes: list[tuple[int, ...]]) -> None:
    """What other emitters, or those for tiles, do better is left alone."""
    assert not _is_found(f, *shapes)


def test_vectors_of_wide_dtypes_are_shorter() -> None:
    """Rows of 72 are whole vectors of 8 float64, and no whole vectors of 16 float32."""
    assert _is_found(tnp.negative, (300, 72))
    with scope("enable_x64", True):
        assert not _is_found(tnp.negative, (300, 72), dtype=np.float64)
        assert _is_found(tnp.negative, (300, 100), dtype=np.float64)


def test_other_platforms_and_the_option() -> None:
    """Only programs for the CPU, and not where rules of platforms are off."""
    jaxpr = stage(lambda x: [tnp.exp(x)], [ShapedArray((300, 100), np.dtype(np.float32))])

    assert lower_module(jaxpr, "f", "cpu").without_tiles
    assert not lower_module(jaxpr, "f", "cuda").without_tiles
    with scope("platform_rules", False):
        assert not lower_module(jaxpr, "f", "cpu").without_tiles


def test_the_switch_is_a_part_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is part of the key of the persistent cache, and outlasts further flags."""
    plain = make_compile_options(env_overrides=[("xla_backend_optimization_level", 2)])
    changed = without_tiles(plain)

    assert SWITCH not in plain.SerializeAsString()
    assert SWITCH in changed.SerializeAsString()
    assert SWITCH in with_flag(changed, "xla_cpu_enable_fast_math", False).SerializeAsString()
    assert changed.env_option_overrides == plain.env_option_overrides
    monkeypatch.setattr("tracebridge.core._jaxlib.xla._HAS_TILES", False)
    assert without_tiles(plain) is plain


def test_other_versions_of_options_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the numbers of the fields have changed, nothing is."""
    monkeypatch.setattr("tracebridge.core._jaxlib.xla._WITHOUT_TILES", b"")
    options = make_compile_options()

    assert without_tiles(options) is options


def test_programs_are_compiled_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA gets the switch for one program and not for the next, unless ``XLA_FLAGS`` chose."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    seen: list[bool] = []
    original = compile.compile_or_load

    def load(client: Any, module: Any, devices: Any, options: CompileOptions, **rest: Any) -> Any:
        seen.append(SWITCH in options.SerializeAsString())
        return original(client, module, devices, options, **rest)

    monkeypatch.setattr(compile, "compile_or_load", load)
    for width in (101, 128):
        tb.jit(lambda x: tnp.exp(x) - x).lower(np.ones((311, width), np.float32)).compile()
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_extra_options=a=b")
    tb.jit(lambda x: tnp.exp(x) - x).lower(np.ones((313, 101), np.float32)).compile()

    assert seen == [True, False, False]


@pytest.mark.parametrize("f", [tnp.exp, tnp.tanh, tnp.log, lambda x: tnp.exp(x) * x - tnp.tanh(x)])
def test_results_are_those_of_tiles(f: Any) -> None:
    """Values and derivatives, with and without the rules of platforms; also of special numbers.

    Rounding differs only where another kernel contracts other products with sums: 1e-6.
    """
    x = np.linspace(0.1, 4.0, 300 * 100, dtype=np.float32).reshape(300, 100)
    x[:8, 3] = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 3e38, 1e-30]

    def values() -> list[Any]:
        value, pullback = tb.jit(lambda x: tb.vjp(f, x))(x)
        return [np.asarray(tb.jit(f)(x)), np.asarray(value), np.asarray(pullback(value)[0])]

    with scope("platform_rules", False):
        plain = values()
    for fast, expected in zip(values(), plain, strict=True):
        np.testing.assert_allclose(fast, expected, rtol=1e-6, atol=1e-6)
