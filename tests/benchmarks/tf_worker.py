"""The figures of one way into TensorFlow, as JSON: run by tf_calls.py in a process of its own.

python tests/benchmarks/tf_worker.py native|tracebridge|jax
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

LAYERS, WIDTH, STEPS = 100, 128, 50
THREADS, REQUESTS, ROUNDS = 8, 100, 5
WARM_UP = 5
TURNS = "in turns: "  # before the names of ratios that are measured in one process
Figures = dict[str, float]


def best(run: Callable[[], Any], seconds: float = 0.5) -> float:
    """Microseconds of the fastest of many calls."""
    for _ in range(3):
        run()
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - start)
    return 1e6 * found


# The functions, in TensorFlow's own operations and in NumPy's -------------------------------------


def native(sizes: str | None) -> dict[str, Callable[..., Any]]:
    """By TensorFlow alone."""
    del sizes

    def layer(x: Any, w: Any, b: Any) -> Any:
        return tf.tanh(x @ w) + b

    def norm(x: Any, w: Any, b: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * w[0] + b

    def recurrence(x: Any, w: Any, b: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            return tf.tanh(h @ w + b)

        return tf.scan(step, tf.zeros(STEPS), initializer=x)[-1]

    def deep(x: Any, *ws: Any) -> Any:
        for w in ws:
            x = tf.tanh(x @ w)
        return x

    return {"layer": layer, "norm": norm, "recurrence": recurrence, "deep": deep}


def exported(package: str, sizes: str | None) -> dict[str, Callable[..., Any]]:
    """By a library's exporter; ``sizes``: of the first argument, where it may vary."""
    xp = importlib.import_module(f"{package}.numpy")
    lax = importlib.import_module(f"{package}.lax")
    if package == "jax":
        convert = importlib.import_module("jax.experimental.jax2tf").convert
    else:
        convert = importlib.import_module("tracebridge.tf").to_tf

    def layer(x: Any, w: Any, b: Any) -> Any:
        return xp.tanh(x @ w) + b

    def norm(x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = xp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * w[0] + b

    def recurrence(x: Any, w: Any, b: Any) -> Any:
        return lax.scan(lambda h, _: (xp.tanh(h @ w + b), None), x, None, STEPS)[0]

    def deep(x: Any, *ws: Any) -> Any:
        for w in ws:
            x = xp.tanh(x @ w)
        return x

    def converted(f: Callable[..., Any], n_args: int) -> Any:
        shapes = None if sizes is None else [sizes, *[None] * (n_args - 1)]
        return convert(f, polymorphic_shapes=shapes)

    functions = {"layer": layer, "norm": norm, "recurrence": recurrence}
    return {
        **{name: converted(f, 3) for name, f in functions.items()},
        "deep": converted(deep, 1 + LAYERS),
    }


# The figures -------------------------------------------------------------------------------------


def tensors(n: int) -> list[Any]:
    """Arguments of a layer of ``n`` x ``n``."""
    rng = np.random.default_rng(0)
    shapes = (n, n), (n, n), (n,)
    return [tf.constant(0.1 * rng.standard_normal(s).astype(np.float32)) for s in shapes]


def gradient_of(f: Callable[..., Any], watched: int) -> Callable[..., Any]:
    """The gradient of the sum of the squares of results with respect to the first arguments."""

    def run(*xs: Any) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(xs[:watched])
            loss = tf.reduce_sum(tf.square(f(*xs)))
        return tape.gradient(loss, xs[:watched])

    return run


def of_layer(f: Callable[..., Any], n: int) -> dict[str, Callable[[], Any]]:
    """Calls of a layer of ``n`` x ``n``, eager and in graphs."""
    xs, all_of, one_of = tensors(n), gradient_of(f, 3), gradient_of(f, 1)
    runs = {
        "eager": f,
        "tf.function": tf.function(f),
        "eager gradient": all_of,
        "gradient in tf.function": tf.function(all_of),
        "gradient of one input in tf.function": tf.function(one_of),
        "gradient, the tape outside of tf.function": gradient_of(tf.function(f), 3),
    }
    return {f"{n}x{n} layer, {name}": functools.partial(run, *xs) for name, run in runs.items()}


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float = 2.0) -> float:
    """The median ratio of the times of two calls that follow each other.

    Other work on the machine and its frequency change times twofold from one process to the next.
    """
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ratios) < WARM_UP + 3:
        times: list[float] = []
        for run in (theirs, ours):
            run()
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    return float(np.median(ratios[WARM_UP:]))


