"""api_util: functions of leaves, fixed arguments, donated leaves, names and types of arguments."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import api_util
from tracebridge.errors import (
    ArgumentSpecError,
    ArgumentTypeError,
    NonHashableStaticArgumentError,
    TreeMismatchError,
    UnsupportedDtypeError,
)
from tracebridge.extend import linear_util as lu
from tracebridge.interpreters import partial_eval as pe


def affine(x: Any, y: Any, *rest: Any, z: Any = 1, **more: Any) -> Any:
    """A function with all kinds of parameters."""
    return {"a": x * y, "b": (rest, z, more)}


ARGS = (2.0, 3.0, [4.0, 5.0])
KEYWORDS = {"z": 6.0, "w": 7.0}


def test_debug_info_names_the_flat_arguments() -> None:
    """Leaves have paths, keywords are sorted, static arguments are none of them."""
    info = api_util.debug_info("jit", affine, ARGS, KEYWORDS)

    names = ("x", "y", "rest[0][0]", "rest[0][1]", "more['w']", "z")
    assert (names, "jit", "affine", ()) == (
        info.arg_names, info.traced_for, info.func_name, info.result_paths
    )  # fmt: skip
    line = inspect.getsourcelines(affine)[1]
    assert (__file__, line) == (info.func_filename, info.func_lineno)
    assert f"affine at {__file__}:{line}" == info.func_src_info
    assert f"DebugInfo('jit', {info.func_src_info!r}, arg_names={names}, result_paths=())" == (
        repr(info)
    )
    static = api_util.debug_info(
        "jit", affine, ARGS, KEYWORDS, static_argnums=(0, -1), static_argnames=("z",)
    )
    assert ("y", "more['w']") == static.arg_names
    by_name = api_util.debug_info("jit", affine, ARGS[:2], {}, static_argnames=("y",))
    assert ("x",) == by_name.arg_names


def test_debug_info_of_what_is_given() -> None:
    """A signature, a place in a file, and names of results."""
    signature = inspect.signature(lambda p, /, q, *others, r, **kw: None)
    info = api_util.debug_info(
        "vmap",
        lambda *args, **kwargs: (args, kwargs),
        (1, 2, 3),
        {"r": 4, "s": 5},
        signature=signature,
        sourceinfo="model at net.py:12",
        result_paths_thunk=lambda: ("loss",),
    )

    assert ("p", "q", "others[0]", "r", "kw['s']") == info.arg_names
    assert ("model", "net.py", 12) == (info.func_name, info.func_filename, info.func_lineno)
    assert ("loss",) == info.result_paths
    nowhere = api_util.debug_info("jit", affine, (), {}, sourceinfo="f")
    assert (None, None, "f") == (
        nowhere.func_filename, nowhere.func_lineno, nowhere.func_src_info
    )  # fmt: skip


def test_flatten_fun() -> None:
    """Leaves in, leaves out; the structure of the result is known after the one call."""
    leaves, tree = tb.tree.flatten((ARGS, KEYWORDS))
    flat, out_tree = api_util.flatten_fun(lu.wrap_init(affine), tree)

    with pytest.raises(lu.StoreException, match="empty"):
        out_tree()
    results = flat.call_wrapped(*leaves)
    expected, structure = tb.tree.flatten(affine(*ARGS, **KEYWORDS))
    assert (expected, structure) == (results, out_tree())
    with pytest.raises(lu.StoreException, match="twice"):
        flat.call_wrapped(*leaves)


def test_flatten_fun_nokwargs() -> None:
    """The same for positional arguments; wrong numbers of leaves are errors."""
    leaves, tree = tb.tree.flatten(ARGS)
    flat, out_tree = api_util.flatten_fun_nokwargs(lu.wrap_init(affine), tree)

    results = flat.call_wrapped(*leaves)
    assert (results, out_tree()) == tb.tree.flatten(affine(*ARGS))
    empty, structure = api_util.flatten_fun_nokwargs(lu.wrap_init(lambda _: None), tree)
    with pytest.raises(ValueError, match="expected"):
        empty.call_wrapped(1.0)
    one = tb.tree.structure((0,))
    empty, structure = api_util.flatten_fun_nokwargs(lu.wrap_init(lambda _: None), one)
    assert ([], tb.tree.structure(None)) == (empty.call_wrapped(1.0), structure())


@pytest.mark.parametrize("around", ["none", "jit", "grad", "vmap", "scan"])
def test_flat_functions_can_be_traced(around: str) -> None:
    """Traced to a program that is evaluated under any transformation; names reach messages."""

    def f(x: Any, params: Any) -> Any:
        return {"out": tnp.sin(x) * params["scale"]}

    x = np.linspace(0.1, 1.0, 4, dtype="f4")
    args = (x[0], {"scale": np.float32(2)})
    leaves, tree = tb.tree.flatten(args)
    wrapped = lu.wrap_init(f, debug_info=api_util.debug_info("demo", f, args, {}))
    flat, out_tree = api_util.flatten_fun_nokwargs(wrapped, tree)
    avals = [api_util.shaped_abstractify(leaf) for leaf in leaves]
    jaxpr, out_avals, consts = pe.trace_to_jaxpr_dynamic(flat, avals)

    def run(x: Any) -> Any:
        outs = tb.core.eval_jaxpr(jaxpr, consts, x, np.float32(2))
        return tb.tree.unflatten(out_tree(), outs)["out"]

    calls: dict[str, tuple[Any, Any]] = {
        "none": (lambda v: tnp.stack([run(e) for e in v]), 2 * np.sin(x)),
        "jit": (lambda v: tnp.stack([tb.jit(run)(e) for e in v]), 2 * np.sin(x)),
        "grad": (lambda v: tnp.stack([tb.grad(run)(e) for e in v]), 2 * np.cos(x)),
        "vmap": (tb.vmap(run), 2 * np.sin(x)),
        "scan": (lambda v: tb.lax.scan(lambda c, e: (c, run(e)), 0, v)[1], 2 * np.sin(x)),
    }
    call, expected = calls[around]
    assert avals[:1] == list(out_avals)
    assert np.allclose(expected, call(x), rtol=1e-6)


def test_argnums_partial() -> None:
    """Some arguments stay, in the order of their positions; equal parts are equal functions."""

    def f(*args: Any) -> Any:
        return args

    def split(*args: Any, **kwargs: Any) -> Any:
        partial, dynamic = api_util.argnums_partial(lu.wrap_init(f), *args, **kwargs)
        return dynamic, partial.call_wrapped(*[-d for d in dynamic])

    assert ((1,), (-1, 2, 3)) == split(0, (1, 2, 3))
    assert ((1, 3), (-1, 2, -3)) == split((2, 0), (1, 2, 3))
    assert ((3,), (1, 2, -3)) == split(-1, (1, 2, 3))
    assert ((), (1, 2)) == split((), (1, 2))
    assert ((1,), (-1, [2])) == split(0, (1, [2]), require_static_args_hashable=False)
    one, two, other = (
        api_util.argnums_partial(lu.wrap_init(f), 0, (1, static))[0] for static in (2, 2, 3)
    )
    assert one == two != other
    assert hash(one) == hash(two)


def test_argnums_partial_refuses() -> None:
    """Positions that do not exist, and fixed arguments without a hash."""
    f = lu.wrap_init(affine)
    with pytest.raises(ArgumentSpecError, match="dyn_argnums contains 3, but there are 2"):
        api_util.argnums_partial(f, 3, (1, 2))
    with pytest.raises(ArgumentSpecError, match="no position at all"):
        api_util.argnums_partial(f, 0, ())
    with pytest.raises(NonHashableStaticArgumentError, match=r"argnums_partial\(affine\)"):
        api_util.argnums_partial(f, 0, (1, [2]))


def test_donation() -> None:
    """Leaves of donated arguments, and positions without the static ones."""
    tree = tb.tree.structure(((1, {"a": 2, "b": 3}), {"z": [1, 2], "y": 1}))

    vector = api_util.donation_vector
    assert (True, False, False, False, False, False) == vector((0,), (), tree)
    assert (False, True, True, True, False, False) == vector((1,), ("y",), tree)
    assert (False,) * 6 == vector((), (), tree)
    assert (False, True, True) == vector((1,), (), tb.tree.structure((1, [2, 3])), kws=False)
    rebase = api_util.rebase_donate_argnums
    assert ((1, 2), (0, 3), (), (2,)) == (
        rebase((3, 4), (0, 1)), rebase([4, 0], (1,)), rebase((), (1,)), rebase((2, 2), ())
    )  # fmt: skip
    with pytest.raises(ArgumentSpecError, match="argument 1 is both static and donated"):
        rebase((1, 2), (0, 1))


def test_flatten_axes() -> None:
    """One entry for each leaf; None is a value; the paths of a mismatch are named."""
    tree = tb.tree.structure(((1, {"a": 2, "b": 3}), {"z": 1}))

    spread = api_util.flatten_axes
    assert [0, 1, 1, None] == spread("in_axes", tree, ((0, 1), None))
    assert [0] * 4 == spread("in_axes", tree, 0, kws=True)
    assert [0, 1] == spread("in_axes", tb.tree.structure((1, 2)), [0, 1], tupled_args=True)
    with pytest.raises(TreeMismatchError, match=r"in_axes\[0\] is a tuple of 1"):
        spread("in_axes", tree, ((0,), None))


class Duck:
    """Has a shape and a dtype."""

    shape = (2, 3)
    dtype = np.dtype("int64")


def test_shaped_abstractify() -> None:
    """Types by the 64-bit rule, without a transfer; anything else is an error."""
    aval = tb.core.ShapedArray

    kinds = [1, True, 1j, np.ones(3), tnp.ones(2), tb.ShapeDtypeStruct((2,), "float16"), Duck()]
    expected = [
        aval((), np.dtype("int32"), weak_type=True),
        aval((), np.dtype("bool")),
        aval((), np.dtype("complex64"), weak_type=True),
        aval((3,), np.dtype("float32")),
        aval((2,), np.dtype("float32")),
        aval((2,), np.dtype("float16")),
        aval((2, 3), np.dtype("int32")),
    ]
    assert expected == [api_util.shaped_abstractify(x) for x in kinds]
    for bad in ([1], "x", None, object()):
        with pytest.raises(UnsupportedDtypeError, match="expected an array"):
            api_util.shaped_abstractify(bad)


def test_safe_map() -> None:
    """A list; lengths must be equal, and there is at least one sequence."""
    assert [11, 22] == api_util.safe_map(lambda x, y: x + y, [1, 2], (10, 20))
    assert ["0", "1"] == api_util.safe_map(str, iter(range(2)))
    with pytest.raises(ValueError, match="shorter"):
        api_util.safe_map(max, [1, 2], [1])
    with pytest.raises(ArgumentTypeError, match="no sequence"):
        api_util.safe_map(max)
