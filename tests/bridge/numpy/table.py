"""The systematic table of NumPy functions: what one line of it is, and how it is run.

A line ``case(names, letters, *args, **kwargs)`` gives one ``Case`` per name and per letter. An
argument that is a ``Spec`` stands for an array; the letters say which dtypes ``X`` arrays have.
The lines are in ``tests/bridge/numpy/tables``, one file per section of ``bridge/numpy``.
"""

from __future__ import annotations

import dataclasses
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tracebridge.numpy as tnp

DTYPES = {
    "f": np.dtype(np.float32),
    "i": np.dtype(np.int32),
    "u": np.dtype(np.uint8),
    "b": np.dtype(np.bool_),
    "c": np.dtype(np.complex64),
    "e": np.dtype(np.float16),
    "B": np.dtype(ml_dtypes.bfloat16),
}
# The 64-bit rule: what NumPy calculates in becomes its 32-bit form.
CANONICAL = {
    "float64": "float32",
    "int64": "int32",
    "uint64": "uint32",
    "complex128": "complex64",
    "longdouble": "float32",
}
WIDE = {"f": np.float64, "e": np.float64, "B": np.float64, "c": np.complex128}
# letter -> relative and absolute error: some roundings of the dtype, XLA's functions included.
TOLERANCE = {"f": 2e-5, "c": 2e-5, "e": 4e-3, "B": 3e-2, "i": 2e-6, "u": 2e-6, "b": 2e-6}


@dataclasses.dataclass(frozen=True)
class Spec:
    """An array argument: shape, letter of its dtype ("" for that of the case), range."""

    shape: tuple[int, ...]
    letter: str = ""
    low: float = -2.0
    high: float = 2.0
    values: Any = None
    distinct: bool = False

    def sample(self, letter: str, random: np.random.Generator) -> np.ndarray:
        """An array of this kind."""
        letter = self.letter or letter
        dtype = DTYPES[letter]
        if self.values is not None:
            with np.errstate(all="ignore"):
                return np.asarray(self.values).astype(dtype)
        if letter in "iu":
            low = max(0, self.low) if letter == "u" else self.low
            return random.integers(int(np.ceil(low)), int(self.high) + 1, self.shape).astype(dtype)
        if letter == "b":
            return random.integers(0, 2, self.shape).astype(bool)
        x = random.uniform(self.low, self.high, self.shape)
        if self.distinct:
            count = max(1, x.size)
            steps = np.linspace(self.low, self.high, count) + (self.high - self.low) / 7 / count
            x = random.permutation(steps)[: x.size].reshape(self.shape)
        if letter == "c":
            # Off the axes, where branch cuts are.
            sign = random.choice([-1.0, 1.0], self.shape)
            return (x + 1j * random.uniform(0.2, 1.0, self.shape) * sign).astype(dtype)
        return x.astype(dtype)


def X(*shape: int, low: float = -2.0, high: float = 2.0) -> Spec:
    """An array of the dtype of the case."""
    return Spec(shape, "", low, high)


def F(*shape: int, low: float = -2.0, high: float = 2.0) -> Spec:
    """A float32 array."""
    return Spec(shape, "f", low, high)


def D(*shape: int, low: float = -2.0, high: float = 2.0) -> Spec:
    """An array of the dtype of the case; floats keep a distance from each other."""
    return Spec(shape, "", low, high, distinct=True)


def I(*shape: int, low: int = -3, high: int = 3) -> Spec:  # noqa: E743 - short on purpose
    """An int32 array."""
    return Spec(shape, "i", low, high)


def U(*shape: int, low: int = 0, high: int = 255) -> Spec:
    """A uint8 array."""
    return Spec(shape, "u", low, high)


def M(*shape: int) -> Spec:
    """A mask."""
    return Spec(shape, "b")


def C(*shape: int) -> Spec:
    """A complex64 array."""
    return Spec(shape, "c")


