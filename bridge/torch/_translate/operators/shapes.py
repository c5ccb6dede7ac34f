"""Operators that make, move, cut and join arrays."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.torch._translate.numbers import (
    Operator,
    as_numpy_dtype,
    axis_of,
    cast,
    dtype_of_number,
    promoted,
)

# making ---------------------------------------------------------------------------------------


def _full(
    size: Sequence[Any], value: object, *, dtype: torch.dtype | None = None, **_: object
) -> Any:
    kind = as_numpy_dtype(dtype_of_number(value) if dtype is None else dtype)
    return tnp.broadcast_to(cast(value, kind), tuple(size))


def _filled(value: int) -> Operator:
    return lambda size, *, dtype=None, **_: _full(size, value, dtype=_default(dtype))


def _default(dtype: Any) -> Any:
    return dtype_of_number(1.0) if dtype is None else dtype


def _full_like(x: Value, value: object, *, dtype: torch.dtype | None = None, **_: object) -> Any:
    kind = x.dtype if dtype is None else as_numpy_dtype(dtype)
    return tnp.broadcast_to(cast(value, kind), x.shape)


def _filled_like(value: int) -> Operator:
    return lambda x, *, dtype=None, **_: _full_like(x, value, dtype=dtype)


def _new_full(
    x: Value, size: Sequence[Any], value: object, *, dtype: torch.dtype | None = None, **_: object
) -> Any:
    kind = x.dtype if dtype is None else as_numpy_dtype(dtype)
    return tnp.broadcast_to(cast(value, kind), tuple(size))


def _new_filled(value: int) -> Operator:
    return lambda x, size, *, dtype=None, **_: _new_full(x, size, value, dtype=dtype)


def _arange(
    start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **_: object
) -> Any:
    if dtype is None:
        floats = any([isinstance(v, float) for v in (start, end, step)])
        dtype = dtype_of_number(1.0 if floats else 1)
    kind = as_numpy_dtype(dtype)
    if all([isinstance(v, int | float) for v in (start, end, step)]):
        return tnp.asarray(np.arange(start, end, step).astype(kind))
    return cast(tnp.arange(start, end, step), kind)


def _window(target: Operator) -> Operator:
    """Factors of a fixed size, which torch computes when the program is made."""

    def run(*args: Any, dtype: torch.dtype | None = None, **_: object) -> Any:
        return torch_adapter.import_(target(*args, dtype=dtype, device="cpu"))

    return run


_WINDOWS: Final = {
    f"{kind}_window.{overload}": _window(getattr(torch.ops.aten, f"{kind}_window"))
    for kind, overloads in (
        ("bartlett", ("default", "periodic")),
        ("blackman", ("default", "periodic")),
        ("hamming", ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")),
        ("kaiser", ("default", "periodic", "beta")),
    )
    for overload in overloads
}


def _frequencies(fun: Operator) -> Operator:
    def run(n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: object) -> Any:
        return fun(n, d, dtype=as_numpy_dtype(dtype))

    return run


def _bits(x: Value, dtype: torch.dtype) -> Any:
    return x.view(as_numpy_dtype(dtype))


def _permute(x: Value, dims: Sequence[int]) -> Any:
    return tnp.transpose(x, tuple(dims))


def _scalar_tensor(value: object, *, dtype: torch.dtype | None = None, **_: object) -> Any:
    return tnp.asarray(cast(value, as_numpy_dtype(dtype)))


# moving ---------------------------------------------------------------------------------------


def _view(x: Value, size: Sequence[Any]) -> Any:
    return tnp.reshape(x, tuple(size))


def _expand(x: Value, size: Sequence[Any], *, implicit: bool = False) -> Any:
    new = len(size) - x.ndim
    sizes = [x.shape[i - new] if isinstance(n, int) and n == -1 else n for i, n in enumerate(size)]
    return tnp.broadcast_to(x, tuple(sizes))


def _transpose(x: Value, first: int, second: int) -> Any:
    return tnp.swapaxes(x, first, second) if x.ndim else x


def _squeeze(x: Value, axes: Any = None) -> Any:
    if axes is None:
        axes = range(x.ndim)
    elif isinstance(axes, int):
        axes = [axes]
    gone = [axis_of(a, x.ndim) for a in axes]
    gone = [a for a in gone if a < x.ndim and isinstance(x.shape[a], int) and x.shape[a] == 1]
    return tnp.squeeze(x, tuple(gone)) if gone else x


def _flip(x: Value, axes: Sequence[int]) -> Any:
    return tnp.flip(x, tuple(axes)) if axes else x


def _roll(x: Value, shifts: Any, axes: Sequence[int] = ()) -> Any:
    shifts = shifts if isinstance(shifts, int) else tuple(shifts)
    if not axes:
        return tnp.roll(x, shifts[0] if isinstance(shifts, tuple) else shifts)
    return tnp.roll(x, shifts, tuple(axes))


def _repeat(x: Value, repeats: Sequence[Any]) -> Any:
    return tnp.tile(x, tuple(repeats))


def _diagonal(x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return tnp.diagonal(x, offset, dim1, dim2)


def _triangle(fun: Operator) -> Operator:
    return lambda x, diagonal=0: fun(x, diagonal)


def _as_strided(
    x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Elements by their places in memory, which is dense: graphs have no other layouts."""
    places = np.full((), storage_offset or 0)
    for n, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n) * step
    return tnp.reshape(x, (-1,))[places]


