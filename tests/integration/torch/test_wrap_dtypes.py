"""Numbers and dtypes in calls of wrapped functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.errors import ArgumentValueError, UnsupportedDtypeError
from tracebridge.torch import Module, wrap

pytestmark = pytest.mark.torch


def test_numbers_are_traced_as_weak_scalars():
    """A new value compiles nothing, and the tensor decides the dtype."""
    f = wrap(lambda x, a: x * a)
    x = torch.ones(2, dtype=torch.bfloat16)

    results = [f(x, a) for a in (0.5, 2.0, -1.0)]

    assert f.traces == 1
    assert all(r.dtype == torch.bfloat16 for r in results)
    assert [[0.5, 0.5], [2.0, 2.0], [-1.0, -1.0]] == [r.tolist() for r in results]


def test_kinds_of_numbers_are_kept_apart():
    """True, 1, 1.0 and 1j are different programs."""
    f = wrap(lambda a: tnp.negative(a) if a.dtype != bool else a)
    dtypes = [f(a).dtype for a in (1, 1.0, 1j)]

    assert [torch.int32, torch.float32, torch.complex64] == dtypes
    assert f(True).dtype == torch.bool


def test_numbers_keep_64_bits_beside_64_bit_tensors():
    """0.1 is not rounded to float32 on its way into a float64 computation."""
    x = torch.ones(1, dtype=torch.float64)

    assert wrap(lambda x, a: x * a)(x, 0.1).item() == 0.1
    assert wrap(lambda x, n: x + n)(torch.ones(1, dtype=torch.int64), 2**40).item() == 2**40 + 1


def test_large_integers_beside_narrow_tensors():
    """A Python int that 32 bits do not hold enters with 64 bits."""
    assert wrap(lambda n: tnp.asarray(n) + n)(2**40).item() == 2**41


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.int64, torch.complex128, torch.float16, torch.uint8, torch.uint32],
    ids=str,
)
def test_dtypes_are_kept(dtype):
    """64-bit dtypes stay 64 bits wide through every operation without enable_x64."""
    x = torch.arange(1, 5).to(dtype)
    f = wrap(
        lambda x: tnp.reshape(tnp.concatenate([x * 2, x + x, tnp.negative(-x)]), (3, -1)).T[1:]
    )

    out = f(x)

    assert dtype == out.dtype
    n = x.numpy()  # torch has no arithmetic on uint32
    expected = np.concatenate([n * 2, n + n, n]).reshape(3, -1).T[1:]
    assert expected.tolist() == out.tolist()


def test_float64_precision_of_functions():
    """float64 tensors are computed in float64."""
    x = torch.linspace(0.1, 2.0, 7, dtype=torch.float64)
    f = wrap(lambda x: (tnp.sin(x), tnp.exp(x), tnp.sum(x), tnp.mean(x), tnp.log(x) / 3))

    expected = (x.sin(), x.exp(), x.sum(), x.mean(), x.log() / 3)

    for e, actual in zip(expected, f(x), strict=True):
        torch.testing.assert_close(actual, e, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_cross(name):
    """Floats that NumPy does not know enter and leave."""
    x = torch.tensor([1.0, -2.0, 0.5]).to(getattr(torch, name))

    out = wrap(lambda x: x.astype("float32") * 2)(x)

    assert [2.0, -4.0, 1.0] == out.tolist()
    assert wrap(lambda x: x)(x).dtype == getattr(torch, name)


def test_bool_bytes_other_than_one_are_true():
    """torch calls every byte but 0 true; XLA would compute with the byte."""
    x = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)

    assert wrap(lambda m: tnp.sum(m.astype("int32")))(x).item() == 3
    assert [False, True, True, True] == wrap(lambda m: m)(x).tolist()


def test_numpy_arrays_and_own_arrays_beside_tensors():
    """They are constants for autograd; results are tensors all the same."""
    x = torch.ones(3, requires_grad=True)
    f = wrap(lambda x, y, z: x * y + z)

    out = f(x, np.arange(3, dtype=np.float32), tnp.ones(3))
    out.sum().backward()

    assert [1.0, 2.0, 3.0] == out.tolist()
    assert [0.0, 1.0, 2.0] == x.grad.tolist()


def test_numpy_arrays_follow_the_64_bit_rule():
    """Like arguments of jit; tensors do not."""
    f = wrap(lambda y: y + y)

    assert f(np.ones(2)).dtype == torch.float32
    assert f(np.float64(1.0)).dtype == torch.float32
    assert f(np.ones(2, dtype=ml_dtypes.bfloat16)).dtype == torch.bfloat16
    with enable_x64(True):
        assert f(np.ones(2)).dtype == torch.float64


def test_changing_a_numpy_argument_later_does_not_change_the_gradient():
    """Arguments that a backward pass needs are copied: NumPy has no version counters."""
    x = torch.ones(3, requires_grad=True)
    y = np.full(3, 2.0, dtype=np.float32)
    out = wrap(lambda x, y: x * y)(x, y)

    y[:] = 7.0
    out.sum().backward()

    assert [2.0, 2.0, 2.0] == x.grad.tolist()


def test_numbers_that_32_bits_do_not_hold_are_infinite_everywhere():
    """A float that is too large for the tensors beside it overflows alike everywhere."""
    f = wrap(lambda x, a: x * a)
    x = torch.ones(2, requires_grad=True)
    torch._dynamo.reset()
    calls = [f, lambda x, a: torch.func.vmap(lambda x: f(x, a))(x)]
    calls += [torch.compile(lambda x, a: f(x, a), backend="eager", fullgraph=True)]
    for number in (1e300, -1e300, complex(1e300, 0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy about the overflow
            results = [call(x, number) for call in calls]
            (gradient,) = torch.autograd.grad(
                results[0], x, torch.ones_like(results[0]), create_graph=True
            )

        assert [torch.isinf(r).all().item() for r in results] == [True] * 3
        assert len({(r.dtype, str(r.tolist())) for r in results}) == 1
        assert torch.isinf(gradient).all() or torch.isnan(gradient).all()


MASKED = np.ma.array(np.ones(3, np.float32), mask=[False, True, False])


@pytest.mark.parametrize(
    "call",
    [
        lambda: wrap(lambda x: x * 2)(MASKED),
        lambda: wrap(lambda x, y: x * y["m"])(torch.ones(3), {"m": MASKED}),
        lambda: Module(lambda p, x: p * x, MASKED),
    ],
    ids=["alone", "in a tree beside a tensor", "a parameter"],
)
def test_masks_are_not_dropped(call: Callable[[], object]) -> None:
    """The elements that a mask hides would come to light."""
    with pytest.raises(ArgumentValueError, match="masked array"):
        call()


@pytest.mark.parametrize(
    "host",
    [np.zeros(2, [("a", "f4")]), np.array([1, "a"], object)],
    ids=["structure", "objects"],
)
def test_arrays_without_a_dtype_on_devices_are_named(host: np.ndarray) -> None:
    """The error names the argument, as it does for other objects that are no arrays."""
    with pytest.raises(UnsupportedDtypeError, match=r"wrap\(scaled\): argument y is array"):
        wrap(scaled)(torch.ones(2), host)


def scaled(x: Any, y: Any) -> Any:
    """A product."""
    return x * y
