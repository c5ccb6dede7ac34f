"""The parameters that an optimizer updates, with its state and the numbers of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from tracebridge.torch._training.optimizers import Group, Update
from tracebridge.torch._training.writing import adopt


@final
class Slot:
    """One parameter of an optimizer, and what is known of its state."""

    __slots__ = ("_count", "_counter", "_version", "fresh", "group", "parameter", "row", "state")

    def __init__(self, parameter: torch.Tensor, group: int) -> None:
        self.parameter = parameter
        self.group = group  # its place among the groups
        self.state: dict[str, Any] | None = None  # None: torch has made none yet
        self.fresh = True
        # torch's count of steps, and when it was read.
        self._count = 0
        self._counter: Any = None
        self._version = -1
        self.row: Counters | None = None  # which the counter is one of

    def read(self, states: Any, names: Sequence[str]) -> list[torch.Tensor]:
        """The tensors of the state, zeros where torch has made none yet."""
        # ``get`` makes no entry in the table of the optimizer.
        state = self.state = states.get(self.parameter)
        if not state:
            self._count, self._counter, self.row, self.fresh = 0, None, None, True
            return [torch.zeros_like(self.parameter) for _ in names]
        counter = state.get("step")
        if counter is not self._counter or (
            counter is not None and counter._version != self._version
        ):
            if counter is not self._counter:
                self._counter, self.row = counter, None
            self._count, self._version = (0, -1) if counter is None else (
                int(counter), counter._version
            )  # fmt: skip
        tensors = [state.get(name) for name in names]
        self.fresh = any([x is None for x in tensors])
        if self.fresh:
            return [torch.zeros_like(self.parameter) if x is None else x for x in tensors]
        return tensors

    @property
    def next_step(self) -> int:
        """The number of the step that is being made; the first one is 1."""
        return self._count + 1

    def replace(
        self,
        optimizer: Any,
        update: Update,
        names: Sequence[str],
        news: Sequence[torch.Tensor],
        pairs: list[tuple[torch.Tensor, torch.Tensor]],
        counters: NewCounters,
    ) -> None:
        """Put new tensors where torch has none; add others to ``pairs`` with what to replace."""
        if not names and not update.counts:
            return
        state = self.state
        if not state:
            state = self.state = optimizer.state[self.parameter]
            if update.counts:
                self.row, self._counter = counters.next(
                    optimizer.param_groups[self.group], self.parameter
                )
                state["step"] = self._counter
        for name, new in zip(names, news, strict=True):
            old = state.get(name)
            if old is None:
                state[name] = new
                adopt(new)
            else:
                pairs.append((old, new))

    @property
    def counter(self) -> torch.Tensor:
        """The tensor in which torch counts steps."""
        return self._counter

    def count(self) -> None:
        """Note that torch's count has been increased by one."""
        self._count += 1
        self._version = self._counter._version


@final
class Counters:
    """The tensors in which torch counts the steps of parameters, as entries of one tensor.

    To add one to each entry alone would take as long as a small layer.
    """

    __slots__ = ("all", "n")

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.all = torch.zeros(size, dtype=dtype, device=device)
        self.n = 0  # entries that are in use


@final
class NewCounters:
    """Counters for parameters that torch has not counted steps of."""

    __slots__ = ("_known", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: dict[Any, Counters] = {}

    def next(self, group: Group, parameter: torch.Tensor) -> tuple[Counters, torch.Tensor]:
        """The counter of one more parameter, and which it is one of."""
        fused = bool(group.get("fused"))
        wide = torch.get_default_dtype() == torch.float64 and not fused
        where = parameter.device if fused else torch.device("cpu")
        key = torch.float64 if wide else torch.float32, where
        row = self._known.get(key)
        if row is None:
            row = self._known[key] = Counters(self._size, *key)
        row.n += 1
        return row, row.all[row.n - 1]


def count(slots: Sequence[Slot]) -> None:
    """Count one step more for each of these parameters, here and where torch counts them."""
    row = slots[0].row
    if row is not None and row.n == len(slots) and all([slot.row is row for slot in slots]):
        row.all.add_(1)
    else:
        torch._foreach_add_([slot.counter for slot in slots], 1)  # pyright: ignore[reportPrivateImportUsage] - the stubs lack it
    for slot in slots:
        slot.count()


@final
class Numbers:
    """The numbers of one step: parameters of one group at the same step share a row."""

    __slots__ = ("_dtype", "_known", "_rows", "places")

    def __init__(self, wide: bool) -> None:
        self._dtype = np.float64 if wide else np.float32
        self._known: dict[Any, int] = {}
        self._rows: list[list[float]] = []
        self.places: list[int] = []

    def add(self, update: Update, slot: Slot, group: Group) -> None:
        """Find or make the row of the next parameter."""
        step = slot.next_step if update.counts else 1
        key = (slot.group, step, slot.fresh)
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = len(self._rows)
            self._rows.append(update.numbers(group, step, fresh=slot.fresh))
        self.places.append(place)

    def tensor(self) -> torch.Tensor:
        """All rows."""
        return torch.from_numpy(np.array(self._rows, self._dtype))
