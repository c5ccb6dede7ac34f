"""The pieces of a backward program give what the program gives, and need less memory."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge._derived import pieces
from tracebridge._derived.pieces import split_pieces
from tracebridge._derived.residuals import split_for_backward

pytestmark = pytest.mark.torch

ROWS, WIDTH = 4096, 256  # such an array has 4 MB


@pytest.fixture(autouse=True)
def cut_often(monkeypatch):
    """Programs are cut for less than what pays its time."""
    monkeypatch.setattr(pieces, "_LEAST_PART", 0.01)
    monkeypatch.setattr(pieces, "_LEAST_GAIN", 1 << 18)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pullback(f, *args):
    """(saved values, cotangent) -> gradients as a wrapped function has it, and its arguments."""
    primal = tb.make_jaxpr(f)(*args).jaxpr
    (out,) = primal.out_avals
    ct = normal(*out.shape, seed=99)
    joint = tb.make_jaxpr(lambda *xs: (f(*xs[:-1]), *tb.vjp(f, *xs[:-1])[1](xs[-1])))(*args, ct)
    parts = split_for_backward(joint.jaxpr, primal, (True,))
    (result, *residuals) = evaluate(parts.forward, args)
    saved = [*[args[i] for i in parts.inputs], *[result] * len(parts.results), *residuals]
    return parts.backward, [*saved, ct], len(saved)


def evaluate(jaxpr, args):
    return tb.jit(tb.core.jaxpr_as_fun(jaxpr.as_closed()))(*args)


def layers(x, *ws):
    for w in ws:
        x = tnp.maximum(x @ w, 0.0)
    return x


def smooth(x, *ws):
    for w in ws:
        x = tb.nn.gelu(x @ w, approximate=False)
    return x


def branched(x, *ws):
    y = layers(x, *ws[:2])
    return layers(y, *ws[2:]) * tnp.tanh(y @ ws[0]) + x


def looped(x, *ws):
    _, ys = lax.scan(lambda c, r: (tnp.tanh(c @ ws[0] + r),) * 2, x[:8], x.reshape(-1, 8, WIDTH))
    return layers(ys.reshape(-1, WIDTH), *ws[1:])


PROGRAMS = [layers, smooth, branched, looped]


def arguments():
    return [normal(ROWS, WIDTH), *[normal(WIDTH, WIDTH, seed=i) / 16 for i in range(1, 5)]]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_pieces_compute_the_same(f):
    """Pieces one after another, with what each one reads, give the results of the program."""
    jaxpr, args, n_saved = pullback(f, *arguments())
    cut = split_pieces(jaxpr, n_saved, range(n_saved))
    assert cut is not None
    values = list(args)
    for piece in cut.pieces:
        values += evaluate(piece.program, [values[p] for p in piece.places])
        for p in piece.last:
            values[p] = None

    assert len(cut.pieces) > 1
    expected = evaluate(jaxpr, args)
    assert len(expected) == len(cut.results)
    for want, p in zip(expected, cut.results, strict=True):
        np.testing.assert_allclose(want, values[p], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_what_is_freed_is_not_read_again(f):
    """No piece reads a place that an earlier one has named as its last use, and all inputs end."""
    jaxpr, _, n_saved = pullback(f, *arguments())
    cut = split_pieces(jaxpr, n_saved, range(n_saved))
    assert cut is not None
    gone = set()
    for piece in cut.pieces:
        assert gone.isdisjoint(piece.places)
        assert gone.isdisjoint(piece.last)
        gone.update(piece.last)

    assert gone.isdisjoint(cut.results)
    assert set(range(jaxpr.n_in)) <= gone


def test_pieces_take_less_memory_together():
    """At no time arguments, results and temporaries of a piece, and what waits, reach the whole."""
    jaxpr, args, n_saved = pullback(layers, *arguments())

    def needed(program, given):
        stats = tb.jit(tb.core.jaxpr_as_fun(program.as_closed())).lower(*given).compile()
        memory = stats.memory_analysis()
        return memory.temp_size_in_bytes + memory.output_size_in_bytes

    cut = split_pieces(jaxpr, n_saved, range(n_saved))
    assert cut is not None
    values, most = list(args), 0
    for piece in cut.pieces:
        given = [values[p] for p in piece.places]
        there = sum([v.nbytes for v in values if v is not None])
        most = max(most, there + needed(piece.program, given))
        values += evaluate(piece.program, given)
        for p in piece.last:
            values[p] = None

    assert most < 0.9 * (sum([v.nbytes for v in args]) + needed(jaxpr, args))


def test_both_gradients_of_a_convolution_do_not_meet(monkeypatch):
    """Copies of images that the gradient of a kernel takes are gone before those of the other."""
    monkeypatch.setattr(pieces, "_LEAST_GAIN", 3 << 20)
    monkeypatch.setattr(pieces, "_LEAST_PART", 0.065)

    def pooled(x, w, b):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None]
        y = tnp.maximum(y, 0.0)
        return lax.reduce_window(y, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    args = [normal(16, 16, 64, 64), normal(32, 16, 3, 3, seed=1), normal(32, seed=2)]
    jaxpr, _, n_saved = pullback(pooled, *args)
    cut = split_pieces(jaxpr, n_saved, range(2, n_saved))
    assert cut is not None
    convolutions = [
        sum([app.primitive is lax.conv_general_dilated_p for app, _ in piece.program.equations])
        for piece in cut.pieces
    ]

    assert sum(convolutions) == 2
    assert max(convolutions) == 1


def test_small_programs_stay_whole():
    """A cut has to save something."""
    args = [normal(8, WIDTH), *[normal(WIDTH, WIDTH, seed=i) / 16 for i in range(1, 5)]]
    jaxpr, _, n_saved = pullback(layers, *args)

    assert split_pieces(jaxpr, n_saved, range(n_saved)) is None


def test_long_programs_stay_whole():
    """What is written out a thousand times would take longer to model than to compile."""

    def terms(x, *ws):
        for k in range(n_terms):
            x = x * 0.5 + tnp.maximum(x, float(k))
        return layers(x, *ws)

    n_terms = 4
    jaxpr, _, n_saved = pullback(terms, *arguments())
    assert split_pieces(jaxpr, n_saved, range(n_saved)) is not None

    n_terms = 500
    jaxpr, _, n_saved = pullback(terms, *arguments())
    assert split_pieces(jaxpr, n_saved, range(n_saved)) is None


def test_passes_over_rows_stay_whole():
    """Without contractions and loops there is nothing between which a program can be cut."""

    def rows(x, *ws):
        return tb.nn.log_softmax(tb.nn.softmax(x * ws[0][0]) + ws[1][0])

    jaxpr, _, n_saved = pullback(rows, *arguments())

    assert split_pieces(jaxpr, n_saved, range(n_saved)) is None


def test_effects_stay_in_one_program():
    """What is printed comes in the order of the program."""

    def shows(x, *ws):
        tb.debug.print("{}", x[0, 0], ordered=True)
        return layers(x, *ws)

    jaxpr = tb.make_jaxpr(lambda *args: tb.vjp(shows, *args)[1](args[0]))(*arguments()).jaxpr

    assert jaxpr.effects
    assert split_pieces(jaxpr, jaxpr.n_in - 1, range(1)) is None


def test_gradients_that_are_inputs():
    """A cotangent that is a gradient as it is leaves the program whole."""
    jaxpr = tb.make_jaxpr(lambda w, ct: (ct, layers(ct, w)))(
        normal(WIDTH, WIDTH), normal(4 * ROWS, WIDTH)
    ).jaxpr

    assert split_pieces(jaxpr, 1, range(1)) is None


def test_names_of_sizes_stay_whole():
    """Sizes that have names only say nothing about memory."""
    (n,) = tb.export.symbolic_shape("n")
    shapes = [tb.ShapeDtypeStruct((n, WIDTH), np.float32)]
    shapes += [tb.ShapeDtypeStruct((4096, 4096), np.float32)]
    jaxpr = tb.make_jaxpr(lambda x, w: (x @ x.T @ x, w @ w @ w))(*shapes).jaxpr

    assert split_pieces(jaxpr, 1, range(1)) is None


def test_the_beginning_of_a_long_program_may_be_cut(monkeypatch):
    """Where little has to be there at its end, the places that are tried are not all there."""
    monkeypatch.setattr(pieces, "_MOST_PLACES", 6)
    ws = [normal(WIDTH, WIDTH, seed=i) / 16 for i in range(12)]
    jaxpr, _, n_saved = pullback(layers, normal(ROWS, WIDTH), *ws)
    program = pieces.inline_calls(jaxpr)
    memory = pieces._Memory(pieces._Order(program, n_saved), range(n_saved))
    tried, n = memory._candidates(), len(memory.reads)

    assert len(tried) <= 6
    assert tried == sorted(tried)
    assert min(tried) < n // 3
    assert max(tried) > 2 * n // 3
