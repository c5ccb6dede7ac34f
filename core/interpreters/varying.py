"""Which values differ between the elements of named axes: looks at a program, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application

Names = frozenset[Any]
NONE: Names = frozenset()


@final
class Varying:
    """Follows values through Jaxprs; a value is the set of the axes along which it may differ.

    Primitives say by their method ``varying`` what they make of the sets of their arguments.

    Args:
        names: the axes that are looked at.
        call: what messages call the function.
    """

    __slots__ = ("call", "names")

    def __init__(self, names: Names, call: str) -> None:
        self.names = names
        self.call = call

    def walk(self, jaxpr: Jaxpr, ins: Sequence[Names]) -> list[Names]:
        """The sets of the results."""
        key = ("varying", self.names, tuple(ins))
        found = jaxpr.cache.get(key)
        if found is None:
            env: list[Names] = [*ins, *[NONE] * len(jaxpr.consts)]
            for app, idx in jaxpr.equations:
                outs = app.primitive.varying(app, [env[i] for i in idx], self)
                # A function of the host may tell each device something else.
                own = self.names if app.effects and not jaxprs_in_params(app.params) else NONE
                env.extend([out | own for out in outs])
            found = jaxpr.cache[key] = [env[i] for i in jaxpr.outs]
        return found

    def by_default(self, app: Application, ins: Sequence[Names]) -> list[Names]:
        """Results differ as any argument does; of calls, as those of what is called do."""
        every = NONE.union(*ins)
        jaxprs = jaxprs_in_params(app.params)
        n_out = len(app.outs)
        if not jaxprs:
            return [every] * n_out
        called = [j for j in jaxprs if j.n_in == len(ins) and len(j.outs) == n_out]
        if called == jaxprs:
            rows = [self.walk(j, ins) for j in jaxprs]
            return [NONE.union(*sets) for sets in zip(*rows, strict=True)]
        # Whatever goes from one to another, and how often: as if all went everywhere.
        while True:
            wider = every.union(*[n for j in jaxprs for n in self.walk(j, [every] * j.n_in)])
            if wider == every:
                return [every] * n_out
            every = wider

    def until_stable(
        self, step: Callable[[list[Names]], Sequence[Names]], carry: Sequence[Names]
    ) -> list[Names]:
        """What a loop makes of the sets of its carry, after any number of steps."""
        sets = list(carry)
        while True:
            wider = [a | b for a, b in zip(sets, step(sets), strict=True)]
            if wider == sets:
                return sets
            sets = wider

    def agree(self, call: str, chooser: Names, jaxprs: Sequence[Jaxpr]) -> None:
        """Raise if devices that take different ways would wait for each other.

        Raises:
            AxisSpecError: a collective is inside over an axis along which ``chooser`` differs.
        """
        for name in sorted(chooser, key=repr):
            for jaxpr in jaxprs:
                for app, _ in jaxpr.equations:
                    if app.primitive.names_axis(name, app.params):
                        raise AxisSpecError(
                            f"{self.call}: {call} decides by a value that varies over the axis "
                            f"{name!r}, and {app.primitive.name} over {name!r} is inside: some "
                            "devices would wait for others that never come",
                            hint="decide by a value that is the same for all, such as a psum or "
                            "pmax, or move the collective out; check_vma=False leaves this check "
                            "out",
                        )

    def without(self, names: Sequence[object]) -> Varying:
        """The same inside a function that has other axes of these names."""
        return Varying(self.names - frozenset(names), self.call)
