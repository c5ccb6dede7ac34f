"""Names and behaviour of torch that the bridge relies on and torch does not document."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

pytestmark = pytest.mark.torch

PRIVATE = (
    "_to_dlpack",
    "_from_dlpack",
    "_dispatch_keys",
    "_dispatch_key_parse",
    "_are_functorch_transforms_active",
    "_len_torch_dispatch_stack",
    "_len_torch_function_stack",
    "_AutoDispatchBelowAutograd",
    "_vmapmode_increment_nesting",
    "_vmapmode_decrement_nesting",
    "_functorch",
    "_get_tracing_state",
    "_set_tracing_state",
    "_get_dtensor_allow_implicit_replication",
    "_is_any_autocast_enabled",
    "_is_fwd_grad_enabled",
    "_set_fwd_grad_enabled",
    "_set_grad_enabled",
)


# Of torch._C._functorch: levels of torch.func, see _eager/levels.py.
LEVELS = (
    "CGradInterpreterPtr",
    "_add_batch_dim",
    "_unwrap_batched",
    "_unwrap_for_grad",
    "_wrap_for_grad",
    "current_level",
    "get_unwrapped",
    "get_single_level_autograd_function_allowed",
    "maybe_get_level",
    "peek_interpreter_stack",
    "pop_dynamic_layer_stack",
    "push_dynamic_layer_stack",
    "set_single_level_autograd_function_allowed",
    "unwrap_if_dead",
)


@pytest.mark.parametrize("name", LEVELS)
def test_private_functions_of_levels_exist(name):
    """Calls under torch.func peel the levels off themselves."""
    assert hasattr(torch._C._functorch, name)


@pytest.mark.parametrize("name", PRIVATE)
def test_private_functions_exist(name):
    """torch._C still has them."""
    assert hasattr(torch._C, name)


def test_guards_of_tensors():
    """What the check of torch.compile sees of tensors, and that it keeps none."""
    from torch._C._dynamo.guards import TensorGuards

    x, w = torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)
    check = TensorGuards(x, w, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    assert check(x, w)
    others = (
        torch.ones(3, 2).t(), torch.ones(2, 2), x.double(), x.to("meta"), x.to_sparse(), None, 1.0,
        torch.nn.Parameter(x), torch._neg_view(x), w,
    )  # fmt: skip
    assert not any([check(other, w) for other in others])
    see = torch.func.vmap(lambda y, seen: y + check(*seen), in_dims=(0, None))
    assert not see(torch.zeros(1), [x, w]).any()
    with torch.inference_mode():
        assert not check(torch.ones(2, 3), w)
    alive = weakref.ref(x)
    del x, others
    assert alive() is None


def test_other_private_names():
    """Outside torch._C."""
    assert issubclass(torch._ops.OpOverload, torch._ops.OperatorBase)
    assert torch.ops.higher_order.scan.name() == "scan"
    assert torch.ops.aten.silu.default in torch._decomp.decomposition_table
    from torch._functorch.utils import enable_single_level_autograd_function
    from torch.utils._python_dispatch import _disable_current_modes

    assert callable(enable_single_level_autograd_function)
    assert callable(_disable_current_modes)
    assert isinstance(forward_ad._current_level, int)
    assert callable(forward_ad._set_fwd_grad_enabled)
    assert torch._C._functorch.get_interpreter_stack() is None
    seen = []
    torch.func.grad(lambda x: seen.extend(torch._C._functorch.get_interpreter_stack()) or x)(
        torch.ones(())
    )
    assert [torch._C._functorch.TransformType.Grad] == [level.key() for level in seen]
    assert callable(torch._VF._unpack_dual)
    assert callable(torch._VF._make_dual)
    assert callable(torch._VF._remove_batch_dim)
    assert callable(torch._VF._add_batch_dim)
    # What _crossing/in_graphs.py sets without an import of Dynamo.
    assert torch._dynamo.assume_constant_result(lambda: 0)._dynamo_marked_constant is True
    assert torch.Tag.cudagraph_unsafe is not None
    assert torch.autograd.profiler._is_profiler_enabled is False
    assert callable(torch._C._profiler._RecordFunctionFast)


def test_dynamo_shows_fake_tensors_at_compile_time():
    """What a function for comptime sees of a list of tensors, also of unknown sizes."""
    from torch._dynamo.comptime import comptime

    seen = []

    def look(context):
        seen.extend([x.node.meta["example_value"] for x in context.get_local("xs").as_proxy()])

    def calls(x):
        xs = [x, torch.full((), 2.0)]
        comptime(look)
        return xs[0] * xs[1]

    torch._dynamo.reset()
    torch.compile(calls, fullgraph=True, backend="eager", dynamic=True)(torch.ones(3))

    assert [(torch.SymInt,), ()] == [tuple([type(d) for d in x.shape]) for x in seen]


def test_dynamo_shows_closures_at_compile_time():
    """What a function that is defined in compiled code closes over, and its default values."""
    from torch._dynamo.comptime import comptime
    from torch._dynamo.variables import NestedUserFunctionVariable
    from torch._dynamo.variables.tensor import SymNodeVariable

    seen = []

    def look(context):
        fun = context.get_local("fun")._i_will_not_complain_if_bc_breaks_VariableTracker()
        tx = context._i_will_not_complain_if_bc_breaks_InstructionTranslator()
        assert isinstance(fun, NestedUserFunctionVariable)
        (cell,) = fun.closure.items
        seen.append(tx.output.side_effects.load_cell(cell))
        seen.extend(fun.defaults.items)

    def calls(x, n):
        fun = lambda y, m=n: y * m * n
        comptime(look)
        return fun(x)

    torch._dynamo.reset()
    torch.compile(calls, fullgraph=True, backend="eager", dynamic=True)(torch.ones(3), 5)

    assert 2 == len(seen)
    assert all([isinstance(v, SymNodeVariable) and v.evaluate_expr() == 5 for v in seen])


def test_raw_capsules_do_not_look_at_the_tensor():
    """Why the bridge must look itself: a capsule of a lazily conjugated tensor is the wrong way."""
    z = torch.tensor([1 + 2j])
    wrong = torch._C._from_dlpack(torch._C._to_dlpack(z.conj()))

    assert wrong.item() == 1 + 2j


def test_dispatch_keys_tell_special_tensors_apart():
    """One comparison of keys is the guard of the fast path."""
    from tracebridge.interop.torch_adapter import PLAIN_KEYS

    def keys(x):
        return torch._C._dispatch_keys(x).raw_repr()

    z = torch.ones(2, dtype=torch.complex64)
    with torch.inference_mode():
        inference = torch.ones(2)
    for x in (torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.ones(2, dtype=torch.bool), z):
        assert keys(x) in PLAIN_KEYS
    assert keys(inference) in PLAIN_KEYS
    special = (
        z.conj(),
        z.conj().imag,
        torch._efficientzerotensor((2,)),
        torch.ones(2, device="meta"),
        torch.ones(2, 2).to_sparse(),
    )
    for x in special:
        assert keys(x) not in PLAIN_KEYS
    seen = []
    torch.func.vmap(lambda x: (seen.append(keys(x)), x)[1])(torch.ones(2))
    torch.func.grad(lambda x: (seen.append(keys(x)), x)[1])(torch.ones(()))
    assert not set(seen) & PLAIN_KEYS


def test_allocations_are_aligned():
    """torch's memory on the CPU begins at multiples of 64 bytes: XLA takes it as it is."""
    for n in (1, 3, 100, 10_001):
        assert all(torch.empty(n).data_ptr() % 64 == 0 for _ in range(8))


