"""What is said of values along named axes, and computes nothing: pcast."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.collectives.axes import axis_size, bound_names, map_leaves, size_value
from tracebridge.core.collectives.psum import psum_p
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.aval import NOWHERE, ShapedArray
from tracebridge.core.ir.varied import CAST, typed_axes, varied
from tracebridge.core.lax.annotations import Annotation

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value

KINDS = ("varying", "reduced", "unreduced")


@final
class Pcast(Annotation):
    """Parameters ``axes``, names, and ``to``: whether the value is to vary along them.

    No communication: it names no axis in the sense of ``names_axis``. The cotangent of a value that
    is let to vary is the sum of those of the devices, also where another operand varies and nobody
    asks ("joined"); where it counts as reduced, each device keeps its part of that sum. A value
    that is known to be the "same" on all devices shares its cotangent among them.
    """

    name = "pcast"
    decides_varying = True
    makes_nan = False

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        if app.params["to"] in ("joined", "same"):
            return ins
        named = walk.names.intersection(app.params["axes"])
        if app.params["to"] != "reduced":
            return [ins[0] | named]
        wrong = sorted(named & ins[0], key=repr)
        if wrong:
            block = app.avals[0].with_vma(NOWHERE).str_short()
            axes = repr(wrong[0]) if len(wrong) == 1 else repr(tuple(wrong))
            raise AxisSpecError(
                f"{walk.call}: pcast to 'reduced' got {block} on each device, "
                f"which varies over {axes}",
                hint=f"combine the values of the devices with lax.psum or lax.pmean over {axes}; "
                "check_vma=False leaves this check out",
            )
        return ins

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]]:
        vma = avals[0].vma
        del outs
        if params["to"] == "same":
            return [vma.difference(params["axes"])]
        return [vma if params["to"] == "unreduced" else vma.union(params["axes"])]

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        """The operand was given to all devices along the axes: their cotangents are summed."""
        if params["to"] == "same":
            share = lax.div(ct, size_value(axis_size(params["axes"]), ct.aval.dtype))
            return [varied(share, frozenset(params["axes"]))]
        if params["to"] not in ("varying", "joined"):
            return [ct]
        names = tuple([n for n in params["axes"] if n not in args[0].aval.vma])
        return [psum_p.bind(ct, axes=names, axis_index_groups=None) if names else ct]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        axes = tuple([name for name in params["axes"] if name != ctx.axis_name])
        if not axes:
            return args[0], dims[0]
        return self.bind(args[0], axes=axes, to=params["to"]), dims[0]

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(primals[0], **params), self.bind(tangents[0], **params)


pcast_p = Pcast()


def _let_vary(value: Value, names: tuple[Any, ...]) -> Value:
    return pcast_p.bind(value, axes=names, to="joined")


CAST.bind = _let_vary


def known_same(value: Value, names: Sequence[Any]) -> Any:
    """``value``, which is the same on all devices along ``names``: its type says so."""
    own = typed_axes().intersection(names, value.aval.vma)
    return pcast_p.bind(value, axes=tuple(sorted(own, key=repr)), to="same") if own else value


def pcast(x: object, axis_name: Hashable, *, to: str) -> Any:
    """``x``, of which is said whether it varies along named axes.

    Types of values inside of ``shard_map`` say it (``typeof(x).vma``), and derivatives follow: the
    cotangent of a value that is let to vary is the sum of those of the devices. Along axes of
    ``vmap``, and with ``check_vma=False``, nothing changes.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them.
        to: ``"varying"``: the value may differ from device to device, whatever it is made of;
            ``"unreduced"``: it is a part of a sum over them; ``"reduced"``: it is the same on all
            of them, which is checked, and the devices keep their parts of its cotangent.

    Returns:
        Pytree like ``x``.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.
        ArgumentTypeError: a set of names.
        ArgumentValueError: another ``to``; ``x`` varies along the axes already.

    >>> import tracebridge as tb
    >>> f = tb.vmap(lambda x: tb.lax.pcast(x, "i", to="varying"), axis_name="i")
    >>> f(tb.numpy.array([5, 6])).tolist()
    [5, 6]
    """
    if isinstance(axis_name, set | frozenset):
        msg = f"pcast: axis_name is {axis_name!r}"
        raise ArgumentTypeError(msg, expected="a name, or a tuple of names, which have an order")
    names = bound_names("pcast", axis_name)
    if to not in KINDS:
        msg = f"pcast: to={to!r}, expected one of {', '.join(map(repr, KINDS))}"
        raise ArgumentValueError(msg)
    own = typed_axes().intersection(names)

    def cast(value: Value) -> Value:
        vma = value.aval.vma
        if to == "varying":
            if own and own <= vma and len(own) == len(names):
                raise ArgumentValueError(
                    f"pcast: {value.aval.str_short()} varies over {axis_name!r} already",
                    expected="a value that is the same on all devices of an axis",
                )
            axes = tuple(sorted(own - vma, key=repr))
            return pcast_p.bind(value, axes=axes, to=to) if axes else value
        axes = tuple(sorted(own, key=repr))
        return pcast_p.bind(value, axes=axes, to=to) if axes else value

    return map_leaves(cast, x)
