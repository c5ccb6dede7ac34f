"""Calls of ATen operators by family, for the comparison with torch: name, arguments, keywords."""

from __future__ import annotations

from typing import Any

import torch

Case = tuple[str, tuple[Any, ...], dict[str, Any]]
_GENERATOR = torch.Generator().manual_seed(0)


def reseed(seed: int) -> None:
    """Let the numbers of cases begin anew."""
    _GENERATOR.manual_seed(seed)


def r(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    """Floats in an interval."""
    return torch.rand(shape, generator=_GENERATOR) * (high - low) + low


def i(*shape: int, low: int = -5, high: int = 6) -> torch.Tensor:
    """Integers in an interval."""
    return torch.randint(low, high, shape, generator=_GENERATOR)


def b(*shape: int) -> torch.Tensor:
    return i(*shape, low=0, high=2).bool()


def case(name: str, *args: Any, **kwargs: Any) -> Case:
    return name if "." in name else f"{name}.default", args, kwargs


_UNARY: list[str] = str.split(
    "abs acos asin atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor gelu neg "
    "relu round sigmoid sign silu sin sinh tan tanh trunc log_sigmoid mish isnan isinf lgamma clone"
)
_POSITIVE: list[str] = str.split("log log10 log1p log2 reciprocal rsqrt sqrt")


def unary() -> list[Case]:
    cases = [case(n, r(2, 3, low=-0.9, high=0.9)) for n in _UNARY if n != "log_sigmoid"]
    cases += [case(n, r(5, low=0.2, high=3)) for n in _POSITIVE]
    cases += [
        case(n, i(4, low=0, high=2))
        for n in str.split("acos asin cos erf exp sin tanh sigmoid sqrt abs neg sign round ceil")
    ]
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0])
    return [
        *cases,
        case("acosh", r(3, low=1.2, high=3)),
        case("asinh", r(3)),
        *[case(n, special) for n in ("isnan", "isinf", "sign")],
        *[case(n, special[1:]) for n in ("relu", "abs")],
        case("gelu", r(4), approximate="tanh"),
        case("hardtanh", torch.tensor([-2.0, -1.0, 0.5, 1.0, 3.0])),
        case("leaky_relu", torch.tensor([-1.0, 0.0, 2.0]), 0.2),
        case("elu", r(5), 1.5, 2.0, 0.5),
        case("softplus", r(5) * 20, 2, 15),
        case("clamp", torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]), -1, 1),
        case("clamp", i(6), -2, 2),
        case("clamp", r(4), 0.5),
        case("clamp.Tensor", r(4), r(4) - 1, r(4) + 1),
        case("round.decimals", r(4), decimals=1),
        case("logical_not", r(3)),
        case("logical_not", b(3)),
        case("bitwise_not", i(3)),
        case("bitwise_not", b(3)),
        case("_to_copy", r(3) * 3, dtype=torch.int64),
        case("_to_copy", i(3), dtype=torch.float32),
        case("_to_copy", r(3), dtype=torch.bool),
        case("copy", r(2, 3), i(3)),
        case("alias", r(2)),
        case("log_sigmoid", r(5)),
        case("hardsigmoid", torch.tensor([-4.0, -3.0, 1.0, 3.0, 4.0])),
        case("hardswish", torch.tensor([-4.0, -3.0, 1.0, 3.0, 4.0])),
        case("clamp_min", r(4), 0.5),
        case("clamp_max", i(4), 1),
        case("detach", i(2)),
    ]


