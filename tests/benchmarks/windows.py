"""Convolutions and pooling: the programs of two groups of ``cases.py``.

Each row is a function of the API that gives a function and its arguments; ``dx`` and ``dy`` are the
gradients by the array and by the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

Make = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
LAST = ("NHWC", "HWIO", "NHWC")


def _random(api: Any, *shape: int, dtype: str = "float32") -> Any:
    return api.np.asarray(onp.random.default_rng(0).normal(size=shape), dtype)


def _pulled(api: Any, f: Any, args: tuple[Any, ...], which: int) -> Any:
    """The cotangent of one argument."""
    out = api.root.eval_shape(f, *args).shape

    def back(ct: Any, *args: Any) -> Any:
        def of_one(arg: Any) -> Any:
            return f(*args[:which], arg, *args[which + 1 :])

        return api.root.vjp(of_one, args[which])[1](ct)[0]

    return back, (_random(api, *out, dtype=str(args[0].dtype)), *args)


def _conv(
    x: tuple[int, ...],
    y: tuple[int, ...],
    strides: Any,
    padding: Any,
    numbers: Any = None,
    groups: int = 1,
    gaps: Any = None,
    of: str = "value",
    dtype: str = "float32",
) -> Make:
    def make(api: Any) -> Any:
        def f(x: Any, y: Any) -> Any:
            return api.lax.conv_general_dilated(x, y, strides, padding, gaps, None, numbers, groups)

        args = tuple([_random(api, *shape, dtype=dtype) for shape in (x, y)])
        return (f, args) if of == "value" else _pulled(api, f, args, ("dx", "dy").index(of))

    return make


def _pool(
    shape: tuple[int, ...], name: str, sizes: Any, strides: Any, padding: Any, of: str = "value"
) -> Make:
    def make(api: Any) -> Any:
        init, fun = {"max": (-onp.inf, api.lax.max), "sum": (0.0, api.lax.add)}[name]

        def f(x: Any) -> Any:
            return api.lax.reduce_window(x, init, fun, sizes, strides, padding)

        args = (_random(api, *shape),)
        return (f, args) if of == "value" else _pulled(api, f, args, 0)

    return make


def _convolve(api: Any) -> Any:
    return api.np.convolve, (_random(api, 100_000), _random(api, 101))


_DEPTHWISE = ((8, 64, 32, 32), (64, 1, 3, 3), (1, 1), "SAME", None, 64)
_DEPTHWISE_LAST = ((8, 32, 32, 64), (3, 3, 1, 64), (1, 1), "SAME", LAST, 64)
_GROUPED = ((8, 32, 32, 32), (64, 8, 3, 3), (1, 1), "SAME", None, 4)
_MANY_GROUPS = ((2, 28, 28, 128), (3, 3, 4, 128), (1, 1), "SAME", LAST, 32)
_THREE_AXES = ((1, 32, 8, 16, 16), (32, 32, 3, 3, 3), (1, 1, 1), "SAME")
_FEATURES = ((8, 32, 32, 32), (64, 32, 3, 3), (1, 1), "SAME")
_IMAGES = (8, 32, 64, 64)
_POOL = ((1, 1, 2, 2), (1, 1, 2, 2), "VALID")
_POOL_3 = ((1, 1, 3, 3), (1, 1, 2, 2), "SAME")

WEAK: dict[str, Make] = {
    "depthwise 3x3": _conv(*_DEPTHWISE),
    "depthwise 3x3, dx": _conv(*_DEPTHWISE, of="dx"),
    "depthwise 3x3, dy": _conv(*_DEPTHWISE, of="dy"),
    "depthwise 3x3, features last": _conv(*_DEPTHWISE_LAST),
    "depthwise 3x3, features last, dy": _conv(*_DEPTHWISE_LAST, of="dy"),
    "depthwise 3x3, stride 2, dx": _conv(
        (8, 64, 32, 32), (64, 1, 3, 3), (2, 2), "SAME", None, 64, of="dx"
    ),
    "depthwise 7x7, features last": _conv((2, 28, 28, 96), (7, 7, 1, 96), (1, 1), "SAME", LAST, 96),
    "depthwise, one axis": _conv((8, 64, 512), (64, 1, 4), (1,), [(3, 0)], None, 64),
    "4 groups": _conv(*_GROUPED),
    "4 groups, dy": _conv(*_GROUPED, of="dy"),
    "32 groups": _conv(*_MANY_GROUPS),
    "32 groups, dy": _conv(*_MANY_GROUPS, of="dy"),
    "three axes": _conv(*_THREE_AXES),
    "three axes, dx": _conv(*_THREE_AXES, of="dx"),
    "three axes, dy": _conv(*_THREE_AXES, of="dy"),
    "3 features": _conv((8, 3, 64, 64), (16, 3, 3, 3), (1, 1), "SAME"),
    "3 features, dx": _conv((8, 3, 64, 64), (16, 3, 3, 3), (1, 1), "SAME", of="dx"),
    "1 feature": _conv((32, 28, 28, 1), (3, 3, 1, 32), (1, 1), "SAME", LAST),
    "patches of images, dx": _conv(
        (1, 224, 224, 3), (16, 16, 3, 192), (16, 16), "VALID", LAST, of="dx"
    ),
    "transposed, dy": _conv(
        (4, 32, 16, 16), (16, 32, 4, 4), (1, 1), [(2, 2), (2, 2)], None, 1, (2, 2), of="dy"
    ),
    "depthwise 3x3 bf16": _conv(*_DEPTHWISE, dtype="bfloat16"),
    "depthwise 3x3 f64": _conv(*_DEPTHWISE, dtype="float64"),
    "4 groups bf16": _conv(*_GROUPED, dtype="bfloat16"),
    "4 groups f64": _conv(*_GROUPED, dtype="float64"),
    "numpy.convolve": _convolve,
    "max pooling 2x2": _pool(_IMAGES, "max", *_POOL),
    "max pooling 2x2, dx": _pool(_IMAGES, "max", *_POOL, of="dx"),
    "max pooling 3x3": _pool(_IMAGES, "max", *_POOL_3),
    "max pooling 3x3, dx": _pool(_IMAGES, "max", *_POOL_3, of="dx"),
    "average pooling 2x2": _pool(_IMAGES, "sum", *_POOL),
    "average pooling 2x2, dx": _pool(_IMAGES, "sum", *_POOL, of="dx"),
    "sum of 3x3": _pool(_IMAGES, "sum", (1, 1, 3, 3), (1, 1, 1, 1), "SAME"),
    "moving sum of 100": _pool((100_000,), "sum", (100,), (1,), "VALID"),
    "moving maximum of 100": _pool((100_000,), "max", (100,), (1,), "VALID"),
    "moving maximum of 100, dx": _pool((100_000,), "max", (100,), (1,), "VALID", of="dx"),
}
STRONG: dict[str, Make] = {
    "32 to 64 features": _conv(*_FEATURES),
    "32 to 64 features bf16": _conv(*_FEATURES, dtype="bfloat16"),
    "32 to 64 features f64": _conv(*_FEATURES, dtype="float64"),
    "32 to 64 features, dx": _conv(*_FEATURES, of="dx"),
    "32 to 64 features, dy": _conv(*_FEATURES, of="dy"),
    "features last": _conv((8, 32, 32, 32), (3, 3, 32, 64), (1, 1), "SAME", LAST),
    "1x1": _conv((4, 28, 28, 128), (1, 1, 128, 128), (1, 1), "VALID", LAST),
    "stride 2": _conv((4, 28, 28, 64), (3, 3, 64, 128), (2, 2), "SAME", LAST),
    "stride 2, dx": _conv((4, 28, 28, 64), (3, 3, 64, 128), (2, 2), "SAME", LAST, of="dx"),
    "128 features": _conv((1, 128, 28, 28), (128, 128, 3, 3), (1, 1), "SAME"),
    "one axis": _conv((8, 32, 256), (64, 32, 5), (1,), "SAME"),
    "transposed": _conv((4, 32, 16, 16), (16, 32, 4, 4), (1, 1), [(2, 2)] * 2, None, 1, (2, 2)),
    "7x7, stride 2": _conv((2, 3, 112, 112), (64, 3, 7, 7), (2, 2), "SAME"),
    "patches of images": _conv((1, 224, 224, 3), (16, 16, 3, 192), (16, 16), "VALID", LAST),
    "global average pooling": _pool((8, 128, 8, 8), "sum", (1, 1, 8, 8), (1, 1, 8, 8), "VALID"),
}
