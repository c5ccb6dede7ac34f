"""float0 arrays, the tangents of integers, pass through all transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.symbolic_shapes import SymbolicScope, symbolic_shape

N = np.arange(3)
X = np.ones(3, np.float32)
ZEROS = np.zeros(3, tb.float0)


def f(n: Any, x: Any) -> Any:
    """A function of integers and floats."""
    return tnp.sum(n * x)


def is_zero(x: Any, *shape: int) -> bool:
    """Whether ``x`` is a float0 array of this shape."""
    return x.dtype == tb.float0 and x.shape == shape


GRAD = tb.grad(f, argnums=(0, 1), allow_int=True)


@pytest.mark.parametrize("wrap", [lambda g: g, tb.jit, lambda g: tb.jit(tb.jit(g))])
def test_results_of_compiled_functions(wrap: Any) -> None:
    """A compiled gradient gives float0 arrays, at every call."""
    g = wrap(GRAD)

    for _ in range(2):
        of_n, of_x = g(N, X)
        assert is_zero(of_n, 3)
        assert [0.0, 1.0, 2.0] == of_x.tolist()


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 3)), (1, (3, 2)), (-1, (3, 2))])
def test_results_of_mapped_functions(axis: int, shape: tuple[int, ...]) -> None:
    """They get the mapped axis, where out_axes wants it."""
    g = tb.vmap(GRAD, out_axes=(axis, 0))
    for h in (g, tb.jit(g)):
        of_n, of_x = h(np.stack([N, N]), np.stack([X, X]))
        assert is_zero(of_n, *shape)
        assert (2, 3) == of_x.shape


def test_unmapped_results() -> None:
    """With out_axes None they stay as they are."""
    result = tb.vmap(lambda x: (x, ZEROS), out_axes=(0, None))(X)

    assert is_zero(result[1], 3)


def test_arguments_of_compiled_functions() -> None:
    """Tangents and cotangents of integers can be passed to them."""

    @tb.jit
    def push(dn: Any, dx: Any) -> Any:
        return tb.jvp(lambda n, x: (n, n * x), (N, X), (dn, dx))[1]

    for _ in range(2):
        of_n, of_product = push(ZEROS, X)
        assert is_zero(of_n, 3)
        assert [0.0, 1.0, 2.0] == of_product.tolist()


def test_donation_beside_float0() -> None:
    """Positions of donated arguments take the missing leaf into account."""
    g = tb.jit(lambda dn, x, y: (x + y, dn), donate_argnums=(0, 2))
    x, y = tnp.ones(2), tnp.ones(2)

    assert is_zero(g(ZEROS, x, y)[1], 3)
    assert [False, True] == [x.is_deleted(), y.is_deleted()]


def test_derivatives_of_functions_that_return_float0() -> None:
    """Tangents of float0 results are float0."""

    def g(x: Any) -> Any:
        return GRAD(N, x)

    value, tangent = tb.jvp(g, (X,), (X,))
    _, pullback = tb.vjp(g, X)
    jacobian = tb.jacfwd(g)(X)

    assert is_zero(value[0], 3)
    assert is_zero(tangent[0], 3)
    assert [0.0, 0.0, 0.0] == pullback((ZEROS, X))[0].tolist()
    assert is_zero(jacobian[0], 3, 3)
    assert (3, 3) == jacobian[1].shape
    of_each = tb.jacfwd(tb.jit(g), argnums=(0,))(X)
    assert is_zero(of_each[0][0], 3, 3)
    assert (3, 3) == of_each[1][0].shape
    assert is_zero(tb.jacrev(lambda x: (x, g(x)[0]), argnums=(0,))(X)[1][0], 3, 3)


def test_shapes() -> None:
    """eval_shape keeps them beside the stand-ins."""
    of_n, of_x = tb.eval_shape(GRAD, N, X)

    assert is_zero(of_n, 3)
    assert tb.ShapeDtypeStruct((3,), np.float32) == of_x


@pytest.mark.parametrize(("axis", "per_element"), [(0, (2,)), (-1, (3,)), (None, (3, 2))])
def test_arguments_of_mapped_functions(axis: int | None, per_element: tuple[int, ...]) -> None:
    """Each element gets a float0 array without the mapped axis, and gives one."""
    shapes = []
    matrix, zeros = np.ones((3, 2), np.int32), np.zeros((3, 2), tb.float0)

    def g(n: Any, t: Any) -> Any:
        shapes.append(t.shape)
        return tb.jvp(lambda m: (m, m * 1.5), (n,), (t,))[1]

    n = 2 if axis == -1 else 3
    of_int, of_float = tb.vmap(g, in_axes=(axis, axis), axis_size=n)(matrix, zeros)

    assert [per_element] == shapes
    assert is_zero(of_int, n, *per_element)
    assert np.zeros((n, *per_element)).tolist() == of_float.tolist()


def test_parts_of_larger_float0_arrays() -> None:
    """Maps over devices give the whole arrays, of which each device has a part."""
    slope = tb.grad(lambda n: n.sum() * 1.0, allow_int=True)
    n = np.ones((tb.device_count(), 2), np.int32)

    assert is_zero(tb.pmap(slope)(n), *n.shape)
    assert is_zero(tb.pmap(slope, out_axes=1)(n), *n.T.shape)
    assert is_zero(tb.jit(tb.pmap(slope))(n), *n.shape)


def test_sizes_of_mapped_float0_arrays_count() -> None:
    """A float0 array of another size is named like any other argument."""
    with pytest.raises(tb.errors.AxisSizeError, match=r"argument t has size 2 at axis 0"):
        tb.vmap(lambda n, t: n)(N, np.zeros(2, tb.float0))


@pytest.mark.parametrize("zeros_like", [tnp.zeros_like, tb.lax.zeros_like, tb.lax.full_like])
def test_arrays_like_them(zeros_like: Any) -> None:
    """Zeros like a float0 array are one, so that optimizer states of all leaves can be made."""
    fill = (7,) if zeros_like is tb.lax.full_like else ()

    assert is_zero(zeros_like(ZEROS, *fill), 3)
    assert is_zero(zeros_like(ZEROS, *fill, shape=(2,)), 2)
    assert [0, 0, 0] == tnp.zeros_like(ZEROS, dtype="int32").tolist()


def test_they_take_no_part_in_computations() -> None:
    """The message says what they are."""
    with pytest.raises(tb.errors.UnsupportedDtypeError, match="the tangents of integers and bool"):
        tb.lax.add(ZEROS, tnp.ones(3))


def _whole_loop(x: Any) -> Any:
    return tb.lax.scan(lambda c, row: (c, (GRAD(N, row), c)), ZEROS, x)


@pytest.mark.parametrize("wrap", [lambda g: g, tb.jit, tb.checkpoint])
def test_loops_carry_and_stack_them(wrap: Any) -> None:
    """As carries they stay, among the results of steps they get the axis of the steps."""
    last, ((of_n, of_x), carries) = wrap(_whole_loop)(np.stack([X, X]))

    assert is_zero(last, 3)
    assert is_zero(of_n, 2, 3)
    assert is_zero(carries, 2, 3)
    assert [[0.0, 1.0, 2.0]] * 2 == of_x.tolist()


def test_loops_over_them() -> None:
    """A loop slices them along their leading axis."""
    _, (ys, count) = tb.lax.scan(lambda c, x: (c, (x, c)), 1.0, np.zeros((2, 3), tb.float0))

    assert is_zero(ys, 2, 3)
    assert [1.0, 1.0] == count.tolist()


@pytest.mark.parametrize("batch_size", [None, 2, 3])
def test_map_gives_them(batch_size: int | None) -> None:
    """lax.map stacks them, in batches too."""
    of_n, of_x = tb.lax.map(lambda x: GRAD(N, x), np.stack([X] * 5), batch_size=batch_size)

    assert is_zero(of_n, 5, 3)
    assert (5, 3) == of_x.shape


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("wrap", [lambda g: g, tb.jit])
def test_branches_and_open_loops_take_and_give_them(wrap: Any, batch: tuple[int, ...]) -> None:
    """cond, switch, while_loop and fori_loop hand them on."""

    def run(zeros: Any, x: Any) -> Any:
        first = tb.lax.cond(x > 0, lambda z: (z, x), lambda z: (z, -x), zeros)
        second = tb.lax.switch(tnp.int32(x), [lambda z: z, lambda z: z], first[0])
        third = tb.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1]), (0, second))
        return tb.lax.fori_loop(0, 2, lambda i, z: z, third[1])

    mapped = tb.vmap(run, (None, 0)) if batch else run

    assert is_zero(wrap(mapped)(ZEROS, np.ones(batch, np.float32)), *batch, 3)


def test_loops_run_step_by_step() -> None:
    """Without jit the loops of Python take and give them too."""
    with tb.disable_jit():
        last, ((of_n, _), _) = _whole_loop(np.stack([X, X]))
        assert is_zero(last, 3)
        assert is_zero(of_n, 2, 3)
        assert is_zero(tb.lax.fori_loop(0, 2, lambda i, z: z, ZEROS), 3)


def test_gradients_of_loops_that_carry_them() -> None:
    """They have no share in derivatives."""

    def total(x: Any) -> Any:
        _, last = tb.lax.fori_loop(0, 2, lambda i, s: (s[0], s[1] * 2.0), (ZEROS, x))
        return tnp.sum(last)

    assert [4.0, 4.0, 4.0] == tb.grad(total)(X).tolist()


def test_shapes_of_them() -> None:
    """eval_shape describes them as it describes other results."""
    shape = tb.eval_shape(lambda x: (x, ZEROS), X)[1]

    assert isinstance(shape, tb.ShapeDtypeStruct)
    assert ((3,), tb.float0) == (shape.shape, shape.dtype)


@pytest.mark.parametrize("wrap", [lambda g: g, tb.jit])
@pytest.mark.parametrize(
    "function", [tb.lax.stop_gradient, tb.lax.optimization_barrier, tb.device_put]
)
def test_functions_of_trees_leave_them(function: Any, wrap: Any) -> None:
    """What gives its argument gives them too."""
    zeros, x = wrap(lambda x: function((ZEROS, x)))(X)

    assert is_zero(zeros, 3)
    assert [1.0, 1.0, 1.0] == x.tolist()


def test_arguments_of_compiled_programs() -> None:
    """They are no arguments of the program, but of its call."""
    compiled = tb.jit(lambda z, x: (z, x + 1.0)).lower(ZEROS, X).compile()
    zeros, x = compiled(ZEROS, X)

    assert is_zero(zeros, 3)
    assert [2.0, 2.0, 2.0] == x.tolist()
    with pytest.raises(TypeError, match="structure"):
        compiled(X, X)


def _pick(x: Any, i: Any) -> Any:
    return x[i].sum()


@pytest.mark.parametrize(
    ("fun", "shape"),
    [
        (lambda x, i: tb.vjp(_pick, x, i)[1](1.0)[1], "b"),
        (lambda x, i: tb.vjp(lambda x, i: x[i], x, i)[1](tnp.ones(i.shape))[1], "b"),
        (lambda x, i: tb.grad(_pick, (0, 1), allow_int=True)(x, i)[1], "b"),
        (lambda x, i: tb.jit(tb.grad(_pick, (0, 1), allow_int=True))(x, i)[1], "b"),
        (lambda x, i: tb.jacrev(_pick, (0, 1), allow_int=True)(x, i)[1], "b"),
        (lambda x, i: tb.jacfwd(lambda x: (x * 2, i))(x)[1], "b, 4"),
        (lambda x, i: tb.jvp(lambda x: (x, i), (x,), (x,))[1][1], "b"),
        (lambda x, i: tb.vmap(tb.grad(_pick, 1, allow_int=True), (None, 0))(x, i[:, None]), "b, 1"),
        (lambda x, i: tb.lax.full_like(tb.grad(_pick, 1, allow_int=True)(x, i), 0), "b"),
        (lambda x, i: tnp.zeros_like(tb.grad(_pick, 1, allow_int=True)(x, i)), "b"),
    ],
)
def test_tangents_of_integers_of_symbolic_sizes(fun: Any, shape: str) -> None:
    """They are traced values of dtype float0 and of that shape."""
    scope = SymbolicScope()
    (b,) = symbolic_shape("b", scope=scope)
    specs = tb.ShapeDtypeStruct((4,), np.float32), tb.ShapeDtypeStruct((b,), np.int32)
    out = tb.eval_shape(fun, *specs)

    assert out.dtype == tb.float0
    assert out.shape == symbolic_shape(shape, scope=scope)