def binary() -> list[Case]:
    pairs = [(r(2, 3), r(3)), (i(4), i(4, low=1)), (i(4), r(4, low=0.5)), (r(4), 2), (i(4), 2.5)]
    pairs += [(r(3), torch.tensor(2)), (i(3), torch.tensor(1.5)), (b(3), i(3, low=1))]
    cases: list[Case] = []
    for name in str.split("add sub mul div eq ne lt le gt ge remainder fmod"):
        for x, y in pairs:
            if name == "sub" and x.dtype == torch.bool:
                continue
            kind = "Tensor" if isinstance(y, torch.Tensor) else "Scalar"
            cases.append(case(f"{name}.{kind}", x, y))
    for mode in ("floor", "trunc"):
        cases += [case("div.Tensor_mode", x, y, rounding_mode=mode) for x, y in pairs[:3]]
        cases.append(case("div.Scalar_mode", i(4), 3, rounding_mode=mode))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        cases += [case(f"{name}.Tensor", i(4), i(4)), case(f"{name}.Tensor", b(4), b(4))]
        cases.append(case(f"{name}.Scalar", i(4), 3))
    for name in ("logical_and", "logical_or", "logical_xor"):
        cases += [case(name, b(4), b(4)), case(name, r(4), i(4))]
    return [
        *cases,
        case("add.Tensor", r(3), r(3), alpha=2),
        case("add.Tensor", b(3), b(3)),
        case("sub.Tensor", i(3), i(3), alpha=2),
        case("rsub.Scalar", r(3), 1),
        case("atan2", r(4), r(4)),
        case("atan2", i(4, low=1), i(4, low=1)),
        case("maximum", torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])),
        case("minimum", i(4), r(4)),
        case("pow.Tensor_Scalar", r(4), 3),
        case("pow.Tensor_Scalar", torch.tensor([0.0, 1.0]), 0),
        case("pow.Tensor_Scalar", r(4, low=0.1), 0.5),
        case("pow.Tensor_Scalar", r(4, low=0.1), -1.5),
        case("pow.Tensor_Scalar", i(4), 2),
        case("pow.Tensor_Scalar", i(4), 2.0),
        case("pow.Scalar", 2.0, r(4)),
        case("pow.Tensor_Tensor", r(4, low=0.1), r(4)),
        case("pow.Tensor_Tensor", i(4), i(4, low=0)),
        case("where.self", b(3), r(2, 3), torch.tensor(1)),
        case("masked_fill.Scalar", r(2, 3), b(3), 7),
        case("masked_fill.Tensor", r(2, 3), b(3), torch.tensor(7)),
        case("remainder.Scalar_Tensor", 7, i(3, low=1)),
        case("rsub.Tensor", r(3), r(3), alpha=2),
        case("addcmul", r(3), r(3), r(3), value=2),
        case("addcdiv", r(3), r(3), r(3, low=1), value=2),
    ]


def shapes() -> list[Case]:
    x = r(2, 3, 4)
    return [
        case("view", x, [4, -1]),
        case("expand", r(3, 1), [2, -1, 4]),
        case("permute", x, [2, 0, 1]),
        case("permute", x, [-1, 0, 1]),
        case("transpose.int", x, -1, 0),
        case("t", r(2, 3)),
        case("unsqueeze", x, -1),
        case("squeeze", r(1, 3, 1)),
        case("squeeze.dim", r(1, 3), 1),
        case("squeeze.dims", r(1, 3, 1), [0, -1]),
        case("flip", x, [0, -1]),
        case("roll", x, [1, -2], [0, 2]),
        case("roll", x, [5]),
        case("repeat", r(2, 3), [2, 1, 3]),
        case("diagonal", r(3, 4), 1),
        case("diagonal", x, 0, 0, 2),
        case("tril", r(3, 4), 1),
        case("triu", r(2, 3, 4), -1),
        case("as_strided", r(12), [2, 3], [1, 4], 1),
        case("slice.Tensor", x, 2, 1, 9223372036854775807, 2),
        case("slice.Tensor", x, 1, -2, -1),
        case("slice.Tensor", x, 0, 5, 9),
        case("select.int", x, -1, -2),
        case("split_with_sizes", r(5, 2), [2, 3]),
        case("split.Tensor", r(5, 2), 2),
        case("unbind.int", x, 1),
        case("cat", [r(2, 3), i(1, 3)]),
        case("cat", [torch.zeros(0), r(1, 3)], 1),
        case("stack", [r(2), r(2)], -1),
        case("constant_pad_nd", x, [1, 2, -1, 0], 3.0),
        case("reflection_pad1d", r(2, 5), [2, 1]),
        case("reflection_pad2d", r(1, 2, 4, 5), [2, 1, 1, 3]),
        case("reflection_pad3d", r(1, 3, 4, 3), [1, 1, 2, 1, 0, 1]),
        case("replication_pad2d", r(1, 2, 4, 5), [2, 1, 1, 3]),
        case("replication_pad3d", r(1, 3, 4, 3), [1, 1, 2, 1, 0, 1]),
    ]


