"""Programs at given avals: the Jaxpr, its artifact, and the program of its derivative."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from tracebridge._api.derivatives.vjp import vjp
from tracebridge.core.config.settings import Settings
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.tf.keeping import Kept, Module, Write, module_of, split_program

T = TypeVar("T")


@final
class Program:
    """A flat function at avals. Artifact and derivative are made when first needed.

    ``diff_in`` and ``diff_out``: the inputs and results that have derivatives. ``write`` makes the
    artifact. ``retrace``: the
    same function for sizes that are not 0, given the error that asks for it; None where there is
    no such choice.
    """

    __slots__ = (
        "_kept",
        "_module",
        "_pullback",
        "_settings",
        "_write",
        "diff_in",
        "diff_out",
        "jaxpr",
        "name",
        "names",
        "retrace",
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
        self._write = write
        self._module: Module | None = None
        self._pullback: Program | None = None
        self._kept: dict[tuple[int, ...], Kept | None] = {}

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
        if self._pullback is None:
            self._pullback = self._made(_pullback_of, lambda other: other.pullback)
            retrace = self.retrace
            if retrace is not None and self._pullback.retrace is None:
                self._pullback.retrace = lambda error: retrace(error).pullback
        return self._pullback

    def keeping(self, active: tuple[int, ...]) -> Kept | None:
        """The program and its gradients by the inputs ``active`` with residuals between them.

        None where there are no such gradients, or not for sizes of 0: ``pullback`` says why.
        """
        if active not in self._kept:
            kept = None
            with contextlib.suppress(Exception), self._settings.again():
                kept = split_program(
                    self.jaxpr, self.name, self.names, active, self.module, self._write
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


def _pullback_of(program: Program) -> Program:
    jaxpr = program.jaxpr
    n = jaxpr.n_in

    def flat(*values: Any) -> list[Any]:
        inputs = list(values[:n])

        def primal(*xs: Any) -> tuple[Any, ...]:
            for i, x in zip(program.diff_in, xs, strict=True):
                inputs[i] = x
            outs = eval_jaxpr(jaxpr, current_trace().process, inputs)
            return tuple([outs[i] for i in program.diff_out])

        _, pull = vjp(primal, *[inputs[i] for i in program.diff_in])
        return list(pull(tuple(values[n:])))

    cotangents: list[ShapedArray] = [jaxpr.out_avals[i].strong for i in program.diff_out]
    avals = [*[a.strong for a in jaxpr.in_avals], *cotangents]
    names = [*program.names, *[f"the cotangent of result {i}" for i in program.diff_out]]
    pulled = stage(flat, avals, locate=False)
    return Program(f"the gradient of {program.name}", pulled, names, program.write)
