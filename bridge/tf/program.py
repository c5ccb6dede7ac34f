"""Programs at given avals: the Jaxpr, its artifact, and the program of its derivative."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

import tracebridge.core.lax as lax
from tracebridge._api.derivatives.jvp import jvp
from tracebridge._api.derivatives.vjp import vjp
from tracebridge._derived.dependence import paths_of
from tracebridge.core.config.settings import Settings
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.tf.keeping import Kept, Module, Write, split_program
from tracebridge.tf.loops import Iterations, jaxpr_of_all, module_of

T = TypeVar("T")


@final
class Program:
    """A flat function at avals. Artifact and derivative are made when first needed.

    ``diff_in`` and ``diff_out``: the inputs and results that have derivatives. ``write`` makes the
    artifact. ``retrace``: the
    same function for sizes that are not 0, given the error that asks for it; None where there is
    no such choice. ``stored``: the pullback as a function for graphs that are saved, if there are.
    ``connected``: whether gradients by inputs that no result depends on are zeros, not None.
    """

    __slots__ = (
        "_derived",
        "_joint",
        "_kept",
        "_module",
        "_settings",
        "_write",
        "connected",
        "diff_in",
        "diff_out",
        "jaxpr",
        "name",
        "names",
        "retrace",
        "stored",
    )

    def __init__(
        self, name: str, jaxpr: Jaxpr, names: Sequence[str], write: Write = module_of
    ) -> None:
        self.name = name
        self.jaxpr = jaxpr
        self.names = tuple(names)
        self.diff_in = [i for i, a in enumerate(jaxpr.in_avals) if is_inexact(a.dtype)]
        self.diff_out = [i for i, a in enumerate(jaxpr.out_avals) if is_inexact(a.dtype)]
        # Derivatives are of this trace, whatever options are in force when they are needed.
        self._settings = Settings()
        self.retrace: Callable[[Exception], Program] | None = None
        self.stored: Callable[..., Sequence[Any]] | None = None
        self.connected = False
        self._write = write
        self._module: Module | None = None
        self._kept: dict[tuple[int, ...], Kept | None] = {}
        self._joint: dict[tuple[int, ...], Program | None] = {}
        self._derived: dict[object, Program] = {}

    def by_input(self, gradients: Mapping[int, Any]) -> list[Any]:
        """Gradients of all inputs: None for those that no result depends on, as in TensorFlow.

        Optimizers skip these, and tell that they have no gradient.
        """
        paths = paths_of(self.jaxpr)
        return [
            gradients.get(i) if self.connected or any([row[i] for row in paths]) else None
            for i in range(self.jaxpr.n_in)
        ]

    @property
    def module(self) -> Module:
        """The program as a TensorFlow operation."""
        if self._module is None:
            self._module = self._made(
                lambda own: self._write(own.jaxpr, own.name, own.names),
                lambda other: other.module,
            )
        return self._module

    @property
    def write(self) -> Write:
        """What makes the artifacts of the program and of its derivatives."""
        return self._write

    @property
    def pullback(self) -> Program:
        """Inputs and cotangents of ``diff_out`` to cotangents of ``diff_in``.

        It is a program like any other, so that its own pullback gives the next order.
        """
        return self._from("pullback", _pullback_of, lambda other: other.pullback)

    def pushforward(self, active: tuple[int, ...]) -> Program:
        """Inputs and tangents of the inputs ``active`` to tangents of ``diff_out``."""
        return self._from(
            active,
            functools.partial(_pushforward_of, active=active),
            lambda other: other.pushforward(active),
        )

    def with_pushforward(self, active: tuple[int, ...]) -> Program | None:
        """Inputs and tangents of the inputs ``active`` to results, and tangents of ``diff_out``.

        None where the program cannot be differentiated so: ``pushforward`` knows more ways.
        """
        if active not in self._joint:
            found = None
            with contextlib.suppress(Exception), self._settings.again():
                found = _with_pushforward_of(self, active)
                found.module  # noqa: B018 - sizes may not be known well enough for one
            self._joint[active] = found
        return self._joint[active]

    def gradients_of(self, kept: Kept) -> Program:
        """What ``kept.backward`` computes, as a program of all inputs and ``kept.cotangents``."""
        return self._from(
            ("gradients", kept.active),
            functools.partial(_gradients_of, kept=kept),
            lambda other: other.gradients_of(kept),
        )

    def of_all(self, iterations: Iterations) -> Program:
        """The program of all iterations of a loop."""

        def make(program: Program) -> Program:
            jaxpr = jaxpr_of_all(program.jaxpr, iterations)
            return Program(f"vectorized {program.name}", jaxpr, program.names, program.write)

        return self._from(iterations, make, lambda other: other.of_all(iterations))

    def _from(
        self,
        key: object,
        make: Callable[[Program], Program],
        of_other: Callable[[Program], Program],
    ) -> Program:
        """A program that is made of this one, once."""
        found = self._derived.get(key)
        if found is None:
            found = self._made(make, of_other)
            found.connected = self.connected
            retrace = self.retrace
            if retrace is not None and found.retrace is None:
                found.retrace = lambda error: of_other(retrace(error))
            self._derived[key] = found
        return found

    def keeping(self, active: tuple[int, ...]) -> Kept | None:
        """The program and its gradients by the inputs ``active`` with residuals between them.

        None where there are no such gradients, or not for sizes of 0: ``pullback`` says why.
        """
        if active not in self._kept:
            kept = None
            with contextlib.suppress(Exception), self._settings.again():
                kept = split_program(
                    self.jaxpr, self.name, self.names, active, lambda: self.module, self._write
                )
            self._kept[active] = kept
        return self._kept[active]

    def _made(self, make: Callable[[Program], T], of_other: Callable[[Program], T]) -> T:
        """What ``make`` gives, or that of the program for sizes that are not 0."""
        with self._settings.again():
            try:
                return make(self)
            except InconclusiveDimensionError as error:
                if self.retrace is None:
                    raise
                return of_other(self.retrace(error))


def _primal(program: Program, inputs: list[Any], of: Sequence[int]) -> Callable[..., Any]:
    """The function of the inputs ``of`` to the results ``diff_out``."""

    def primal(*xs: Any) -> tuple[Any, ...]:
        for i, x in zip(of, xs, strict=True):
            inputs[i] = x
        outs = eval_jaxpr(program.jaxpr, current_trace().process, inputs)
        return tuple([outs[i] for i in program.diff_out])

    return primal


def _pullback_of(program: Program) -> Program:
    jaxpr = program.jaxpr
    n = jaxpr.n_in

    def flat(*values: Any) -> list[Any]:
        inputs = list(values[:n])
        primal = _primal(program, inputs, program.diff_in)
        _, pull = vjp(primal, *[inputs[i] for i in program.diff_in])
        return list(pull(tuple(values[n:])))

    cotangents: list[ShapedArray] = [jaxpr.out_avals[i].strong for i in program.diff_out]
    avals = [*[a.strong for a in jaxpr.in_avals], *cotangents]
    names = [*program.names, *[f"the cotangent of result {i}" for i in program.diff_out]]
    pulled = stage(flat, avals, locate=False)
    return Program(f"the gradient of {program.name}", pulled, names, program.write)


def _gradients_of(program: Program, kept: Kept) -> Program:
    pullback = program.pullback.jaxpr
    n = program.jaxpr.n_in
    avals = [a.strong for a in program.jaxpr.in_avals]
    cotangents = {i: program.jaxpr.out_avals[i].strong for i in kept.cotangents}

    def flat(*values: Any) -> list[Any]:
        # In the convention of TensorFlow: conjugates.
        given = dict(zip(kept.cotangents, values[n:], strict=True))
        missing = {i: zeros_of(program.jaxpr.out_avals[i].strong) for i in program.diff_out}
        by_result = [conj(given[i]) if i in given else missing[i] for i in program.diff_out]
        pulled = eval_jaxpr(pullback, current_trace().process, [*values[:n], *by_result])
        found = dict(zip(program.diff_in, pulled, strict=True))
        return [conj(found[i]) for i in kept.active]

    def conj(x: Any) -> Any:
        return lax.conj(x) if is_complex(x.aval.dtype) else x

    names = [*program.names, *[f"the cotangent of result {i}" for i in cotangents]]
    pulled = stage(flat, [*avals, *cotangents.values()], locate=False)
    return Program(f"the gradient of {program.name}", pulled, names, program.write)


def _pushforward_of(program: Program, active: tuple[int, ...]) -> Program:
    jaxpr = program.jaxpr
    n = jaxpr.n_in

    def forward(*values: Any) -> list[Any]:
        inputs = list(values[:n])
        primals = tuple([inputs[i] for i in active])
        return list(jvp(_primal(program, inputs, active), primals, values[n:])[1])

    def by_reverse(*values: Any) -> list[Any]:
        inputs = list(values[:n])
        primals = tuple([inputs[i] for i in active])
        outs, pull = vjp(_primal(program, inputs, active), *primals)
        _, pull_again = vjp(pull, tuple([zeros_of(o.aval) for o in outs]))
        return list(pull_again(values[n:])[0])

    avals, names = _with_tangents(program, active)
    try:
        pushed = stage(forward, avals, locate=False)
    except CustomRuleError:  # a function with a rule for the reverse mode only, which is linear
        pushed = stage(by_reverse, avals, locate=False)
    return Program(f"the tangents of {program.name}", pushed, names, program.write)


def _with_pushforward_of(program: Program, active: tuple[int, ...]) -> Program:
    jaxpr = program.jaxpr
    n = jaxpr.n_in

    def flat(*values: Any) -> list[Any]:
        inputs = list(values[:n])

        def whole(*xs: Any) -> tuple[Any, ...]:
            for i, x in zip(active, xs, strict=True):
                inputs[i] = x
            return tuple(eval_jaxpr(jaxpr, current_trace().process, inputs))

        outs, dots = jvp(whole, tuple([inputs[i] for i in active]), values[n:])
        return [*outs, *[dots[i] for i in program.diff_out]]

    avals, names = _with_tangents(program, active)
    both = stage(flat, avals, locate=False)
    return Program(program.name, both, names, program.write)


def _with_tangents(
    program: Program, active: tuple[int, ...]
) -> tuple[list[ShapedArray], list[str]]:
    """Inputs, and the tangents of those that are ``active``: their avals and names."""
    of_inputs = program.jaxpr.in_avals
    avals = [a.strong for a in [*of_inputs, *[of_inputs[i] for i in active]]]
    return avals, [*program.names, *[f"the tangent of argument {i}" for i in active]]
