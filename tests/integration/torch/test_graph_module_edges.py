"""Graph modules whose rules guard a place, and that are pickled."""

import pickle

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.torch import to_graph_module

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@tb.custom_jvp
def sinc(x):
    return tnp.where(x == 0, 1.0, tnp.sin(x) / x)


@sinc.defjvp
def _sinc_jvp(primals, tangents):
    (x,), (d,) = primals, tangents
    slope = tnp.where(x == 0, 0.0, (tnp.cos(x) * x - tnp.sin(x)) / (x * x))
    return sinc(x), slope * d


def test_rules_that_guard_a_place_have_finite_derivatives():
    x = torch.tensor([0.0, 1.0, -2.0], requires_grad=True)
    module = to_graph_module(sinc, (x.detach(),))
    (first,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    slope = tb.grad(lambda v: sinc(v).sum())
    at = tnp.asarray(x.detach().numpy())
    wanted = torch.from_dlpack(tb.grad(lambda v: slope(v).sum())(at))

    torch.testing.assert_close(first.detach(), torch.from_dlpack(slope(at)))
    torch.testing.assert_close(second[1:], wanted[1:])


def test_modules_with_loops_and_branches_are_pickled():
    def fun(x):
        y = lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, x)
        y = lax.cond(x[0] > 0, lambda a: a, lambda a: -a, y)
        return lax.scan(lambda c, t: (c + t, lax.fori_loop(0, 2, lambda i, v: v + c, t)), 0.0, y)

    x = torch.arange(3.0) + 1
    module = to_graph_module(fun, (x,))
    again = pickle.loads(pickle.dumps(module))

    torch.testing.assert_close(again(x), module(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(again))(x), module(x))


def test_loops_with_one_result_are_written_with_two():
    """Inductor fails on loops of torch with a single one."""

    def fun(w, x):
        return lax.scan(lambda h, _: (tnp.tanh(h @ w), None), x, None, length=4)[0]

    w = (torch.arange(9.0).reshape(3, 3) / 9 - 0.4).requires_grad_()
    x = torch.ones(2, 3, requires_grad=True)
    module = to_graph_module(fun, (w.detach(), x.detach()))

    (step,) = [m for name, m in module.named_children() if name.startswith("step")]
    (returned,) = [node for node in step.graph.nodes if node.op == "output"]
    assert len(returned.args[0]) == 2
    wanted = tb.torch.wrap(fun)(w, x)
    torch.testing.assert_close(module(w, x), wanted)
    seed = torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(
        torch.autograd.grad(module(w, x), (w, x), seed), torch.autograd.grad(wanted, (w, x), seed)
    )
