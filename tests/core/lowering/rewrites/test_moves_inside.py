"""Functions that are computed again move their operands and results themselves."""

from __future__ import annotations

from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, needs_kernels
from tracebridge import nn
from tracebridge.core.lowering.rewrites.moves_inside import with_moves_inside

pytestmark = needs_kernels


def scores(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(tnp.einsum("bthe,bshe->bhts", q, k)) @ tnp.einsum("bshe->bhse", v)


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Heads first; within, they are the third axis of four."""
    moved = [tnp.swapaxes(x, 0, 1)[None] for x in (q, k, v)]
    return tnp.swapaxes(tb.checkpoint(scores, **options)(*moved)[0], 0, 1)


def gradients(q: Any, k: Any, v: Any) -> Any:
    return tb.vjp(lambda *xs: attention(*xs, prevent_cse=False), q, k, v)[1](q.swapaxes(0, 1))


def names(f: Any, *args: Any) -> list[str]:
    """The equations of a program after the rewrite; nothing if it has changed nothing."""
    program = with_moves_inside(tb.make_jaxpr(f)(*args).jaxpr)
    return [] if program is None else [app.primitive.name for app, _ in program.equations]


OPERANDS = [array(4, 40, 8) for _ in range(3)]


def test_a_call_is_all_that_is_left() -> None:
    """Operands and results, forward; the numbers are those of the plain form."""
    assert names(attention, *OPERANDS) == ["checkpoint"]
    is_as_plain(attention, *OPERANDS, tolerance=2e-6)
    is_as_plain(gradients, *OPERANDS, tolerance=5e-6)


def test_a_part_of_a_backward_pass_that_is_not_merged_stays() -> None:
    """With a barrier it is not one of the functions that may be inlined."""

    def backward(*xs: Any) -> Any:
        return tb.vjp(attention, *xs)[1](xs[0].swapaxes(0, 1))

    program = with_moves_inside(tb.make_jaxpr(backward)(*OPERANDS).jaxpr)
    assert program is None or "transpose" in [app.primitive.name for app, _ in program.equations]
    is_as_plain(backward, *OPERANDS, tolerance=5e-6)


def test_what_lies_between_two_calls_is_moved_within_the_first() -> None:
    """Blocks of attention one after another, with transpositions and axes of one element."""

    def blocks(q: Any, k: Any, v: Any) -> Any:
        again = tb.checkpoint(scores)
        first = again(*[x[None] for x in (q, k, v)])
        return again(tnp.swapaxes(first, 1, 2), *[x[None] for x in (k, v)])[0]

    assert names(blocks, *OPERANDS) == ["checkpoint", "checkpoint"]
    is_as_plain(blocks, *OPERANDS, tolerance=2e-6)
    is_as_plain(tb.grad(lambda *xs: tnp.sum(tnp.sin(blocks(*xs)))), *OPERANDS, tolerance=5e-6)


def test_what_others_read_is_moved_outside() -> None:
    """Operands with another reader, results that are read twice or are results themselves."""

    def f(q: Any, k: Any, v: Any) -> Any:
        moved = [tnp.swapaxes(x, 0, 1)[None] for x in (q, k, v)]
        out = tb.checkpoint(scores)(*moved)
        return out, tnp.swapaxes(out, 1, 2), moved[0]

    assert names(f, *OPERANDS).count("transpose") == 2
    is_as_plain(f, *OPERANDS, tolerance=2e-6)
    is_as_plain(lambda q: f(q, q, q), OPERANDS[0], tolerance=2e-6)


@pytest.mark.parametrize("size", [8, 200])
def test_layers_share_a_function(size: int) -> None:
    """Equal calls call one function."""

    def two(q: Any, k: Any, v: Any) -> Any:
        once = tnp.swapaxes(attention(q, k, v), 0, 1)
        return tnp.swapaxes(attention(once + 1, k + 1, v + 1), 0, 1)

    args = [array(4, size, 8) for _ in range(3)]
    program = with_moves_inside(tb.make_jaxpr(two)(*args).jaxpr)
    assert program is not None
    called = [
        app.params["jaxpr"] for app, _ in program.equations if app.primitive.name == "checkpoint"
    ]
    assert len(called) == 2
    assert str(called[0]) == str(called[1])
    assert called[0].in_avals[0].shape == (4, size, 8)
    is_as_plain(two, *args, tolerance=5e-6)


def test_functions_with_products_of_whole_arrays_stay() -> None:
    """They are no kernels: XLA arranges what they read."""
    f = tb.checkpoint(lambda x, w: tnp.tanh(x @ w))
    assert names(lambda x, w: f(x.T, w).T, array(8, 9), array(8, 5)) == []


def by_parts(q: Any, k: Any, v: Any) -> Any:
    """Some queries after others, with as many keys as there are queries up to them."""
    moved = [tnp.swapaxes(x, 0, 1)[None] for x in (q, k, v)]
    n = q.shape[1]
    outs = []
    for start in range(0, n, n // 2):
        end = start + n // 2
        queries, *others = moved[0][:, start:end], *[x[:, :end] for x in moved[1:]]
        outs.append(tb.checkpoint(scores, prevent_cse=False)(queries, *others))
    return tnp.swapaxes(tnp.concatenate(outs, 2)[0], 0, 1)


def gradients_by_parts(q: Any, k: Any, v: Any) -> Any:
    return tb.vjp(by_parts, q, k, v)[1](q.swapaxes(0, 1) * 2 - 1)


def test_slices_are_taken_within() -> None:
    """Of operands that are moved before, also where one function takes all of them."""
    found = names(by_parts, *OPERANDS)
    assert not {"slice", "transpose", "squeeze"}.intersection(found[: found.index("concatenate")])
    is_as_plain(by_parts, *OPERANDS, tolerance=2e-6)
    is_as_plain(gradients_by_parts, *OPERANDS, tolerance=5e-6)


def test_what_is_read_besides_its_slices_stays() -> None:
    """A moved operand that is a result, too, and one that an equation reads."""

    def also_given(q: Any, k: Any, v: Any) -> Any:
        moved = [tnp.swapaxes(x, 0, 1)[None] for x in (q, k, v)]
        halves = [x[:, :20] for x in moved]
        first = tb.checkpoint(scores, prevent_cse=False)(*halves)
        second = tb.checkpoint(scores, prevent_cse=False)(*[x[:, 20:] for x in moved])
        return first, second, moved[0], moved[1] * 2, halves[2]

    assert names(also_given, *OPERANDS).count("transpose") == 3
    is_as_plain(also_given, *OPERANDS, tolerance=2e-6)


def test_what_is_between_two_calls_is_moved_once() -> None:
    """The result of one function, moved, is an operand of the next one: whole or in slices."""

    def twice(q: Any, k: Any, v: Any) -> Any:
        run = tb.checkpoint(scores, prevent_cse=False)
        first = tnp.swapaxes(run(*[tnp.swapaxes(x, 0, 1)[None] for x in (q, k, v)]), 1, 2)
        second = run(first, first[:, :20], first[:, 7:27])
        return run(tnp.swapaxes(second, 1, 2), first, first)

    is_as_plain(twice, *OPERANDS[:3], tolerance=5e-6)


def test_a_kernel_reads_slices_along_all_axes() -> None:
    """Also along that of the batch, in steps from the middle on, and of transposed arrays."""

    def products(x: Any, y: Any) -> Any:
        a = tnp.swapaxes(x, 0, 2)[1:, 3:35, 2:]
        b = y[2:9, None, 5:, 1:7][:, 0]
        return nn.softmax(tnp.einsum("bij,bjk->bik", a, b[:, : a.shape[2]])) @ b[:, :6]

    x, y = array(30, 40, 8), array(11, 40, 8)
    is_as_plain(products, x, y, tolerance=5e-6)
    grad = tb.grad(lambda x, y: (products(x, y) ** 2).sum(), (0, 1))
    is_as_plain(lambda x, y: grad(x, y), x, y, tolerance=2e-5)
