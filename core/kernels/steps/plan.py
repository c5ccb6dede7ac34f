"""What a kernel does in one step of a loop, and where each value is.

A value is an array in memory (a ``View``), a number of the program, parts of both (``Boxes``), or
it is computed by a group of elementwise equations that is not written yet: a group stays open until
something else reads one of its values. Slices, transposes and broadcasts are other views of memory
that is there (``moves.py``); parts of a concatenation are written where they belong. What no step
changes is done before the loop.

A large carry has memory twice: a step reads the one and writes the other, since it may read
neighbours of what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import exponent_of, is_handled
from tracebridge.core.kernels.functions import is_easy_power
from tracebridge.core.kernels.steps.boxes import Boxes, Number, Source
from tracebridge.core.kernels.steps.contractions import CONTRACTIONS
from tracebridge.core.kernels.steps.elementwise import CHEAP, Group, Node, copy_of
from tracebridge.core.kernels.steps.memory import places
from tracebridge.core.kernels.steps.moves import MOVES, split
from tracebridge.core.kernels.steps.swapped import products_of_results
from tracebridge.core.kernels.steps.values import Known, NotWritten, Open, Statement
from tracebridge.core.kernels.steps.views import ALIGNED, View, bytes_of, whole, without_ones

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.kernels.steps.arrays import Arrays

_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)})
_FLOAT = np.dtype(np.float32)
_LEAST_TWICE = 1 << 11  # elements of a carry: smaller ones are copied
_MOST_REPEATED = 4  # cheap operations, rather than an array more
Move = Callable[[Source], Source]
_RULES: Mapping[Any, Callable[..., Known]] = {**MOVES, **CONTRACTIONS}


@final
class Plan:
    """The statements before the loop and in a step of it.

    ``body``: (consts, carry, slices of xs) -> (carry, slices of ys), without calls, for one part of
    ``arrays``.
    """

    def __init__(self, body: Jaxpr, n_consts: int, n_carry: int, arrays: Arrays) -> None:
        self.arrays = arrays
        self.body, self.n_consts, self.n_carry = body, n_consts, n_carry
        self.before: list[Statement] = []
        self.first: list[Statement] = []
        """In the first one of steps that sum up results."""
        self.step: list[Statement] = []
        self.after: list[Statement] = []
        """At the end of a step: what the next one reads."""
        self.carries: list[View] = []
        """Where the loop keeps what one step hands on to the next."""
        self.next: dict[int, View] = {}
        """Of large carries: where a step writes what it hands on."""
        self.scratch = 0
        """Bytes of memory of its own."""
        self.places: dict[str, int] = {}
        """Names of arrays in it -> where they begin."""
        self._sizes: dict[str, int] = {}
        """Names of arrays in it -> how many bytes they have."""
        self.values: list[Known] = []
        self.fixed: list[bool] = []
        """Of each variable, whether no step changes it."""
        self.packed: dict[View, View] = {}
        """Matrices that no step changes -> copies of them."""
        self._open: dict[tuple[bool, tuple[int, ...]], Group] = {}
        self._opened: dict[Group, list[int]] = {}
        """The variables that were values of open groups when they were made."""
        self._stored: dict[tuple[int, int], View] = {}
        self._slots: dict[int, View] = {}
        """Variables -> where they should be written."""
        self._last = _last_readers(body)
        self._now = 0
        """The variables that are there: what later equations do not read is not needed."""
        self._products = products_of_results(body) if arrays.totals else {}
        self.totals = {self._products[body.outs[k]] for k in arrays.totals}
        """Results that are sums over some steps."""
        _check(body)
        self._begin()
        for app, args in body.equations:
            self._add(app, args)
        self._end()
        self._place_all()

    # inputs and results

    def _begin(self) -> None:
        body = self.body
        first_xs = self.n_consts + self.n_carry
        for i, aval in enumerate(body.in_avals):
            if i < self.n_consts:
                value = self.arrays.operand(i, f"%in{i}")
            elif i < first_xs:
                value = whole(f"%carry{i - self.n_consts}", aval.shape, aval.dtype)
                self._reserve(value.base, aval.shape, aval.dtype)
                self.carries.append(value)
                if aval.size >= _LEAST_TWICE:
                    there = value._replace(base=f"%next{i - self.n_consts}")
                    self._reserve(there.base, aval.shape, aval.dtype)
                    self.next[i - self.n_consts] = there
            else:
                value = self.arrays.operand(i, f"%x{i - first_xs}")
            self.values.append(value)
            self.fixed.append(i < self.n_consts or self.arrays.is_fixed(i))
        for const in body.consts:
            if not isinstance(const, Literal) or const.aval.ndim:
                raise NotWritten
            self.values.append(Number(const.value, (), const.aval.dtype))
            self.fixed.append(True)
        for k, v in enumerate(body.outs[self.n_carry :]):
            place = self._slice_of_ys(k)
            if k in self.arrays.totals:
                self._add_total(self._products[v], place)
            elif place.is_contiguous:  # what writes it may take other axes together
                self._slots.setdefault(v, place)
        for k, place in self.next.items():
            self._slots.setdefault(body.outs[k], place)

    def _add_total(self, product: int, place: View) -> None:
        """A product that is added to what is in a place, which begins with zeros."""
        there = place.reshaped(self.body.variable_avals()[product].shape)
        if there is None:
            raise NotWritten
        self._slots[product] = there
        self.write_copy(Number(0.0, place.shape, place.dtype), place, self.first)

    def _slice_of_ys(self, k: int) -> View:
        return self.arrays.result(self.n_carry + k, f"%y{k}")

    def _end(self) -> None:
        """Write the slices of ys, then the carries: what is read of the old ones is read first."""
        body, n = self.body, self.n_carry
        self._now = len(self.values)
        for k, v in enumerate(body.outs[n:]):
            slot = self._slice_of_ys(k)
            if self.memory(v) != slot:
                self.write(v, slot, self.step)
        for k, (carry, v) in enumerate(zip(self.carries, body.outs[:n], strict=True)):
            value = self.memory(v)
            if k in self.next:
                if value != self.next[k]:
                    self.write_copy(value, self.next[k], self.step)
                continue
            if value == carry:
                continue
            if value.base.startswith("%carry"):
                value = self.copied(value, self.step)
            self.write_copy(value, carry, self.after)
        for group in list(self._open.values()):
            self._close(group)

    def _place_all(self) -> None:
        """Find memory for all arrays."""
        kept = [*self.carries, *self.next.values()]
        lasting = [*self.before, *[copy_of(c, c) for c in kept]]
        self.places, self.scratch = places(self._sizes, lasting, [*self.step, *self.after])

    # memory

    def where(self, fixed: bool) -> list[Statement]:
        """The statements to which one belongs."""
        return self.before if fixed else self.step

    def _reserve(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        self._sizes[name] = -(-bytes_of(shape, dtype) // ALIGNED) * ALIGNED

    def new(self, shape: tuple[int, ...], dtype: Any) -> View:
        """Memory for an array."""
        name = f"%own{len(self._sizes)}"
        self._reserve(name, shape, dtype)
        return whole(name, shape, dtype)

    def slot(self, variable: int, shape: tuple[int, ...], dtype: Any) -> View:
        """Where a value is written: its place among the ys, or new memory."""
        found = self._slots.pop(variable, None)
        return self.new(shape, dtype) if found is None else found

    def memory(self, variable: int) -> View:
        """A value as an array in memory; what computes it is written."""
        value = self.values[variable]
        if isinstance(value, Number):
            found = self.new(value.shape, value.dtype)
            self.write(variable, found, self.where(self.fixed[variable]))
        elif isinstance(value, Boxes):
            found = self.slot(variable, value.shape, value.dtype)
            self.write(variable, found, self.where(self.fixed[variable]))
        elif isinstance(value, View):
            self._settle({value.base})
            return value
        else:
            found = self._place(variable, value)
            self._close(value.group)
        self.values[variable] = found
        return found

    def source(self, variable: int) -> Source:
        """A value whose elements are there, in memory or in the program."""
        value = self.values[variable]
        if isinstance(value, Boxes):
            self._settle(value.bases)
            return value
        return value if isinstance(value, Number) else self.memory(variable)

    def _settle(self, bases: set[str]) -> None:
        """Write what groups store in some arrays."""
        for group in list(self._open.values()):
            if any([v.base in bases for _, v in group.stores]):
                self._close(group)

    def _place(self, variable: int, value: Open) -> View:
        """Where a value of an open group is stored."""
        key = id(value.group), value.node
        found = self._stored.get(key)
        if found is None:
            dtype = value.group.nodes[value.node].dtype
            found = self.slot(variable, value.shape, dtype)
            self._stored[key] = found
            value.group.store(value.node, found)
        shaped = found.reshaped(value.shape)
        assert shaped is not None  # it has other axes of size 1 at most
        return shaped

    def write(self, variable: int, out: View, where: list[Statement]) -> None:
        """Write a value to memory."""
        self.write_copy(self.source(variable), out, where)

    def write_copy(self, value: Source, out: View, where: list[Statement]) -> None:
        """Write the elements of an array to another one."""
        where.append(copy_of(value, out))

    def copied(self, value: View, where: list[Statement]) -> View:
        """The elements of an array one after another, in memory of their own."""
        out = self.new(value.shape, value.dtype)
        self.write_copy(value, out, where)
        return out

    def write_part(self, variable: int, part: View, fixed: bool) -> None:
        """Write a value to a part of an array: where it is computed, if it has no place yet."""
        value = self.values[variable]
        if isinstance(value, Open) and self.fixed[variable] == fixed:
            key = id(value.group), value.node
            if key not in self._stored and variable not in self._slots:
                self._stored[key] = part
                value.group.store(value.node, part)
                return
        self.write(variable, part, self.where(fixed))

    # groups

    def _group(self, shape: tuple[int, ...], fixed: bool) -> Group:
        key = fixed, without_ones(shape)
        if key not in self._open:
            self._open[key] = Group(key[1])
        return self._open[key]

    def _close(self, group: Group) -> None:
        """Write a group; its values that others may read are stored."""
        for key, other in list(self._open.items()):
            if other is group:
                del self._open[key]
                self._store_all(group)
                self.where(key[0]).append(group)

    def _store_all(self, group: Group) -> None:
        for variable in self._opened.pop(group, ()):
            value = self.values[variable]
            is_needed = self._last.get(variable, -1) >= self._now
            if isinstance(value, Open) and value.group is group and is_needed:
                self.values[variable] = self._place(variable, value)

    # equations

    def _add(self, app: Application, args: Sequence[int]) -> None:
        first = len(self.values)
        fixed = all([self.fixed[a] for a in args])
        self._now = first
        if fixed:  # it is not a slice of ys, but the same in all of them
            for v in range(first, first + len(app.outs)):
                self._slots.pop(v, None)
        if app.primitive is lax.split_p:
            found: list[Known] = split(self, app, args)
        elif app.multiple:
            raise NotWritten
        else:
            found = [self._made(app, args, first, fixed)]
        for v, value in enumerate(found, first):
            if isinstance(value, Open):
                self._opened.setdefault(value.group, []).append(v)
        self.values += found
        self.fixed += [fixed] * len(found)

    def _made(self, app: Application, args: Sequence[int], variable: int, fixed: bool) -> Known:
        rule = _RULES.get(app.primitive)
        if rule is not None:
            return rule(self, app, args, variable, fixed)
        if not self._is_elementwise(app, args):
            raise NotWritten
        return self._computed(app, args, fixed)

    def _is_elementwise(self, app: Application, args: Sequence[int]) -> bool:
        if any([a.ndim and a.shape != app.out.shape for a in app.avals]):
            return False
        if app.primitive is lax.pow_p:
            y = exponent_of(self.body, args[1])
            return y is not None and is_easy_power(y) and app.out.dtype == _FLOAT
        return is_handled(app)

    def _computed(self, app: Application, args: Sequence[int], fixed: bool) -> Known:
        shape = app.out.shape
        name, params = app.primitive.name, app.params
        if app.primitive is lax.pow_p:
            params, args = {"y": exponent_of(self.body, args[1])}, args[:1]
        key = fixed, without_ones(shape)
        for a in args:  # what is in other groups has to be written first
            value = self.values[a]
            if isinstance(value, Open) and value.group is self._open.get(key):
                continue
            self.source(a)
        group = self._group(shape, fixed)
        nodes = tuple([self._node(group, self.values[a]) for a in args])
        return Open(group, group.add(Node(name, nodes, app.out.dtype, params)), shape)

    def _node(self, group: Group, value: Known) -> int:
        return value.node if isinstance(value, Open) else group.source(value)

    def moved(self, variable: int, shape: tuple[int, ...], move: Move) -> Known:
        """A value with its elements at other places, as ``move`` has them."""
        value, fixed = self.values[variable], self.fixed[variable]
        # What is cheap is computed once more of what is moved.
        if isinstance(value, Open) and value.shape == value.group.shape:
            nodes = value.group.nodes
            needed = sorted(_needed(nodes, value.node))
            made = [nodes[i] for i in needed if nodes[i].kind not in ("load", "number")]
            if len(made) <= _MOST_REPEATED and all([node.kind in CHEAP for node in made]):
                group, numbers = self._group(shape, fixed), dict[int, int]()
                for i in needed:
                    numbers[i] = _moved_node(group, nodes[i], numbers, shape, move)
                return Open(group, numbers[value.node], shape)
        return move(self.source(variable))


def _needed(nodes: Sequence[Node], last: int) -> set[int]:
    """The values that one is made of, and itself."""
    found = {last}
    for i in range(last, -1, -1):
        if i in found:
            found.update(nodes[i].args)
    return found


def _moved_node(
    group: Group,
    node: Node,
    numbers: dict[int, int],
    shape: tuple[int, ...],
    move: Move,
) -> int:
    """The number of a value whose elements are at other places."""
    if node.kind != "load":
        return group.add(node._replace(args=tuple([numbers[a] for a in node.args])))
    view = node.params
    if isinstance(view, View) and not any(view.strides):
        return group.load(view._replace(shape=shape, strides=(0,) * len(shape)))
    return group.source(move(view))


def _check(body: Jaxpr) -> None:
    """Raise where shapes, dtypes or effects are none of a kernel's."""
    avals = {*body.in_avals, *body.out_avals, *[c.aval for c in body.consts]}
    for app, _ in body.equations:
        avals.update(app.outs)
    for a in avals:
        if a.dtype not in _DTYPES or a.vma or not all([type(n) is int and n for n in a.shape]):
            raise NotWritten
    if any([app.effects for app, _ in body.equations]):
        raise NotWritten


def _last_readers(body: Jaxpr) -> dict[int, int]:
    """Of each variable the first result of the last equation that reads it; of results the end."""
    last: dict[int, int] = {}
    number = body.n_in + len(body.consts)
    for app, args in body.equations:
        last.update(dict.fromkeys(args, number))
        number += len(app.outs)
    last.update(dict.fromkeys(body.outs, number))
    return last
