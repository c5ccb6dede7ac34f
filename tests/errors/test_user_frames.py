"""A traceback shows the frames of the user's code and no others, whichever function is called."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import custom_batching, custom_derivatives, lax
from tracebridge.core.errors import filtering
from tracebridge.experimental import checkify, custom_dce, jet, ode

X = tnp.arange(3.0)
S = 1.0
WRONG: dict[str, Any] = {"array": X, "number": 3}
VECTOR = tb.ShapeDtypeStruct((3,), np.float32)


class UserError(Exception):
    """Raised by the function of the user."""


def of_user(*_: Any, **__: Any) -> Any:
    raise UserError


def of_ours(*_: Any, **__: Any) -> Any:
    return tnp.ones(3) + tnp.ones(4)


def ruled(rule: str, f: Callable[..., Any]) -> Any:
    """A call that runs ``f`` as a derivative rule."""
    if rule == "jvp":
        g = tb.custom_jvp(lambda x: x)
        g.defjvp(f)
    else:
        g = tb.custom_vjp(lambda x: x)
        g.defvjp(*((f, f) if rule == "fwd" else (lambda x: (x, None), f)))
    return tb.grad(g)(S)


ENTRIES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "jit": lambda f: tb.jit(f)(X),
    "jit.lower": lambda f: tb.jit(f).lower(X),
    "jit.trace": lambda f: tb.jit(f).trace(X),
    "jit.eval_shape": lambda f: tb.jit(f).eval_shape(X),
    "pmap": lambda f: tb.pmap(f)(tnp.ones((1, 3))),
    "grad": lambda f: tb.grad(f)(S),
    "grad of jit": lambda f: tb.grad(tb.jit(f))(S),
    "value_and_grad": lambda f: tb.value_and_grad(f)(S),
    "jvp": lambda f: tb.jvp(f, (S,), (S,)),
    "vjp": lambda f: tb.vjp(f, S),
    "fwd_and_bwd": lambda f: tb.fwd_and_bwd(f, 0)[0](S),
    "linearize": lambda f: tb.linearize(f, S),
    "linear_transpose": lambda f: tb.linear_transpose(f, S)(S),
    "jacfwd": lambda f: tb.jacfwd(f)(X),
    "jacrev": lambda f: tb.jacrev(f)(X),
    "hessian": lambda f: tb.hessian(f)(X),
    "vmap": lambda f: tb.vmap(f)(X),
    "checkpoint": lambda f: tb.checkpoint(f)(X),
    "make_jaxpr": lambda f: tb.make_jaxpr(f)(X),
    "eval_shape": lambda f: tb.eval_shape(f, X),
    "xla_computation": lambda f: tb.xla_computation(f)(X),
    "named_call": lambda f: tb.named_call(f)(X),
    "closure_convert": lambda f: tb.closure_convert(f, X),
    "custom_gradient": lambda f: tb.custom_gradient(f)(S),
    "custom_jvp": lambda f: ruled("jvp", f),
    "custom_vjp, forward": lambda f: ruled("fwd", f),
    "custom_vjp, backward": lambda f: ruled("bwd", f),
    "custom_vmap": lambda f: custom_batching.custom_vmap(f)(S),
    "sequential_vmap": lambda f: tb.vmap(custom_batching.sequential_vmap(f))(X),
    "linear_call": lambda f: custom_derivatives.linear_call(f, f, X, X),
    "mask": lambda f: tb.mask(f, in_shapes=["n"], out_shape="n")([X], {"n": 2}),
    "pure_callback": lambda f: tb.pure_callback(f, VECTOR, X),
    "debug.callback": lambda f: (tb.debug.callback(f, X), tb.effects_barrier()),
    "print_saved_residuals": lambda f: tb.ad_checkpoint.print_saved_residuals(f, X),
    "check_grads": lambda f: tb.test_util.check_grads(f, (X,), 1),
    "make_array_from_callback": lambda f: tb.make_array_from_callback(
        (3,), tb.sharding.SingleDeviceSharding(tb.devices()[0]), f
    ),
    "tree.map": lambda f: tb.tree.map(f, [X]),
    "tree.map of two": lambda f: tb.tree.map(f, [X], [X]),
    "tree.map_with_path": lambda f: tb.tree.map_with_path(f, [X]),
    "tree.reduce": lambda f: tb.tree.reduce(f, [X, X]),
    "tree.flatten": lambda f: tb.tree.flatten([X], is_leaf=f),
    "tree.leaves": lambda f: tb.tree.leaves([X], is_leaf=f),
    "tree.structure": lambda f: tb.tree.structure([X], is_leaf=f),
    "tree_util.tree_map": lambda f: tb.tree_util.tree_map(f, [X]),
    "scan": lambda f: lax.scan(f, S, X),
    "fori_loop": lambda f: lax.fori_loop(0, 3, f, X),
    "while_loop": lambda f: lax.while_loop(f, f, X),
    "cond": lambda f: lax.cond(True, f, f, X),
    "switch": lambda f: lax.switch(0, [f, f], X),
    "map": lambda f: lax.map(f, X),
    "associative_scan": lambda f: lax.associative_scan(f, X),
    "custom_root": lambda f: lax.custom_root(f, X, f, f),
    "custom_linear_solve": lambda f: lax.custom_linear_solve(f, X, f),
    "platform_dependent": lambda f: lax.platform_dependent(X, default=f),
    "composite": lambda f: lax.composite(f, "a.b")(X),
    "vectorize": lambda f: tnp.vectorize(f)(X),
    "frompyfunc": lambda f: tnp.frompyfunc(f, 2, 1)(X, X),
    "frompyfunc.outer": lambda f: tnp.frompyfunc(f, 2, 1).outer(X, X),
    "apply_along_axis": lambda f: tnp.apply_along_axis(f, 0, X),
    "apply_over_axes": lambda f: tnp.apply_over_axes(f, X, [0]),
    "fromfunction": lambda f: tnp.fromfunction(f, (3,)),
    "piecewise": lambda f: tnp.piecewise(X, [X > 0], [f]),
    "checkify": lambda f: checkify.checkify(f)(X),
    "jet": lambda f: jet.jet(f, (S,), ((S,),)),
    "odeint": lambda f: ode.odeint(f, X, tnp.linspace(0.0, 1.0, 3)),
    "custom_dce": lambda f: ran(custom_dce.custom_dce(f), f),
}


def ran(call: Any, rule: Any) -> Any:
    call.def_dce(rule)
    return tb.jit(call)(X)


def assign() -> None:
    X[0] = 1  # type: ignore[index]  # what a newcomer tries


def assign_in_jit() -> Any:
    def f(x: Any) -> Any:
        x[0] += 1
        return x

    return tb.jit(f)(X)


# Calls that do not fit, where no code of the user runs.
MISUSES: dict[str, Callable[[], Any]] = {
    "x[0] = 1": assign,
    "x[0] += 1 in jit": assign_in_jit,
    "x + y": lambda: X + tnp.ones(4),
    "x @ y": lambda: X @ tnp.ones(4),
    "x.reshape": lambda: X.reshape(7),
    "x[5, 5]": lambda: X[5, 5],
    "x.at": lambda: X.at[1, 1].set(3),
    "x.foo": lambda: X.foo,
    "len(x)": lambda: len(tnp.ones(())),
    "list(x)": lambda: list(tnp.ones(())),
    "range(x)": lambda: range(WRONG["array"]),
    "int(x)": lambda: int(X),
    "float(x)": lambda: float(X),
    "complex(x)": lambda: complex(X),
    "bool(x)": lambda: bool(X),
    "x.item()": lambda: X.item(),
    "if x": lambda: tb.jit(lambda x: 1 if x > 1 else 2)(S),
    "float(tracer)": lambda: tb.jit(float)(S),
    "range(tracer)": lambda: tb.jit(range)(1),
    "np.sin(tracer)": lambda: tb.jit(np.sin)(S),
    "grad of a vector": lambda: tb.grad(lambda x: x)(X),
    "value_and_grad of a vector": lambda: tb.value_and_grad(lambda x: x)(X),
    "grad of an integer": lambda: tb.grad(lambda x: x)(1),
    "vmap of a number": lambda: tb.vmap(lambda x: x)(1.0),
    "vmap in_axes": lambda: tb.vmap(lambda x, y: x, in_axes=(0, 1))(X, X),
    "vmap sizes": lambda: tb.vmap(lambda x, y: x)(X, tnp.ones(4)),
    "pullback": lambda: tb.vjp(lambda x: x, X)[1](tnp.ones(4)),
    "linearization": lambda: tb.linearize(lambda x: x, X)[1](tnp.ones(4)),
    "jvp shapes": lambda: tb.jvp(lambda x: x, (X,), (S,)),
    "jit of a string": lambda: tb.jit(lambda x: x)("a"),
    "a string as result": lambda: tb.jit(lambda x: "a")(X),
    "compiled": lambda: tb.jit(lambda x: x).lower(X).compile()(tnp.ones(4)),
    "device_put": lambda: tb.device_put("a"),
    "tree.map": lambda: tb.tree.map(lambda x, y: x, [1], [1, 2]),
    "tree.unflatten": lambda: tb.tree.unflatten(tb.tree.structure([1]), [1, 2]),
    "tree.unflatten of no tree": lambda: tb.tree.unflatten(WRONG["number"], [1, 2]),
    "ravel_pytree": lambda: tb.flatten_util.ravel_pytree(X)[1](tnp.ones(7)),
    "config.update": lambda: tb.config.update("nope", 1),
    "config.nope": lambda: tb.config.nope,
    "config.nope = 1": lambda: setattr(tb.config, "nope", 1),
    "Mesh": lambda: tb.sharding.Mesh([], ("a", "b")),
    "NamedSharding": lambda: tb.NamedSharding(tb.make_mesh((1,), ("a",)), tb.P("b")),
    "from_dlpack": lambda: tb.dlpack.from_dlpack("a"),
    "custom_jvp without rule": lambda: tb.custom_jvp(lambda x: x)(S),
    "scan of lengths": lambda: lax.scan(lambda c, x: (c, x), S, (X, tnp.ones(4))),
    "cond of structures": lambda: lax.cond(True, lambda x: x, lambda x: (x, x), X),
    "dot_general": lambda: lax.dot_general(X, X, WRONG["number"]),
}


@pytest.fixture(autouse=True)
def _filtering_on() -> Iterator[None]:
    before = filtering.mode
    filtering.set_mode("auto")
    yield
    filtering.set_mode(before)


def engine_frames(error: BaseException) -> list[str]:
    """Frames of the engine in the traceback of an exception and of those behind it."""
    found: list[str] = []
    item: BaseException | None = error
    while item is not None:
        frames = traceback.extract_tb(item.__traceback__)
        found += [f"{f.filename}:{f.lineno}" for f in frames if is_ours(f.filename)]
        item = item.__cause__ or (None if item.__suppress_context__ else item.__context__)
    return found


def is_ours(filename: str) -> bool:
    return filtering.is_internal_file(filename) and not filename.startswith("<frozen ")


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("function", [of_user, of_ours])
def test_errors_under_a_transformation_show_the_users_frames(
    name: str, function: Callable[..., Any]
) -> None:
    """From code of the user, and from ours that it called."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - some are wrapped
        ENTRIES[name](function)

    assert [] == engine_frames(caught.value)
    assert function.__name__ in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", MISUSES)
def test_errors_of_a_call_end_at_the_users_line(name: str) -> None:
    """Where the engine refuses what it was given."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many classes
        MISUSES[name]()

    assert [] == engine_frames(caught.value)
