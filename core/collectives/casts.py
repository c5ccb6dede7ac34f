"""What is said of values along named axes, and computes nothing: pcast."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.collectives.axes import bound_names, map_leaves
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.lax.annotations import Annotation

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value

KINDS = ("varying", "reduced", "unreduced")


@final
class Pcast(Annotation):
    """Parameters ``axes``, names, and ``to``: whether the value is to vary along them.

    No communication: it names no axis in the sense of ``names_axis``.
    """

    name = "pcast"
    makes_nan = False

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        named = walk.names.intersection(app.params["axes"])
        if app.params["to"] != "reduced":
            return [ins[0] | named]
        wrong = sorted(named & ins[0], key=repr)
        if wrong:
            axes = repr(wrong[0]) if len(wrong) == 1 else repr(tuple(wrong))
            raise AxisSpecError(
                f"{walk.call}: pcast to 'reduced' got {app.outs[0].str_short()} on each device, "
                f"which varies over {axes}",
                hint=f"combine the values of the devices with lax.psum or lax.pmean over {axes}; "
                "check_vma=False leaves this check out",
            )
        return ins

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


def pcast(x: object, axis_name: Hashable, *, to: str) -> Any:
    """``x``, of which is said whether it varies along named axes.

    What ``shard_map`` checks follows it; values and derivatives are those of ``x``: those of a
    device inside of the function, those of the function of whole arrays outside of it.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them.
        to: ``"varying"``: the value may differ from device to device, whatever it is made of;
            ``"unreduced"``: likewise, as it is a part of a sum over them; ``"reduced"``: it is the
            same on all of them, which is checked.

    Returns:
        Pytree like ``x``.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.
        ArgumentValueError: another ``to``.

    >>> import tracebridge as tb
    >>> f = tb.vmap(lambda x: tb.lax.pcast(x, "i", to="varying"), axis_name="i")
    >>> f(tb.numpy.array([5, 6])).tolist()
    [5, 6]
    """
    names = bound_names("pcast", axis_name)
    if to not in KINDS:
        msg = f"pcast: to={to!r}, expected one of {', '.join(map(repr, KINDS))}"
        raise ArgumentValueError(msg)
    return map_leaves(lambda value: pcast_p.bind(value, axes=names, to=to), x)
