"""Masking rules of operations that hold programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.control.branches.cond import cond_p
from tracebridge.core.control.branches.switch import switch
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.jit.jit import jit_p
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.loops.while_primitive import while_p
from tracebridge.core.control.remat.checkpoint import checkpoint_p
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.control.scan.primitive import scan_p
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.symbolic.dims import DimExpr
from tracebridge.core.transforms.masking.interpreter import Masker, rule_for


@rule_for(jit_p, closed_call_p, checkpoint_p)
def _call(masker: Masker, app: Application, args: list[Any]) -> list[Any]:
    """The program in place."""
    return masker.run(app.params["jaxpr"], args)


@rule_for(custom_jvp_call_p, custom_vjp_call_p)
def _custom_call(masker: Masker, app: Application, args: list[Any]) -> list[Any]:
    """The program in place; rules of its own are for logical shapes."""
    return masker.run(app.params["call_jaxpr"], args)


@rule_for(cond_p)
def _cond(masker: Masker, app: Application, args: Sequence[object]) -> Sequence[Any]:
    index, *operands = args

    def branch(jaxpr: Any) -> Any:
        return lambda *xs: masker.run(jaxpr, _values(xs))

    return _values(switch(index, [branch(j) for j in app.params["branches"]], *operands))


@rule_for(while_p)
def _while(masker: Masker, app: Application, args: Sequence[object]) -> Sequence[Any]:
    params = app.params
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = args[:n_cond], args[n_cond : n_cond + n_body]

    def test(carry: Any) -> Any:
        return masker.run(params["cond_jaxpr"], [*cond_consts, *_values(carry)])[0]

    def body(carry: Any) -> Any:
        return masker.run(params["body_jaxpr"], [*body_consts, *_values(carry)])

    return _values(while_loop(test, body, list(args[n_cond + n_body :])))


@rule_for(scan_p)
def _scan(masker: Masker, app: Application, args: Sequence[object]) -> list[Any]:
    """Steps beyond the logical length leave the carry as it is."""
    params = app.params
    n_consts = params["num_consts"]
    fixed = n_consts + params["num_carry"]
    consts, init, xs = args[:n_consts], args[n_consts:fixed], args[fixed:]
    length = params["length"]
    steps = masker.padded_size(length)
    end = masker.index(length) if isinstance(length, DimExpr) else None

    def body(carry: Any, step: Any) -> Any:
        position, slices = step
        old = _values(carry)
        outs = masker.run(params["jaxpr"], [*consts, *old, *_values(slices)])
        new, ys = outs[: len(old)], outs[len(old) :]
        if end is not None:
            inside = lax.lt(position, end)
            new = [
                lax.select(lax.broadcast_in_dim(inside, n.aval.shape, ()), n, o)
                for n, o in zip(new, old, strict=True)
            ]
        return new, ys

    positions = lax.iota("int32", steps)
    carry, ys = scan(
        body,
        init,
        (positions, xs),
        length=steps,
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return _values([*carry, *ys])


def _values(xs: Sequence[object]) -> list[Any]:
    return [as_value(x) for x in xs]