def making() -> list[Case]:
    x = r(2, 3, 4)
    return [
        case("full", [2, 3], 1.5),
        case("full", [2], 3),
        case("full", [2], True),
        case("full_like", i(3), 2),
        case("full_like", r(3), 2, dtype=torch.int32),
        case("fill.Scalar", r(3), 2),
        case("arange.start_step", 0, 10, 3),
        case("arange.start_step", 1.0, 2.0, 0.25),
        case("arange.start_step", 5, 0, -2, dtype=torch.float32),
        case("scalar_tensor", 3),
        case("scalar_tensor", 3, dtype=torch.int64),
        case("zeros", [2]),
        case("ones", [2], dtype=torch.int64),
        case("ones_like", i(2)),
        case("new_zeros", i(2), [3]),
        case("new_ones", r(2), [3], dtype=torch.int32),
        case("new_full", i(2), [3], 4),
        case("zeros_like", r(2)),
        case("fill.Tensor", r(3), torch.tensor(2)),
        case("arange", 4),
        case("arange.start", 2, 4.5),
        case("reshape", x, [-1, 4]),
        case("_unsafe_view", x, [4, -1]),
        case("replication_pad1d", r(2, 5), [2, 1]),
    ]


def reductions() -> list[Case]:
    x = r(3, 4)
    cases: list[Case] = []
    for axes in ([0], [-1], [0, 1], []):
        cases += [case(n, x, axes) for n in ("sum.dim_IntList", "mean.dim", "amax", "amin")]
        cases += [case("sum.dim_IntList", i(3, 4), axes, True)]
        cases += [case("var.correction", x, axes or None)]
    for name in ("max.dim", "min.dim"):
        cases += [case(name, torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]]), 1)]
        cases += [case(name, i(3, 4), 0, True), case(name, torch.tensor([1.0, float("nan")]), 0)]
    for name in ("argmax", "argmin"):
        cases += [case(name, x), case(name, x, 1), case(name, i(3, 4), 0, True)]
        cases += [case(name, torch.tensor([1.0, float("nan"), 2.0, 2.0]), 0)]
    for name in ("any", "all"):
        cases += [case(name, b(3, 2)), case(f"{name}.dim", r(3, 2), 1), case(name, i(4))]
        cases += [case(f"{name}.dims", b(3, 2), [0, 1], True)]
    return [
        *cases,
        case("sum.dim_IntList", b(3, 4), [0]),
        case("sum.dim_IntList", i(4), None, dtype=torch.float32),
        case("mean", x),
        case("sum", i(3, 4)),
        case("max", x),
        case("min", i(3, 4)),
        case("amax", torch.tensor([[1.0, 1.0], [2.0, 3.0]]), [1]),
        case("prod", r(3)),
        case("prod", i(3, low=1)),
        case("prod.dim_int", torch.tensor([[0.0, 2.0], [3.0, 4.0]]), 1),
        case("var.correction", x, None, correction=0),
        case("var.correction", x, [1], correction=2, keepdim=True),
        case("var.dim", x, [0], False),
        case("cumsum", x, 1),
        case("cumsum", b(4), 0),
        case("cumprod", x, 0),
        case("_softmax", x, 1, False),
        case("_softmax", torch.tensor(2.0), 0, False),
        case("_log_softmax", x, -1, False),
        case("sort", x, 0),
        case("sort", torch.tensor([1.0, float("nan"), -1.0]), 0, True),
        case("sort.stable", i(9, low=0, high=3), stable=True, descending=True),
        case("topk", r(3, 6), 2),
        case("topk", r(6, 3), 2, 0),
        case("topk", r(3, 6), 2, -1, False),
    ]


