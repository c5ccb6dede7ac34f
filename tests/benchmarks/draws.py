"""Cases of random numbers and selection: where XLA is slow on the CPU, and where it does well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
from api import width

Program = Callable[..., Any]
Add = Callable[[str, str], Callable[[Any], Any]]
WEAK, STRONG = "random numbers and selection", "random numbers and selection, where XLA does well"
SIZE, MANY = 1_000_000, 100_000
RANDOM = onp.random.default_rng(0)

# name -> program of (numpy, lax, random) and the key or the arrays; " f64" asks for 64 bits.
DRAWS: dict[str, Program] = {
    "bits": lambda r, k: r.bits(k, (SIZE,)),
    "uniform": lambda r, k: r.uniform(k, (SIZE,)),
    "normal": lambda r, k: r.normal(k, (SIZE,)),
    "randint": lambda r, k: r.randint(k, (SIZE,), 0, 1000),
    "permutation of 1e5": lambda r, k: r.permutation(k, MANY),
    "choice of 1000 of 1e5": lambda r, k: r.choice(k, MANY, (1000,), replace=False),
    "gamma 1e5": lambda r, k: r.gamma(k, 2.5, (MANY,)),
    "gamma of a small shape 1e5": lambda r, k: r.gamma(k, 0.3, (MANY,)),
    "uniform f64": lambda r, k: r.uniform(k, (SIZE,)),
    "normal f64": lambda r, k: r.normal(k, (SIZE,)),
    "permutation of 1e5 f64": lambda r, k: r.permutation(k, onp.linspace(0.0, 1.0, MANY)),
    "gamma f64 1e5": lambda r, k: r.gamma(k, 2.5, (MANY,)),
    "beta 1e5": lambda r, k: r.beta(k, 2.0, 3.0, (MANY,)),
    "poisson of rate 3, 1e5": lambda r, k: r.poisson(k, 3.0, (MANY,)),
    "poisson of rate 100, 1e5": lambda r, k: r.poisson(k, 100.0, (MANY,)),
    "binomial of 100 trials, 1e5": lambda r, k: r.binomial(k, 100, 0.4, (MANY,)),
}
SELECTIONS: dict[str, tuple[Program, tuple[onp.ndarray[Any, Any], ...]]] = {
    "top_k f64": (lambda np, lax, x: lax.top_k(x, 10), (RANDOM.standard_normal(SIZE),)),
    "top_k of 100 f64": (lambda np, lax, x: lax.top_k(x, 100), (RANDOM.standard_normal(SIZE),)),
    "top_k int32": (
        lambda np, lax, x: lax.top_k(x, 10),
        (RANDOM.integers(0, 2**30, SIZE, dtype=onp.int32),),
    ),
    "argsort f64 1e5": (lambda np, lax, x: np.argsort(x), (RANDOM.standard_normal(MANY),)),
    "nonzero": (
        lambda np, lax, x: np.nonzero(x > 0, size=SIZE // 2),
        (RANDOM.standard_normal(SIZE).astype("f"),),
    ),
    "compress": (
        lambda np, lax, x: np.compress(x > 0, x, size=SIZE // 2),
        (RANDOM.standard_normal(SIZE).astype("f"),),
    ),
    "unique 1e5": (
        lambda np, lax, x: np.unique(x, size=1000),
        (RANDOM.integers(0, 1000, MANY, dtype=onp.int32),),
    ),
    "erf f64": (lambda np, lax, x: lax.erf(x), (RANDOM.standard_normal(SIZE),)),
}
WELL: dict[str, tuple[Program, tuple[onp.ndarray[Any, Any], ...]]] = {
    "top_k": (
        lambda np, lax, x: lax.top_k(x, 10),
        (RANDOM.standard_normal(SIZE).astype("f"),),
    ),
    "erf": (lambda np, lax, x: lax.erf(x), (RANDOM.standard_normal(SIZE).astype("f"),)),
    "take": (
        lambda np, lax, x, i: np.take(x, i),
        (RANDOM.standard_normal(SIZE).astype("f"), RANDOM.permutation(SIZE).astype("i")),
    ),
}


def _draw(name: str, program: Program) -> Any:
    def make(api: Any) -> Any:
        random = api.root.random
        f, key = api.jit(lambda k: program(random, k)), random.key(0)

        def run() -> None:
            with width(api, name):
                api.block(f(key))

        return run, 3

    return make


def _select(name: str, program: Program, arrays: tuple[onp.ndarray[Any, Any], ...]) -> Any:
    def make(api: Any) -> Any:
        with width(api, name):
            args = [api.np.asarray(x) for x in arrays]
        f = api.jit(lambda *xs: program(api.np, api.lax, *xs))

        def run() -> None:
            with width(api, name):
                api.block(f(*args))

        return run, 3

    return make


def register(add: Add) -> None:
    """Give the cases to the table."""
    for name, program in DRAWS.items():
        add(WEAK, name)(_draw(name, program))
    logits = RANDOM.standard_normal((MANY, 10)).astype("f")

    @add(WEAK, "categorical of 10, 1e5")
    def _categorical(api: Any) -> Any:
        x, key = api.np.asarray(logits), api.root.random.key(0)
        f = api.jit(api.root.random.categorical)
        return lambda: api.block(f(key, x)), 3

    for group, table in ((WEAK, SELECTIONS), (STRONG, WELL)):
        for name, (program, arrays) in table.items():
            add(group, name)(_select(name, program, arrays))
