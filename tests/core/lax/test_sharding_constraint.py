"""jit over several devices: in_shardings, out_shardings, with_sharding_constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import EffectError, TreeMismatchError
from tracebridge.experimental.layout import Format, Layout
from tracebridge.sharding import NamedSharding
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
P = tb.P
X = np.arange(32, dtype="f4").reshape(8, 4)


def ns(*spec: Any) -> NamedSharding:
    """A sharding over a mesh of four by two devices."""
    return NamedSharding(tb.make_mesh((4, 2), ("x", "y"), tb.sharding.AxisType.Auto), P(*spec))


def constrained(x: Any) -> Any:
    """Twice ``x``, split by columns and rows."""
    return lax.with_sharding_constraint(2 * x, ns("y", "x"))


@pytest.mark.parametrize("spec", [(), ("x",), ("x", "y"), (None, "y"), (("y", "x"),)])
@pytest.mark.parametrize("out", [("y",), (None, "x"), ()])
def test_in_and_out_shardings(spec: tuple[Any, ...], out: tuple[Any, ...]) -> None:
    """Free arguments go where in_shardings says; results come as out_shardings says."""
    f = tb.jit(lambda x: (2 * x, x.sum()), in_shardings=ns(*spec), out_shardings=(ns(*out), None))

    for _ in range(2):
        doubled, total = f(X)
        assert ns(*out) is doubled.sharding
        assert_allclose(doubled, 2 * X)
        assert X.sum() == float(total)
    compiled = f.lower(X).compile()
    assert ns(*out) is compiled(X)[0].sharding
    assert ns(*spec) is compiled.input_shardings[0][0]


def test_trees_of_shardings() -> None:
    """Prefixes; None leaves the choice to XLA."""
    f = tb.jit(
        lambda a, b: {"p": a["u"] * b, "q": (a["v"], b)},
        in_shardings=({"u": ns("x"), "v": None}, ns(None, "y")),
        out_shardings={"p": None, "q": ns("y")},
    )

    out = f({"u": X, "v": X}, X)

    assert [ns("y")] * 2 == [x.sharding for x in out["q"]]
    assert 8 == len(out["p"].devices())
    assert_allclose(out, {"p": X * X, "q": (X, X)})


def test_committed_arguments() -> None:
    """They decide where nothing is said, must agree with in_shardings, and stay on the devices."""
    x = tb.device_put(X, ns("x"))

    assert ns("y", "x") is tb.jit(lambda x: x, out_shardings=ns("y", "x"))(x).sharding
    assert_allclose(tb.jit(lambda x: x + 1, in_shardings=ns("x", None))(x), X + 1)
    with pytest.raises(DevicePlacementError, match=r"(?s)argument x is committed to .*device_put"):
        tb.jit(lambda x: x, in_shardings=ns("y"))(x)
    with pytest.raises(DevicePlacementError, match="argument 0 is committed to"):
        tb.jit(lambda x: x, out_shardings=ns("y"))(tb.device_put(X, tb.devices()[0]))


def test_a_constraint_brings_the_program_to_the_mesh() -> None:
    """Also in functions that are called, mapped, derived, and in loops."""
    f = tb.jit(constrained)
    assert ns("y", "x") is f(X).sharding
    assert_allclose(f(X), 2 * X)
    assert ns("y", "x") is tb.jit(lambda x: f(x))(X).sharding

    loop = tb.jit(lambda x: lax.scan(lambda c, _: (constrained(c), None), x, None, length=3)[0])
    assert 8 == len(loop(X).devices())
    assert_allclose(loop(X), 8 * X)
    choice = tb.jit(lambda x: lax.cond(x[0, 0] > 1, constrained, lambda x: x, x))
    assert_allclose(choice(X + 2), 2 * X + 4)
    assert_allclose(tb.jit(tb.vmap(constrained))(np.stack([X, X])), 2 * np.stack([X, X]))
    for gradient in (tb.jit(tb.grad(lambda x: (constrained(x) ** 2).sum())),
                     tb.grad(lambda x: (constrained(x) ** 2).sum()),
                     tb.grad(lambda x: (f(x) ** 2).sum())):  # fmt: skip
        assert_allclose(gradient(X), 8 * X)
    value, tangent = tb.jvp(f, (X,), (X,))
    assert_allclose((value, tangent), (2 * X, 2 * X))
    assert_allclose(tb.jit(tb.checkpoint(constrained))(X), 2 * X)


def test_eager_constraints_move() -> None:
    """Outside of programs a constraint is a device_put; open axes become whole."""
    assert ns("y", "x") is constrained(X).sharding
    out = lax.with_sharding_constraint({"a": X, "b": X}, {"a": ns("x"), "b": None})
    assert ns("x") is out["a"].sharding
    assert out["b"] is X
    assert ns(None, "y") is lax.with_sharding_constraint(X, ns(P.UNCONSTRAINED, "y")).sharding
    one = tb.sharding.SingleDeviceSharding(tb.devices()[3])
    assert {tb.devices()[3]} == lax.with_sharding_constraint(X, one).devices()


def test_constraints_of_layout_and_sharding() -> None:
    """A format constrains both; its values and derivatives are the same."""
    by_columns = Format(Layout((1, 0)), ns("y", "x"))
    f = tb.jit(lambda x: lax.with_sharding_constraint(2 * x, by_columns))

    assert_allclose(f(X), 2 * X)
    assert ns("y", "x") == f(X).sharding
    assert "LayoutConstraint" in f.lower(X).as_text()
    assert_allclose(tb.grad(lambda x: (f(x) * X).sum())(X), 2 * X)
    assert ns("y", "x") == lax.with_sharding_constraint(tnp.asarray(X), by_columns).sharding


def test_eager_constraints_over_abstract_meshes() -> None:
    """They are over the devices of the array's mesh, or of the mesh in force, with these axes."""
    concrete = ns("y")
    abstract = NamedSharding(concrete.mesh.abstract_mesh, P("y"))
    placed = tb.device_put(X, ns("x"))

    assert concrete == lax.with_sharding_constraint(placed, abstract).sharding
    with tb.set_mesh(concrete.mesh):
        split = lax.with_sharding_constraint(tnp.asarray(X), abstract)
    assert concrete == split.sharding
    assert_allclose(split, X)
    other = NamedSharding(tb.sharding.AbstractMesh((2,), ("z",)), P("z"))
    for x in (X, placed):
        with pytest.raises(DevicePlacementError, match="AbstractMesh"):
            lax.with_sharding_constraint(x, other)


