"""Arrays of a step share memory only where none of them is needed any more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tracebridge.core.kernels.steps.elementwise import Group, Node
from tracebridge.core.kernels.steps.memory import places
from tracebridge.core.kernels.steps.products import Product
from tracebridge.core.kernels.steps.reductions import Reduction
from tracebridge.core.kernels.steps.values import Statement
from tracebridge.core.kernels.steps.views import View, whole

FLOAT = np.dtype(np.float32)
SIZE = 64 * 64 * 4


def array(name: str, *shape: int) -> View:
    """An array of the kernel's own."""
    return whole(name, shape or (64, 64), FLOAT)


def mapped(out: View, *given: View) -> Group:
    """The sum of arrays, element by element."""
    group = Group(out.shape)
    total, *others = [group.load(x) for x in given]
    for other in others:
        total = group.add(Node("add", (total, other), FLOAT))
    group.store(total, out)
    return group


A, B, C, D = [array(f"%own{i}") for i in range(4)]
IN, OUT = array("%in0"), array("%out0")


def overlaps(found: dict[str, int], sizes: dict[str, int]) -> set[tuple[str, str]]:
    """Pairs of arrays that have bytes in common."""
    pairs = itertools.combinations(found, 2)
    return {(a, b) for a, b in pairs
            if found[a] < found[b] + sizes[b] and found[b] < found[a] + sizes[a]}  # fmt: skip


def test_an_array_is_written_over_one_that_nobody_reads_later() -> None:
    """Element by element, so that each is read before it is written."""
    step: list[Statement] = [Product(IN, IN, A), mapped(B, A), mapped(C, B), mapped(OUT, C)]
    found, end = places(dict.fromkeys([A.base, B.base, C.base], SIZE), [], step)
    assert {*found.values()} == {0}
    assert end == SIZE


@pytest.mark.parametrize(
    "second", [mapped(B, A.transposed((1, 0))), Product(A, IN, B), Reduction("sum", A, B)]
)
def test_what_reads_other_elements_has_other_memory(second: Statement) -> None:
    """A transpose, a product and a sum need all of an array while they write."""
    step = [Product(IN, IN, A), second, mapped(OUT, B)]
    sizes = dict.fromkeys([A.base, B.base], SIZE)
    assert overlaps(places(sizes, [], step)[0], sizes) == set()


def test_what_is_read_later_is_kept() -> None:
    """A value read once more after others were computed from it; a third one takes free memory."""
    step: list[Statement] = [
        Product(IN, IN, A), mapped(B, A), Product(B, IN, C), mapped(OUT, C, A), Product(IN, IN, D),
    ]  # fmt: skip
    sizes = dict.fromkeys([A.base, B.base, C.base, D.base], SIZE)
    found, end = places(sizes, [], step)
    pairs = overlaps(found, sizes)
    assert not pairs & {(A.base, B.base), (A.base, C.base), (B.base, C.base)}
    assert end == 3 * SIZE


def test_what_other_steps_need_keeps_its_memory() -> None:
    """What is written before the loop, and what a step reads that the one before has written."""
    step: list[Statement] = [mapped(C, B), mapped(D, C, A), mapped(B, D)]
    sizes = dict.fromkeys([A.base, B.base, C.base, D.base], SIZE)
    found, _ = places(sizes, [Product(IN, IN, A)], step)
    assert overlaps(found, sizes) == {(C.base, D.base)}


def test_arrays_of_other_sizes_take_what_is_free() -> None:
    """Two small arrays stand one behind the other in the memory of a large one."""
    small = [array(f"%own{i}", 16, 64) for i in (1, 2, 3)]
    step: list[Statement] = [Product(IN, IN, A), Reduction("max", A, small[0])]
    step += [mapped(small[1], small[0]), Product(small[1], small[0], small[2])]
    step += [mapped(array("%out0", 16, 64), small[2])]
    sizes = {A.base: SIZE, **{x.base: SIZE // 4 for x in small}}
    found, end = places(sizes, [], step)
    assert overlaps(found, sizes) == {(A.base, small[1].base), (A.base, small[2].base)}
    assert end == SIZE + SIZE // 4


@pytest.mark.parametrize("kinds", [(np.bool_, np.float32), (np.float32, np.bool_)])
def test_elements_of_other_sizes_are_not_written_over(kinds: tuple[type, type]) -> None:
    """They lie elsewhere, though small arrays are rounded up to the same number of bytes."""
    flags, out = [whole(f"%own{i}", (12,), np.dtype(kind)) for i, kind in enumerate(kinds)]
    given = Group((12,))
    given.store(given.load(whole("%in0", (12,), flags.dtype)), flags)
    made = Group((12,))
    converted = Node("convert_element_type", (made.load(flags),), out.dtype)
    made.store(made.add(converted), out)
    sizes = dict.fromkeys([flags.base, out.base], 64)
    step: list[Statement] = [given, made, Reduction("sum", out, whole("%out0", (), FLOAT))]
    assert overlaps(places(sizes, [], step)[0], sizes) == set()