def indexing() -> list[Case]:
    x = r(4, 3)
    index = i(2, 3, low=0, high=4)
    cases: list[Case] = []
    for mode in ("sum", "prod", "amax", "amin", "mean"):
        for own in (True, False):
            cases.append(case("scatter_reduce.two", x, 0, index, r(2, 3), mode, include_self=own))
        cases.append(case("scatter_reduce.two", i(4, 3), 0, index, i(2, 3), mode))
    return [
        *cases,
        case("embedding", r(5, 2), i(2, 3, low=0, high=5)),
        case("embedding", r(5, 2), torch.tensor([1, 2, 1]), 1),
        case("embedding", r(5, 2), torch.tensor([1, 2, 1]), 0, True),
        case("multilabel_margin_loss_forward", x, torch.tensor([[0, 2, -1]] * 3 + [[-1, 2, 1]]), 1),
        case("multilabel_margin_loss_forward", x[0], torch.tensor([1, -1, 2]), 0),
        case("multilabel_margin_loss_forward", x, torch.tensor([[0, 1, 2]] * 4), 0),
        case("gather", x, 0, index),
        case("gather", x, 1, i(2, 5, low=0, high=3)),
        case("scatter.src", x, 0, torch.tensor([[0, 1, 2]]), r(1, 3)),
        case("scatter.value", x, 1, torch.tensor([[0], [2]]), 5.0),
        case("scatter_add", x, 0, index, r(2, 3)),
        case("scatter_add", i(4, 3), 0, index, i(3, 3)),
        case("index.Tensor", x, [torch.tensor([0, -1, 2])]),
        case("index.Tensor", r(2, 3, 4), [torch.tensor([0, 1]), None, torch.tensor([1, 2])]),
        case("index.Tensor", r(2, 3, 4), [None, torch.tensor([[0, 1], [2, 2]])]),
        case("_unsafe_index.Tensor", x, [torch.tensor([0, -1, 2])]),
        case("_unsafe_index_put", x, [torch.tensor([0, 2])], r(2, 3)),
        case("index_put", x, [torch.tensor([0, 2])], r(2, 3)),
        case("index_put", x, [torch.tensor([0, 0])], r(2, 3), True),
        case("index_put", x, [b(4, 3)], torch.tensor(3.0)),
        case("index_put", x, [b(4)], torch.tensor(3.0)),
        case("index_select", x, 1, torch.tensor([2, 0])),
        case("index_add", x, 0, torch.tensor([1, 1]), r(2, 3), alpha=2),
        case("index_copy", x, 1, torch.tensor([2, 0]), r(4, 2)),
        case("select_scatter", x, r(3), 0, -1),
        case("slice_scatter", x, r(2, 3), 0, 1, 9223372036854775807, 2),
        case("masked_scatter", r(2, 3), b(2, 3), r(7)),
    ]


