"""Calls of wrapped functions: trees, dtypes, numbers, layouts, tracing once."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections import OrderedDict, namedtuple
from copy import deepcopy

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.option_scopes import debug_nans, disable_jit, enable_x64
from tracebridge.errors import UnsupportedDtypeError
from tracebridge.torch import wrap

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


def test_no_copies_of_arguments(monkeypatch):
    """Programs read the memory of tensors: an argument is handed over at its own address.

    Small ones are copied, which takes less time.
    """
    from tracebridge.torch import _execute

    seen = []
    original = _execute.np.from_dlpack

    def spy(view):
        host = original(view)
        seen.append((view.tensor.data_ptr(), host.__array_interface__["data"][0]))
        return host

    x = torch.randn(2000)
    f = wrap(lambda x: x + 1)
    monkeypatch.setattr(_execute.np, "from_dlpack", spy)
    _execute._FACTORIES.clear()
    f(x)
    f(x[:10])
    _execute._FACTORIES.clear()

    assert [(x.data_ptr(), x.data_ptr())] == seen


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
    with pytest.raises(UnsupportedDtypeError, match=r"args\[1\]\['mode'\] is 'fast' of type str"):
        wrap(lambda x, options: x)(torch.ones(1), {"mode": "fast"})


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


def test_clear_caches():
    """After clear_caches a call traces and compiles anew."""
    f = wrap(lambda x: x - 1)
    f(torch.ones(2))

    tb.clear_caches()

    assert f(torch.ones(2)).tolist() == [0.0, 0.0]


def test_programs_die_with_the_function():
    """Nothing in the process keeps a wrapped function that was never captured in a graph."""
    f = wrap(lambda x: tnp.sin(x))
    x = torch.randn(3, requires_grad=True)
    f(x).sum().backward()
    torch.func.vmap(f)(torch.randn(2, 3))
    fun, family = weakref.ref(f.fun), weakref.ref(next(iter(f.families.values())))

    del f
    gc.collect()

    assert fun() is None
    assert family() is None


def test_arguments_die_after_the_call():
    """XLA keeps no reference to memory of arguments once the call is over."""
    f = wrap(lambda x: tnp.sum(x))
    f(torch.randn(2000))
    x = torch.randn(2000)
    before = torch._C._storage_Use_Count(x.untyped_storage()._cdata)

    f(x)

    assert before == torch._C._storage_Use_Count(x.untyped_storage()._cdata)


def test_held_arguments_die_with_their_tensor():
    """A tensor that comes again has a buffer, which does not keep its memory when it dies."""
    f = wrap(lambda x: tnp.sum(x))
    x = torch.randn(2000)
    for _ in range(3):
        f(x)
    storage = StorageWeakRef(x.untyped_storage())

    del x

    assert storage.expired()


def test_clear_caches_lets_go_of_tensors():
    """Nothing refers to an argument then; nothing ever does where torch swaps parameters."""
    f = wrap(lambda x: x * 2)
    p = torch.nn.Parameter(torch.ones(2000))
    f(p)
    assert weakref.getweakrefs(p)

    tb.clear_caches()
    assert not weakref.getweakrefs(p)

    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer = torch.nn.Linear(50, 50)
        f(layer.weight)
        layer.double()
        assert torch.float64 == f(layer.weight).dtype
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("size", [3, 2000])
def test_arguments_that_change_between_calls(size):
    """New values in place, other memory, and views of one memory are seen, small or large."""
    f = wrap(lambda p, x, k: p * x + k)
    p, x = torch.nn.Parameter(torch.ones(size)), torch.ones(size)

    with torch.no_grad():
        for k in range(4):
            torch.testing.assert_close(f(p, x, float(k)), p * x + k)
            p.add_(1)
            x.mul_(2)
        p.data = torch.full((size,), 7.0)
        x.set_(torch.arange(float(size)))
        torch.testing.assert_close(f(p, x, 1), p * x + 1)
        both = torch.arange(size + 4.0)
        for start in range(4):
            view = both[start : start + size]
            torch.testing.assert_close(f(p, view, True), p * view + 1)


def test_a_function_that_calls_itself_from_a_callback():
    """A call inside a call of the same program has small arguments of its own."""

    def host(x):
        n = float(x)
        inner = f(torch.tensor(n - 1.0), torch.tensor(1.0)) if n > 0 else torch.tensor(0.0)
        return np.float32(inner)

    def fun(x, y):
        below = tb.pure_callback(host, tb.ShapeDtypeStruct((), np.float32), x)
        return below + x * y

    f = wrap(fun)

    assert 10.0 == float(f(torch.tensor(4.0), torch.tensor(1.0)))


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

    with pytest.raises(UnsupportedDtypeError, match=r"args\[0\]"):
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
