"""Calls of wrapped functions: trees, layouts, statics, tracing once."""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict, namedtuple
from copy import deepcopy

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import debug_nans, disable_jit, enable_x64
from tracebridge.errors import ExchangeError, IntegerRangeError, UnsupportedDtypeError
from tracebridge.experimental import sparse
from tracebridge.torch import wrap
from tracebridge.torch._crossing import execute

pytestmark = pytest.mark.torch


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the plain form is what users have


def affine(x, w, b):
    return tnp.tanh(x @ w) + b


@wrap
def decorated(x):
    return x * 2.0


def test_call_agrees_with_torch():
    """The result is that of the same function written in torch."""
    x, w, b = torch.randn(4, 3), torch.randn(3, 5), torch.randn(5)

    torch.testing.assert_close(wrap(affine)(x, w, b), torch.tanh(x @ w) + b)


def test_compiler_options_of_a_jitted_function(monkeypatch):
    """They hold for the program of its values; it can be differentiated as well."""
    seen = []
    real = execute.compile_jaxpr

    def spy(*args, compiler_options=(), **kwargs):
        seen.append(dict(compiler_options))
        return real(*args, compiler_options=compiler_options, **kwargs)

    monkeypatch.setattr(execute, "compile_jaxpr", spy)
    options = {"xla_cpu_enable_fast_math": True}
    f = wrap(tb.jit(lambda x: tnp.sin(x) * 2, compiler_options=options))
    x = torch.linspace(0, 1, 3, requires_grad=True)

    torch.testing.assert_close(2 * torch.sin(x), f(x))
    f(x).sum().backward()
    torch.testing.assert_close(2 * torch.cos(x.detach()), x.grad)
    assert seen[0] == options


def test_trees_in_and_out():
    """Arguments and results are trees of any nodes, None included."""

    def fun(tree, *, scale):
        point = tree["point"]
        return {"sum": point.x + point.y, "rest": [None, (tree["list"][0] * scale,)]}

    x, y, z, s = (torch.randn(3) for _ in range(4))

    out = wrap(fun)({"point": Point(x, y), "list": [z], "none": None}, scale=s)

    torch.testing.assert_close(out["sum"], x + y)
    assert out["rest"][0] is None
    torch.testing.assert_close(out["rest"][1][0], z * s)


def test_ordered_dict_keeps_its_order():
    """Leaves of an OrderedDict are not sorted."""
    out = wrap(lambda d: OrderedDict([("z", d["b"] - d["a"]), ("a", d["a"])]))(
        OrderedDict([("b", torch.ones(2)), ("a", torch.zeros(2))])
    )

    assert ["z", "a"] == list(out)
    assert [1.0, 1.0] == out["z"].tolist()


def test_traced_once_per_shape():
    """Values do not matter, shapes and dtypes do."""
    f = wrap(lambda x: x + 1.0)
    for _ in range(3):
        f(torch.randn(3))
    assert f.traces == 1

    f(torch.randn(4))
    f(torch.randn(3).double())

    assert f.traces == 3


def test_gradients_do_not_trace_again():
    """Backward passes, of any order, come from the program that was traced."""
    f = wrap(lambda x: tnp.sum(tnp.tanh(x) ** 3))
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        g.sum().backward()

    assert f.traces == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[::2],
        lambda x: x[1:],
        lambda x: x.flip(0)[:, 1:],
        lambda x: x[:1].expand(3, 6),
        lambda x: x[:, :0],
        lambda x: x[0, 0],
    ],
    ids=["transposed", "strided", "rows", "offset", "flipped", "expanded", "empty", "scalar"],
)
def test_layouts(change):
    """Views of any layout and alignment give right results and gradients."""
    base = torch.arange(24.0).reshape(4, 6).requires_grad_()
    x = change(base)

    out = wrap(lambda x: tnp.sin(x) * 3)(x)
    (actual,) = torch.autograd.grad(out.sum(), base)
    (expected,) = torch.autograd.grad((torch.sin(x) * 3).sum(), base)

    torch.testing.assert_close(out, torch.sin(x) * 3)
    torch.testing.assert_close(actual, expected)