def windows() -> list[Case]:
    x = r(2, 4, 7, 6)
    one, none = [1, 1], [0, 0]
    return [
        case("convolution", x, r(6, 4, 3, 2), r(6), [2, 1], [1, 0], [1, 2], False, none, 1),
        case("convolution", x, r(6, 2, 3, 3), None, one, one, one, False, none, 2),
        case("convolution", x, r(4, 3, 3, 2), r(6), [2, 3], [1, 0], [1, 2], True, [1, 0], 2),
        case("convolution", r(2, 3, 8), r(4, 3, 3), r(4), [2], [1], [1], False, [0], 1),
        case("convolution", r(1, 2, 4, 4, 3), r(3, 2, 2, 2, 2), None, [1], [1], [1], False, [0], 1),
        case("max_pool2d_with_indices", x, [3, 2], [2, 2], [1, 0]),
        case("max_pool2d_with_indices", x, [2, 2], [2, 2], [0, 0], [1, 2], True),
        case("max_pool2d_with_indices", r(4, 5, 5), [3, 3], [2, 2], [1, 1], [1, 1], True),
        case("max_pool3d_with_indices", r(1, 2, 4, 5, 4), [2, 2, 2]),
        case("avg_pool1d", r(2, 3, 7), [3], [2], [1]),
        case("avg_pool2d", x, [3, 2], [2, 2], [1, 1]),
        case("avg_pool2d", x, [3, 2], [2, 2], [1, 1], True, False),
        case("avg_pool2d", x, [3, 3], [2, 2], [1, 1], True, True),
        case("avg_pool2d", x, [2, 2], [], 0, True, True),
        case("avg_pool2d", x, [2, 2], [2, 2], 0, False, True, 3),
        case("avg_pool3d", r(1, 2, 4, 5, 4), [2, 2, 2], [2, 2, 2], [1, 1, 1]),
        case("_adaptive_avg_pool2d", x, [3, 4]),
        case("_adaptive_avg_pool3d", r(1, 2, 4, 5, 4), [2, 3, 4]),
        case("upsample_nearest2d.vec", x, [9, 4], None),
        case("upsample_nearest2d.vec", x, None, [2.0, 1.5]),
        case("upsample_bilinear2d.vec", x, [9, 4], False, None),
        case("upsample_bilinear2d.vec", x, [9, 4], True, None),
        case("upsample_bilinear2d.vec", x, None, False, [2.0, 1.5]),
        case("_upsample_bilinear2d_aa", x, [4, 9], False),
        case("_upsample_bilinear2d_aa", x, [3, 4], False, 0.45, 0.7),
        case("_upsample_bicubic2d_aa", x, [4, 9], False),
        case("_upsample_bicubic2d_aa", x, [3, 4], True),
        case("fractional_max_pool2d", x, [2, 3], [4, 2], r(2, 4, 2, low=0, high=1)),
        case(
            "fractional_max_pool3d", r(1, 2, 6, 5, 5), [2] * 3, [4, 1, 3], r(1, 2, 3, low=0, high=1)
        ),
        case("upsample_linear1d.vec", r(2, 3, 4), [7], False, None),
        case("upsample_nearest1d.vec", r(2, 3, 4), [7], None),
        case("upsample_nearest3d.vec", r(1, 2, 3, 4, 5), [5, 4, 3], None),
        case("upsample_trilinear3d.vec", r(1, 2, 3, 4, 5), [5, 4, 3], True, None),
    ]


def pullbacks() -> list[Case]:
    """What torch's autograd calls; their own derivatives are those of the second order."""
    x, deep = r(2, 4, 7, 6), r(1, 2, 4, 5, 4)
    kernel, options = [3, 2], ([2, 2], [1, 1])
    y, index = torch.ops.aten.max_pool2d_with_indices(x, kernel, *options, [1, 1], True)
    z, place = torch.ops.aten.max_pool3d_with_indices(deep, [2, 2, 2])
    flat, at = torch.ops.aten.adaptive_max_pool2d(x, [3, 2])
    best, where = torch.ops.aten.adaptive_max_pool3d(deep, [3, 2, 2])
    one, none = [1, 1], [0, 0]
    back = "convolution_backward"
    given = (r(2, 6, 4, 5), x, r(6, 2, 3, 2), [6], [2, 1], [1, 0], [1, 1], False, none, 2)
    turned = (r(2, 6, 8, 7), x, r(4, 3, 2, 2), None, one, none, one, True, none, 2)
    return [
        case(back, *given, [True, True, True]),
        case(back, *given, [False, True, False]),
        case(back, *turned, [True, True, False]),
        case(
            back, r(2, 4, 8), r(2, 3, 8), r(4, 3, 3), [4], [1], [1], [1], False, [0], 1, [True] * 3
        ),
        case("avg_pool2d_backward", y, x, kernel, *options, True, False, None),
        case("avg_pool3d_backward", z, deep, [2] * 3, [2] * 3, [0] * 3, False, True, None),
        case("_adaptive_avg_pool2d_backward", r(2, 4, 3, 4), x),
        case("_adaptive_avg_pool3d_backward", r(1, 2, 2, 3, 4), deep),
        case("max_pool2d_with_indices_backward", y, x, kernel, *options, [1, 1], True, index),
        case(
            "max_pool3d_with_indices_backward",
            *(z, deep, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, place),
        ),
        case("adaptive_max_pool2d_backward", flat, x, at),
        case("adaptive_max_pool3d_backward", best, deep, where),
    ]


