"""Compiled programs as bytes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.runtime_errors import ArgumentMismatchError, DevicePlacementError
from tracebridge.experimental.serialize_executable import deserialize_and_load, serialize
from tracebridge.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

X = np.arange(8, dtype="f4")
MESH = Mesh(np.array(tb.devices()[:4]), ("x",))


def again(compiled: Any, **options: Any) -> Any:
    """The program, from its bytes."""
    return deserialize_and_load(*serialize(compiled), **options)


def test_programs_survive() -> None:
    """Trees, static arguments, weak types, keys and arrays that are closed over."""
    table, key = tnp.arange(100.0), tb.random.key(1)

    def f(x: Any, n: int, *, shift: Any) -> Any:
        return {"sum": x + n + table[7] + shift["by"], "key": tb.random.split(key), "twice": 2 * x}

    made = tb.jit(f, static_argnums=1).lower(1.0, 3, shift={"by": X}).compile()
    loaded = again(again(made))
    expected, found = made(2.0, shift={"by": X}), loaded(2.0, shift={"by": X})
    assert np.array_equal(expected["sum"], found["sum"])
    assert np.array_equal(*[tb.random.key_data(r["key"]) for r in (expected, found)])
    assert found["twice"].weak_type
    assert (made.in_tree, made.out_tree) == (loaded.in_tree, loaded.out_tree)
    assert made.args_info == loaded.args_info
    assert made.out_info == loaded.out_info
    with pytest.raises(ArgumentMismatchError, match=r"argument x is f32\[8\]"):
        loaded(X, shift={"by": X})


def test_donated_memory() -> None:
    """It is given away as before."""
    loaded = again(tb.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile())

    x = tnp.arange(8.0)
    assert np.array_equal(X + 1, loaded(x))
    assert x.is_deleted()


def test_programs_over_devices() -> None:
    """They run over a mesh of the same devices, or of others; also programs for one device."""
    place = NamedSharding(MESH, PartitionSpec("x"))
    made = tb.jit(lambda x: 2 * x).lower(tb.device_put(X, place)).compile()

    out = again(made)(X)
    assert np.array_equal(2 * X, out)
    assert place == out.sharding
    others = tb.devices()[4:8]
    out = again(made, execution_devices=others)(X)
    assert np.array_equal(2 * X, out)
    assert set(others) == out.sharding.device_set
    one = tb.jit(lambda x: 2 * x).lower(tb.device_put(X, tb.devices()[0])).compile()
    assert SingleDeviceSharding(others[1]) == again(one, execution_devices=others[1:])(X).sharding
    with pytest.raises(DevicePlacementError, match="4 devices, but 1 are given"):
        again(made, execution_devices=others[:1])


def test_programs_with_fast_convolutions() -> None:
    """What calls a library by an address of this process is compiled without it."""
    x, w = np.ones((2, 32, 16, 16), "f4"), np.ones((32, 32, 3, 3), "f4")
    made = tb.jit(lambda x, w: tb.lax.conv(x, w, (1, 1), "SAME")).lower(x, w).compile()

    np.testing.assert_allclose(again(made)(x, w), made(x, w), rtol=1e-5)


def test_programs_that_stay() -> None:
    """Callbacks, references and damaged bytes have errors that say so."""
    ref = tb.new_ref(tnp.zeros(3))
    for f, words in (
        (lambda x: tb.pure_callback(lambda v: v, x, x), "calls functions of this process"),
        (lambda x: x + ref[0], "references"),
    ):
        with pytest.raises(ExportError, match=words):
            serialize(tb.jit(f).lower(1.0).compile())
    not_compiled, other = 3, SimpleNamespace(platform="other")
    with pytest.raises(ArgumentTypeError, match="serialize: got 3 of type int"):
        serialize(cast("Any", not_compiled))
    saved, *trees = serialize(tb.jit(lambda x: x).lower(1.0).compile())
    with pytest.raises(ExportError, match="damaged"):
        deserialize_and_load(saved[:-1], *trees)
    with pytest.raises(DevicePlacementError, match="execution_devices"):
        deserialize_and_load(saved, *trees, backend=other, execution_devices=tb.devices()[:1])


def test_programs_from_the_compilation_cache(tmp_path: Path) -> None:
    """XLA cannot save what it has loaded: these are compiled once more."""
    options = {"compilation_cache_dir": str(tmp_path), "persistent_cache_min_compile_time_secs": 0}
    before = {name: getattr(tb.config, name) for name in options}

    def f(x: Any) -> Any:
        return {"sum": x.sum() + 1, "twice": 2 * x - 1}

    for name, value in options.items():
        tb.config.update(name, value)
    try:
        for _ in range(2):
            found = again(tb.jit(f).lower(X).compile())(X)
            assert np.array_equal(2 * X - 1, found["twice"])
            tb.clear_caches()
    finally:
        for name, value in before.items():
            tb.config.update(name, value)
