"""What a kernel does in one step of a loop, and where each value is.

A value is an array in memory (a ``View``), a number of the program, or it is computed by a group of
elementwise equations that is not written yet: a group stays open until something else reads one of
its values. Slices, transposes and broadcasts are other views of the same memory; parts of a
concatenation are written where they belong. What no step changes is done before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.families import Elementwise
from tracebridge.core.rows.frame import REDUCTIONS, RESHAPES, exponent_of
from tracebridge.core.rows.functions import handles, is_easy_power
from tracebridge.core.steps.elementwise import Group, Node
from tracebridge.core.steps.dots import Dots, are_rows
from tracebridge.core.steps.products import Product
from tracebridge.core.steps.reductions import Reduction
from tracebridge.core.steps.views import View, bytes_of, contiguous, without_ones

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)})
_FLOAT = np.dtype(np.float32)
_PADDING = 16  # elements after each row of a matrix: a line of the cache
_COLLIDING = 128  # elements: rows that begin so far apart meet in an eighth of the sets
_LARGE = 1 << 12  # elements
_ALIGNED = 64  # bytes, of arrays in memory of the kernel's own

Statement = Group | Product | Dots | Reduction


class NotWritten(Exception):
    """No kernel is written for a loop: some equation is none that it could have."""


class Number(NamedTuple):
    """An array full of one number that stands in the program."""

    value: Any
    shape: tuple[int, ...]
    dtype: Any


class Open(NamedTuple):
    """A value of a group that is not written yet."""

    group: Group
    node: int
    shape: tuple[int, ...]


Known = View | Number | Open


@final
class Plan:
    """The statements before the loop and in a step of it.

    ``body``: (consts, carry, slices of xs) -> (carry, slices of ys), without calls.
    """

    def __init__(self, body: Jaxpr, n_consts: int, n_carry: int) -> None:
        self.body, self.n_consts, self.n_carry = body, n_consts, n_carry
        self.before: list[Statement] = []
        self.step: list[Statement] = []
        self.after: list[Statement] = []
        """At the end of a step: what the next one reads."""
        self.scratch = 0
        """Bytes of memory of its own."""
        self.places: dict[str, int] = {}
        """Names of arrays in it -> where they begin."""
        self._open: dict[tuple[bool, tuple[int, ...]], Group] = {}
        self._stored: dict[tuple[int, int], View] = {}
        self._slots: dict[int, View] = {}
        """Variables -> where they should be written."""
        self._values: list[Known] = []
        self._fixed: list[bool] = []
        """Of each variable, whether no step changes it."""
        self._packed: dict[View, View] = {}
        self._last = _last_readers(body)
        self._needed: set[int] = set()
        self._check(body)
        self._begin()
        for app, args in body.equations:
            self._add(app, args)
        self._end()

    # inputs and results

    def _check(self, body: Jaxpr) -> None:
        avals = [*body.in_avals, *body.out_avals]
        avals += [a for app, _ in body.equations for a in (*app.avals, *app.outs)]
        for a in avals:
            if a.dtype not in _DTYPES or a.vma or not all([type(n) is int and n for n in a.shape]):
                raise NotWritten
        if any([app.effects for app, _ in body.equations]):
            raise NotWritten

    def _begin(self) -> None:
        body = self.body
        first_xs = self.n_consts + self.n_carry
        for i, aval in enumerate(body.in_avals):
            if i < self.n_consts:
                base = f"%in{i}"
            elif i < first_xs:
                base = f"%carry{i - self.n_consts}"
                self._reserve(base, aval.shape, aval.dtype)
            else:
                base = f"%x{i - first_xs}"
            self._values.append(_whole(base, aval.shape, aval.dtype))
            self._fixed.append(i < self.n_consts)
        for const in body.consts:
            if not isinstance(const, Literal) or const.aval.ndim:
                raise NotWritten
            self._values.append(Number(const.value, (), const.aval.dtype))
            self._fixed.append(True)
        for k, v in enumerate(body.outs[self.n_carry :]):
            aval = body.out_avals[self.n_carry + k]
            self._slots.setdefault(v, _whole(f"%y{k}", aval.shape, aval.dtype))

    def _end(self) -> None:
        """Write the slices of ys, then the carries: what is read of the old ones is read first."""
        body, n = self.body, self.n_carry
        self._needed = set(body.outs)
        for k, v in enumerate(body.outs[n:]):
            aval = body.out_avals[n + k]
            slot = _whole(f"%y{k}", aval.shape, aval.dtype)
            if self._memory(v) != slot:
                self._copy(v, slot, self.step)
        for k, v in enumerate(body.outs[:n]):
            aval = body.out_avals[k]
            carry = _whole(f"%carry{k}", aval.shape, aval.dtype)
            value = self._memory(v)
            if value == carry:
                continue
            if value.base.startswith("%carry"):
                value = self._copied(value)
            self._write_copy(value, carry, self.after)
        self._close_all()

    # memory

    def _reserve(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        self.places[name] = self.scratch
        self.scratch += -(-bytes_of(shape, dtype) // _ALIGNED) * _ALIGNED

    def _new(self, shape: tuple[int, ...], dtype: Any) -> View:
        name = f"%own{len(self.places)}"
        self._reserve(name, shape, dtype)
        return _whole(name, shape, dtype)

    def _slot(self, variable: int, aval: ShapedArray) -> View:
        """Where a value is written: its place among the ys, in a concatenation, or new memory."""
        found = self._slots.pop(variable, None)
        return self._new(aval.shape, aval.dtype) if found is None else found

    def _memory(self, variable: int) -> View:
        """A value as an array in memory; what computes it is written."""
        value = self._values[variable]
        fixed = self._fixed[variable]
        if isinstance(value, Number):
            out = self._new(value.shape, value.dtype)
            group = Group(without_ones(value.shape))
            group.store(group.add(Node("number", (), value.dtype, value.value)), out)
            (self.before if fixed else self.step).append(group)
            self._values[variable] = out
            return out
        if isinstance(value, View):
            self._close_writers(value.base)
            return value
        found = self._place(variable, value)
        self._close(value.group)
        self._values[variable] = found
        return found

    def _place(self, variable: int, value: Open) -> View:
        """Where a value of an open group is stored."""
        key = id(value.group), value.node
        found = self._stored.get(key)
        if found is None:
            dtype = value.group.nodes[value.node].dtype
            found = self._slots.pop(variable, None)
            if found is None:
                found = self._new(value.shape, dtype)
            self._stored[key] = found
            value.group.store(value.node, found)
        shaped = found.reshaped(value.shape)
        assert shaped is not None  # it has other axes of size 1 at most
        return shaped

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
                (self.before if key[0] else self.step).append(group)

    def _close_all(self) -> None:
        for group in list(self._open.values()):
            self._close(group)

    def _close_writers(self, base: str) -> None:
        for group in list(self._open.values()):
            if any([v.base == base for _, v in group.stores]):
                self._close(group)

    def _store_all(self, group: Group) -> None:
        for variable, value in enumerate(self._values):
            if isinstance(value, Open) and value.group is group:
                if variable in self._needed:
                    self._values[variable] = self._place(variable, value)

    # equations

    def _add(self, app: Application, args: Sequence[int]) -> None:
        first = len(self._values)
        fixed = all([self._fixed[a] for a in args])
        self._needed = {v for v, when in self._last.items() if when >= first}
        if fixed:  # it is not a slice of ys, but the same in all of them
            for v in range(first, first + len(app.outs)):
                self._slots.pop(v, None)
        if app.primitive is lax.split_p:
            found: list[Known] = self._split(app, args)
        elif app.multiple:
            raise NotWritten
        else:
            found = [self._made(app, args, first, fixed)]
        self._values += found
        self._fixed += [fixed] * len(found)

    def _made(self, app: Application, args: Sequence[int], variable: int, fixed: bool) -> Known:
        primitive = app.primitive
        if primitive in RESHAPES:
            return self._reshaped(args[0], app.out)
        if primitive is lax.broadcast_in_dim_p:
            return self._broadcast(app, args[0])
        if primitive in REDUCTIONS:
            return self._reduced(app, args[0], variable, fixed)
        rule = _RULES.get(primitive)
        if rule is not None:
            return rule(self, app, args, variable, fixed)
        if self._is_elementwise(app, args):
            return self._computed(app, args, fixed)
        raise NotWritten

    def _is_elementwise(self, app: Application, args: Sequence[int]) -> bool:
        if any([a.ndim and a.shape != app.out.shape for a in app.avals]):
            return False
        if app.primitive is lax.pow_p:
            y = exponent_of(self.body, args[1])
            return y is not None and is_easy_power(y) and app.out.dtype == _FLOAT
        if not isinstance(app.primitive, Elementwise) and app.primitive is not lax.stop_gradient_p:
            return False
        dtypes = [a.dtype for a in app.avals]
        return handles(app.primitive.name, app.params, dtypes, app.out.dtype)

    def _computed(self, app: Application, args: Sequence[int], fixed: bool) -> Known:
        shape = app.out.shape
        name, params = app.primitive.name, app.params
        if app.primitive is lax.pow_p:
            params, args = {"y": exponent_of(self.body, args[1])}, args[:1]
        for a in args:  # what is in other groups has to be written first
            value = self._values[a]
            key = fixed, without_ones(shape)
            if isinstance(value, View) or (
                isinstance(value, Open) and value.group is not self._open.get(key)
            ):
                self._memory(a)
        group = self._group(shape, fixed)
        nodes = tuple([self._node(group, self._values[a]) for a in args])
        return Open(group, group.add(Node(name, nodes, app.out.dtype, params)), shape)

    def _node(self, group: Group, value: Known) -> int:
        if isinstance(value, Number):
            return group.add(Node("number", (), value.dtype, value.value))
        return value.node if isinstance(value, Open) else group.load(value)

    def _copy(self, variable: int, out: View, where: list[Statement]) -> None:
        value = self._values[variable]
        if isinstance(value, Number):
            group = Group(without_ones(value.shape))
            group.store(group.add(Node("number", (), value.dtype, value.value)), out)
            where.append(group)
            return
        self._write_copy(self._memory(variable), out, where)

    def _write_copy(self, value: View, out: View, where: list[Statement]) -> None:
        group = Group(without_ones(value.shape))
        group.store(group.load(value), out)
        where.append(group)

    def _copied(self, value: View, where: list[Statement] | None = None) -> View:
        out = self._new(value.shape, value.dtype)
        self._write_copy(value, out, self.step if where is None else where)
        return out

    def _pack(self, view: View, fixed: bool) -> View:
        """A copy of a matrix whose rows are one after another, and not in the same sets of lines."""
        if not fixed:
            return self._copied(view)
        if view not in self._packed:
            *lead, rows, columns = view.shape
            wide = self._new((*lead, rows, columns + _PADDING), view.dtype)
            packed = wide._replace(shape=view.shape)
            self._write_copy(view, packed, self.before)
            self._packed[view] = packed
        return self._packed[view]

    # moves

    def _reshaped(self, a: int, out: ShapedArray) -> Known:
        value = self._values[a]
        if not isinstance(value, View):
            if isinstance(value, Number) or without_ones(value.shape) == without_ones(out.shape):
                return value._replace(shape=out.shape)
            value = self._memory(a)
        found = value.reshaped(out.shape)
        if found is None:
            self._memory(a)
            where = self.before if self._fixed[a] else self.step
            found = self._copied(value, where).reshaped(out.shape)
            assert found is not None  # its elements lie one after another
        return found

    def _broadcast(self, app: Application, a: int) -> Known:
        value, shape = self._values[a], app.out.shape
        if isinstance(value, Number):
            return value._replace(shape=shape)
        if isinstance(value, Open) and without_ones(value.shape) == without_ones(shape):
            return value._replace(shape=shape)
        return self._memory(a).broadcast(shape, app.params["broadcast_dimensions"])

    def _split(self, app: Application, args: Sequence[int]) -> list[Known]:
        view, axis, at = self._memory(args[0]), app.params["axis"], 0
        found: list[Known] = []
        for size in app.params["sizes"]:
            starts, limits = [0] * len(view.shape), list(view.shape)
            starts[axis], limits[axis] = at, at + size
            found.append(view.part(starts, limits, [1] * len(starts)))
            at += size
        return found

    def _slice(self, app: Application, args: Sequence[int], *_: Any) -> Known:
        params, view = app.params, self._memory(args[0])
        steps = params["strides"] or [1] * len(view.shape)
        return view.part(params["start_indices"], params["limit_indices"], steps)

    def _transpose(self, app: Application, args: Sequence[int], *_: Any) -> Known:
        return self._memory(args[0]).transposed(app.params["permutation"])

    def _concatenate(
        self, app: Application, args: Sequence[int], variable: int, fixed: bool
    ) -> Known:
        out, axis, at = self._slot(variable, app.out), app.params["dimension"], 0
        for a, aval in zip(args, app.avals, strict=True):
            starts, limits = [0] * app.out.ndim, list(app.out.shape)
            starts[axis], limits[axis] = at, at + aval.shape[axis]
            self._write_part(a, out.part(starts, limits, [1] * len(starts)), fixed)
            at += aval.shape[axis]
        return out

    def _write_part(self, a: int, part: View, fixed: bool) -> None:
        """Write a value to a part of an array: at once where it is computed, if that is free."""
        value = self._values[a]
        if isinstance(value, Open) and self._fixed[a] == fixed:
            key = id(value.group), value.node
            if key not in self._stored and a not in self._slots:
                self._stored[key] = part
                value.group.store(value.node, part)
                return
        self._copy(a, part, self.before if fixed else self.step)

    def _pad(self, app: Application, args: Sequence[int], variable: int, fixed: bool) -> Known:
        filler = self._values[args[1]]
        config = app.params["padding_config"]
        if not isinstance(filler, Number) or any([n for _, _, n in config]):
            raise NotWritten
        if any([lo < 0 or hi < 0 for lo, hi, _ in config]):
            raise NotWritten
        where = self.before if fixed else self.step
        out = self._slot(variable, app.out)
        group = Group(without_ones(out.shape))
        group.store(group.add(Node("number", (), filler.dtype, filler.value)), out)
        value = self._memory(args[0]) if not isinstance(self._values[args[0]], Number) else None
        where.append(group)
        starts = [lo for lo, _, _ in config]
        limits = [lo + n for (lo, _, _), n in zip(config, app.avals[0].shape, strict=True)]
        part = out.part(starts, limits, [1] * len(starts))
        if value is None:
            self._copy(args[0], part, where)
        else:
            self._write_copy(value, part, where)
        return out

    # sums

    def _reduced(self, app: Application, a: int, variable: int, fixed: bool) -> Known:
        if app.out.dtype != _FLOAT or len(app.params) > 1:
            raise NotWritten
        axes = app.params["axes"]
        view = self._memory(a)
        if not axes:
            return view
        kept = [i for i in range(len(view.shape)) if i not in axes]
        out = self._slot(variable, app.out)
        moved = view.transposed([*kept, *sorted(axes)])
        where = self.before if fixed else self.step
        where.append(Reduction(REDUCTIONS[app.primitive], moved, out))
        return out

    def _product(self, app: Application, args: Sequence[int], variable: int, fixed: bool) -> Known:
        params = app.params
        preferred = params["preferred_element_type"]
        if app.out.dtype != _FLOAT or any([a.dtype != _FLOAT for a in app.avals]):
            raise NotWritten
        if preferred is not None and preferred != _FLOAT:
            raise NotWritten
        for name, value in params.items():
            if name not in _PRODUCT_PARAMS and value is not None:
                raise NotWritten
        (xc, yc), (xb, yb) = params["dimension_numbers"]
        x, y = self._memory(args[0]), self._memory(args[1])
        xf = [i for i in range(len(x.shape)) if i not in (*xc, *xb)]
        yf = [i for i in range(len(y.shape)) if i not in (*yc, *yb)]
        x, y = x.transposed([*xb, *xf, *xc]), y.transposed([*yb, *yc, *yf])
        n = len(xb)
        sizes = [_joined(v, part) for v, part in (
            (x, range(n, n + len(xf))), (x, range(n + len(xf), len(x.shape))),
            (y, range(n, n + len(yc))), (y, range(n + len(yc), len(y.shape))),
        )]  # fmt: skip
        if any([s is None for s in sizes]):
            raise NotWritten
        rows, terms, y_terms, columns = sizes
        out = self._slot(variable, app.out)
        if out.strides != tuple(contiguous(out.shape)):
            copy = self._new(app.out.shape, app.out.dtype)
        else:
            copy = out
        lead = x.shape[:n]
        x = View(x.base, x.offset, (*lead, rows[0], terms[0]),
                 (*x.strides[:n], rows[1], terms[1]), x.dtype)  # fmt: skip
        y = View(y.base, y.offset, (*lead, terms[0], columns[0]),
                 (*y.strides[:n], y_terms[1], columns[1]), y.dtype)  # fmt: skip
        flat = (*lead, rows[0], columns[0])
        target = copy._replace(shape=flat, strides=tuple(contiguous(flat)))
        where = self.before if fixed else self.step
        where.append(self._sums_of_products(x, y, target, args))
        if copy is not out:
            self._write_copy(copy, out, where)
        return out

    def _sums_of_products(self, x: View, y: View, out: View, args: Sequence[int]) -> Statement:
        order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
        wide = args[1]
        if y.shape[-1] == 1 and x.shape[-2] > 1:
            # The transposed product: its columns are what there is more of.
            x, y, out = y.transposed(order), x.transposed(order), out.transposed(order)
            wide = args[0]
        is_fixed = self._fixed[wide]
        matrix = y.transposed(order)
        if (matrix.shape[-2] == 1 or not is_fixed) and are_rows(x, matrix):
            return Dots(matrix, x, out)
        if (y.strides[-1] != 1 and y.shape[-1] > 1) or (is_fixed and _collides(y)):
            y = self._pack(y, is_fixed)
        return Product(x, y, out)


def _last_readers(body: Jaxpr) -> dict[int, int]:
    """Of each variable the first result of the last equation that reads it; of results the end."""
    last: dict[int, int] = {}
    number = body.n_in + len(body.consts)
    for app, args in body.equations:
        last.update(dict.fromkeys(args, number))
        number += len(app.outs)
    last.update(dict.fromkeys(body.outs, number))
    return last


def _collides(matrix: View) -> bool:
    """Whether the rows of a large matrix begin in the same few sets of the nearest cache."""
    rows, columns = matrix.shape[-2:]
    return rows * columns >= _LARGE and matrix.strides[-2] % _COLLIDING == 0


def _joined(view: View, axes: range) -> tuple[int, int] | None:
    """Size and stride of some axes as one; None if they are not one."""
    shape = tuple([view.shape[a] for a in axes])
    part = View(view.base, 0, shape, tuple([view.strides[a] for a in axes]), view.dtype)
    total = part.size
    found = part.reshaped((total,))
    return None if found is None else (total, found.strides[0])


def _whole(base: str, shape: tuple[int, ...], dtype: Any) -> View:
    return View(base, 0, shape, tuple(contiguous(shape)), dtype)


_PRODUCT_PARAMS = frozenset({"dimension_numbers", "precision", "preferred_element_type"})
_RULES: Mapping[Any, Callable[..., Known]] = {
    lax.slice_p: Plan._slice,
    lax.transpose_p: Plan._transpose,
    lax.concatenate_p: Plan._concatenate,
    lax.pad_p: Plan._pad,
    lax.dot_general_p: Plan._product,
}