def turns(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Figures:
    """The ratios to TensorFlow's own operations, in one process."""
    found: Figures = {}
    for n in (8, 512):
        native_runs = of_layer(theirs, n)
        for name, run in of_layer(ours, n).items():
            found[f"{TURNS}{name}"] = in_turns(run, native_runs[name])
    return found


def calls(functions: dict[str, Callable[..., Any]]) -> Figures:
    """Values and gradients, eager and in graphs."""
    figures: Figures = {}
    for n in (8, 512):
        for name, run in of_layer(functions["layer"], n).items():
            figures[name] = best(run)
    for name, n in (("norm", 1024), ("recurrence", 64)):
        xs = tensors(n)
        for kind, run in (("", functions[name]), (", gradient", gradient_of(functions[name], 3))):
            graph = tf.function(run)
            figures[f"{n}x{n} {name}{kind} in tf.function"] = best(lambda f=graph, xs=xs: f(*xs))
    return figures


def first_calls(functions: dict[str, Callable[..., Any]]) -> Figures:
    """From a new function to a gradient: tracing, lowering, compiling."""
    found: Figures = {}
    for n in (48, 56):  # the first warms TensorFlow up
        xs = tensors(n)
        run = tf.function(gradient_of(functions["layer"], 3))
        start = time.perf_counter()
        run(*xs)
        found["first gradient in tf.function"] = 1e6 * (time.perf_counter() - start)
    return found


class Deep(tf.Module):
    """A hundred layers with their weights."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        scale = WIDTH**-0.5
        self.weights = [
            tf.Variable(scale * rng.standard_normal((WIDTH, WIDTH)).astype(np.float32))
            for _ in range(LAYERS)
        ]
        self.f = f

    @tf.function(input_signature=[tf.TensorSpec((None, WIDTH), tf.float32)])
    def __call__(self, x: Any) -> Any:
        return self.f(x, *self.weights)


def files(functions: dict[str, Callable[..., Any]]) -> Figures:
    """A SavedModel of many layers with a batch of any size: written, loaded, served."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        tf.saved_model.save(Deep(functions["deep"]), folder)
        saved = time.perf_counter()
        size = sum([p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()])
        weights = 4 * LAYERS * WIDTH**2
        # A collection of garbage in the middle would look at all that made the file.
        gc.collect()
        gc.freeze()
        loaded_at = time.perf_counter()
        model = tf.saved_model.load(folder)
        loaded = time.perf_counter()
        model(tf.ones((3, WIDTH)))
        called = time.perf_counter()
        return {
            f"{LAYERS} layers: save": 1e6 * (saved - start),
            f"{LAYERS} layers: KB beside the weights": (size - weights) / 1024,
            f"{LAYERS} layers: load": 1e6 * (loaded - loaded_at),
            f"{LAYERS} layers: first call after loading": 1e6 * (called - loaded),
            **served(model),
        }


def served(model: Any) -> Figures:
    """Requests of several sizes by several threads at once, after each size was warmed up.

    The best of several rounds: threads of XLA and of TensorFlow hinder each other by chance.
    """
    batches = [tf.ones((n, WIDTH)) for n in (1, 2, 3, 5, 8, 13, 21, 32)]
    for x in batches:
        model(x)
    rounds = [requests(model, batches) for _ in range(ROUNDS)]
    return {name: min([figures[name] for figures in rounds]) for name in rounds[0]}


def requests(model: Any, batches: list[Any]) -> Figures:
    """One round: all clients send their requests."""
    times: list[float] = []

    def client(k: int) -> None:
        for i in range(REQUESTS):
            start = time.perf_counter()
            model(batches[(i + k) % len(batches)]).numpy()
            times.append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = time.perf_counter() - start
    times.sort()
    where = f"served to {THREADS} threads"
    return {
        f"{where}: time per request": 1e6 * total / len(times),
        f"{where}: median latency": 1e6 * times[len(times) // 2],
        f"{where}: latency of the slowest 1 %": 1e6 * times[int(0.99 * len(times))],
    }


def main(way: str) -> None:
    """Measure and print."""
    fixed = native(None) if way == "native" else exported(way, None)
    varying = native(None) if way == "native" else exported(way, "(b, _)")
    found = {**first_calls(fixed), **calls(fixed), **files(varying)}
    if way == "tracebridge":
        found.update(turns(fixed["layer"], native(None)["layer"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