def test_open_axes_are_left_to_xla() -> None:
    """An unconstrained axis may be split as the argument is."""
    f = tb.jit(lambda x: lax.with_sharding_constraint(x, ns(P.UNCONSTRAINED, "y")))

    assert_allclose(f(X), X)
    assert "sdy.sharding_constraint" in f.lower(X).as_text()
    assert '[{?}, {"y"}]' in f.lower(X).as_text()


def test_inner_functions_and_transfers_constrain() -> None:
    """in_shardings of a function inside another, and device_put, are constraints there."""
    inner = tb.jit(lambda x: 2 * x, in_shardings=ns("x"), out_shardings=ns("y"))

    assert ns("y") is tb.jit(lambda x: inner(x + 1))(X).sharding
    assert_allclose(tb.jit(lambda x: inner(x + 1))(X), 2 * X + 2)
    assert_allclose(tb.grad(lambda x: (inner(x) * X).sum())(X), 2 * X)
    assert ns("x", "y") is tb.jit(lambda x: tb.device_put(x + 1, ns("x", "y")))(X).sharding


def test_programs_on_one_device_ignore_constraints() -> None:
    """Elements of pmap are such programs."""
    assert_allclose(tb.pmap(constrained)(np.stack([X, X])), 2 * np.stack([X, X]))


def test_uneven_intermediate_values() -> None:
    """XLA pads values inside a program; results of a program have even parts."""
    uneven = np.ones((7, 4), "f4")

    assert_allclose(
        tb.jit(lambda x: lax.with_sharding_constraint(x, ns("x")) + 1)(uneven), uneven + 1
    )


def test_donation_and_created_arrays() -> None:
    """A donated argument ends; creation functions take shardings for a device."""
    x = tb.device_put(X, ns("x"))
    assert_allclose(tb.jit(lambda x: x + 1, donate_argnums=0, in_shardings=ns("x"))(x), X + 1)
    assert x.is_deleted()
    assert ns("x") is tnp.zeros((8, 4), device=ns("x")).sharding
    assert ns("x") is tnp.asarray(X, device=ns("x")).sharding


