"""Programs and their StableHLO, compared with recorded texts; --update-golden rewrites them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax

FOLDER = Path(__file__).parent
X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.ones((3, 3), np.float32)


def loss(w: Any, x: Any) -> Any:
    """A layer and its mean square."""
    y = lax.tanh(lax.dot_general(x, w, (((1,), (0,)), ((), ()))))
    return lax.reduce_sum(lax.mul(y, y), (0, 1))


def chain(x: Any) -> Any:
    """Elementwise operations with numbers."""
    return lax.sub(lax.mul(lax.exp(lax.neg(x)), 2.0), lax.log(lax.add(x, 1.0)))


def tree(t: Any) -> Any:
    """A tree in, a tree out, a constant, an unused input."""
    return {"sum": lax.add(t["a"], t["b"][0]), "three": 3}


def counted(x: Any) -> Any:
    """A scan over rows."""
    return lax.scan(lambda c, row: (lax.add(c, row), lax.mul(c, 2.0)), x[0], x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (chain, (X,)),
    "tree": (tree, ({"a": X, "b": (X, 1)},)),
    "call": (lambda x: tb.jit(chain)(tb.jit(chain)(x)), (X,)),
    "loss": (loss, (W, X)),
    "grad_of_loss": (tb.grad(loss), (W, X)),
    "grad_of_call": (tb.grad(lambda w, x: tb.jit(loss)(w, x)), (W, X)),
    "jvp_of_chain": (lambda x: tb.jvp(chain, (x,), (x,)), (X,)),
    "vmap_of_loss": (tb.vmap(loss, in_axes=(None, 1)), (W, np.stack([X, X], 1))),
    "vmap_of_grad": (tb.vmap(tb.grad(loss), in_axes=(None, 1)), (W, np.stack([X, X], 1))),
    "hessian": (tb.hessian(lambda x: lax.mul(lax.sin(x), x)), (1.0,)),
    "jacrev": (tb.jacrev(lax.sin), (X[0],)),
    "cond": (lambda p, x: lax.cond(p, lax.sin, lax.cos, x), (True, X)),
    "scan": (counted, (X,)),
    "grad_of_scan": (tb.grad(lambda x: lax.reduce_sum(counted(x)[1], (0, 1))), (X,)),
    "linear_transpose": (
        lambda x: tb.linear_transpose(lambda y: lax.mul(lax.reduce_sum(y, (0,)), 3.0), X)(x),
        (X[0],),
    ),
}


def compare(file: Path, actual: str, update: bool) -> None:
    """The text of the file, or a new file."""
    if update:
        file.parent.mkdir(exist_ok=True)
        file.write_text(actual, encoding="utf-8")
        return
    assert file.exists(), f"{file.name} is not recorded; run pytest --update-golden"
    assert file.read_text(encoding="utf-8") == actual


@pytest.mark.parametrize("name", CASES)
def test_program(name: str, update_golden: bool) -> None:
    """The Jaxpr of each transformation is the recorded one."""
    f, args = CASES[name]

    compare(FOLDER / "jaxpr" / f"{name}.txt", f"{tb.make_jaxpr(f)(*args)}\n", update_golden)


@pytest.mark.parametrize(
    "name", ["chain", "tree", "call", "loss", "grad_of_loss", "vmap_of_grad", "cond", "scan"]
)
def test_lowering(name: str, update_golden: bool) -> None:
    """The StableHLO of each program is the recorded one."""
    f, args = CASES[name]

    text = tb.jit(f).lower(*args, lowering_platforms=("cpu",)).as_text()
    compare(FOLDER / "stablehlo" / f"{name}.mlir", text, update_golden)


def test_no_recorded_file_is_left_over() -> None:
    """Each file belongs to a case."""
    recorded = {p.stem for p in FOLDER.glob("*/*") if p.suffix in (".txt", ".mlir")}

    assert recorded <= set(CASES)
