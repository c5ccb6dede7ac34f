"""The check of the uses of keys, through every transformation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.random import stream_cases as cases
from tracebridge import lax, random
from tracebridge.errors import KeyReuseError


@pytest.fixture(autouse=True)
def _checked(request: pytest.FixtureRequest) -> Iterator[None]:
    if "threads" in request.node.name:
        yield
        return
    with tb.debug_key_reuse():
        yield


def draw(key: Any) -> Any:
    """One number."""
    return random.uniform(key)


def key() -> Any:
    """A new key."""
    return random.key(0)


def test_a_second_use_says_where_the_first_one_was() -> None:
    """By functions that draw, by split, and by the same key in an array."""
    k = key()
    draw(k)
    with pytest.raises(KeyReuseError, match=r"normal: .* by uniform at .*test_key_reuse.py:\d+"):
        random.normal(k)
    with pytest.raises(KeyReuseError, match="split: the key was used before, by uniform"):
        random.split(k)
    k = key()
    random.split(k)
    with pytest.raises(KeyReuseError, match="uniform: the key was used before, by split"):
        draw(k)


def twice(k: Any) -> Any:
    """The mistake."""
    return draw(k) + draw(k)


def scan(body: Any, carry: Any, xs: Any = None) -> Any:
    """Three steps."""
    return lax.scan(body, carry, xs, 3)


def keys(k: Any) -> Any:
    """Three keys of one."""
    return random.split(k, 3)


def next_and_number(k: Any, _: Any) -> Any:
    """A step that splits its key."""
    k, own = random.split(k)
    return k, draw(own)


@tb.custom_jvp
def scaled(x: Any, k: Any) -> Any:
    """A function with a rule."""
    return x * twice(k)


scaled.defjvp(lambda primals, tangents: (scaled(*primals), tangents[0]))


def after(first: Any, k: Any) -> Any:
    """``first`` of a key, then a number of it."""
    return first(k), draw(k)


def rows_again(k: Any) -> Any:
    """A row that a scan has used."""
    ks = keys(k)
    return scan(lambda c, k: (c, draw(k)), 0.0, ks), draw(ks[1])


def views(k: Any) -> Any:
    """The first of three keys is the last one backwards."""
    ks = keys(k)
    return draw(ks[0]) + draw(ks[::-1][2])


def called_twice(k: Any) -> Any:
    """The same argument."""
    f = tb.jit(draw)
    return f(k) + f(k)


REUSED = {
    "plain": twice,
    "views": views,
    "stacked": lambda k: after(lambda k: draw(tnp.stack([k, key()])[0]), k),
    "stacked twice": lambda k: tb.vmap(draw)(tnp.stack([k, k])),
    "joined twice": lambda k: tb.jit(lambda ks: tb.vmap(draw)(tnp.concatenate([ks, ks[:1]])))(
        keys(k)
    ),
    "reshaped": lambda k: after(lambda k: draw(k.reshape(1)[0]), k),
    "jit": tb.jit(twice),
    "jit of a new key": lambda _: tb.jit(lambda: twice(key()))(),
    "jit, then plain": lambda k: after(tb.jit(draw), k),
    "jit, called twice": called_twice,
    "result of jit": lambda k: after(lambda k: draw(tb.jit(lambda k: k)(k)), k),
    "closed over": lambda k: after(lambda k: tb.jit(lambda x: x + draw(k))(1.0), k),
    "vmap": lambda k: tb.vmap(twice)(keys(k)),
    "grad": lambda k: tb.grad(lambda x: x * twice(k))(1.0),
    "checkpoint": tb.checkpoint(twice),
    "constant of scan": lambda k: scan(lambda c, _: (c + draw(k), None), 0.0),
    "carry of scan": lambda k: scan(lambda k, _: (k, draw(k)), k),
    "rows of scan": rows_again,
    "while": lambda k: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + draw(s[1]), s[1]), (0.0, k)
    ),
    "branch": lambda k: after(lambda k: lax.cond(True, draw, lambda k: 0.0, k), k),
    "custom_jvp": lambda k: tb.jit(scaled)(1.0, k),
}
FINE = {
    "split": lambda k: [draw(k) for k in keys(k)],
    "clone": lambda k: draw(k) + draw(random.clone(k)),
    "fold_in": lambda k: [draw(random.fold_in(k, i)) for i in range(3)],
    "data": lambda k: (random.key_data(k), k == random.clone(k), draw(k)),
    "words": lambda _: twice(random.PRNGKey(0)),
    "computed index": lambda k: tb.jit(lambda ks, i: draw(ks[i]) + draw(ks[i + 1]))(keys(k), 0),
    "carry of scan": lambda k: scan(next_and_number, k),
    "rows of scan": lambda k: scan(lambda c, k: (c + draw(k), None), 0.0, keys(k)),
    "fori_loop": lambda k: lax.fori_loop(0, 4, lambda _, k: random.split(k)[0], k),
    "while": lambda k: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, random.split(s[1])[1]), (0, k)
    ),
    "branches": lambda k: lax.cond(True, draw, lambda k: draw(k) * 2, k),
    "vmap": lambda k: tb.vmap(draw)(keys(k)),
    "joined": lambda k: tb.vmap(draw)(tnp.concatenate([keys(k), keys(random.clone(k))[:1]])),
    "shared by a batch": lambda k: tb.vmap(lambda x: x + draw(k))(tnp.ones(3)),
    "grad of checkpoint": tb.jit(
        lambda k: tb.grad(tb.checkpoint(lambda x: tnp.sin(x * draw(k))))(1.0)
    ),
}


@pytest.mark.parametrize("name", REUSED)
def test_second_uses_raise(name: str) -> None:
    """Whatever stands between the two."""
    with pytest.raises(KeyReuseError, match="the key was used before"):
        REUSED[name](key())


@pytest.mark.parametrize("name", FINE)
def test_first_uses_do_not(name: str) -> None:
    """The results are those without the check."""
    found = FINE[name](key())
    with tb.debug_key_reuse(False):
        expected = FINE[name](key())

    equal = tb.tree.map(lambda a, b: bool((a == b).all()), found, expected)
    assert all(tb.tree.leaves(equal))


def test_samplers_use_a_key_once() -> None:
    """Each of them, whatever it makes of the key."""
    uses = {
        name: str(tb.make_jaxpr(lambda k, f=function: f(random, k))(key())).count("key_use[")
        for name, function in cases.DISTRIBUTIONS.items()
    }

    assert dict.fromkeys(cases.DISTRIBUTIONS, 1) == uses


def test_the_option_for_all_threads() -> None:
    """Kept executables do not bypass the check, and are found again without it."""
    f = tb.jit(draw)
    expected = f(key()), draw(key())
    tb.config.update("debug_key_reuse", True)
    try:
        for use in (f, draw):
            k = key()
            use(k)
            with pytest.raises(KeyReuseError):
                use(k)
    finally:
        tb.config.update("debug_key_reuse", False)
    k = key()
    assert expected == (f(k), draw(k)) == (f(k), draw(k))


@pytest.mark.parametrize("uses", ["chosen first", "first chosen", "chosen second", "second chosen"])
@pytest.mark.parametrize("condition", [True, False])
def test_a_chosen_key_may_be_any_of_those_it_was_chosen_from(uses: str, condition: bool) -> None:
    """A use of it counts for all of them, and their uses count for it."""
    keys = {"first": key(), "second": key()}
    keys["chosen"] = tnp.where(condition, keys["first"], keys["second"])
    first, second = uses.split()
    draw(keys[first])

    with pytest.raises(KeyReuseError):
        draw(keys[second])


def test_keys_that_another_one_was_chosen_from_are_free() -> None:
    """As long as nobody uses it; one that was chosen from one key is that key."""
    one, other = key(), key()
    tnp.where(True, one, other)
    same = tnp.where(True, one, one)
    draw(one)
    draw(other)

    with pytest.raises(KeyReuseError):
        draw(same)
