"""Executables of a wrapped function at given shapes, and of its backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch

from tracebridge._derived.dependence import attached, paths_of, reached
from tracebridge._derived.families import Family, settings_of
from tracebridge._derived.forward_only import split_if_possible
from tracebridge._derived.gradients import with_gradients, with_slopes
from tracebridge._derived.handles import Mask
from tracebridge._derived.names import types_of
from tracebridge._derived.pieces import LEAST_FREED, split_pieces
from tracebridge._derived.residuals import from_values
from tracebridge._derived.tails import bytes_of, split_tails
from tracebridge.core.config.values import fast_path_allowed
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.runtime.programs.debug import check_finite
from tracebridge.interop.torch_adapter import DTYPES, TORCH_DTYPES, torch_adapter
from tracebridge.torch._crossing.dense import Places
from tracebridge.torch._crossing.execute import Run, make_run
from tracebridge.torch._eager.early import Early, is_worth_it
from tracebridge.torch._eager.guards import MAX_GUARDS, Check, guard_of
from tracebridge.torch._eager.late import HUGE_BYTES, LATE_BYTES, LateRuns, Tail
from tracebridge.torch._eager.stages import Stages


@final
class Compiled:
    """A family at dtypes, shapes and a device: executables for each kind of call."""

    __slots__ = (
        "_made",
        "avals",
        "detached",
        "family",
        "jaxpr",
        "nodes",
        "numbers",
        "run",
        "where",
    )

    def __init__(
        self, family: Family, avals: tuple[ShapedArray, ...], where: Any, numbers: Mask
    ) -> None:
        self.family = family
        self.avals = avals
        self.where = where
        self.numbers = numbers
        self.jaxpr = family.program(avals)
        # The results alone; compiled when they are wanted, which in training is never.
        self.run: Run = self._run_first
        self._made: Run | None = None
        self.nodes: dict[Mask, Node] = {}
        # Sets of inputs that no result depends on: calls that want these gradients have no node.
        self.detached: set[Mask] = set()

    def ready(self) -> Run:
        """``run``, compiled now if it has not been yet."""
        with self.family.lock:
            if self._made is None:
                name = self.family.name
                with settings_of(self.jaxpr):
                    made = checked(make_run(self.jaxpr, name, self.where, self.numbers), name)
                self._made = self.run = made
            return self._made

    def _run_first(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        return self.ready()(leaves)

    def clear(self) -> None:
        """Drop the executables of graphs that still wait for their backward pass."""
        for node in list(self.nodes.values()):
            node.backwards.clear()
            node.guarded.clear()
            node.late.clear()
            if node.early is not None:
                node.early.clear()

    def node(self, active: Mask) -> Node | None:
        """The autograd node for gradients of the inputs ``active``; None if it had none to give."""
        found = self.nodes.get(active)
        if found is None and active not in self.detached:
            with self.family.lock:
                found = self.nodes.get(active)
                if found is None:
                    if not any(attached(active, paths_of(self.jaxpr))):
                        self.detached.add(active)
                        return None
                    with settings_of(self.jaxpr):
                        found = self.nodes[active] = Node(self, active)
        return found


@final
class Node:
    """What the autograd function needs for one set of inputs that want gradients."""

    __slots__ = (
        "active",
        "apply",
        "attached",
        "backwards",
        "compiled",
        "detached",
        "early",
        "forward",
        "frees",
        "guarded",
        "has_numbers",
        "huge",
        "in_graph",
        "large",
        "late",
        "n_extra",
        "n_out",
        "parts",
        "paths",
        "saved_inputs",
        "sources",
    )

    def __init__(self, compiled: Compiled, active: Mask) -> None:
        self.compiled = compiled
        self.paths = paths_of(compiled.jaxpr)
        self.n_out = len(self.paths)
        # The inputs that get a gradient, and the results whose cotangents they come from.
        self.active = reached(active, self.paths, (True,) * self.n_out)
        self.attached = attached(active, self.paths)
        self.detached = [i for i, here in enumerate(self.attached) if not here]
        self.sources = [i for i, here in enumerate(self.attached) if here]
        family, avals = compiled.family, compiled.avals
        self.parts = split_if_possible(family, self.active, avals)
        # What gives gradients in the forward pass; None if they wait for the backward pass.
        early = compiled.where.device.platform == "cpu" and is_worth_it(
            compiled.jaxpr, self.active, self.attached, self.parts
        )
        self.early = Early(self._early_of_one, self._early_of_seed) if early else None
        self.forward: Run
        # What rules of users print of saved values has no place in a program that begins later.
        prints = self.parts.forward.effects != compiled.jaxpr.effects
        if self.parts.n_residuals or prints:
            self.forward = checked(
                make_run(self.parts.forward, family.name, compiled.where, compiled.numbers),
                family.name,
            )
        else:
            self.forward = compiled.ready() if self.early is None else self._results_alone
        # Numbers cannot be saved as tensors: they stay in the context.
        extra = [i for i in self.parts.redo if i not in self.parts.inputs]
        self.saved_inputs = [i for i in (*self.parts.inputs, *extra) if not compiled.numbers[i]]
        self.n_extra = len(extra)
        self.has_numbers = any(compiled.numbers)
        # By the results that have cotangents, and which of these are given as one value.
        self.backwards: dict[tuple[Mask, Places], Run] = {}
        # The first few of those with all cotangents once more, by a check of all their inputs.
        self.guarded: list[tuple[Check, Run]] = []
        self.late: dict[tuple[Mask, Places], LateRuns | None] = {}
        # Inputs whose gradients should not all be there at once; see late.py.
        sizes = [bytes_of(a) if here else 0 for a, here in zip(avals, self.active, strict=True)]
        large = [i for i, size in enumerate(sizes) if size >= LATE_BYTES]
        self.large = large if len(large) > 1 and fast_path_allowed() else []
        self.huge = max(sizes) >= HUGE_BYTES
        # Whether what was kept may be freed within a backward pass.
        kept = self.parts.forward.out_avals[self.n_out :] if self.parts.n_residuals else ()
        self.frees = sum(map(bytes_of, kept)) >= LEAST_FREED
        self.in_graph = self._describe()
        # What applies it to leaves, under the name of the function: filled by autograd.py.
        self.apply: Any = None

    def _describe(self) -> tuple[Any, ...]:
        """For ``_graph_backward``: where each input of the pullback comes from, and its handle.

        Nothing but constants, which Dynamo can build into a graph.
        """
        compiled = self.compiled
        sources: list[tuple[str, Any, torch.dtype]] = []
        for i, aval in enumerate(compiled.avals):
            dtype = TORCH_DTYPES[aval.dtype]
            if compiled.numbers[i]:
                sources.append(("number", i, dtype))
            elif i in self.saved_inputs:
                sources.append(("saved", self.saved_inputs.index(i), dtype))
            else:
                sources.append(("unused", aval.shape, dtype))
        types = types_of(compiled.avals)
        return tuple(sources), self.active, self.paths, compiled.family.handle, types

    def everything(
        self, leaves: Sequence[torch.Tensor], values: Places = ()
    ) -> Sequence[torch.Tensor]:
        """Gradients from all saved tensors and a cotangent of each result that can have one.

        The cotangents at ``values`` are the one value of all their elements.
        """
        leaves = self.read(leaves)
        run = self.backwards.get((self.attached, values))
        return (self.backward(self.attached, values) if run is None else run)(leaves)

    def read(self, leaves: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Of saved tensors, none of them a number, those that backward programs read."""
        if not self.n_extra:
            return leaves
        n = len(self.saved_inputs) - self.n_extra
        return [*leaves[:n], *leaves[n + self.n_extra :]]

    def guard(self, leaves: Sequence[torch.Tensor]) -> None:
        """Find the program for the inputs ``leaves``, all dense, by one look at them."""
        run = self.backwards.get((self.attached, ()))
        if run is not None and len(self.guarded) < MAX_GUARDS:
            check = guard_of(leaves)
            if check is not None:
                self.guarded.append((check, run))

    def check(self, saved: Sequence[torch.Tensor]) -> None:
        """Raise unless saved tensors are what the programs are made for: they read all of that.

        Raises:
            ExchangeError: a hook has made one of another shape or dtype.
        """
        inputs, results = self.compiled.avals, self.compiled.jaxpr.out_avals
        kept = [inputs[i] for i in self.saved_inputs] + [results[i] for i in self.parts.results]
        if self.parts.n_residuals:
            kept += self.parts.forward.out_avals[self.n_out :]
        for x, aval in zip(saved, kept, strict=True):
            if x.shape != aval.shape or DTYPES.get(x.dtype) != aval.dtype:
                msg = f"{self.compiled.family.name}: a saved tensor has come back as another one"
                got = f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
                expected = f"{aval.dtype} of shape {aval.shape}"
                hint = "hooks of saved tensors have to give back the dtype and the shape"
                raise ExchangeError(msg, got=got, expected=expected, hint=hint)

    def reached(self, cotangents: Mask) -> Mask:
        """The inputs that get a gradient from these cotangents."""
        if cotangents == self.attached:
            return self.active
        return reached(self.active, self.paths, cotangents)

    def backward(self, cotangents: Mask, values: Places) -> Run:
        """The executable ``(saved values, cotangents) -> gradients`` of ``reached`` inputs."""
        key = cotangents, values
        found = self.backwards.get(key)
        if found is None:
            with settings_of(self.compiled.jaxpr):
                found = self.backwards[key] = self._compile_backward(cotangents, values)
        return found

    def late_runs(self, cotangents: Mask, values: Places) -> LateRuns | None:
        """``backward`` in two stages; None if that is not worth it."""
        key = cotangents, values
        if key not in self.late:
            with settings_of(self.compiled.jaxpr):
                found = self.late[key] = self._compile_late(cotangents, values)
            if found is None and cotangents == self.attached:
                self.large = []  # the next calls need not ask
            return found
        return self.late[key]

    def _compile_late(self, cotangents: Mask, values: Places) -> LateRuns | None:
        program = self._backward_program(cotangents, values)
        wanted = [i for i, here in enumerate(self.reached(cotangents)) if here]
        places = [k for k, i in enumerate(wanted) if i in self.large]
        changing = {j for j, i in enumerate(self.parts.inputs) if self.active[i]}
        tails = split_tails(program, places, changing)
        if tails is None:
            return None
        numbers = self._numbers(program)
        last: dict[int, Tail] = {}
        for k, (tail, input_places) in tails.last.items():
            (aval,) = tail.out_avals
            are = [p < len(numbers) and numbers[p] for p in input_places]
            last[k] = Tail(
                self._make(tail, are), input_places, aval.shape, TORCH_DTYPES[aval.dtype]
            )
        changing &= {p for tail in last.values() for p in tail.places}
        return LateRuns(self._make(tails.first, numbers), last, len(program.outs), changing)

    def _results_alone(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        return self.compiled.run(leaves)

    def _early_of_one(self) -> Run:
        compiled = self.compiled
        with settings_of(compiled.jaxpr):
            program = with_slopes(compiled.jaxpr, self.active)
            return make_run(program, compiled.family.name, compiled.where)

    def _early_of_seed(self) -> Run:
        compiled = self.compiled
        with settings_of(compiled.jaxpr):
            program = with_gradients(compiled.jaxpr, self.active, self.attached)
            numbers = (False,) * len(compiled.avals) + (True,)
            return make_run(program, compiled.family.name, compiled.where, numbers)

    def _make(self, program: Jaxpr, numbers: Sequence[bool]) -> Run:
        name = f"{self.compiled.family.name}_backward"
        return checked(make_run(program, name, self.compiled.where, tuple(numbers)), name)

    def _numbers(self, program: Jaxpr) -> list[bool]:
        numbers = [self.compiled.numbers[i] for i in self.parts.inputs]
        return [*numbers, *[False] * (program.n_in - len(numbers))]

    def _compile_backward(self, cotangents: Mask, values: Places) -> Run:
        program = self._backward_program(cotangents, values)
        numbers = self._numbers(program)
        n_saved = program.n_in - sum(cotangents)
        freed = range(n_saved - self.parts.n_residuals, n_saved)
        cut = split_pieces(program, n_saved, freed) if fast_path_allowed() else None
        if cut is None:
            return self._make(program, numbers)
        steps: list[tuple[Run, tuple[int, ...], tuple[int, ...]]] = []
        for piece in cut.pieces:
            are = [p < len(numbers) and numbers[p] for p in piece.places]
            steps.append((self._make(piece.program, are), piece.places, piece.last))
        return Stages(steps, cut.results)

    def _backward_program(self, cotangents: Mask, values: Places) -> Jaxpr:
        program = self.parts.backward_for(cotangents)
        pairs = zip(self.active, self.reached(cotangents), strict=True)
        program, _ = dce_jaxpr(program, tuple([here for a, here in pairs if a]), keep_in=True)
        if values:
            n_saved = program.n_in - sum(cotangents)
            program = from_values(program, {n_saved + i for i in values})
        return program


def gradients(results: Sequence[torch.Tensor], wanted: Mask) -> tuple[Any, ...]:
    """What the autograd function returns: one entry for the node, one for each leaf."""
    if all(wanted):
        return (None, *results)
    found = iter(results)
    return (None, *[next(found) if w else None for w in wanted])


def checked(run: Run, name: str) -> Run:
    """``run``, with the checks that debugging options ask for."""

    def run_checked(leaves: Sequence[Any]) -> list[torch.Tensor]:
        results = run(leaves)
        check_finite([torch_adapter.import_(r) for r in results], name)
        return results

    return run if fast_path_allowed() else run_checked
