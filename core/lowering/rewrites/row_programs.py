"""The programs of kernels over rows, and what stands behind the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.open_numbers import Place, is_near_one, number_in
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.numbers import WithPlaces
from tracebridge.core.kernels.rows.program import kind_of_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Equation
    from tracebridge.core.ir.open_numbers import OpenNumber
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.kernels.rows.frame import Frame, Shape
    from tracebridge.core.lowering.rewrites.groups import Groups
    from tracebridge.core.lowering.rewrites.with_kernels import WithKernels


@final
class RowEquations:
    """The equations of a kernel, which are all needed, between variables of its program.

    ``given``: the variables of the groups that are its operands, ``constants``: the numbers that
    it reads.
    """

    def __init__(self, groups: Groups, given: Sequence[int], constants: Sequence[int]) -> None:
        jaxpr, n = groups.jaxpr, len(given)
        self.avals = groups.avals
        self.given = given
        self.numbers = {v: i for i, v in enumerate(given)}
        """Of variables of the groups those in the program."""
        self.consts: list[Literal] = []
        for v in constants:
            const = jaxpr.consts[v - jaxpr.n_in]
            assert isinstance(const, Literal)  # others are operands
            self.consts.append(const)
        objects = {id(c): c for c in self.consts}
        if len(objects) < len(constants):  # the same object is one constant
            place_of = {i: n + nth for nth, i in enumerate(objects)}
            pairs = zip(constants, self.consts, strict=True)
            self.numbers.update({v: place_of[id(c)] for v, c in pairs})
            self.consts = list(objects.values())
        else:
            self.numbers.update({v: n + nth for nth, v in enumerate(constants)})
        self.n_variables = n + len(self.consts)
        self.equations: list[Equation] = []
        self.made: dict[int, ShapedArray] = {}
        """What stands for variables of the groups and has another type."""

    def add(self, members: Sequence[int], groups: Groups) -> None:
        """Append equations of the groups."""
        numbers, equations, number = self.numbers, self.equations, self.n_variables
        of_groups, first = groups.jaxpr.equations, groups.first
        for k in members:
            app, args = of_groups[k]
            equations.append((app, tuple([numbers[a] for a in args])))
            numbers[first[k]] = number
            number += 1
        self.n_variables = number

    def add_bound(self, primitive: Primitive, x: int, aval: ShapedArray, params: Params) -> int:
        """Append an equation between variables of the program; its result."""
        app = primitive.application((aval,), params)
        self.equations.append((app, (x,)))
        self.n_variables += 1
        return self.n_variables - 1

    def program(self, made: Sequence[int], known: dict[object, Jaxpr] | None) -> WithPlaces:
        """The program of the results ``made``, one of ``known`` if it is the same one.

        It has places in the place of open numbers.
        """
        places: dict[float | OpenNumber, int] = {}
        consts = [self._with_place(const, places) for const in self.consts]
        avals, more = self.avals, self.made
        in_avals = tuple([avals[v] for v in self.given])
        equations, outs = tuple(self.equations), tuple([self.numbers[v] for v in made])
        key, program = None, None
        if known is not None:
            key = in_avals, tuple(map(_key_of, consts)), equations, outs
            program = known.get(key)
        if program is None:
            out_avals = [more.get(v, avals[v]) for v in made]
            program = Jaxpr(in_avals, consts, equations, outs, out_avals)
            if option("enable_checks"):
                check_jaxpr(program)
            if known is not None:
                known[key] = program
        return WithPlaces(program, tuple(places))

    def _with_place(self, const: Literal, places: dict[float | OpenNumber, int]) -> Literal:
        """A constant, or a place for it if it is an open number."""
        number = number_in(const)
        if number is None:
            return const
        nth = places.setdefault(number, len(places))
        return Literal(Place(nth, is_near_one(number)), const.aval)


def _key_of(const: Literal) -> object:
    value = const.value
    return (value, const.aval) if type(value) is Place else const.key()


@final
class Rest:
    """A sum of which a kernel does the last axes of rows, ``inside``; others are ``outside``."""

    def __init__(
        self, frame: Frame, inside: Sequence[int], outside: Sequence[int], out: Shape
    ) -> None:
        self.frame, self.inside, self.outside, self.out = frame, inside, outside, out

    @classmethod
    def of(cls, app: Application, frame: Frame) -> Rest | None:
        """None of a sum that a kernel ends."""
        if kind_of_sum(app, frame) != "parts":
            return None
        summed = frame.summed(app.avals[0].shape, app.params["axes"])
        end = frame.end(summed)
        left = [i for i in range(len(frame.sizes)) if i not in end]
        return cls(frame, end, [left.index(i) for i in summed if i not in end], app.out.shape)

    def begin(self, program: RowEquations, x: int, variable: int) -> None:
        """The sum over the end of rows of an array, for the ``variable`` that is the sum."""
        aval, number, sizes = program.avals[x], program.numbers[x], self.frame.sizes
        if aval.shape != sizes:
            number = program.add_bound(lax.reshape_p, number, aval, {"new_sizes": sizes})
            aval = program.equations[-1][0].out
        params = {"axes": tuple(self.inside)}
        program.numbers[variable] = program.add_bound(lax.reduce_sum_p, number, aval, params)
        program.made[variable] = program.equations[-1][0].out

    def end(self, program: WithKernels, x: int) -> int:
        """The sum over what is left."""
        if self.outside:
            x = program.add_bound(lax.reduce_sum_p, [x], {"axes": tuple(self.outside)})
        if program.avals[x].shape == self.out:
            return x
        return program.add_bound(lax.reshape_p, [x], {"new_sizes": self.out})
