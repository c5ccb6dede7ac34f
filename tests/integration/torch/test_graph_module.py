"""``to_graph_module``: values and gradients equal those of the same function run by XLA."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils import _pytree as torch_tree

import tracebridge as tb
import tracebridge.core
import tracebridge.numpy as tnp
from tests.core.lax.op_table import TABLE, Op
from tests.integration.torch.graph_cases import CASES, X, normal
from tracebridge import lax
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.transform_errors import (
    CustomRuleError,
    JaxprTypeError,
    MissingRuleError,
)
from tracebridge.core.ir.primitive import all_primitives
from tracebridge.torch import to_graph_module, to_torch, wrap
from tracebridge.torch._aten.builder import RULES

pytestmark = [
    pytest.mark.torch,
    # torch uses what it deprecates, and more inside its compiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
func = torch.func
WITH_DTYPES = [pytest.param(op, dtype, id=f"{op}-{dtype}") for op in TABLE for dtype in op.dtypes]


def same(actual: Any, expected: Any, tolerance: float) -> None:
    """Two trees of tensors are equal, floats within a tolerance."""
    left, right = torch_tree.tree_leaves(actual), torch_tree.tree_leaves(expected)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        if b is None:
            assert a is None
        elif b.dtype.is_floating_point or b.dtype.is_complex:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert a.dtype == b.dtype
            assert a.tolist() == b.tolist()


def total(out: Any) -> Any:
    """A number of all floats in a result, with other weights for other elements."""
    floats = [x for x in torch_tree.tree_leaves(out) if isinstance(x, torch.Tensor)]
    floats = [x.double() for x in floats if x.dtype.is_floating_point]
    return sum([(x * torch.cos(torch.arange(x.numel()).reshape(x.shape))).sum() for x in floats])


def gradients(fun: Any, args: Any) -> list[torch.Tensor]:
    """Those of ``total`` with respect to the floats in ``args``."""
    args = torch_tree.tree_map(
        lambda a: (
            a.clone().requires_grad_()
            if isinstance(a, torch.Tensor) and a.is_floating_point()
            else a
        ),
        args,
    )
    leaves = [a for a in torch_tree.tree_leaves(args) if getattr(a, "requires_grad", False)]
    out = total(fun(*args))
    if not getattr(out, "requires_grad", False):
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(out, leaves, allow_unused=True)
    return [torch.zeros_like(v) if g is None else g for g, v in zip(found, leaves, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_is_the_function(name: str) -> None:
    """Values, dtypes and gradients of one case of each family of operations."""
    fun, args, tolerance = CASES[name]
    module, wrapped = to_graph_module(fun, args), wrap(fun)

    same(module(*args), wrapped(*args), tolerance)
    same(gradients(module, args), gradients(wrapped, args), 10 * tolerance)


@pytest.mark.parametrize(("op", "dtype"), WITH_DTYPES)
def test_elementwise(op: Op, dtype: Any) -> None:
    """Every elementwise operation at every dtype; at float32 its gradient, too."""
    with tb.enable_x64(True):
        args = tuple([to_torch(tnp.asarray(a)) for a in op.args(dtype)])
        module, wrapped = to_graph_module(op.fun, args), wrap(op.fun)
        expected = wrapped(*args)
    inexact = expected.dtype.is_floating_point or expected.dtype.is_complex
    tolerance = 40 * torch.finfo(expected.dtype).eps if inexact else 0

    same(module(*args), expected, tolerance)
    if dtype == d.float32 and op.order and inexact:
        same(gradients(module, args), gradients(wrapped, args), 1e-4)


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.uint8, torch.uint32, torch.int64, torch.uint64]
)
def test_integers_at_their_limits(dtype: torch.dtype) -> None:
    """Division by 0 and by -1, shifts of too many bits, saturation: nothing traps or differs."""
    limits = torch.iinfo(dtype)
    some = [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min]
    x = torch.tensor(some, dtype=dtype)
    floats = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), -1.5, 2.5, 1e30, 3e9], dtype=torch.float64
    )

    def fun(x: Any, floats: Any) -> Any:
        a, b = x[:, None], x[None, :]
        return (
            lax.div(*tnp.broadcast_arrays(a, b)), lax.rem(*tnp.broadcast_arrays(a, b)),
            a < b, tnp.maximum(a, b), tnp.sort(x), tnp.max(x), a * b, a - b,
            lax.shift_left(*tnp.broadcast_arrays(a, b)),
            lax.shift_right_logical(*tnp.broadcast_arrays(a, b)),
            lax.shift_right_arithmetic(*tnp.broadcast_arrays(a, b)),
            floats.astype(x.dtype), x.astype("float32"),
        )  # fmt: skip

    same(to_graph_module(fun, (x, floats))(x, floats), wrap(fun)(x, floats), 0)


def test_second_derivatives_are_those_of_the_rule() -> None:
    """A rule that is not the derivative of what is computed, to second order."""

    @tb.custom_jvp
    def cube(x: Any) -> Any:
        return x**3

    cube.defjvp(lambda p, t: (cube(*p), 4.5 * p[0] ** 2 * t[0]))
    x = torch.tensor([1.0, -2.0])
    module = to_graph_module(cube, (x,))
    hessian = torch.autograd.functional.hessian(lambda x: module(x).sum(), x)

    assert torch.equal(torch.diag(9 * x), hessian)


# Primitives whose lowering consists of operations of ours.
BY_DEFINITION = """adjugate bessel_gap beta_density betainc_grad_a betainc_grad_b binomial_count
cholesky_update digamma_gap
gamma_density gamma_draw geqrf hessenberg igamma igamma_grad_a igammac log_beta
lu_pivots_to_permutation lu_solve ormqr poisson_count ragged_rows ragged_sums random_gamma
random_gamma_grad regularized_incomplete_beta sampled_dot schur shifted_exp_sum
sparse_dot tridiagonal tridiagonal_solve trigamma_gap true_positions"""
# Those without counterpart: the error names them.
WITHOUT = {
    "devices": "all_gather all_to_all axis_index pmap pmax pmin ppermute psum psum_shared "
    "reduce_scatter inspect_sharding shard_map",
    "functions of the host": "buffer_callback debug_callback ffi_call foreign_call foreign_tangent "
    "io_callback pure_callback",
    "bits that depend on the platform": "rng_bit_generator rng_uniform",
    "any computation chooses": "select_and_scatter",
    "a program of a file": "exported_call",
    "types of values that programs define": (
        "add_of_users call_hi_primitive call_hi_primitive_linearized"
    ),
    "made by derivatives or lowerings, or to be handled before": (
        "batch_kernel check chosen composed custom_lin guarded plain_call row_kernel "
        "running_kernel scan_by_blocks scan_kernel"
    ),
}


def test_every_primitive_is_known() -> None:
    """Each has a rule, or a definition, or a reason why there is none."""
    for module in pkgutil.walk_packages(tracebridge.core.__path__, "tracebridge.core."):
        importlib.import_module(module.name)
    everything = {
        p.name for p in all_primitives() if type(p).__module__.startswith("tracebridge.core.")
    }
    others = [*BY_DEFINITION.split(), *" ".join(WITHOUT.values()).split()]

    assert sorted(others) == sorted(everything - RULES.keys())


def model(p: Any, x: Any) -> Any:
    """A small network with softmax, indices and a loop."""
    h = tb.nn.relu(x @ p["w"] + p["b"])
    h = lax.fori_loop(0, 2, lambda _, c: tnp.tanh(c), h)
    return tb.nn.softmax(h) * h[:, :1]


# No views: guards of torch.export would ask for what they are views of.
PARAMS = {"w": normal(6, 2), "b": normal(2)}


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(lambda m: torch.compile(m, backend="aot_eager", fullgraph=True), id="compile"),
        pytest.param(lambda m: torch.export.export(m, (PARAMS, X)).module(), id="export"),
    ],
)
def test_compiles_and_exports(transform: Any) -> None:
    """The results of a compiled or exported module, with its gradients, are the same."""
    module = to_graph_module(model, (PARAMS, X))
    changed = transform(module)

    same(changed(PARAMS, X), wrap(model)(PARAMS, X), 1e-5)
    same(gradients(changed, (PARAMS, X)), gradients(module, (PARAMS, X)), 1e-5)


def test_torch_func() -> None:
    """vmap, grad and jvp of torch go through a module without loops."""

    def fun(x: Any) -> Any:
        return tb.nn.softmax(tnp.sort(x) * x[0]) @ x

    module = to_graph_module(fun, (X[0],))

    same(func.vmap(module)(X), wrap(tb.vmap(fun))(X), 1e-5)
    same(func.vmap(func.grad(module))(X), wrap(tb.vmap(tb.grad(fun)))(X), 1e-5)
    same(func.jvp(module, (X[0],), (X[1],))[1], func.jvp(wrap(fun), (X[0],), (X[1],))[1], 1e-5)


def test_torch_func_at_any_size() -> None:
    """The same for a module whose sizes vary."""

    def fun(x: Any) -> Any:
        return tnp.cumsum(x) * x.shape[0] + tnp.ones(2 * x.shape[0])[1::2]

    module = to_graph_module(fun, (X[0],), dynamic_shapes=("n",))
    for x in (X, X[:, :3]):
        same(func.vmap(module)(x), wrap(tb.vmap(fun))(x), 1e-5)
        same(func.jacrev(module)(x[0]), wrap(tb.jacrev(fun))(x[0]), 1e-5)


@pytest.mark.parametrize("spec", ["b, _", {0: "b"}, {0: torch.export.Dim("b")}])
def test_sizes_that_vary(spec: Any) -> None:
    """One module for all sizes, also where a loop needs them, and through torch.export."""

    def fun(x: Any) -> Any:
        n = x.shape[0]
        rows = lax.scan(lambda c, r: (c + tnp.ones(n).sum() * r, c), x[0], x)[1]
        return rows.reshape(-1) + tnp.arange(6 * n), tnp.mean(x, 0)

    module = to_graph_module(fun, (X,), dynamic_shapes=(spec,))
    other = torch.cat([X, X])
    exported = torch.export.export(
        module, (X,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},)
    )

    same(module(other), wrap(fun)(other), 1e-5)
    same(exported.module()(other), wrap(fun)(other), 1e-5)


def test_runs_without_this_package(tmp_path: Any) -> None:
    """A saved module with constants runs where the package cannot be imported."""
    table = tnp.arange(12.0).reshape(6, 2)
    module = to_graph_module(lambda x: tb.nn.softmax(x @ table), (X,))
    torch.save((module, X, module(X)), tmp_path / "module.pt")
    exported = torch.export.export(to_graph_module(model, (PARAMS, X)), (PARAMS, X))
    torch.export.save(exported, tmp_path / "model.pt2")
    torch.save((PARAMS, X, wrap(model)(PARAMS, X)), tmp_path / "call.pt")
    code = f"""
