"""The application: one primitive at fixed avals and parameters.

Applications are interned, so everything that depends only on (primitive, avals, parameters) is
computed once and remembered here: the result of ``abstract_eval``, the staged rules of the
transformation rules, the lowering recipe, the eager executables. Traces pass
``(application, args)`` to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.effects import Effects
    from tracebridge.core.ir.primitive import Primitive

    Params = dict[str, Any]
    """The static parameters of an application, by name."""


@final
class Application:
    """A primitive at avals and params. ``out`` is the only result aval of single-result ones."""

    __slots__ = (
        "__weakref__",
        "avals",
        "eager",
        "effects",
        "high",
        "holds_functions",
        "multiple",
        "out",
        "outs",
        "params",
        "primitive",
        "recipe",
        "staged_batches",
        "staged_jvps",
        "staged_linearizes",
        "staged_transposes",
    )

    def __init__(
        self, primitive: Primitive, avals: tuple[ShapedArray, ...], params: dict[str, Any]
    ) -> None:
        self.primitive = primitive
        self.avals = avals
        self.params = params
        self.multiple = primitive.multiple_results
        result: Any = primitive.abstract_eval(*avals, **params)
        self.outs: tuple[ShapedArray, ...] = tuple(result) if self.multiple else (result,)
        if primitive.decides_splits or any([a.split is not None for a in avals]):
            splits = primitive.split_results(avals, self.outs, **params)
            if splits is not None:
                pairs = zip(self.outs, splits, strict=True)
                self.outs = tuple([out.with_split(split) for out, split in pairs])
        if primitive.decides_varying or any([a.vma for a in avals]):
            vary = primitive.vary_results(avals, self.outs, **params)
            if vary is not None:
                found = zip(self.outs, vary, strict=True)
                self.outs = tuple([out.with_vma(vma) for out, vma in found])
        self.out: Any = None if self.multiple else self.outs[0]
        self.effects: Effects = primitive.effects(*avals, **params)
        # Whether it has to do with types of users: it is taken apart before it is lowered.
        self.high = primitive.is_high(avals, self.outs, params)
        self.recipe: Any = None
        # Whether Python functions are in the parameters, at any depth; None: not looked at yet.
        self.holds_functions: bool | None = None
        # Filled by the interpreters and the runtime; empty dicts cost 64 bytes each, so they are
        # made at first use.
        self.staged_jvps: dict[Any, Any] | None = None
        self.staged_linearizes: dict[Any, Any] | None = None
        self.staged_transposes: dict[Any, Any] | None = None
        self.staged_batches: dict[Any, Any] | None = None
        self.eager: dict[Any, Any] = {}

    def with_params(self, params: dict[str, Any]) -> Application:
        """The same with other parameters, which leave its types and effects as they are.

        It is not interned: who makes it keeps it.
        """
        made = Application.__new__(Application)
        made.primitive, made.avals, made.params = self.primitive, self.avals, params
        made.multiple, made.outs, made.out = self.multiple, self.outs, self.out
        made.effects, made.high, made.holds_functions = self.effects, self.high, None
        made.recipe = None
        made.staged_jvps = made.staged_linearizes = None
        made.staged_transposes = made.staged_batches = None
        made.eager = {}
        return made

    def __repr__(self) -> str:
        ins = ", ".join(a.str_short() for a in self.avals)
        outs = ", ".join(a.str_short() for a in self.outs)
        return f"Application({self.primitive.name}: {ins} -> {outs})"
