"""Each ATen operator of the translation against torch: values, dtypes and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as torch_trees

import tracebridge as tb
from tests.integration.torch import aten_cases, aten_cases_linalg
from tests.integration.torch.aten_cases import Case
from tracebridge.core.config.wide import INTEGERS, at_least
from tracebridge.torch import from_torch, to_torch
from tracebridge.torch._translate.table import KEYED_TABLE, TABLE

FAMILIES = {**aten_cases.FAMILIES, **aten_cases_linalg.FAMILIES}

# Torch has no derivatives of these, or not by all of their floats.
_NO_GRADIENT = frozenset(
    {
        "_batch_norm_with_update_functional.default",
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",  # not by scales
        "fake_quantize_per_channel_affine_cachemask.default",
        "_histogramdd_bin_edges.default",
        "_histogramdd_from_bin_cts.default",
        "_histogramdd_from_bin_tensors.default",
        "geqrf.default",
        "histogram.bin_ct",
        "histogram.bins_tensor",
        "_native_batch_norm_legit_functional.default",
        "_native_batch_norm_legit_no_training.default",
        "_conj.default",
        "as_strided_scatter.default",  # torch's is that of the elements that are overwritten
        "_embedding_bag_forward_only.default",
        "cholesky_inverse.default",  # torch's is not zero for elements that it does not read
        "cholesky_solve.default",
        "igamma.default",
        "igammac.default",
        "linalg_lu_factor_ex.default",
        "scatter.reduce",
        "scatter.value_reduce",
        "special_zeta.default",
        "rrelu_with_noise_functional.default",
        "_conj_physical.default",
        "_fft_c2c.default",
        "_fft_r2c.default",
        "complex.default",
        "copy.default",
        "fractional_max_pool2d.default",  # of samples torch has none
        "fractional_max_pool3d.default",
        "nextafter.default",
        "polar.default",
        "view_as_complex.default",
    }
    | {f"special_{name}.default" for name in aten_cases_linalg.BESSEL}
    | {
        f"special_{name}.{overload}"
        for name in aten_cases_linalg.POLYNOMIALS
        for overload in ("default", "n_scalar", "x_scalar")
    }
)


# How many results are for users; the others are for torch's derivatives, and differ.
_RESULTS = {
    "_embedding_bag.default": 1,
    "_embedding_bag_forward_only.default": 1,
    "_linalg_det.default": 1,
    "_linalg_slogdet.default": 2,
    "_linalg_solve_ex.default": 1,
}


def overload(name: str) -> Any:
    packet, kind = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), kind)


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in torch_trees.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def of_torch(case: Case) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """Results, weights of the sum that is differentiated, and gradients by all floats."""
    name, args, kwargs = case
    args = torch_trees.tree_map(
        lambda x: x.clone().requires_grad_(name not in _NO_GRADIENT) if is_float(x) else x, args
    )
    outs = tensors(overload(name)(*args, **kwargs))[: _RESULTS.get(name)]
    active = [x for x in tensors(args) if x.requires_grad]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.rand(o.shape, generator=generator) for o in outs]
    total = [(o * w).sum() for o, w in zip(outs, weights, strict=True) if o.requires_grad]
    grads: list[torch.Tensor] = []
    if total and active:
        found = torch.autograd.grad(sum(total), active, allow_unused=True)
        grads = [
            torch.zeros_like(x) if g is None else g for g, x in zip(found, active, strict=True)
        ]
        weights = [w if o.requires_grad else w * 0 for w, o in zip(weights, outs, strict=True)]
    return [o.detach() for o in outs], weights, grads


def of_ours(case: Case, floats: list[Any], weights: list[Any], *, grads: bool) -> Any:
    """Results, and gradients by the floats."""
    name, args, kwargs = case
    fun = TABLE.get(overload(name))
    keyed = KEYED_TABLE.get(overload(name))

    def run(values: list[Any]) -> Any:
        left = iter(values)

        def leaf(x: Any) -> Any:
            if is_float(x):
                return next(left)
            return from_torch(x) if isinstance(x, torch.Tensor) else x

        given = torch_trees.tree_map(leaf, args)
        more = {k: from_torch(x) if isinstance(x, torch.Tensor) else x for k, x in kwargs.items()}
        out = fun(*given, **more) if fun else keyed(None, *given, **more)  # type: ignore[misc]  # one of both
        outs = [x for x in torch_trees.tree_leaves(out) if hasattr(x, "dtype")]
        outs = outs[: _RESULTS.get(name)]
        total = 0.0
        for o, w in zip(outs, weights, strict=True):
            if o.dtype.kind == "f":
                total += (o * w).sum()
        return total, outs

    if not grads:
        return run(floats)[1], []
    (_, outs), found = tb.value_and_grad(run, has_aux=True)(floats)
    return outs, found


@pytest.mark.parametrize("family", FAMILIES)
def test_operators_equal_those_of_torch(family: str) -> None:
    """Values, dtypes, shapes and gradients of all cases of a family, in one program."""
    cases = FAMILIES[family]()
    wanted = [of_torch(c) for c in cases]
    floats = [[from_torch(x) for x in tensors(c[1]) if is_float(x)] for c in cases]
    weights = [[from_torch(w) for w in ws] for _, ws, _ in wanted]

    def everything(floats: Any, weights: Any) -> Any:
        with at_least(INTEGERS):
            return [
                of_ours(c, f, w, grads=bool(ref[2]))
                for c, f, w, ref in zip(cases, floats, weights, wanted, strict=True)
            ]

    problems: list[str] = []
    for case, got, (outs, _, grads) in zip(
        cases, tb.jit(everything)(floats, weights), wanted, strict=True
    ):
        for what, ours, theirs in (("value", got[0], outs), ("gradient", got[1], grads)):
            for x, y in zip(ours, theirs, strict=True):
                try:
                    assert str(x.dtype) == str(y.dtype).removeprefix("torch.")
                    assert tuple(x.shape) == tuple(y.shape)
                    np.testing.assert_allclose(
                        np.asarray(x), y.resolve_conj().numpy(), rtol=2e-4, atol=2e-5
                    )
                except AssertionError as error:
                    problems.append(f"{case}\n{what}: {error}")
    assert not problems, "\n\n".join([str(len(problems)), *problems])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gelu_of_narrow_floats_is_rounded_once(dtype: Any, approximate: str) -> None:
    """It is computed in float32, as torch does; a third of all results were off by a rounding."""
    x = torch.linspace(-3, 8, 2001).to(dtype)
    gelu = TABLE[torch.ops.aten.gelu.default]

    ours = to_torch(gelu(from_torch(x), approximate=approximate))

    exact = torch.nn.functional.gelu(x.double(), approximate=approximate).to(dtype)
    assert dtype == ours.dtype
    assert (ours != exact).sum() < 20