def test_capsules_of_numpy_free_at_once():
    """torch takes them of read-only arrays too, and lets go of the array when its tensor dies."""
    host = np.arange(4.0)
    host.flags.writeable = False
    owner = weakref.ref(host)

    tensor = torch._C._from_dlpack(host.__dlpack__(max_version=(1, 0)))
    del host
    assert [0.0, 1.0, 2.0, 3.0] == tensor.tolist()
    assert owner() is not None

    del tensor
    assert owner() is None


def test_storages_tell_their_size():
    """After ``resize_`` the tensor does not know, its storage does."""
    x = torch.ones(4)[1:]

    x.untyped_storage().resize_(8)

    assert (3, 1, 8) == (x.numel(), x.storage_offset(), x.untyped_storage().nbytes())


def test_apply_of_the_base_class():
    """The C++ apply of autograd functions can be called without the Python part around it."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tag, x):
            ctx.tag = tag
            return (x * 2,)

        @staticmethod
        def backward(ctx, g):
            assert ctx.tag == "tag"
            return None, g * 2

    x = torch.ones(2, requires_grad=True)
    (y,) = super(torch.autograd.Function, Double).apply("tag", x)
    y.sum().backward()

    assert [2.0, 2.0] == x.grad.tolist()


@pytest.mark.parametrize("retained", [False, True])
def test_saved_tensors_are_cleared_at_once(retained):
    """A backward rule may free what is saved; nothing happens where the graph is retained."""
    alive = []

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept = x * 2
            ctx.save_for_backward(kept)
            return x * 3

        @staticmethod
        def backward(ctx, g):
            ctx.maybe_clear_saved_tensors()
            try:
                alive.append(len(ctx.saved_tensors))
            except RuntimeError:
                alive.append(0)
            return g

    x = torch.ones(3, requires_grad=True)
    Keeps.apply(x).sum().backward(retain_graph=retained)

    assert alive == [int(retained)]