def layers() -> list[Case]:
    x = r(3, 4, 5)
    w, v = r(4), r(4)
    q, k = r(2, 2, 3, 4), r(2, 2, 5, 4)
    full = "scaled_dot_product_attention"
    return [
        case("mm", r(2, 3), r(3, 4)),
        case("mm", i(2, 3), i(3, 4)),
        case("bmm", r(2, 2, 3), r(2, 3, 2)),
        case("addmm", r(4), r(2, 3), r(3, 4), beta=2, alpha=0.5),
        case("baddbmm", r(2, 2, 2), r(2, 2, 3), r(2, 3, 2)),
        case("mv", r(2, 3), r(3)),
        case("addmv", r(2), r(2, 3), r(3), beta=0.5),
        case("addbmm", r(2, 2), r(3, 2, 4), r(3, 4, 2), alpha=2),
        case("layer_norm", x, [5], r(5), r(5)),
        case("group_norm", x, 2, w, v),
        case("dot", r(3), r(3)),
        case("_trilinear", r(2, 3), r(4, 3, 5), r(2, 5), [1, 3], [0], [1, 2], [2, 3]),
        case("linear", x, r(2, 5), r(2)),
        case("matmul", r(3), r(2, 3, 4)),
        case("_native_batch_norm_legit_functional", x, w, v, r(4), r(4, low=1), True, 0.1, 1e-5),
        case("_batch_norm_with_update_functional", x, w, v, r(4), r(4, low=1), 0.1, 1e-5),
        case("_native_batch_norm_legit_no_training", x, w, v, r(4), r(4, low=1), 0.1, 1e-5),
        case("_native_batch_norm_legit.no_stats", x, w, v, True, 0.1, 1e-5),
        case("native_layer_norm", x, [4, 5], r(4, 5), r(4, 5), 1e-5),
        case("native_layer_norm", x, [5], None, None, 1e-5),
        case("native_group_norm", x, w, v, 3, 4, 5, 2, 1e-5),
        case(full, q, k, k),
        case(full, q, q, q, is_causal=True),
        case(full, q, k, k, is_causal=True, scale=0.3),
        case(full, q, k, k, r(3, 5)),
        case(full, q, k, k, torch.tensor([[True] * 5, [True] + [False] * 4, [False] * 5])),
        case(full, r(3, 4), r(5, 4), r(5, 2)),
        case("_cdist_forward", r(2, 3, 4), r(2, 5, 4), 2.0, None),
        case("_cdist_forward", r(3, 4), r(5, 4), 1.0, None),
        case("_pdist_forward", r(4, 3), 2.0),
        *[case("linalg_vector_norm", x, p, [1]) for p in (2, 1, 0, 3, -1, float("inf"))],
        case("linalg_vector_norm", torch.zeros(2, 3), 2, None, True),
        case("gru_cell", r(2, 3), r(2, 4), r(12, 3), r(12, 4), r(12), r(12)),
        case("lstm_cell", r(2, 3), [r(2, 4), r(2, 4)], r(16, 3), r(16, 4), r(16), r(16)),
        case("rnn_tanh_cell", r(2, 3), r(2, 4), r(4, 3), r(4, 4), r(4), r(4)),
        case("rnn_relu_cell", r(2, 3), r(2, 4), r(4, 3), r(4, 4), r(4), r(4)),
    ]


def shared_attention() -> list[Case]:
    return [
        case("scaled_dot_product_attention", r(2, 4, 5, 8), r(1, 4, 7, 8), r(1, 4, 7, 8)),
        case("scaled_dot_product_attention", r(1, 1, 5, 8), r(2, 4, 7, 8), r(2, 4, 7, 8)),
        case("scaled_dot_product_attention", r(2, 4, 5, 8), r(2, 1, 7, 8), r(2, 4, 7, 8), r(5, 7)),
        case("scaled_dot_product_attention", r(2, 4, 5, 8), r(2, 4, 7, 8), r(1, 1, 7, 8)),
        case("scaled_dot_product_attention", r(2, 4, 5, 8), r(2, 1, 7, 8), r(2, 4, 7, 3)),
    ]