def test_conjugate_and_negative_bits():
    """Lazily conjugated or negated tensors are resolved."""
    z = torch.tensor([1 + 2j, -3 + 0.5j])
    twice = wrap(lambda z: z * 2)

    assert (z.conj() * 2).tolist() == twice(z.conj()).tolist()
    assert (z.conj().imag * 2).tolist() == twice(z.conj().imag).tolist()
    assert [0.0, 0.0] == twice(torch._efficientzerotensor((2,))).tolist()


def test_results_are_fresh_memory():
    """Results never alias arguments or each other: torch may write into them."""
    x = torch.ones(16)

    a, b, c = wrap(lambda x: (x, x, x.reshape(4, 4)))(x)
    a += 1
    b *= 5

    assert len({t.data_ptr() for t in (x, a, b, c)}) == 4
    assert [1.0] * 16 == x.tolist()
    assert [1.0] * 16 == c.flatten().tolist()


def test_no_copies_of_arguments():
    """Programs read the memory of tensors: an argument is handed over at its own address.

    Small ones are copied while their memory is new, which takes less time, and so are those that
    XLA cannot read in place.
    """
    from tracebridge.torch._crossing import memory

    f = wrap(lambda x: x + 1)
    x = torch.randn(2001)
    at = {"large": x[:2000], "small": x[:10], "misaligned": x[1:]}
    for view in at.values():
        torch.testing.assert_close(f(view), view + 1)

    known = [(table.aval.size, *pair) for table in memory._BORROWED.values()
             for pair in table.known.items()]  # fmt: skip
    found = {size: buf.unsafe_buffer_pointer() for size, address, buf in known if address in
             {view.data_ptr() for view in at.values()}}  # fmt: skip
    assert {2000: x.data_ptr()} == found


def test_small_tensors_that_come_again():
    """From the third time on their memory is read in place: what is in it, at each call anew."""
    from tracebridge.torch._crossing import memory

    f = wrap(lambda x, y: (x, x + y))
    base = torch.arange(40, dtype=torch.int16)
    x, y, misaligned = base[:7].clone(), torch.ones(7, dtype=torch.int16), base[1:8]
    for k in range(4):
        x += k
        same, total = f(x, y)
        assert len({t.data_ptr() for t in (x, y, same, total)}) == 4
        same *= 0
        assert torch.equal(x + y, total)
        assert torch.equal(misaligned + x, f(misaligned, x)[1])

    known = {a for t in memory._BORROWED.values() if t.aval.shape == (7,) for a in t.known}
    assert {x.data_ptr(), y.data_ptr()} <= known
    assert misaligned.data_ptr() not in known
    for k in range(100):
        z = [torch.full((7,), k + i, dtype=torch.int16) for i in range(3)]
        assert torch.equal(z[2] + y, f(z[2], y)[1])
    y.untyped_storage().resize_(2)
    with pytest.raises(ExchangeError):
        f(x, y)


def test_static_arguments():
    """Static arguments are constants of the program, by position or by name."""

    def fun(x, n, flag=True):
        return x * n if flag else x

    f = wrap(fun, static_argnums=(1,), static_argnames=("n", "flag"))
    x = torch.ones(2)

    assert [3.0, 3.0] == f(x, 3).tolist()
    assert [1.0, 1.0] == f(x, 3, flag=False).tolist()
    assert [4.0, 4.0] == f(x, n=4).tolist()
    assert f.traces == 3


def test_static_arguments_that_print_alike_are_kept_apart():
    """The name of a program in graphs does not rest on how a constant prints."""

    class Option:
        def __init__(self, value):
            self.value = value

        def __repr__(self):
            return "option"

    f = wrap(lambda x, o: x * o.value, static_argnums=(1,))
    x, two, three = torch.ones(1), Option(2), Option(3)

    assert [2.0, 3.0] == [f(x, two).item(), f(x, three).item()]
    assert [2.0, 3.0] == [torch.func.vmap(lambda x, o=o: f(x, o))(x).item() for o in (two, three)]


