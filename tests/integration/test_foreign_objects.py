"""Objects of other packages as operands: those that stand for an array, and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.errors import UnsupportedDtypeError
from tracebridge.testing import assert_allclose


class Forwards:
    """All attributes are those of an array inside, as boxes and cursors have it."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        if name == "inside":
            raise AttributeError(name)
        return getattr(self.inside, name)

    def __radd__(self, other: Any) -> str:
        del other
        return "reflected"


class Doubled(Forwards):
    """Stands for twice the array inside: the array that attributes come from is another one."""

    def __tracebridge_array__(self) -> Any:
        return self.inside * 2


class DoubledForOthers(Forwards):
    """Likewise, by the name that other packages define."""

    def __jax_array__(self) -> Any:
        return self.inside * 2


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "operator": lambda x: tnp.ones(3) + x,
    "reflected": lambda x: tnp.ones(3) * (2.0 - tnp.asarray(x)),
    "matmul": lambda x: tnp.ones(3) @ x,
    "binary": lambda x: tnp.add(x, tnp.ones(3)),
    "unary": tnp.sin,
    "reduction": lambda x: tnp.sum(x),
    "with_statics": lambda x: tnp.reshape(x, (3, 1)),
    "sequence": lambda x: tnp.concatenate([x, tnp.ones(3)]),
    "einsum": lambda x: tnp.einsum("i,i", x, tnp.ones(3)),
    "where": lambda x: tnp.where(tnp.array([True, False, True]), x, 0.0),
    "lax": lambda x: lax.add(x, tnp.ones(3)),
    "lax unary": lax.sin,
    "convert": lambda x: lax.convert_element_type(x, "float16"),
    "update": lambda x: tnp.zeros(3).at[:].set(x),
    "index": lambda x: tnp.arange(9.0)[tnp.asarray(x).astype(int)],
    "like": tnp.ones_like,
}


@pytest.mark.parametrize("kind", [Doubled, DoubledForOthers])
@pytest.mark.parametrize("name", OPERATIONS)
def test_objects_that_stand_for_an_array(name: str, kind: Any) -> None:
    """The array that the method gives is the operand: eagerly, traced, and after arrays."""
    x = tnp.arange(3.0)
    operation = OPERATIONS[name]
    operation(x)  # executables for arrays like the one inside are there
    expected = operation(2 * x)

    assert_allclose(operation(kind(x)), expected, check_dtype=True)
    assert_allclose(tb.jit(lambda x: operation(kind(x)))(x), expected, rtol=1e-6)
    assert_allclose(tb.vmap(lambda x: operation(kind(x)))(x[None])[0], expected, rtol=1e-6)
    _, tangent = tb.jvp(lambda x: operation(kind(x)), (x,), (tnp.ones(3),))
    _, wanted = tb.jvp(lambda x: operation(2 * x), (x,), (tnp.ones(3),))
    assert_allclose(tangent, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "name", sorted(OPERATIONS.keys() - {"operator", "reflected", "index", "like"})
)
@pytest.mark.parametrize("trace", [lambda f: f, tb.jit])
def test_objects_that_only_forward_attributes(name: str, trace: Any) -> None:
    """They are no arrays, though they have every attribute of one."""
    operation = OPERATIONS[name]
    operation(tnp.arange(3.0))

    with pytest.raises(TypeError):
        trace(lambda x: operation(Forwards(x)))(tnp.arange(3.0))


def test_operators_leave_foreign_objects_to_their_own_methods() -> None:
    """The reflected method of the other operand decides, under a trace too."""
    seen: list[Any] = []
    x = tnp.ones(3)
    tb.jit(lambda x: seen.append(x + Forwards(x)))(x)

    assert "reflected" == x + Forwards(x)
    assert ["reflected"] == seen


def test_types_of_foreign_objects() -> None:
    """The type is that of the array that an object stands for; others have none."""
    x = tnp.zeros(3, np.int8)

    assert tb.typeof(x) is tb.typeof(DoubledForOthers(x))
    assert np.int8 == tb.lax.dtype(DoubledForOthers(x))
    with pytest.raises(UnsupportedDtypeError, match="Forwards"):
        tb.typeof(Forwards(x))
    with pytest.raises(UnsupportedDtypeError, match="argument x"):
        tb.jit(lambda x: x)(Forwards(x))
