"""What all stages of a jitted function have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracebridge.core.aot.ref_stages import donated_inputs, shown_avals
from tracebridge.core.control.calls.traced_call import Arguments, TracedCall
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.shape_struct import struct_of
from tracebridge.core.tree.tree import PyTreeDef
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.stages")
class ArgInfo(NamedTuple):
    """What a stage knows of one argument."""

    aval: ShapedArray
    donated: bool

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the elements."""
        return self.aval.dtype


class Stage:
    """What all stages know of the call that they were made for."""

    __slots__ = ("__weakref__", "_args", "_avals", "_name", "_traced")

    def __init__(
        self, name: str, args: Arguments, avals: tuple[ShapedArray, ...], traced: TracedCall
    ) -> None:
        self._name = name
        # A program needs its function no more, whose closure may hold large arrays.
        args.fun = None
        self._args = args
        self._avals = avals
        self._traced = traced

    @property
    def parts(self) -> tuple[str, Arguments, tuple[ShapedArray, ...], TracedCall]:
        """What the next stage is made of."""
        return self._name, self._args, self._avals, self._traced

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self._name

    @property
    def in_tree(self) -> PyTreeDef:
        """Structure of ``(args, kwargs)``, static arguments left out."""
        return self._args.tree

    @property
    def out_tree(self) -> PyTreeDef:
        """Structure of the result."""
        return self._traced.out_tree

    @property
    def in_avals(self) -> Any:
        """Tree ``(args, kwargs)`` of the avals of the arguments."""
        return self.in_tree.unflatten(shown_avals(self._args, self._avals))

    @property
    def out_avals(self) -> Any:
        """Tree of the avals of the result."""
        return self.out_tree.unflatten(self._results)

    @property
    def args_info(self) -> Any:
        """Tree ``(args, kwargs)`` of ``ArgInfo``."""
        donated, avals = set(self._args.donated), shown_avals(self._args, self._avals)
        return self.in_tree.unflatten([ArgInfo(a, i in donated) for i, a in enumerate(avals)])

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Which flat arguments are donated."""
        return self._args.donated

    @property
    def out_info(self) -> Any:
        """Tree of ``ShapeDtypeStruct`` of the result, with the shardings that the options name."""
        results, shardings = self._results, self.options_of_results
        places = (
            None if shardings is None else shardings.places_of_results(self._name, self.out_tree)
        )
        if not places:
            return self.out_tree.unflatten([struct_of(a) for a in results])
        structs = [struct_of(a, place) for a, place in zip(results, places, strict=True)]
        return self.out_tree.unflatten(structs)

    @property
    def options_of_results(self) -> Any:
        """The options ``in_shardings`` and ``out_shardings`` of the function, or None."""
        return None

    @property
    def _results(self) -> Sequence[ShapedArray]:
        # What follows are the last contents of references.
        return self._traced.out_avals[: self.out_tree.num_leaves]

    @property
    def _given_memory(self) -> tuple[int, ...]:
        return donated_inputs(self._args, self._traced.refs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"