# cutting and joining --------------------------------------------------------------------------


def _slice(x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[slice_index(x, dim, start, end, step)]


def _narrow(x: Value, dim: int, start: Any, length: Any) -> Any:
    if isinstance(start, int) and start < 0:
        start += x.shape[dim]
    return _slice(x, dim, start, start + length)


def slice_index(x: Value, dim: int, start: Any, end: Any, step: int) -> tuple[slice, ...]:
    """The index of a slice along one axis; ends beyond the array are none."""
    if isinstance(end, int) and end >= sys.maxsize:
        end = None
    if isinstance(start, int) and start == 0:
        start = None
    return (slice(None),) * axis_of(dim, x.ndim) + (slice(start, end, step),)


def slice_from(
    x: Value, dim: int = 0, start: Any = 0, end: Any = None, step: int = 1, *, size: Sequence[Any]
) -> Any:
    """A slice that begins where a value says; torch knows its size."""
    del end
    axis = axis_of(dim, x.ndim)
    places = tnp.asarray(0 if start is None else start) + tnp.arange(size[axis]) * step
    return tnp.take(x, places, axis=axis)


def _resize(x: Value, size: Sequence[Any], **_: object) -> Any:
    """The elements in another shape; those that there were not are 0."""
    wanted, flat = math.prod(size), tnp.reshape(x, (-1,))
    more = wanted - flat.shape[0]
    flat = tnp.pad(flat, (0, more)) if more > 0 else flat[:wanted]
    return tnp.reshape(flat, tuple(size))


def _item(x: Value) -> Any:
    """The one element: as an array, which takes part in what follows like a number."""
    return lax.stop_gradient(tnp.reshape(x, ()))


def _select(x: Value, dim: int, index: Any) -> Any:
    if isinstance(index, int):
        return lax.index_in_dim(x, index, axis_of(dim, x.ndim), keepdims=False)
    return tnp.take(x, tnp.asarray(index), axis=axis_of(dim, x.ndim))


def _split_with_sizes(x: Value, sizes: Sequence[Any], dim: int = 0) -> list[Any]:
    parts: list[Any] = []
    start: Any = 0
    for size in sizes:
        parts.append(lax.slice_in_dim(x, start, start + size, axis=axis_of(dim, x.ndim)))
        start += size
    return parts


def _split(x: Value, size: Any, dim: int = 0) -> list[Any]:
    total = x.shape[axis_of(dim, x.ndim)]
    count = max(-(-total // size), 1) if size else 1
    sizes = [size] * (count - 1)
    return _split_with_sizes(x, [*sizes, total - size * (count - 1)], dim)


def _unbind(x: Value, dim: int = 0) -> list[Any]:
    return [_select(x, dim, i) for i in range(x.shape[axis_of(dim, x.ndim)])]


def _cat(xs: Sequence[Any], dim: int = 0) -> Any:
    # Empty arrays of one axis join with anything.
    kept = [x for x in xs if not (x.ndim == 1 and isinstance(x.shape[0], int) and x.shape[0] == 0)]
    return tnp.concatenate(promoted(*(kept or xs)), axis=axis_of(dim, (kept or xs)[0].ndim))


def _stack(xs: Sequence[Any], dim: int = 0) -> Any:
    return tnp.stack(promoted(*xs), axis=dim)


def _pad(x: Value, pad: Sequence[Any], value: Any = 0) -> Any:
    """Widths come in pairs from the last axis on; negative ones cut."""
    config = [(0, 0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        config[x.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return lax.pad(x, cast(value, x.dtype), config)


def padded_by(mode: str) -> Operator:
    """Padding with elements of the array: ``"reflect"`` or ``"edge"``."""

    def run(x: Value, pad: Sequence[int]) -> Any:
        cut: list[Any] = [slice(None)] * x.ndim
        widths = [(0, 0)] * x.ndim
        for i in range(len(pad) // 2):
            axis, (low, high) = x.ndim - 1 - i, pad[2 * i : 2 * i + 2]
            widths[axis] = (max(low, 0), max(high, 0))
            full = x.shape[axis] + widths[axis][0] + widths[axis][1]
            cut[axis] = slice(max(-low, 0), full - max(-high, 0))
        # Cut last: what one side loses is still mirrored on the other.
        return tnp.pad(x, widths, mode=mode)[tuple(cut)]

    return run


def _numel(x: Value) -> Any:
    return math.prod(x.shape)


def _places_in_triangle(fun: Any) -> Operator:
    """Rows and columns of the elements of a triangle."""

    def run(row: int, col: int, offset: int = 0, *, dtype: Any = None, **_: object) -> Any:
        places = np.stack(fun(row, offset, col))
        return tnp.asarray(places.astype(as_numpy_dtype(dtype or torch.int64)))

    return run


ROWS: Final[dict[str, Operator]] = {
    "_local_scalar_dense.default": _item,
    "_unsafe_view.default": _view,
    "tril_indices.default": _places_in_triangle(np.tril_indices),
    "triu_indices.default": _places_in_triangle(np.triu_indices),
    **_WINDOWS,
    "fft_fftfreq.default": _frequencies(tnp.fft.fftfreq),
    "fft_rfftfreq.default": _frequencies(tnp.fft.rfftfreq),
    "view.dtype": _bits,
    "arange.default": lambda end, **kw: _arange(0, end, **kw),
    "arange.start": _arange,
    "arange.start_step": _arange,
    "as_strided.default": _as_strided,
    "as_strided_copy.default": _as_strided,
    "cat.default": _cat,
    "constant_pad_nd.default": _pad,
    "diagonal.default": _diagonal,
    "empty.memory_format": _filled(0),
    "empty_like.default": _filled_like(0),
    "empty_permuted.default": lambda size, order, **kw: _filled(0)(size, **kw),
    "empty_strided.default": lambda size, stride, **kw: _filled(0)(size, **kw),
    "expand.default": _expand,
    "fill.Scalar": _full_like,
    "fill.Tensor": _full_like,
    "flip.default": _flip,
    "full.default": _full,
    "full_like.default": _full_like,
    "new_empty.default": _new_filled(0),
    "new_empty_strided.default": lambda x, size, stride, **kw: _new_filled(0)(x, size, **kw),
    "new_full.default": _new_full,
    "new_ones.default": _new_filled(1),
    "new_zeros.default": _new_filled(0),
    "ones.default": _filled(1),
    "ones_like.default": _filled_like(1),
    "narrow_copy.default": _narrow,
    "permute.default": _permute,
    "permute_copy.default": _permute,
    "reflection_pad1d.default": padded_by("reflect"),
    "reflection_pad2d.default": padded_by("reflect"),
    "reflection_pad3d.default": padded_by("reflect"),
    "repeat.default": _repeat,
    "replication_pad1d.default": padded_by("edge"),
    "replication_pad2d.default": padded_by("edge"),
    "replication_pad3d.default": padded_by("edge"),
    "reshape.default": _view,
    "resize.default": _resize,
    "roll.default": _roll,
    "scalar_tensor.default": _scalar_tensor,
    "select.int": _select,
    "slice.Tensor": _slice,
    "split.Tensor": _split,
    "split_with_sizes.default": _split_with_sizes,
    "squeeze.default": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "stack.default": _stack,
    "sym_numel.default": _numel,
    "sym_size.int": lambda x, dim: x.shape[dim],
    "sym_storage_offset.default": lambda x: 0,
    "sym_stride.int": lambda x, dim: math.prod(x.shape[axis_of(dim, x.ndim) + 1 :]),
    "t.default": lambda x: x.T,
    "transpose.int": _transpose,
    "tril.default": _triangle(tnp.tril),
    "triu.default": _triangle(tnp.triu),
    "unbind.int": _unbind,
    "unbind_copy.int": _unbind,
    "unsqueeze.default": lambda x, dim: tnp.expand_dims(x, dim),
    "view.default": _view,
    "view_copy.default": _view,
    "zeros.default": _filled(0),
    "zeros_like.default": _filled_like(0),
}