def V(values: Any, letter: str = "") -> Spec:
    """An array of these numbers."""
    return Spec(np.shape(values), letter, values=values)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One call of one public function."""

    name: str
    letter: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reference: Callable[..., Any]
    derivative: bool
    traced: bool
    mapped: bool
    exact: bool
    weak: bool
    rtol: float | None
    number: int = 0

    def __str__(self) -> str:
        return f"{self.name}-{self.letter}-{self.number}"

    def arrays(self, row: int = 0) -> list[np.ndarray]:
        """The array arguments, in order; another ``row`` gives other numbers."""
        random = np.random.default_rng([zlib.crc32(str(self).encode()), row])
        return [s.sample(self.letter, random) for s in _specs((self.args, self.kwargs))]

    @property
    def operands(self) -> int:
        """How many of the arguments are arrays."""
        return len(_specs((self.args, self.kwargs)))

    def call(self, function: Callable[..., Any], arrays: Any) -> list[Any]:
        """The results of ``function`` on these arrays, as a flat list."""
        given = iter(arrays)
        args, kwargs = _fill((self.args, self.kwargs), given)
        return leaves(function(*args, **kwargs))

    def run(self, *arrays: Any) -> list[Any]:
        """The results of our function."""
        return self.call(getattr(tnp, self.name), arrays)

    def numpy(self, arrays: Any) -> list[Any]:
        """The results of the reference, without its warnings."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return [np.asarray(x) for x in self.call(self.reference, arrays)]

    def expected(self, arrays: Any) -> tuple[list[Any], list[Any]]:
        """The values (calculated in wide floats where that changes nothing), and the dtypes."""
        half = [x.astype(np.float16) if x.dtype == DTYPES["B"] else x for x in arrays]
        narrow = self.numpy(half)
        dtypes = [self._canonical(x.dtype) for x in narrow]
        if self.exact:
            return narrow, dtypes
        if self.letter in "bu" and any(x.dtype == np.float16 for x in narrow):
            return self.numpy([x.astype(np.int32) for x in arrays]), dtypes
        return self.numpy([widened(x) for x in arrays]), dtypes

    def _canonical(self, dtype: Any) -> Any:
        name = dtype.name
        if name == "float16":
            # NumPy gives bool and 8-bit integers a float of 16 bits; ours is the default float.
            name = {"b": "float32", "u": "float32", "B": "bfloat16"}.get(self.letter, name)
        return np.dtype(CANONICAL.get(name, name))


def widened(x: np.ndarray) -> np.ndarray:
    """Floats and complex numbers in 64 or 128 bits."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x.astype(np.float64) if x.dtype.kind in "fV" else x


def _specs(tree: Any) -> list[Spec]:
    if isinstance(tree, Spec):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [s for part in tree for s in _specs(part)]
    return []


def _fill(tree: Any, arrays: Any) -> Any:
    if isinstance(tree, Spec):
        return next(arrays)
    if isinstance(tree, dict):
        return {k: _fill(v, arrays) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)([_fill(v, arrays) for v in tree])
    return tree


def leaves(tree: Any) -> list[Any]:
    """The arrays of a result."""
    if isinstance(tree, list | tuple):
        return [x for part in tree for x in leaves(part)]
    return [tree]


def case(
    names: str,
    letters: str,
    *args: Any,
    ref: Any = None,
    grad: bool = False,
    traced: bool = True,
    mapped: bool = True,
    exact: bool = False,
    weak: bool = False,
    rtol: float | None = None,
    **kwargs: Any,
) -> list[Case]:
    """One case per name and letter.

    Args:
        names: public names, with spaces between them.
        letters: one dtype for ``X`` arguments per letter.
        *args: the arguments.
        ref: the reference: a function, or the name of NumPy's; by default of the same name.
        grad: check derivatives (for letters "f" and "c").
        traced: compare with the result under jit and vmap.
        mapped: also under vmap.
        exact: the values depend on the dtype, so the reference is not calculated in wide floats.
        weak: the results are weakly typed.
        rtol: relative and absolute tolerance.
        **kwargs: the keyword arguments.
    """
    found = []
    for name in names.split():
        reference = ref if callable(ref) else getattr(np, ref or name, None)
        assert reference is not None, f"NumPy has no {name}: give ref="
        for letter in letters:
            found.append(
                Case(
                    name, letter, args, kwargs, reference, grad and letter in "fc", traced,
                    mapped, exact, weak, rtol,
                )
            )  # fmt: skip
    return found


def numbered(cases: list[Case]) -> list[Case]:
    """Cases whose names differ."""
    seen: dict[tuple[str, str], int] = {}
    found = []
    for c in cases:
        key = (c.name, c.letter)
        seen[key] = seen.get(key, -1) + 1
        found.append(dataclasses.replace(c, number=seen[key]))
    return found
