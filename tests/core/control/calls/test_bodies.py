"""Programs of functions that control flow got: what they and their arguments are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.ir.traverse import sub_jaxprs

SCALAR = ("result",)


def _cond(x: Any) -> Any:
    return lax.cond(x > 0, lambda yes: yes, lambda no: -no, x)


def _switch(x: Any) -> Any:
    return lax.switch(x.astype(int), [lambda a: a, lambda b: {"b": b + 1.0}["b"]], x)


def _while_loop(x: Any) -> Any:
    return lax.while_loop(lambda goes: goes["a"] < 3, lambda on: {"a": on["a"] + 1}, {"a": x})


def _scan(x: Any) -> Any:
    return lax.scan(lambda total, new: (total + new["k"], (total,)), x, {"k": tnp.ones(3)})


def _fori_loop(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, value: value + i, x)


def _open_fori_loop(x: Any) -> Any:
    return lax.fori_loop(0, x.astype(int), lambda i, value: (value[0] + i,), (x,))


def _map(x: Any) -> Any:
    return lax.map(lambda row: row * x, tnp.ones(3))


def _checkpoint(x: Any) -> Any:
    return tb.checkpoint(lambda kept: {"k": tnp.sin(kept)})(x)


def _shard_map(x: Any) -> Any:
    mesh = tb.make_mesh((1,), ("i",), axis_types=(tb.sharding.AxisType.Auto,))
    return tb.shard_map(lambda block: (block,), mesh=mesh, in_specs=tb.P(), out_specs=tb.P())(x)


def _pmap(x: Any) -> Any:
    return tb.pmap(lambda row: row * 2)(x[None])


def _custom_jvp(x: Any) -> Any:
    f = tb.custom_jvp(lambda scale, point: scale * point["p"], nondiff_argnums=(0,))
    f.defjvp(lambda scale, primals, tangents: (scale * primals[0]["p"], tangents[0]["p"]))
    return f(2.0, {"p": x})


def _custom_vjp(x: Any) -> Any:
    f = tb.custom_vjp(lambda point: (point["p"], point["q"]))
    f.defvjp(lambda point: ((point["p"], point["q"]), None), lambda res, ct: (ct,))
    return f({"p": x, "q": x + 1})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_cond, [("cond", ("no",), SCALAR), ("cond", ("yes",), SCALAR)]),
        (_switch, [("switch", ("a",), SCALAR), ("switch", ("b",), SCALAR)]),
        (
            _while_loop,
            [
                ("while_body", ("on['a']",), ("result['a']",)),
                ("while_cond", ("goes['a']",), SCALAR),
            ],
        ),
        (_scan, [("scan", ("total", "new['k']"), ("result[0]", "result[1][0]"))]),
        (_fori_loop, [("fori_loop", ("i", "value"), ("result[0][0]", "result[0][1]"))]),
        (_map, [("map", ("row",), ("result[1]",))]),
        (
            _open_fori_loop,
            [
                (
                    "fori_loop",
                    ("i", "args[0][1]", "value[0]"),
                    ("result[0]", "result[1]", "result[2][0]"),
                ),
                ("fori_loop", ("state[0]", "state[1]", "state[2][0]"), SCALAR),
            ],
        ),
        (_checkpoint, [("checkpoint / remat", ("kept",), ("result['k']",))]),
        (_shard_map, [("shard_map", ("block",), ("result[0]",))]),
        (_pmap, [("pmap", ("row",), SCALAR)]),
        (_custom_jvp, [("jit", ("point['p']",), SCALAR)]),
        (_custom_vjp, [("jit", ("point['p']", "point['q']"), ("result[0]", "result[1]"))]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_names_of_bodies(function: Callable[..., Any], expected: list[Any]) -> None:
    """Parameters of the function of the user, wherever a loop puts further values."""
    infos = [j.debug_info for j in sub_jaxprs(tb.make_jaxpr(function)(2.0).jaxpr)]

    assert expected == [(i.traced_for, i.arg_names, i.result_paths) for i in infos]
    assert "<lambda>" == infos[0].func_name
    assert all(["test_bodies.py" in i.func_src_info or "fori.py" in i.func_src_info for i in infos])


def test_messages_name_arguments_of_bodies() -> None:
    """Also of functions that are gone when the message is made, and in fori_loop."""
    message = (
        r"depends on the values of the arguments i and value of .*<lambda> \(given to fori_loop\)"
    )
    with pytest.raises(tb.errors.TracerBoolConversionError, match=message):
        lax.fori_loop(0, 3, lambda i, value: max(i, value), 0)
    message = (
        r"depends on the value of the argument goes\['a'\] of <lambda> \(given to while_loop\)"
    )
    with pytest.raises(tb.errors.TracerBoolConversionError, match=message):
        lax.while_loop(lambda goes: not goes["a"], lambda goes: goes, {"a": True})


def test_messages_about_constants_do_not_speak_of_static_arguments() -> None:
    """A value that no argument leads to would not be known if arguments were."""

    def closed() -> Any:
        return 1 if tnp.add(1, 1) > 1 else 2

    with pytest.raises(tb.errors.TracerBoolConversionError) as caught:
        tb.jit(closed)()
    assert "static_argnums" not in str(caught.value)


def test_messages_name_arguments_of_functions_around() -> None:
    """A branch may look at what it closes over."""
    message = r"depends on the value of the argument x of <lambda>"
    with pytest.raises(tb.errors.TracerBoolConversionError, match=message) as caught:
        tb.jit(lambda x: lax.cond(True, lambda: 1 if x > 0 else 2, lambda: 3))(1.0)
    assert "static_argnums" in str(caught.value)