def complex_numbers() -> list[Case]:
    z = torch.complex(r(3, 4), r(3, 4))
    return [
        case("_fft_r2c", r(3, 6), [0, 1], 0, True),
        case("_fft_r2c", r(3, 5), [1], 1, False),
        case("_fft_c2c", z, [1], 2, False),
        case("_fft_c2c", z, [0, 1], 1, True),
        case("_fft_c2r", z, [1], 2, 6),
        case("_fft_c2r", z, [0, 1], 0, 7),
        case("view_as_real", z),
        case("view_as_complex", r(3, 2)),
        case("complex", r(3), r(3)),
        case("polar", r(3, low=0.1), r(3)),
        case("angle", z),
        case("angle", torch.tensor([-1.0, 0.0, 2.0])),
        case("angle", i(4)),
        case("_conj", z),
        case("_conj_physical", z),
    ]


def ranks() -> list[Case]:
    x, ties = r(3, 6), i(3, 6, low=0, high=3)
    gaps = x.clone()
    gaps[0, 1] = gaps[2] = float("nan")
    edges = torch.tensor([-1.0, 0.0, 0.0, 1.0])
    places = torch.tensor([[-2.0, 0.0], [1.0, 0.5], [float("nan"), 3.0]])
    return [
        case("median.dim", x, 1),
        case("median.dim", gaps[:2], -1, True),
        case("median", x),
        case("nanmedian.dim", gaps[:2], 1),
        case("nanmedian", gaps),
        case("kthvalue", x, 2, 0),
        case("cummax", ties, 1),
        case("cummax", x, 0),
        case("cummin", ties, 1),
        case("cummin", gaps, 1),
        case("cummax", ties > 1, 1),
        case("cummin", ties > 1, 0),
        case("logcumsumexp", x, 1),
        case("var_mean.correction", x, [1], correction=0),
        case("var_mean.correction", x, keepdim=True),
        case("bucketize.Tensor", places, edges),
        case("bucketize.Tensor", places, edges, out_int32=True, right=True),
        case("searchsorted.Tensor", edges, places, right=True),
        case("searchsorted.Tensor", x.sort(1)[0], places),
        case("histc", x, 5, -1, 1),
        case("histc", x, 4),
        case("unfold", x, 1, 3, 2),
        case("unfold", r(5, 2), 0, 2, 1),
        case("adaptive_max_pool2d", r(2, 3, 7, 5), [3, 2]),
        case("adaptive_max_pool2d", r(3, 4, 4), [4, 3]),
        case("adaptive_max_pool3d", r(2, 3, 4, 5), [3, 2, 4]),
        case("copysign.Tensor", r(4), torch.tensor([1.0, -0.0, 0.0, -2.0])),
        case("copysign.Scalar", i(4, low=1), -1),
        case("signbit", torch.tensor([1.0, -0.0, 0.0, -2.0])),
        case("signbit", i(4)),
        case("hypot", r(4), r(4)),
        case("hypot", torch.tensor([3e30, 1e-30]), torch.tensor([4e30, 1e-30])),
        case("nextafter", r(4), r(4)),
        case("gcd", i(6), i(6)),
        case("__lshift__.Scalar", i(4, low=0), 2),
        case("__rshift__.Scalar", i(4), 1),
        *shared_attention(),
        case("bitwise_left_shift.Tensor", i(4, low=0), i(4, low=0)),
        case("bitwise_right_shift.Tensor", i(4), i(4, low=0)),
    ]


FAMILIES = {
    f.__name__: f
    for f in (
        *(unary, binary, shapes, making, reductions, indexing, windows, pullbacks, layers),
        *(complex_numbers, ranks),
    )
}
