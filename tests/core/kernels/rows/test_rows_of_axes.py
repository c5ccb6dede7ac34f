"""Rows of several axes: groups of channels, images, the batch; sums over parts of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import RNG, array, is_as_plain, kernels_in, needs_kernels
from tracebridge import export, lax, nn
from tracebridge.core._jaxlib.ffi import KERNEL

pytestmark = needs_kernels


def check(f: Any, *args: Any, kernels: int = 1, tolerance: float = 2e-6) -> None:
    """``f`` has so many kernels; its numbers are those of its plain form, NaN and signs too."""
    assert kernels_in(f, *args) == kernels
    is_as_plain(f, *args, tolerance=tolerance, signs=True)


def normal(x: Any, axes: tuple[int, ...]) -> Any:
    """Mean 0 and variance 1 over some axes."""
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


def by_channel(v: Any) -> Any:
    """A number for each channel of images."""
    return v.reshape(1, -1, 1, 1)


def group_norm(x: Any, scale: Any, bias: Any, groups: int = 4) -> Any:
    """Over groups of channels."""
    n, c, *sizes = x.shape
    y = normal(x.reshape(n, groups, c // groups, *sizes), (2, 3, 4)).reshape(x.shape)
    return y * by_channel(scale) + by_channel(bias)


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Over all images, for each channel."""
    return normal(x, (0, 2, 3)) * by_channel(scale) + by_channel(bias)


def gradients(f: Callable[..., Any]) -> Callable[..., Any]:
    """Of a weighted sum of the result, whose weights do not cancel each other."""

    def run(*args: Any) -> Any:
        weights = 1 + np.cos(np.arange(args[0].size, dtype=np.float32)).reshape(args[0].shape)
        return tb.vjp(f, *args)[1](weights)

    return run


IMAGES, C = (8, 16, 15, 20), 16
AFFINE = (array(*IMAGES), array(C), array(C))

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "group norm": (group_norm, AFFINE),
    "gradients of group norm": (gradients(group_norm), AFFINE),
    "one group": (lambda *a: group_norm(*a, groups=1), AFFINE),
    "axes of one element": (group_norm, (array(64, C, 1, 48), array(C), array(C))),
    "parts of one vector": (gradients(group_norm), (array(64, C, 4, 8), array(C), array(C))),
    "group norm of bfloat16": (
        lambda x, w: group_norm(x.astype("f4"), w.astype("f4"), 1 - w.astype("f4")),
        (array(*IMAGES).astype(tnp.bfloat16), array(C).astype(tnp.bfloat16)),
    ),
    "batch norm": (batch_norm, AFFINE),
    "gradients of batch norm": (gradients(batch_norm), AFFINE),
    "batch norm of series": (lambda x: normal(x, (0, 2)), (array(64, 16, 50),)),
    "instance norm, gradients": (
        gradients(lambda x, w, b: normal(x, (2, 3)) * by_channel(w) + by_channel(b)),
        AFFINE,
    ),
    "layer norm of matrices, gradients": (
        gradients(lambda x, w, b: normal(x, (-2, -1)) * w + b),
        (array(80, 23, 37), array(23, 37), array(23, 37)),
    ),
    "standardize": (lambda x: nn.standardize(x, axis=(-3, -2, -1)), (array(*IMAGES),)),
    "softmax over two axes": (lambda x: nn.softmax(x, axis=(-2, -1)), (array(50, 23, 37),)),
    "softmax over two axes, masked, its gradient": (
        gradients(lambda x: nn.softmax(tnp.where(tnp.tri(23, 37) > 0, x, -1e9), axis=(1, 2))),
        (array(50, 23, 37),),
    ),
    "a mask for each channel": (
        lambda x, m: normal(tnp.where(by_channel(m), x, 0.0), (1, 2, 3)),
        (array(*IMAGES), RNG.random(C) > 0.4),
    ),
    "largest and smallest of images": (
        lambda x: (x - x.max((1, 2), keepdims=True), x.min((1, 2))),
        (array(50, 23, 37),),
    ),
    "indices": (
        lambda x: [normal(x, (1, 2)) * lax.broadcasted_iota("i4", x.shape, i) for i in range(3)],
        (array(50, 23, 37),),
    ),
    "sums over parts that are finer than what is read": (
        lambda x, w, s: (normal(x, (1, 2, 3)) * w, (x * w * s).sum((2, 3)), (x * x).sum()),
        (array(20, 5, 18, 20), array(5, 18, 1), array(20, 1, 1, 1)),
    ),
    "sums over channels of rows of the batch": (
        lambda x: (normal(x, (0, 2, 3)), (normal(x, (0, 2, 3)) * x).sum(1)),
        (array(*IMAGES),),
    ),
    "mapped": (tb.vmap(group_norm, in_axes=(1, 0, None)),
               (array(4, 3, *IMAGES[1:]), array(3, C), array(C))),
    "mapped gradients": (tb.vmap(gradients(batch_norm), in_axes=(0, None, None)),
                         (array(3, 4, *IMAGES[1:]), array(C), array(C))),
    "derivative of a derivative": (
        lambda x, w, b: tb.grad(
            lambda x: (tb.grad(lambda x: (group_norm(x, w, b) ** 3).sum())(x) ** 2).sum()
        )(x),
        AFFINE,
    ),
    "several blocks": (gradients(group_norm), (array(32, C, 24, 30), array(C), array(C))),
    "several blocks of channels": (batch_norm, (array(32, C, 24, 30), array(C), array(C))),
    "long rows": (gradients(lambda x: normal(x, (1, 2, 3))), (array(3, 16, 40, 60),)),
    "softmax of long rows": (gradients(nn.softmax), (array(4, 20_011),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_several_axes(name: str) -> None:
    """One kernel for each, with the numbers of the plain form."""
    f, args = PROGRAMS[name]
    check(f, *args, tolerance=6e-6)


@pytest.mark.parametrize("f", [group_norm, batch_norm, gradients(group_norm)])
def test_extreme_numbers_stay_in_their_rows(f: Any) -> None:
    """NaN, infinities and what overflows come out as from XLA."""
    x = array(*IMAGES)
    x[0, 0, 3, :5] = [np.nan, np.inf, -np.inf, -0.0, 1e38]
    x[1, 4], x[2, 5] = 7.0, np.inf
    scale = np.array([np.inf, np.nan, -0.0, 0] * 4, np.float32)
    check(f, x, array(C), array(C), tolerance=6e-6)
    check(group_norm, x, scale, array(C), tolerance=6e-6)


def test_rows_of_two_kinds_of_the_same_array() -> None:
    """The second kernel has what the first one leaves."""
    x = array(*IMAGES)
    check(lambda x: normal(normal(x, (1, 2, 3)), (0, 2, 3)), x, kernels=2)
    check(lambda x: normal(normal(x, (2, 3)), (3,)), x, kernels=2)


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x.sum((1, 2, 3)), IMAGES),
        (lambda x: normal(x, (0, 2, 3)), (64, 64, 4, 4)),
        (lambda x: normal(x, (0, 1, 2, 3)), IMAGES),
    ],
    ids=["not used again", "short parts", "one row"],
)
def test_what_is_left(f: Any, shape: tuple[int, ...]) -> None:
    """Programs where a kernel is no gain."""
    assert kernels_in(f, array(*shape)) == 0


def test_exports_have_no_kernels() -> None:
    """Machine code of this process is for it alone."""
    exported = export.export(tb.jit(batch_norm))(*AFFINE)
    assert KERNEL not in exported.mlir_module()
