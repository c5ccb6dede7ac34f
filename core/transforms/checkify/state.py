"""The error state of a program that is being transformed: code and payloads so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.transforms.checkify.check import lanes_of
from tracebridge.core.transforms.checkify.error import Category, Lane, Layout, Site, Sites
from tracebridge.core.tree.tree import flatten

CODE = ShapedArray((), np.dtype(np.int32))


@final
class SiteTable:
    """The sites of one transformed function; equal ones share a number."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[Site, int] = {}

    def number(self, site: Site) -> int:
        """The code of a site, from 1."""
        return self._numbers.setdefault(site, len(self._numbers) + 1)

    @property
    def sites(self) -> Sites:
        """All sites in the order of their codes."""
        return tuple(self._numbers)


@final
class State:
    """Code and lanes as values; the first failure stays."""

    __slots__ = ("code", "lanes", "table")

    def __init__(self, table: SiteTable, code: Any, lanes: dict[Lane, Any]) -> None:
        self.table = table
        self.code = code
        self.lanes = lanes

    @property
    def layout(self) -> Layout:
        """The lanes that have a value."""
        return tuple(self.lanes)

    def values(self, layout: Layout) -> list[Any]:
        """Code and payloads of ``layout``, zeros for lanes without one."""
        lanes = [self.lanes[k] if k in self.lanes else zeros_of(lane_aval(k)) for k in layout]
        return [self.code, *lanes]

    def take(self, values: Sequence[object], layout: Layout) -> list[Any]:
        """Continue with code and lanes at the head of ``values``; the rest of them."""
        n = 1 + len(layout)
        self.code = values[0]
        self.lanes = dict(zip(layout, values[1:n], strict=True))
        return list(values[n:])

    def record(
        self, category: Category, failed: Any, template: str, line: str, payload: Sequence[Any]
    ) -> None:
        """Note a failure of this kind where ``failed`` (a scalar bool) and nothing failed before.

        The payload is what ``template`` is formatted with, in order.
        """
        tree = flatten(((0,) * len(payload), {}))[1]
        site = Site(category, template, line, lanes_of(payload), tree)
        self.record_sites((site,), lax.convert_element_type(failed, np.int32), payload, site.lanes)

    def record_sites(
        self, sites: Sites, code: Any, payload: Sequence[object], layout: Layout
    ) -> None:
        """Note a failure with a code for ``sites`` and payloads for ``layout``."""
        zero = literal(0, np.int32)
        numbers = [self.table.number(s) for s in sites]
        new = lax.convert_element_type(lax.eq(code, literal(1, np.int32)), np.int32)
        mine = lax.mul(new, literal(numbers[0], np.int32)) if numbers else zero
        for k, number in enumerate(numbers[1:], 2):
            here = lax.eq(code, literal(k, np.int32))
            mine = lax.select_n(here, mine, literal(number, np.int32))
        self.merge(mine, payload, layout)

    def merge(self, code: Any, payload: Sequence[object], layout: Layout) -> None:
        """Note the failure that ``code`` and ``payload`` tell of, if nothing failed before."""
        zero = literal(0, np.int32)
        first = lax.bitwise_and(lax.ne(code, zero), lax.eq(self.code, zero))
        self.code = lax.select_n(first, self.code, code)
        for lane, given in zip(layout, payload, strict=True):
            value = lax.stop_gradient(given) if is_inexact(lane.dtype) else given
            old = self.lanes.get(lane)
            old = zeros_of(lane_aval(lane)) if old is None else old
            self.lanes[lane] = lax.select_n(first, old, value)


def lane_aval(lane: Lane) -> ShapedArray:
    """The aval of the payload in a lane."""
    return ShapedArray(lane.shape, lane.dtype)


def merged(layouts: Sequence[Layout]) -> Layout:
    """All lanes of several layouts, each once."""
    return tuple(dict.fromkeys([lane for layout in layouts for lane in layout]))