def test_other_leaves_are_refused_by_name():
    """A leaf that is neither tensor nor number is named in the message."""
    with pytest.raises(UnsupportedDtypeError, match=r"options\['mode'\] is 'fast' of type str"):
        wrap(lambda x, options: x)(torch.ones(1), {"mode": "fast"})
    with pytest.raises(IntegerRangeError, match=r"options\['n'\] is 1180591620717411303424"):
        wrap(lambda x, options: x)(torch.ones(1), {"n": 2**70})


def test_no_tensor_arguments():
    """A function of numbers alone, or of nothing, gives tensors on the CPU."""
    assert wrap(lambda: tnp.arange(3))().tolist() == [0, 1, 2]
    assert wrap(lambda a: tnp.asarray(a) * 2)(1.5).item() == 3.0


def test_no_results():
    """An empty tree of results is given back."""
    assert wrap(lambda x: ())(torch.ones(1)) == ()


def test_many_leaves():
    """More arguments and results than a generated function takes."""
    xs = [torch.full((2,), float(i), requires_grad=i == 3) for i in range(300)]

    out = wrap(lambda xs: [x * 2 for x in xs])(xs)
    out[3].sum().backward()

    assert [2.0 * i for i in range(300)] == [o[0].item() for o in out]
    assert [2.0, 2.0] == xs[3].grad.tolist()


def test_inside_a_traced_function_it_is_the_function():
    """Tracers pass through: jit, grad and vmap of tracebridge see the wrapped function's body."""
    f = wrap(lambda x: tnp.sin(x))

    assert tb.grad(lambda x: f(x) * 2)(0.0) == 2.0
    assert tb.jit(f)(tnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_nested_wrapping():
    """A wrapped function may call another one."""
    inner = wrap(lambda x: x * 2)
    x = torch.ones(2, requires_grad=True)

    wrap(lambda x: tnp.sum(inner(x) ** 2))(x).backward()

    assert [8.0, 8.0] == x.grad.tolist()


def test_jitted_functions_can_be_wrapped():
    """jit inside wrap is inlined; gradients go through."""
    x = torch.randn(3, requires_grad=True)

    wrap(tb.jit(lambda x: tnp.sum(tnp.exp(x))))(x).backward()

    torch.testing.assert_close(x.grad, x.detach().exp())


def test_derivatives_of_tracebridge_can_be_wrapped():
    """grad inside, backward outside: second order across the border."""
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    wrap(tb.grad(tnp.sin))(x).backward()

    torch.testing.assert_close(x.grad, -x.detach().sin())


def test_closed_over_arrays_are_constants():
    """Arrays of the enclosing scope, small and large, are part of the program."""
    small, large = tnp.arange(3.0), tnp.ones((64, 64))
    x = torch.ones(3, requires_grad=True)

    out = wrap(lambda x: tnp.sum(x * small) + tnp.sum(large))(x)
    out.backward()

    assert out.item() == 3 + 64 * 64
    assert [0.0, 1.0, 2.0] == x.grad.tolist()


def test_options_are_part_of_the_key():
    """A change of an option that affects tracing traces again, globally or in a block."""
    f = wrap(lambda x: x + tnp.ones(3))
    x = torch.zeros(3)

    assert f(x).dtype == torch.float32
    with enable_x64(True):
        assert f(x).dtype == torch.float64
    assert f(x).dtype == torch.float32


def test_debug_nans():
    """The option is obeyed also on the short path."""
    f = wrap(tnp.log)
    f(torch.ones(1))

    with debug_nans(True), pytest.raises(FloatingPointError):
        f(-torch.ones(1))


def test_disable_jit_runs_the_function():
    """With disable_jit the function sees values."""
    with disable_jit(True):
        assert wrap(lambda x: x * 2 if x[0] > 0 else x)(torch.ones(2)).tolist() == [2.0, 2.0]
        x = torch.ones(2, requires_grad=True)
        wrap(lambda x: tnp.sum(x * 3))(x).backward()
    assert [3.0, 3.0] == x.grad.tolist()


@pytest.mark.parametrize("step_by_step", [False, True])
def test_results_have_memory_of_their_own(step_by_step: bool):
    """Changing a result in place changes no argument, no constant and no other result."""
    constant = tnp.ones(5000)
    f = wrap(lambda x, a: [x, x, x.reshape(1, -1), constant, constant, a[0]])
    x, a = torch.ones(5000), np.ones(3, np.float32)
    with disable_jit(step_by_step):
        for i in range(6):
            f(x, [a])[i].zero_()
            for j, result in enumerate(f(x, [a])):
                if j != i:
                    result.add_(1)

    assert (x == 1).all()
    assert (a == 1).all()
    assert bool((constant == 1).all())


def test_calls_after_one_that_failed():
    """A program that raises leaves nothing behind that the next call would use."""

    def host(x):
        if x > 1:
            msg = "too large"
            raise ValueError(msg)
        return x

    f = wrap(lambda x: tb.pure_callback(host, tb.ShapeDtypeStruct((), np.float32), x) * 2)

    for value in (1.0, 2.0, 0.5, 3.0, 1.0):
        if value > 1:
            with pytest.raises(Exception, match="too large"):
                f(torch.tensor(value))
        else:
            assert 2 * value == float(f(torch.tensor(value)))


def test_copy_and_pickle():
    """deepcopy shares the function; pickle goes by import path, or by the inner function."""
    x = torch.ones(2)

    assert deepcopy(decorated) is decorated
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(wrap(affine)))
    assert again(torch.ones(1, 2), torch.ones(2, 2), x).shape == (1, 2)


