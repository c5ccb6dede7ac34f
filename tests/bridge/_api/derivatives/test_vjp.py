"""vjp, linear_transpose and fwd_and_bwd: values, structures, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    DtypeMismatchError,
    LinearityError,
    ShapeMismatchError,
    TreeMismatchError,
    UnboundAxisNameError,
    UnsupportedDtypeError,
)


def test_pullback_is_the_adjoint_of_jvp() -> None:
    """<ct, J v> equals <J^T ct, v>."""
    rng = np.random.default_rng(0)
    x, v, ct = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(3))

    def f(x: Any) -> Any:
        return tnp.sin(x) * tnp.sum(x, axis=0)

    _, pullback = tb.vjp(f, x)
    (x_bar,) = pullback(ct)
    _, tangent = tb.jvp(f, (x,), (v,))

    assert np.sum(ct * np.asarray(tangent)) == pytest.approx(
        np.sum(np.asarray(x_bar) * v), rel=1e-4
    )


def test_pullback_can_be_called_many_times() -> None:
    """The function runs once; each call starts from zero cotangents."""
    value, pullback = tb.vjp(lambda x, y: x * y, 2.0, 3.0)

    assert 6.0 == float(value)
    for ct in (1.0, 2.0, 1.0):
        assert (3.0 * ct, 2.0 * ct) == tuple(map(float, pullback(ct)))


def test_trees_and_integers() -> None:
    """Cotangents have the structure of the arguments; those of integers are float0."""
    args = {"x": np.ones(2, np.float32), "n": np.arange(2)}

    value, pullback = tb.vjp(lambda a, b: {"s": a["x"] * b, "n": a["n"]}, args, 3.0)
    a_bar, b_bar = pullback({"s": np.ones(2, np.float32), "n": np.zeros(2, tb.float0)})

    assert [0, 1] == value["n"].tolist()
    assert [3.0, 3.0] == a_bar["x"].tolist()
    assert tb.float0 == a_bar["n"].dtype
    assert 2.0 == float(b_bar)


def test_unused_results_and_arguments() -> None:
    """Zero cotangents come back as zeros."""
    _, pullback = tb.vjp(lambda x, y: x, 1.0, np.ones((2, 2), np.float32))

    x_bar, y_bar = pullback(5.0)

    assert 5.0 == float(x_bar)
    assert [[0.0, 0.0], [0.0, 0.0]] == y_bar.tolist()


def test_auxiliary_data() -> None:
    """They are the third result."""
    value, pullback, aux = tb.vjp(lambda x: (x**2, {"x": x, "t": "t"}), 3.0, has_aux=True)

    assert (9.0, 3.0, "t") == (float(value), float(aux["x"]), aux["t"])
    assert (6.0,) == tuple(map(float, pullback(1.0)))


def test_pullback_is_a_pytree() -> None:
    """Residuals are its leaves, so that jitted functions take it and give it."""
    traces: list[int] = []

    @tb.jit
    def forward(x: Any) -> Any:
        return tb.vjp(lambda x: tnp.sum(tnp.sin(x) * x), x)

    @tb.jit
    def backward(pullback: Any, ct: Any) -> Any:
        traces.append(1)
        return pullback(ct)

    for shift in (0.0, 1.0):
        x = np.arange(3, dtype=np.float32) + np.float32(shift)
        value, pullback = forward(x)
        (x_bar,) = backward(pullback, np.float32(2))
        np.testing.assert_allclose(value, np.sum(np.sin(x) * x), rtol=1e-6)
        np.testing.assert_allclose(x_bar, 2 * (np.sin(x) + x * np.cos(x)), rtol=1e-5)

    assert [1] == traces
    assert all(isinstance(leaf, tb.Array) for leaf in tb.tree.leaves(pullback))


def test_pullback_of_a_compiled_function() -> None:
    """The tape holds calls of the compiled parts."""
    f = tb.jit(lambda x: tnp.sin(x * x))

    value, pullback = tb.vjp(f, 2.0)

    assert float(value) == pytest.approx(np.sin(4.0))
    assert float(pullback(1.0)[0]) == pytest.approx(4 * np.cos(4.0), rel=1e-6)


def test_vmapped_pullback() -> None:
    """Rows of a Jacobian, by a basis of cotangents."""
    _, pullback = tb.vjp(lambda x: x**2, np.array([1.0, 2.0], np.float32))

    (rows,) = tb.vmap(pullback)(np.eye(2, dtype=np.float32))

    assert [[2.0, 0.0], [0.0, 4.0]] == rows.tolist()


# --- fwd_and_bwd -----------------------------------------------------------------------------


@pytest.mark.parametrize("jitted", [True, False])
def test_forward_and_backward(jitted: bool) -> None:
    """The two passes as functions; the backward one is traced once."""
    traces: list[int] = []

    def f(x: Any, y: Any) -> Any:
        traces.append(1)
        return x * tnp.sin(y), {"y": y}

    fwd, bwd = tb.fwd_and_bwd(f, argnums=(0, 1), has_aux=True, jitted=jitted)
    for y in (1.0, 2.0):
        value, residuals, aux = fwd(3.0, np.float32(y))
        x_bar, y_bar = bwd(residuals, np.float32(2))
        assert float(value) == pytest.approx(3 * np.sin(y), rel=1e-6)
        assert float(x_bar) == pytest.approx(2 * np.sin(y), rel=1e-6)
        assert float(y_bar) == pytest.approx(6 * np.cos(y), rel=1e-5)
        assert y == float(aux["y"])

    assert ([1] if jitted else [1, 1]) == traces


def test_backward_of_one_argument() -> None:
    """An int as argnums gives the cotangent itself, a sequence a tuple."""
    for argnums, unpack in ((1, lambda ct: ct), ((1,), lambda ct: ct[0]), (-1, lambda ct: ct)):
        fwd, bwd = tb.fwd_and_bwd(lambda x, y: x * {"k": y}["k"], argnums)
        _, residuals = fwd(3.0, 2.0)
        assert 15.0 == float(unpack(bwd(residuals, 5.0)))


def test_forward_and_backward_checks_the_count() -> None:
    """Like grad."""
    fwd, _ = tb.fwd_and_bwd(lambda x, y: x, argnums=1)

    with pytest.raises(ArgumentSpecError, match=r"fwd_and_bwd.*needs at least 2"):
        fwd(1.0)


# --- linear_transpose ------------------------------------------------------------------------


def test_transpose_of_a_linear_function() -> None:
    """Stand-ins for arguments will do, and nothing runs on numbers."""
    x = tb.ShapeDtypeStruct((3,), "float32")
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)

    transposed = tb.linear_transpose(lambda x, y: (matrix @ x) - 3 * y, x, np.ones(2, np.float32))
    x_bar, y_bar = transposed(np.array([1.0, 2.0], np.float32))

    assert (matrix.T @ [1.0, 2.0]).tolist() == x_bar.tolist()
    assert [-3.0, -6.0] == y_bar.tolist()


def test_transpose_of_a_transpose() -> None:
    """It is the function itself, also compiled."""

    def f(x: Any) -> Any:
        return {"a": 2 * x, "b": tnp.sum(x)}

    x = np.array([1.0, 2.0], np.float32)
    once = tb.linear_transpose(f, x)
    twice = tb.jit(tb.linear_transpose(lambda ct: once(ct)[0], f(x)))

    (again,) = twice(x)
    assert f(x)["a"].tolist() == again["a"].tolist()
    assert 3.0 == float(again["b"])


def test_transposed_functions_are_pytrees() -> None:
    """Values that the function closes over are leaves: arguments and results of jitted ones."""
    calls: list[int] = []

    @tb.jit
    def make(w: Any) -> Any:
        return tb.linear_transpose(lambda x: {"y": w * x}, tb.ShapeDtypeStruct((2,), "float32"))

    @tb.jit
    def apply(f: Any, ct: Any) -> Any:
        calls.append(1)
        return f({"y": ct})

    transposed = make(np.array([2.0, 3.0], np.float32))

    assert [[2.0, 3.0]] == [leaf.tolist() for leaf in tb.tree.leaves(transposed)]
    (found,) = transposed({"y": np.ones(2, np.float32)})
    assert [2.0, 3.0] == found.tolist()
    for _ in range(2):
        assert [4.0, 6.0] == apply(transposed, np.full(2, 2, np.float32))[0].tolist()
    assert [1] == calls
    halved = tb.tree.map(lambda leaf: leaf / 2, transposed)
    assert [1.0, 1.5] == halved({"y": np.ones(2, np.float32)})[0].tolist()
    assert "transpose of linear_transpose" in repr(transposed)


def test_transpose_of_integer_functions() -> None:
    """Integers are transposed as integers."""
    transposed = tb.linear_transpose(lambda x: tnp.sum(3 * x), np.arange(3))

    (x_bar,) = transposed(2)

    assert [6, 6, 6] == x_bar.tolist()
    assert np.int32 == x_bar.dtype


@pytest.mark.parametrize(("f", "name"), [(lambda x: x * x, "mul"), (tnp.sin, "sin")])
def test_nonlinear_functions_cannot_be_transposed(f: Any, name: str) -> None:
    """The message names the operation."""
    with pytest.raises(LinearityError, match=f"is not linear in its arguments, because of {name}"):
        tb.linear_transpose(f, 1.0)(1.0)
    with pytest.raises(NotImplementedError):  # as where an operation has no transpose
        tb.linear_transpose(f, 1.0)(1.0)


def test_transpose_needs_one_kind_of_number() -> None:
    """No mixture of integers and floats, no constants."""
    with pytest.raises(LinearityError, match=r"maps \(i32\[\]\) to \(f32\[\]\)"):
        tb.linear_transpose(lambda x: x * 2.0, 1)
    with pytest.raises(LinearityError, match=r"maps \(bool\[\]\) to \(bool\[\]\)"):
        tb.linear_transpose(lambda x: x, True)
    for constant in (lambda x: 2.0, lambda x: (x, tnp.ones(2)), lambda x: tnp.ones(2) * 2.0):
        transposed = tb.linear_transpose(constant, 1.0)
        ct = tb.tree.map(tnp.ones_like, constant(1.0))
        with pytest.raises(LinearityError, match="does not depend on the arguments, and is not"):
            transposed(ct)


def test_results_that_are_zero_are_linear() -> None:
    """Their cotangents do not matter, also where only a run tells that they are zero."""

    def f(x: Any) -> Any:
        return x * 2.0, 0.0, tnp.zeros(2), tb.jit(lambda y: y * 0.0)(x)

    transposed = tb.linear_transpose(f, 1.0)
    ct = (3.0, 5.0, np.ones(2, np.float32), 7.0)

    assert 6.0 == transposed(ct)[0]
    assert 6.0 == tb.jit(transposed)(ct)[0]


@pytest.mark.parametrize("ct", [np.arange(2), np.ones(2, bool), np.ones(2, np.float32)])
def test_any_cotangent_of_an_integer_result_will_do(ct: Any) -> None:
    """Of its shape: such as tree.map(ones_like, result)."""
    _, pullback = tb.vjp(lambda x: (x * 2, tnp.arange(2)), 1.0)

    assert 6.0 == pullback((3.0, ct))[0]
    assert 6.0 == tb.jit(lambda p, c: p(c))(pullback, (3.0, ct))[0]
    with pytest.raises(ShapeMismatchError, match=r"cotangent\[1\] has shape \(1,\)"):
        pullback((3.0, ct[:1]))


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ct", "error", "words"),
    [
        ((1.0,), TreeMismatchError, "cotangent is a tuple of 1, result is a leaf"),
        (1, DtypeMismatchError, "cotangent has dtype int32, but result has dtype float32"),
        (1j, DtypeMismatchError, "has dtype complex64"),
        (np.ones(3, np.float32), ShapeMismatchError, r"cotangent has shape \(3,\), but result has"),
        ("a", UnsupportedDtypeError, "cotangent is 'a' of type str"),
        (None, TreeMismatchError, "cotangent is None, result is a leaf"),
    ],
)
def test_wrong_cotangents(ct: Any, error: type[Exception], words: str) -> None:
    """The message names the function, the leaf and both sides."""
    _, pullback = tb.vjp(lambda x: x * 2, 1.0)

    with pytest.raises(error, match=words) as caught:
        pullback(ct)

    assert "pullback of <lambda>" in str(caught.value)


def test_arguments_must_be_arrays() -> None:
    """The leaf is named."""
    with pytest.raises(UnsupportedDtypeError, match=r"vjp\(<lambda>\): primals\[0\]\['a'\] is 'x'"):
        tb.vjp(lambda x: x, {"a": "x"})


def test_reduce_axes() -> None:
    """Cotangents of what all elements share are summed, also by a pullback that is an argument."""
    w, xs, cts = np.float32(2), np.arange(3, dtype=np.float32), np.ones(3, np.float32)

    def pull(w: Any, x: Any, ct: Any) -> Any:
        _, pullback = tb.vjp(lambda w, x: w * x, w, x, reduce_axes=("i",))
        return tb.jit(lambda p, ct: p(ct))(pullback, ct)

    out_axes = (None, 0)
    dw, dx = tb.vmap(pull, (None, 0, 0), out_axes, axis_name="i")(w, xs, cts)

    assert (3.0, [2.0, 2.0, 2.0]) == (float(dw), dx.tolist())
    with pytest.raises(UnboundAxisNameError, match="unbound axis name: i"):
        tb.vjp(lambda x: x, 1.0, reduce_axes=("i",))


def test_reduce_axes_of_a_transpose() -> None:
    """Stand-ins count as shared by all elements."""
    struct = tb.ShapeDtypeStruct((), "float32")
    xs = np.arange(3, dtype=np.float32)

    def transposed(like: Any, x: Any) -> Any:
        return tb.linear_transpose(lambda w: w * x, like, reduce_axes=("i",))(1.0)[0]

    shared = tb.vmap(lambda x: transposed(struct, x), out_axes=None, axis_name="i")(xs)
    own = tb.vmap(lambda x: transposed(x, x), axis_name="i")(xs)

    assert (3.0, [0.0, 1.0, 2.0]) == (float(shared), own.tolist())


def test_a_real_number_is_no_cotangent_of_a_complex_result() -> None:
    """Whoever gives one has taken it for another result."""
    with pytest.raises(TypeError, match="dtype complex64"):
        tb.linear_transpose(lambda x: 1j * x, 1.0)(1.0)
    with pytest.raises(ValueError, match="dtype complex64"):
        tb.vjp(lambda x: 1j * x, 1.0)[1](1.0)