import sys
sys.modules["tracebridge"] = sys.modules["jaxlib"] = None
import torch
module, x, expected = torch.load({str(tmp_path / "module.pt")!r}, weights_only=False)
assert torch.equal(module(x), expected)
params, x, expected = torch.load({str(tmp_path / "call.pt")!r})
found = torch.export.load({str(tmp_path / "model.pt2")!r}).module()(params, x)
torch.testing.assert_close(found, expected)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@tb.custom_vjp
def clipped(x: Any) -> Any:
    """Its gradient is clipped, which is not linear."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (tnp.clip(g, -1, 1),))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: to_graph_module(tnp.sin, X), ArgumentTypeError, "expected a tuple"),
        (lambda: to_graph_module(tnp.sin, ("x",)), ArgumentTypeError, "example_args"),
        (lambda: to_graph_module(tnp.sin, (X,), ()), ArgumentValueError, "dynamic_shapes"),
        (lambda: to_graph_module(tnp.sin, (X,), (3,)), ArgumentValueError, "dynamic_shapes"),
        (lambda: to_graph_module(clipped, (X,)), CustomRuleError, "not linear"),
        (
            lambda: to_graph_module(lambda x: tb.debug.print("{}", x), (X,)),
            JaxprTypeError,
            "effects",
        ),
        (
            lambda: to_graph_module(lambda x: lax.rng_uniform(0.0, x, (2,)), (X[0, 0],)),
            MissingRuleError,
            r"'rng_uniform'.*\n.*wrap",
        ),
    ],
)
def test_errors(call: Any, error: Any, text: str) -> None:
    """What cannot be written is named, with the way out."""
    with pytest.raises(error, match=text):
        call()
