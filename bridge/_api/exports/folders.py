"""A tree of arrays as a folder: a file for its structure, and a file for each part of an array.

A part is what a device holds. Processes write the parts that are theirs; any of them reads
whichever boxes of an array it needs, however the array was split when it was saved.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from tracebridge.core.dtypes.dtypes import as_dtype
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.runtime_errors import ProcessesError
from tracebridge.core.runtime.processes.connection import connection

FORMAT = 1
WITH_KEYS = 2  # the format of trees with random keys, which the first one did not have
_STRUCTURE = "tree.json"
_SECONDS = 1200
_SAVES = itertools.count()

Box = tuple[tuple[int, int], ...]
"""From where to where, along each axis."""


class Leaf(NamedTuple):
    """Shape and dtype of an array of the tree; ``generator``: of words that are random keys."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    generator: str | None = None


class Part(NamedTuple):
    """A box of the array of a number, in host memory."""

    number: int
    box: Box
    data: np.ndarray[Any, Any]


def box_of(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """The box of slices without steps."""
    return tuple([s.indices(n)[:2] for s, n in zip(index, shape, strict=True)])


def _sizes(box: Box) -> tuple[int, ...]:
    return tuple([max(stop - start, 0) for start, stop in box])


def _file_name(box: Box) -> str:
    return (",".join([f"{start}-{stop}" for start, stop in box]) or "number") + ".npy"


def _box_of_file(name: str) -> Box:
    text = name.removesuffix(".npy")
    if text == "number":
        return ()
    edges = [side.split("-") for side in text.split(",")]
    return tuple([(int(start), int(stop)) for start, stop in edges])


# writing -----------------------------------------------------------------------------------------


@final
class FolderWriter:
    """One call of ``save``; made by all processes in the same order, which gives it its number.

    Nothing is seen in the folder before all is written: it grows beside it, under another name.
    """

    def __init__(self, directory: Path, overwrite: bool) -> None:
        self.directory = directory
        self.growing = directory.with_name(directory.name + ".saving")
        self._number = next(_SAVES)
        self._others = connection()
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            if not overwrite:
                msg = f"save: {directory} exists"
                raise ExportError(msg, hint="give overwrite=True, or another folder")
            if not (directory / _STRUCTURE).is_file():
                msg = f"save: {directory} holds something else than a saved tree"
                raise ExportError(msg, hint="give an empty folder, or a new one")

    def write(self, structure: Any, leaves: Sequence[Leaf], parts: Sequence[Part]) -> None:
        """Write the parts of this process; return when those of all are in place."""
        first = self._others is None or self._others.index == 0
        self._meet("checked")
        if first:
            shutil.rmtree(self.growing, ignore_errors=True)
            self.growing.mkdir(parents=True)
        self._meet("begun")
        for part in parts:
            file = self.growing / str(part.number) / _file_name(part.box)
            file.parent.mkdir(exist_ok=True)
            # NumPy's files know only NumPy's dtypes; that of the array is in the structure.
            np.save(file, _as_bits(part.data), allow_pickle=False)
        self._meet("written")
        with contextlib.ExitStack() as at_last:
            at_last.callback(self._meet, "done")
            if first:
                self._finish(structure, leaves)

    def _finish(self, structure: Any, leaves: Sequence[Leaf]) -> None:
        for number, leaf in enumerate(leaves):
            found = sum([math.prod(_sizes(box)) for _, box in _files(self.growing / str(number))])
            if found != math.prod(leaf.shape):
                msg = f"save: {found} of {math.prod(leaf.shape)} elements of array {number} arrived"
                raise ExportError(msg, hint="save to a folder that all processes share")
        described = [_described(leaf) for leaf in leaves]
        version = WITH_KEYS if any([leaf.generator for leaf in leaves]) else FORMAT
        text = json.dumps({"format": version, "tree": structure, "leaves": described})
        (self.growing / _STRUCTURE).write_text(text)
        old = self.directory.with_name(self.directory.name + ".old")
        if self.directory.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.directory.rename(old)
        self.growing.rename(self.directory)
        shutil.rmtree(old, ignore_errors=True)

    def _meet(self, point: str) -> None:
        """Wait for the other processes; by messages, as a thread may not start collectives."""
        if self._others is None:
            return
        name = f"tracebridge save {self._number} {point}"
        try:
            self._others.client.wait_at_barrier(name, _SECONDS * 1000)
        except RuntimeError as error:
            msg = f"save: the processes did not meet when {self.directory} was {point}"
            raise ProcessesError(msg, hint="save in all processes, in the same order") from error


def _described(leaf: Leaf) -> list[Any]:
    described = [list(leaf.shape), leaf.dtype.name]
    return described if leaf.generator is None else [*described, leaf.generator]


def _as_bits(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if data.dtype.kind in "biufc" and data.dtype.isbuiltin == 1:
        return data
    return np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}").reshape(data.shape)


# reading -----------------------------------------------------------------------------------------


def read_structure(directory: Path) -> tuple[Any, list[Leaf]]:
    """The structure as JSON, and the arrays' shapes and dtypes.

    Raises:
        ExportError: the folder is none that ``save`` wrote, or of a later version.
    """
    try:
        saved = json.loads((directory / _STRUCTURE).read_text())
    except (OSError, ValueError) as error:
        msg = f"load: {os.fspath(directory)} holds no saved tree: {error}"
        raise ExportError(msg, hint="give the folder that save was given") from error
    if saved["format"] not in (FORMAT, WITH_KEYS):
        msg = f"load: {directory} is of format {saved['format']}, expected {FORMAT} or {WITH_KEYS}"
        raise ExportError(msg, hint="use the version that wrote it, or a later one")
    leaves = [
        Leaf(tuple(shape), _dtype(name), *generator) for shape, name, *generator in saved["leaves"]
    ]
    return saved["tree"], leaves


def _dtype(name: str) -> np.dtype[Any]:
    dtype = as_dtype(name)
    assert isinstance(dtype, np.dtype)  # only such arrays are saved
    return dtype


def read_box(directory: Path, number: int, leaf: Leaf, box: Box) -> np.ndarray[Any, Any]:
    """A box of an array, from the files that have some of it.

    Raises:
        ExportError: files are missing or damaged.
    """
    out = np.empty(_sizes(box), leaf.dtype)
    read = 0
    for file, other in _files(directory / str(number)):
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True)]
        if any([start >= stop for start, stop in common]):
            continue
        from_file = tuple(
            [slice(a - o, b - o) for (a, b), (o, _) in zip(common, other, strict=True)]
        )
        into = tuple([slice(a - o, b - o) for (a, b), (o, _) in zip(common, box, strict=True)])
        try:
            saved = np.load(file, mmap_mode="r", allow_pickle=False)
            out[into] = np.asarray(saved[from_file]).view(leaf.dtype)
        except (OSError, ValueError, IndexError) as error:
            raise ExportError(f"load: {file} is damaged: {error}") from error
        read += math.prod(_sizes(tuple(common)))
    if read != out.size:
        missing = f"{out.size - read} of {out.size} elements are missing"
        msg = f"load: {missing} in {directory / str(number)}"
        raise ExportError(msg, hint="save again")
    return out


def _files(folder: Path) -> Iterator[tuple[Path, Box]]:
    for file in sorted(folder.glob("*.npy")):
        yield file, _box_of_file(file.name)
