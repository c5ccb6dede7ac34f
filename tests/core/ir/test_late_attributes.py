"""Attributes of arrays that come with the NumPy layer, and those that arrays never have."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.array_protocol import METHODS, NAMESPACE, PROPERTIES
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.tracer import Tracer


def test_the_tables_name_what_the_numpy_layer_gives() -> None:
    """Each name is there before the layer is loaded, and none stays behind."""
    assert set(NAMESPACE.methods) == set(METHODS)
    assert set(NAMESPACE.properties) == set(PROPERTIES)


@pytest.mark.parametrize("cls", [tb.Array, Tracer, ShapedArray])
def test_classes_of_values_have_no_getattr(cls: type) -> None:
    """The interpreter cannot specialise reads of attributes of classes that have one."""
    assert not hasattr(cls, "__getattr__")


def test_the_first_use_loads_the_layer() -> None:
    """A method, a property, the class and a question each find it in a new process."""
    uses = ["x.sum()", "x.T", "tb.Array.sum", "hasattr(x, 'at')", "tb.jit(lambda x: x.mean())(x)"]
    for use in uses:
        code = f"import tracebridge as tb; x = tb.device_put(1.0); y = {use}; assert y is not False"
        subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_attributes_say_what_to_use() -> None:
    """``hasattr`` and ``dir`` say no, of arrays, traced values and the class alike."""

    def check(x: Any) -> Any:
        assert not hasattr(x, "numpy")
        assert "numpy" not in dir(x)
        assert "reshape" in dir(x)
        with pytest.raises(AttributeError, match=r"no attribute 'clone'\n    way out: x\.copy"):
            x.clone()
        return x

    x = tnp.ones(3)
    check(x)
    tb.jit(check)(x)
    check(tb.Array)


def test_what_only_traced_values_miss() -> None:
    """An array has a sharding; of a traced value the message says who knows it."""
    assert hasattr(tnp.ones(3), "sharding")

    def check(x: Any) -> Any:
        assert not hasattr(x, "sharding")
        with pytest.raises(
            AttributeError, match=r"no attribute 'sharding'\n    way out: tb\.typeof"
        ):
            _ = x.sharding
        return x

    tb.jit(check)(tnp.ones(3))
