"""The family of a wrapped function at one structure of arguments."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, final

from tracebridge._derived.families import MAX_RUNS, Avals, Family, pin, register_root
from tracebridge._derived.names import stamped
from tracebridge.core.config.values import tracing_key
from tracebridge.core.config.wide import Width
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.dtypes.width import width_of, with_numbers
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import DebugInfo, Parameters, where_is
from tracebridge.core.ir.flat_fun import FlatFun
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.tree.tree import flatten, leaf_treedef
from tracebridge.torch._crossing.structure import BOOL, TENSOR
from tracebridge.torch._crossing.symbolic import LEAST_SIZES, aval_of_text
from tracebridge.torch._graphs.fingerprint import fingerprint

WARN_AFTER = 64  # compilations that differ in sizes only


def _sizes_that_vary(seen: Sequence[Any], names: Sequence[str]) -> str:
    """Which axes have had which sizes."""
    texts: list[str] = []
    for i, shapes in enumerate(zip(*seen, strict=True)):
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            found = sorted(set(sizes))
            if len(found) > 1:
                some = ", ".join(map(str, found[:8])) + (", ..." if len(found) > 8 else "")
                name = names[i] if i < len(names) else f"argument {i}"
                texts.append(f"axis {axis} of {name} was {some}")
    return "; ".join(texts[:4])


@final
class CallFamily(Family):
    """A wrapped function at one argument structure and one choice of static arguments.

    ``kinds`` says per leaf whether it is a tensor or which kind of Python number.
    """

    __slots__ = (
        "fun",
        "handles",
        "has_numbers",
        "in_tree",
        "is_flat",
        "kinds",
        "n_compiled",
        "name_",
        "only_tree",
        "other_trees",
        "out_trees",
        "owner",
        "parameters",
        "seen",
    )

    def __init__(
        self,
        handle: str,
        owner: Any,
        fun: Any,
        in_tree: Any,
        kinds: tuple[str, ...],
        parameters: Parameters,
    ) -> None:
        super().__init__(handle)
        self.owner = weakref.ref(owner)
        self.fun = fun
        self.in_tree = in_tree
        self.kinds = kinds
        self.parameters = parameters
        self.has_numbers = any([k != TENSOR for k in kinds])
        # Whether the leaves are the positional arguments themselves.
        self.is_flat = in_tree == flatten((tuple(kinds), {}))[1]
        self.name_ = owner.__name__
        # (dtype, rank) of each input and number of results -> structure of the results, and
        # (dtype, shape) of each input -> structures that are others because of the sizes.
        self.out_trees: dict[Any, Any] = {}
        self.other_trees: dict[Any, Any] = {}
        # The one structure that all of them have; None while there is none, or several.
        self.only_tree: Any = None
        # Avals and options -> handle with the fingerprint of the program.
        self.handles: dict[Any, str] = {}
        self.n_compiled = 0
        # (dtype, rank) of each input -> the shapes that were compiled.
        self.seen: dict[Any, set[Any]] = {}
        register_root(self)

    def captured(self, avals: Avals) -> str:
        key = (avals, tracing_key())
        found = self.handles.get(key)
        if found is None:
            digest = fingerprint(self.program(avals))
            found = self.handles[key] = stamped(self.handle, digest, avals)
            pin(found, self)
        return found

    def is_program(self, digest: str, types: Sequence[str]) -> bool:
        """Whether the program at inputs of these types has that fingerprint."""
        for least in reversed(LEAST_SIZES):
            try:
                program = self.program(tuple([aval_of_text(text, least) for text in types]))
            except Exception:  # noqa: BLE001, S112 - the function may be another one, and raise
                continue
            if digest == fingerprint(program):
                return True
        return False

    def compiled(self, avals: Avals) -> None:
        owner = self.owner()
        if owner is None:
            return
        self.n_compiled += 1
        if self.n_compiled % (MAX_RUNS // 2) == 0:
            # What is on the shortest path is not seen in use: let it pass here once.
            owner.calls.clear()
        if owner.has_warned:
            return
        seen = self.seen.setdefault(tuple([(a.dtype, a.ndim) for a in avals]), set())
        seen.add(tuple([a.shape for a in avals]))
        if len(seen) >= WARN_AFTER:
            owner.has_warned = True
            sizes = _sizes_that_vary(sorted(seen), self.argument_names())
            self.seen.clear()
            warn_user(
                f"wrap({self.name_}) has compiled {WARN_AFTER} programs, because sizes vary: "
                f"{sizes}. wrap(..., dynamic_shapes=) pads such axes to few sizes"
            )

    @property
    def name(self) -> str:
        return self.name_

    def width(self, avals: Avals) -> Width:
        given = list(zip(avals, self.kinds, strict=False))
        wide = width_of([a.dtype for a, kind in given if kind == TENSOR])
        return with_numbers(wide, [a.dtype for a, kind in given if kind != TENSOR])

    def build(self, avals: Avals) -> Jaxpr:
        n = len(self.kinds)
        # Without arguments there may be a tensor for torch, which nothing reads.
        kinds = self.kinds or (TENSOR,) * len(avals)
        typed = [
            a if kind == TENSOR else a.update(weak_type=kind != BOOL)
            for a, kind in zip(avals, kinds, strict=True)
        ]
        owner = self.owner()
        if owner is not None:
            owner.traces += 1
        flat_fun = FlatFun(self.fun, self.in_tree, self.name_)
        trees: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            outs, out_tree = flat_fun.call(*xs[:n])
            trees.append(out_tree)
            return outs

        debug = DebugInfo(self.name_, where_is(self.fun), self.argument_names())
        jaxpr = stage(flat, typed, debug)
        for const in jaxpr.consts:
            if isinstance(const, Tracer):
                # The program is kept and called when the other trace is long over.
                raise UnexpectedTracerError(tracer=const, function=self.name_)
        jaxpr.cache["torch results"] = trees[0]
        self._note_structure(avals, len(jaxpr.outs), trees[0])
        return jaxpr

    def _note_structure(self, avals: Avals, n: int, tree: Any) -> None:
        if tree == leaf_treedef:
            tree = leaf_treedef  # is looked for by identity
        ranks = tuple([(str(a.dtype), a.ndim) for a in avals])
        if self.out_trees.setdefault((ranks, n), tree) != tree:
            self.other_trees[types_of(avals)] = tree
        known = [*self.out_trees.values(), *self.other_trees.values()]
        self.only_tree = tree if all([t == tree for t in known]) else None

    def tree_for(self, xs: Sequence[Any], n: int) -> Any:
        """The structure of the ``n`` results of a program that has run on these tensors."""
        if self.only_tree is not None:
            return self.only_tree
        types = [(str(x.dtype).removeprefix("torch."), tuple(x.shape)) for x in xs]
        return self.tree_at(types, n)

    def tree_at(self, types: Sequence[tuple[str, tuple[Any, ...]]], n: int) -> Any:
        """The structure of ``n`` results for inputs of these dtypes and shapes, once traced."""
        if self.other_trees and all([type(d) in (int, str) for _, s in types for d in s]):
            found = self.other_trees.get(tuple(types))
            if found is not None:
                return found
        return self.out_trees[tuple([(dtype, len(shape)) for dtype, shape in types]), n]

    def argument_names(self) -> tuple[str, ...]:
        """Names of the leaves for messages."""
        return argument_names(self.in_tree, self.parameters)


def types_of(avals: Avals) -> tuple[Any, ...]:
    """Dtypes and shapes as Dynamo may keep them: unknown sizes by what they are called."""
    sizes = [tuple([d if type(d) is int else str(d) for d in a.shape]) for a in avals]
    return tuple(zip([str(a.dtype) for a in avals], sizes, strict=True))