def test_as_a_method():
    """A wrapped function in a class body is a method."""

    class Model:
        factor = 3.0

        @wrap
        def scaled(self, x):
            return x * 2

    with pytest.raises(UnsupportedDtypeError, match=r"argument self is"):
        Model().scaled(torch.ones(1))


def test_keeps_name_and_docstring():
    """The wrapper looks like the function."""
    f = wrap(affine)

    assert f.__name__ == "affine"
    assert f.__wrapped__ is affine


def test_eight_threads():
    """Eight threads call, differentiate and compile the same functions at once."""
    f = wrap(lambda x, w: tnp.tanh(x @ w))
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        try:
            for i in range(20):
                n = 2 + (i + seed) % 4
                x = torch.randn(n, 3, generator=generator, requires_grad=True)
                w = torch.randn(3, n, generator=generator, requires_grad=True)
                out, expected = f(x, w), torch.tanh(x @ w)
                torch.testing.assert_close(out, expected)
                actual = torch.autograd.grad(out.sum(), (x, w))
                torch.testing.assert_close(actual, torch.autograd.grad(expected.sum(), (x, w)))
        except Exception as error:  # noqa: BLE001 - reported below, with its type
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    assert failures == []
    assert f.traces == 4


@pytest.mark.parametrize("n", [1, 201])
def test_calls_with_many_tensors(n):
    """Large and small ones and numbers, positional or in a tree, with gradients: as in torch."""
    f = wrap(lambda *xs: sum([x[0] * (i + 1) for i, x in enumerate(xs)]))
    tree = wrap(lambda xs, k: sum([x[0] * (i + k) for i, x in enumerate(xs)]))
    xs = [
        torch.full((2000 if i % 5 == 0 else 2,), float(i), requires_grad=i % 3 == 0)
        for i in range(n)
    ]
    expected = sum([x[0] * (i + 1) for i, x in enumerate(xs)])

    with torch.no_grad():
        torch.testing.assert_close(f(*xs), expected.detach())
    for out in (f(*xs), tree(xs, 1)):
        torch.testing.assert_close(out, expected)
        out.backward()
        assert [i + 1.0 if i % 3 == 0 else None for i in range(n)] == [
            None if x.grad is None else float(x.grad[0]) for x in xs
        ]
        for x in xs:
            x.grad = None


def test_sparse_matrices_of_a_closure():
    """They are constants of the program."""
    dense = np.float32([[0, 2, 0], [3, 0, 0]])
    x = torch.ones(3, requires_grad=True)
    for mat in (sparse.BCOO.fromdense(dense), sparse.BCSR.fromdense(dense)):
        (slope,) = torch.autograd.grad(wrap(lambda x, m=mat: (m @ x).sum())(x), x)
        torch.testing.assert_close(slope, torch.tensor([3.0, 2.0, 0.0]))
