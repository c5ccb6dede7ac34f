"""Typed keys behave as arrays of keys, and only as such."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, random
from tracebridge.experimental import checkify

WORDS = np.arange(12, dtype=np.uint32).reshape(2, 3, 2)


def keys() -> Any:
    """Six keys in two rows."""
    return random.wrap_key_data(WORDS, impl="threefry2x32")


MOVES = {
    "index": lambda k: k[1, 2],
    "slice": lambda k: k[:, 1:],
    "gather": lambda k: k[:, np.array([2, 0])],
    "traced index": lambda k: tb.jit(lambda k, i: k[i])(k, 1),
    "reverse": lambda k: k[::-1],
    "reshape": lambda k: k.reshape(3, 2),
    "transpose": lambda k: k.T,
    "ravel": lambda k: k.ravel(),
    "stack": lambda k: tnp.stack([k[0], k[1]]),
    "concatenate": lambda k: tnp.concatenate([k, k], axis=1),
    "expand": lambda k: tnp.expand_dims(k, 1),
    "broadcast": lambda k: tnp.broadcast_to(k[0], (4, 3)),
    "where": lambda k: tnp.where(np.array([True, False, True]), k, k[::-1]),
    "set": lambda k: k.at[0].set(k[1]),
    "jit": lambda k: tb.jit(lambda k: k)(k),
    "vmap": lambda k: tb.vmap(lambda k: k, out_axes=1)(k),
    "map": lambda k: tb.lax.map(lambda row: row[::-1], k),
    "cond": lambda k: tb.lax.cond(True, lambda k: k[0], lambda k: k[1], k),
    "while": lambda k: tb.lax.fori_loop(0, 3, lambda i, k: k[::-1], k),
    "pickle": lambda k: pickle.loads(pickle.dumps(k)),
    "device_put": lambda k: tb.device_put(k, tb.devices()[0]),
    "copy": lambda k: tnp.copy(k),
}
REFERENCES = {
    "index": lambda w: w[1, 2],
    "slice": lambda w: w[:, 1:],
    "gather": lambda w: w[:, [2, 0]],
    "traced index": lambda w: w[1],
    "reverse": lambda w: w[::-1],
    "reshape": lambda w: w.reshape(3, 2, 2),
    "transpose": lambda w: w.transpose(1, 0, 2),
    "ravel": lambda w: w.reshape(6, 2),
    "concatenate": lambda w: np.concatenate([w, w], axis=1),
    "expand": lambda w: w[:, None],
    "broadcast": lambda w: np.broadcast_to(w[0], (4, 3, 2)),
    "where": lambda w: np.where(np.array([True, False, True])[:, None], w, w[::-1]),
    "set": lambda w: np.stack([w[1], w[1]]),
    "vmap": lambda w: w.transpose(1, 0, 2),
    "map": lambda w: w[:, ::-1],
    "cond": lambda w: w[0],
    "while": lambda w: w[::-1],
}


@pytest.mark.parametrize("name", MOVES)
def test_keys_move_as_their_words_do(name: str) -> None:
    """Whatever moves elements moves whole keys."""
    expected = REFERENCES.get(name, lambda w: w)(WORDS)

    found = MOVES[name](keys())

    assert random.key_dtype("threefry2x32") == found.dtype
    assert expected.shape[:-1] == found.shape
    assert expected.tolist() == random.key_data(found).tolist()


@pytest.mark.parametrize("name", ["index", "gather", "where", "set", "concatenate"])
def test_moves_inside_jit(name: str) -> None:
    """The same in one program."""
    expected = REFERENCES[name](WORDS)

    assert expected.tolist() == tb.jit(lambda k: random.key_data(MOVES[name](k)))(keys()).tolist()


def test_facts_of_keys() -> None:
    """Names, sizes, printed form."""
    key = random.key(42)

    assert ("key<fry>", (), 1, 8) == (str(key.dtype), key.shape, key.size, key.nbytes)
    assert "Array((), dtype=key<fry>) overlaying:\n[ 0 42]" == repr(key)
    assert tnp.issubdtype(key.dtype, tb.dtypes.prng_key)
    assert ["threefry2x32", "rbg", "unsafe_rbg"] == [
        random.key_impl(random.key(0, impl=i)) for i in ("threefry2x32", "rbg", "unsafe_rbg")
    ]
    assert "key<urbg>" == str(random.key(0, dtype=random.key_dtype("unsafe_rbg")).dtype)
    assert 2 == len(tb.tree.leaves((key, key)))


def test_default_generator_is_an_option() -> None:
    """``default_prng_impl`` decides for typed keys and for bare words."""
    with tb.default_prng_impl("rbg"):
        assert "key<rbg>" == str(random.key(0).dtype)
        words = random.PRNGKey(3)
        assert [0, 3, 0, 3] == words.tolist()
        drawn = random.bits(words, (3,))
        assert "rbg" == random.key_impl(words)

    assert random.bits(random.key(3, impl="rbg"), (3,)).tolist() == drawn.tolist()


def test_bare_words_are_keys() -> None:
    """Functions give words for words."""
    words, key = random.PRNGKey(5), random.key(5)

    assert random.key_data(random.split(key)).tolist() == random.split(words).tolist()
    assert random.key_data(random.fold_in(key, 2)).tolist() == random.fold_in(words, 2).tolist()
    assert random.uniform(key, (3,)).tolist() == random.uniform(words, (3,)).tolist()
    assert words.tolist() == random.key_data(words).tolist()
    assert words.tolist() == random.clone(words).tolist()
    for name in ("rbg", "unsafe_rbg"):
        words = random.PRNGKey(5, impl=name)
        assert words.tolist() == random.clone(words).tolist()
    with pytest.raises(TypeError, match="expected a key"):
        random.clone(words[:3])


def test_mapped_keys_draw_as_single_keys_do() -> None:
    """Mapping over keys equals a loop, inside jit and scan too; the first of rbg draws for all."""
    for impl in ("threefry2x32", "rbg", "unsafe_rbg"):
        many = random.split(random.key(1, impl=impl), 3)
        expected = [random.uniform(k, (2,)).tolist() for k in many]

        mapped = tb.jit(tb.vmap(lambda k: random.uniform(k, (2,))))(many)
        scanned = tb.lax.scan(lambda c, k: (c, random.uniform(k, (2,))), 0, many)[1]

        assert expected == scanned.tolist()
        at_once = random.uniform(many[0], (3, 2)).tolist()
        assert mapped.tolist() == (expected if impl == "threefry2x32" else at_once)


def test_derivatives_pass_through_draws() -> None:
    """Keys have no derivative; bounds have."""
    key = random.key(0)

    def loss(scale: Any, key: Any) -> Any:
        return tnp.sum(random.uniform(key, (4,), maxval=scale))

    expected = np.asarray(random.uniform(key, (4,))).sum()
    assert expected == pytest.approx(float(tb.grad(loss)(2.0, key)), rel=1e-6)
    with pytest.raises(errors.GradientTypeError):
        tb.grad(loss, argnums=1)(2.0, key)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda k: np.asarray(k), TypeError, "random.key_data"),
        (lambda k: k.tolist(), TypeError, "random.key_data"),
        (lambda k: random.uniform(random.split(k)), ValueError, "tracebridge.vmap"),
        (lambda k: random.uniform(np.zeros(3, np.uint32)), TypeError, r"u32\[2\]"),
        (lambda k: random.uniform(3), TypeError, "expected a key"),
        (lambda k: random.uniform(k, (2,), "int32"), ValueError, "floating dtype"),
        (lambda k: random.uniform(k, (-1,)), ValueError, "negative"),
        (lambda k: random.uniform(k, (2,), minval=np.zeros(3)), ValueError, "not broadcastable"),
        (lambda k: random.randint(k, (2,), 0, 3, "float32"), TypeError, "integer dtype"),
        (lambda k: random.bits(k, (2,), "int32"), ValueError, "unsigned"),
        (lambda k: random.bits(k, (2,), "uint4"), ValueError, "unsigned"),
        (lambda k: random.key(1.5), TypeError, "expected an integer"),
        (lambda k: random.key([1, 2]), TypeError, "expected an array"),
        (lambda k: random.key(np.arange(2)), ValueError, "expected a scalar"),
        (lambda k: random.key(1, impl="foo"), ValueError, "'threefry2x32'"),
        (lambda k: random.key(1, impl=3), TypeError, "'threefry2x32'"),
        (lambda k: random.key(1, impl="rbg", dtype=k.dtype), ValueError, "one of them"),
        (lambda k: random.fold_in(k, 1j), TypeError, "data is"),
        (lambda k: random.fold_in(k, float("nan")), OverflowError, "data is nan"),
        (lambda k: random.fold_in(k, -1.5), OverflowError, "data is -1"),
        (lambda k: random.fold_in(k, np.arange(3)), ValueError, "tracebridge.vmap"),
        (lambda k: random.fold_in(k, k), TypeError, "expected an integer"),
        (lambda k: random.split(k, -1), ValueError, "negative"),
        (lambda k: random.wrap_key_data(np.zeros(3, np.uint32)), TypeError, r"u32\[\.\.\.,2\]"),
        (lambda k: random.wrap_key_data(np.zeros(2, np.float32)), TypeError, "got f32"),
        (lambda k: random.key_data(1.0), TypeError, "expected a key"),
        (lambda k: random.clone(1.0), TypeError, "expected a key"),
        (lambda k: k + 1, ValueError, "key<fry>"),
        (lambda k: k + 1, TypeError, "key<fry>"),
        (lambda k: random.key(2**63), OverflowError, "seed is"),
        (lambda k: random.PRNGKey(-(2**63) - 1), OverflowError, "seed is"),
        (lambda k: random.fold_in(k, -1), OverflowError, "data is"),
        (lambda k: random.fold_in(k, 2**32), OverflowError, "data is"),
        (lambda k: random.choice(k, 5, 2), TypeError, "expected a sequence"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    """What is refused, with the way out."""
    with pytest.raises(error, match=words):
        call(random.key(0))


@pytest.mark.parametrize("data", [2.7, np.float32(2.7), np.asarray(2.7, np.float32)])
def test_of_folded_floats_the_whole_part_counts(data: Any) -> None:
    """Whatever kind of float it is, traced ones too."""
    key = random.key(0)

    assert bool(random.fold_in(key, 2) == random.fold_in(key, data))
    assert bool(random.fold_in(key, 2) == tb.jit(random.fold_in)(key, data))


def test_keys_are_compared_as_a_whole() -> None:
    """Equal words make equal keys; one key is compared with each of an array; there is no order."""
    ks = random.split(random.key(0), 3)

    assert [False, True, False] == (ks == ks[1]).tolist()
    assert [True, False, True] == tb.jit(lambda a, b: a != b)(ks, ks[1]).tolist()
    assert [True] * 3 == tb.vmap(lambda a, b: a == b)(ks, ks).tolist()
    assert bool(ks[0] == random.clone(ks[0]))
    with pytest.raises(TypeError, match="works on booleans"):
        ks < ks  # noqa: B015, PLR0124 - it raises


@pytest.mark.parametrize(
    "call",
    [
        lambda k: -k,
        lambda k: k + k,
        lambda k: abs(k),
        lambda k: k.sum(),
        lambda k: tnp.maximum(k, k),
        lambda k: tnp.clip(k, k),
        lambda k: tnp.floor(k),
        lambda k: tnp.round(k),
        lambda k: tnp.isnan(k),
        lambda k: tnp.nan_to_num(k),
        lambda k: k.all(),
        lambda k: tnp.argmax(k),
        lambda k: tnp.cumsum(k),
        lambda k: tnp.sort(k),
        lambda k: k @ k,
        lambda k: tb.lax.conv(k.reshape(1, 1, 3), k.reshape(1, 1, 3), (1,), "SAME"),
        lambda k: tb.lax.reduce_max(k, (0,)),
        lambda k: tb.lax.clamp(k[0], k, k[0]),
        lambda k: tb.lax.convert_element_type(k, "uint32"),
        lambda k: tb.lax.bitcast_convert_type(k, "uint32"),
    ],
)
def test_keys_are_no_numbers(call: Any) -> None:
    """Nothing computes with keys as if their words were numbers."""
    for run in (call, tb.jit(call)):
        with pytest.raises(TypeError, match="key<fry>"):
            run(random.split(random.key(0), 3))


def test_arrays_to_write_keys_into() -> None:
    """Their words are all the same number; there are keys with the shape of others."""
    ks = random.split(random.key(0), 3)
    zero, one = [random.wrap_key_data(np.full(2, n, np.uint32)) for n in (0, 1)]

    for made in (tnp.zeros(2, ks.dtype), tnp.empty(2, ks.dtype), tb.lax.full((2,), 0, ks.dtype)):
        assert [True, True] == (made == zero).tolist()
    assert [True] * 3 == (tnp.zeros_like(ks) == zero).tolist()
    assert [True] * 3 == (tnp.ones_like(ks) == one).tolist()
    assert [True] * 3 == (tb.lax.full_like(ks, 1) == one).tolist()
    assert [True] * 3 == (tnp.full_like(ks, ks[1]) == ks[1]).tolist()
    filled = tb.jit(lambda k: tnp.empty_like(k).at[1].set(k[2]))(ks)
    assert [False, True, False] == (filled == ks[2]).tolist()


def test_keys_are_fetched_as_they_are() -> None:
    """NumPy has no keys; what is beside them comes to the host."""
    state = {"key": random.key(3), "step": tnp.zeros(2)}

    fetched: Any = tb.device_get(state)

    assert bool(state["key"] == fetched["key"])
    assert np.ndarray is type(fetched["step"])


def test_seeds_of_64_bits() -> None:
    """The longest seeds and data that there are, are taken."""
    for seed in (2**63 - 1, -(2**63)):
        random.key(seed)
    expected = random.fold_in(random.key(0), np.uint32(2**32 - 1))
    assert bool(expected == random.fold_in(random.key(0), 2**32 - 1))


def test_closed_over_keys() -> None:
    """A key is a constant of a program like any other array."""
    ks = random.split(random.key(0), 3)

    expected = random.uniform(ks[2])

    assert expected == tb.jit(lambda i: random.uniform(ks[i]))(2)
    assert expected == tb.jit(lambda x: x + random.uniform(ks[2]))(0.0)


def test_words_can_be_refused() -> None:
    """By samplers and what makes keys, at every call; typed keys never are."""
    words, key = random.PRNGKey(0), random.key(0)
    for use in (random.normal, random.split, lambda k: random.fold_in(k, 1)):
        with tb.legacy_prng_key("error"):
            use(key)
            with pytest.raises(ValueError, match="got words of a key"):
                use(words)
            with pytest.raises(ValueError, match="got words of a key"):
                tb.eval_shape(use, words)
        with tb.legacy_prng_key("warn"):
            use(key)
            for _ in range(2):
                with pytest.warns(UserWarning, match="tracebridge.random.key") as found:
                    use(words)
                assert found[0].filename == __file__


def test_typed_keys_by_the_old_name() -> None:
    """With an option PRNGKey makes typed keys."""
    with tb.enable_custom_prng():
        assert bool(random.key(3) == random.PRNGKey(3))
    assert "uint32" == random.PRNGKey(3).dtype


def test_keys_print_themselves_in_messages():
    """In format strings and in payloads of checks, also in branches, loops and maps."""
    keys = tb.random.split(tb.random.key(1))

    def checked(x, k):
        checkify.check(x > 0, "x={x} k={k}", x=x, k=k)
        return x

    assert f"{keys[0]}" == str(keys[0])
    for f in (
        checked,
        tb.jit(checked),
        lambda x, k: tb.lax.cond(x > 5, lambda x, k: x, checked, x, k),
        lambda x, k: tb.lax.fori_loop(0, 3, lambda i, c: checked(c - 1, k), x),
        lambda x, k: tb.vmap(checked, (None, 0))(x, k)[0],
    ):
        run = checkify.checkify(f)
        assert run(9.0, keys)[0].get() is None
        assert f"{tb.random.key_data(keys[0])}"[1:-1] in run(-1.0, keys)[0].get()


def test_arrays_without_axes_are_numbers_of_keys():
    """They have an iterator, and no elements to iterate over."""
    for count in (tnp.int32(3), np.array(3)):
        assert (3,) == tb.random.split(tb.random.key(0), count).shape
    assert (2,) == tb.random.normal(tb.random.key(0), np.array(2)).shape


def test_generators_of_users_are_given_back() -> None:
    """``key_impl`` of their keys is what made them, for another key or bare words."""
    spec = tb.extend.random.define_prng_impl(
        key_shape=(2,),
        seed=lambda number: tnp.full(2, 7, "uint32"),
        split=lambda words, shape: tnp.zeros((*shape, 2), "uint32"),
        random_bits=lambda words, width, shape: tnp.zeros(shape, f"uint{width}"),
        fold_in=lambda words, number: words,
    )
    key = random.key(3, impl=spec)

    assert spec is random.key_impl(key)
    assert [7, 7] == random.key_data(random.key(0, impl=random.key_impl(key))).tolist()
    assert key.dtype == random.wrap_key_data(random.key_data(key), impl=spec).dtype
