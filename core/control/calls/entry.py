"""One executable of a jitted function, with how to call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.placement import all_at, is_spread, moving
from tracebridge.core.runtime.backends.guards import check_execution
from tracebridge.core.runtime.calls.dispatch import raise_for
from tracebridge.core.runtime.calls.execute import SINGLE, TREE, make_run
from tracebridge.core.runtime.programs.debug import check_finite, wants_checks
from tracebridge.core.runtime.programs.donation import check_donation, mark_donated, owned
from tracebridge.core.runtime.programs.key_watch import KEY_WATCH
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.tree.tree import flatten, leaf_treedef


@final
class CallEntry:
    """One executable of a jitted function, with how to call it."""

    __slots__ = (
        "committed",
        "donated",
        "jaxpr",
        "moved",
        "name",
        "out_tree",
        "program",
        "run_list",
        "sigs",
    )

    def __init__(
        self,
        name: str,
        program: Program[Any],
        out_tree: Any,
        committed: bool,
        donated: tuple[int, ...],
        sigs: Sequence[Any],
        jaxpr: Jaxpr | None = None,
    ) -> None:
        self.name = name
        self.jaxpr = jaxpr
        """The program, where keys are followed through it."""
        self.program = program
        self.out_tree = out_tree
        self.committed = committed
        self.donated = donated
        self.sigs = sigs
        self.moved = not all_at(sigs, program.placement)
        self.run_list = self.plain_run(star=True)

    def run(self, *, star: bool) -> Callable[..., Any]:
        """A function of positional arrays, or with ``star`` of one sequence of arrays."""
        run = self.plain_run(star=star)
        return self.donating(run, star=star) if self.donated else run

    def donating(self, run: Callable[..., Any], *, star: bool) -> Callable[..., Any]:
        """``run`` with the checks and notes of donation, for the fast path."""
        donated, name = self.donated, self.name
        # The signatures are those of the key, so that they tell which memory is borrowed.
        own_donated = tuple([i for i in donated if not self.sigs[i].borrowed])
        several = len(self.sigs) > 1
        spread = is_spread(self.program.placement)

        def run_donating(*args: Any) -> Any:
            arrays = args[0] if star else args
            if spread:
                # XLA crashes where one of several devices finds its argument gone.
                raise_for(arrays, name, None)
            if several:
                check_donation(arrays, donated, name)
            out = run(*args)
            mark_donated(arrays, own_donated, name)
            return out

        return run_donating

    def plain_run(self, *, star: bool) -> Callable[..., Any]:
        """``run`` without what donation needs."""
        single = self.out_tree == leaf_treedef
        run = make_run(
            self.program,
            len(self.sigs),
            SINGLE if single else TREE,
            committed=self.committed,
            unflatten=None if single else self.out_tree.unflatten,
            star=star,
        )
        return moving(run, self.program.placement, star=star) if self.moved else run

    def one_to_one(self, run: object) -> tuple[Any, ...]:
        """The entry of the fast path for one argument."""
        program = self.program
        plain = (
            self.out_tree == leaf_treedef
            and program.kept == (0,)
            and not (program.constants or self.moved or self.donated)
        )
        if not plain:
            return None, None, None, run
        (sig,) = program.signatures(self.committed)
        handlers = program.handlers(self.committed)
        return program.executable.execute_sharded, handlers, sig, run

    def call(self, arrays: Sequence[Array]) -> Any:
        """Run, with checks that donation and debugging options need."""
        check_execution(self.name)
        if self.donated:
            if is_spread(self.program.placement):
                raise_for(arrays, self.name, None)
            check_donation(arrays, self.donated, self.name)
        try:
            out = self.run_list(arrays) if self.jaxpr is None else self.run_watched(arrays)
        except XlaRuntimeError as error:
            raise_for(arrays, self.name, error)
            raise
        if self.donated:
            mark_donated(arrays, owned(arrays, self.donated), self.name)
        if wants_checks():
            check_finite(flatten(out)[0], self.name)
        return out

    def run_watched(self, arrays: Sequence[Array]) -> Any:
        """The results, with a check of the uses of random keys."""
        assert self.jaxpr is not None

        def run() -> list[Any]:
            return flatten(self.run_list(arrays))[0]

        return self.out_tree.unflatten(KEY_WATCH.run(self.jaxpr, arrays, run))