def test_inspected_values(capsys: pytest.CaptureFixture[str]) -> None:
    """How XLA splits values of a program, when it is compiled."""
    seen: list[Any] = []

    def inspected(x: Any) -> Any:
        tb.debug.inspect_array_sharding(x, callback=seen.append)
        return x

    def f(x: Any) -> Any:
        inspected(x)
        return inspected(constrained(x)) + 1, inspected(x.sum())

    g = tb.jit(f, in_shardings=ns("x"), out_shardings=(ns(None, "y"), None))
    for _ in range(2):
        out, _ = g(X)
        assert [ns("x"), ns("y", "x"), ns()] == seen
        assert ns(None, "y") is out.sharding
        assert_allclose(out, 2 * X + 1)
    lowered = g.lower(X)
    for _ in range(2):
        seen.clear()
        assert_allclose(lowered.compile()(X)[0], 2 * X + 1)
        assert [ns("x"), ns("y", "x"), ns()] == seen
    tb.jit(lambda x: tb.debug.visualize_array_sharding(x))(tb.device_put(X, ns("y")))
    assert "CPU 0,2,4,6" in capsys.readouterr().out
    loop = tb.jit(lambda x: lax.scan(lambda c, _: (inspected(c), None), x, None, length=2)[0])
    with pytest.raises(EffectError, match="of a value in a loop, branch or inner function"):
        loop(tb.device_put(X, ns("x")))


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ShapeMismatchError, r"in_shardings of x: P\('x',\) splits axis 0 of f32\[7\]",
     lambda: tb.jit(lambda x: x, in_shardings=ns("x"))(np.ones(7, "f4"))),
    (ShapeMismatchError, r"out_shardings of the result\[1\]: .* splits axis 0 of f32\[7\]",
     lambda: tb.jit(lambda x: (x, x[1:]), out_shardings=ns("y"))(np.ones(8, "f4"))),
    (ShapeMismatchError, "is for arrays with at least 2 axes, got 1",
     lambda: tb.jit(lambda x: lax.with_sharding_constraint(x, ns("x", "y")))(np.ones(8, "f4"))),
    (TreeMismatchError, "in_shardings", lambda: tb.jit(abs, in_shardings=(ns(), ns()))(X)),
    (TreeMismatchError, "out_shardings", lambda: tb.jit(abs, out_shardings=(ns(),))(X)),
    (TreeMismatchError, "shardings", lambda: lax.with_sharding_constraint((X,), [ns(), ns()])),
    (DevicePlacementError, "in_shardings names a mesh, and device=None, backend='cpu'",
     lambda: tb.jit(abs, in_shardings=ns(), backend="cpu")),
    (DevicePlacementError, "beside shardings of a mesh",
     lambda: tb.jit(max, in_shardings=(ns(), tb.devices()[0]))),
    (DevicePlacementError, "with_sharding_constraint: got 3 of type int",
     lambda: lax.with_sharding_constraint(X, 3)),
    (DevicePlacementError, "is about other devices than Mesh",
     lambda: tb.jit(lambda x, y: x, in_shardings=(ns(), NamedSharding(
         tb.make_mesh((2,), ("z",), tb.sharding.AxisType.Auto), P("z"))))(X, X)),
    (DevicePlacementError, "(?s)is about other devices than the program.*one mesh",
     lambda: tb.jit(lambda x: (lax.with_sharding_constraint(x, ns()), lax.with_sharding_constraint(
         x, NamedSharding(tb.make_mesh((2,), ("z",), tb.sharding.AxisType.Auto), P("z")))))(X)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "call"), REFUSED, ids=[m for _, m, _ in REFUSED])
def test_refused(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    """What does not fit, and the message."""
    with pytest.raises(error, match=message):
        call()


def test_the_sharding_of_no_mesh_constrains_nothing():
    """That is what ``typeof(x).sharding`` is where no mesh is in force."""
    x = tnp.arange(3.0)
    nothing = tb.typeof(x).sharding
    empty = tb.sharding.NamedSharding(tb.sharding.Mesh(np.empty((), object), ()), P())

    assert tb.random.normal(tb.random.key(0), (3,), out_sharding=nothing).shape == (3,)
    assert tb.lax.with_sharding_constraint(x, nothing) is x
    assert tb.jit(lambda x: tb.lax.with_sharding_constraint(x, nothing) + 1)(x).tolist() == [
        1,
        2,
        3,
    ]
    for sharding in (nothing, empty):
        with pytest.raises(DevicePlacementError, match="has no devices"):
            tb.device_put(x, sharding)
