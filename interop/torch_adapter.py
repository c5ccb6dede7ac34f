"""Exchange with PyTorch: guards, views of host memory, capsules.

A tensor on the CPU comes in as a NumPy view: jaxlib's import of a capsule is ten times slower.
An Array that shares the memory of a tensor pins its storage: resizing it would free memory that
the Array still reads, so torch refuses to from then on. (Calls of wrapped functions pin nothing,
they are over before anybody can resize.) Tensors of a GPU come in by capsule, ordered by the
consumer's stream.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.handed_out import hand_out
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.backends.cuda_driver import LEGACY_STREAM
from tracebridge.interop.adapter import TensorAdapter, refuse_to_freeze
from tracebridge.interop.devices import CPU, CUDA, placement_of
from tracebridge.interop.dlpack import import_capsule
from tracebridge.interop.dtypes import CARRIERS, DISGUISED, PLAIN, DtypeRows
from tracebridge.interop.layout import is_aligned, refuse_copy
from tracebridge.interop.ownership import (
    export_buffer,
    exportable,
    is_chosen,
    placed,
    take_host,
)

_from_capsule = torch._C._from_dlpack

# torch calls them as we do; a version before ours may not have the latest.
ROWS = DtypeRows("torch", {n: d for n, d in {**PLAIN, **DISGUISED}.items() if hasattr(torch, n)})
DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    getattr(torch, name): dtype for name, dtype in ROWS.rows.items()
}
"""The engine's dtype of each torch dtype."""
TORCH_DTYPES: dict[np.dtype[Any], torch.dtype] = {ours: theirs for theirs, ours in DTYPES.items()}
# Dtypes that NumPy does not read from a capsule cross as integers of their width.
DISGUISES: dict[torch.dtype, torch.dtype] = {
    getattr(torch, name): getattr(torch, CARRIERS[dtype.itemsize].name)
    for name, dtype in DISGUISED.items()
    if hasattr(torch, name)
}


# what a tensor is -------------------------------------------------------------------------------

EXACT = frozenset({torch.Tensor, torch.nn.Parameter})
keys_of = torch._C._dispatch_keys
modes_active = torch._C._len_torch_dispatch_stack


def _plain_keys() -> frozenset[int]:
    """The dispatch keys of tensors that are nothing but dense memory of the CPU."""
    plain = torch.zeros((), device="cpu")  # whatever the default device is
    with torch.inference_mode():
        inference = torch.zeros((), device="cpu")
    return frozenset({keys_of(plain).raw_repr(), keys_of(inference).raw_repr()})


# A tensor with a conjugate or negative bit, a zero tensor, sparse, quantized, fake or functorch
# tensors have other keys: one comparison is the guard against all of them.
PLAIN_KEYS = _plain_keys()


def is_ready(x: torch.Tensor) -> bool:
    """Whether ``x`` is plain dense memory of the CPU."""
    return type(x) in EXACT and keys_of(x).raw_repr() in PLAIN_KEYS and x.is_contiguous()


def pinned_view(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An ndarray over the memory of a dense tensor on the CPU, of the engine's dtype.

    The storage cannot be resized from now on.
    """
    disguise = DISGUISES.get(tensor.dtype)
    if disguise is None:
        return tensor.numpy()
    return tensor.view(disguise).numpy().view(DTYPES[tensor.dtype])


def _fits_its_storage(tensor: torch.Tensor) -> bool:
    """Whether the elements are in memory; storages of sharded parameters come and go."""
    if not tensor.numel():
        return True
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum([(size - 1) * step for size, step in steps])
    return tensor.untyped_storage().nbytes() >= (last + 1) * tensor.itemsize


def check_has_values(tensor: torch.Tensor) -> None:
    """Raise unless the tensor has memory that can be read here and now.

    A capsule of a fake or zero tensor has a null pointer, which would be read as if it were data.
    """
    keys = torch._C._dispatch_keys(tensor)
    what, hint = "", "use tracebridge.torch.wrap to call a function on it"
    # First: asking nested tensors for more raises errors of torch.
    if tensor.is_nested:
        what, hint = "is nested", "make it dense first: x.to_padded_tensor(0.0)"
    elif torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
        what = "is being transformed by torch.func"
    elif keys.has(torch._C.DispatchKey.Python) or keys.has(torch._C.DispatchKey.Functionalize):
        what = "is a wrapper without memory of its own (fake, functional, distributed or lazy)"
    elif tensor.is_meta:
        what = "is on the meta device"
    elif tensor.layout is not torch.strided:
        what, hint = f"has the layout {tensor.layout}", "make it dense first: x.to_dense()"
    elif tensor.is_quantized:
        what, hint = "is quantized", "make it one of floats first: x.dequantize()"
    elif not tensor._is_zerotensor() and not _fits_its_storage(tensor):
        what, hint = "has a storage that was resized to less than it needs", "resize it back first"
    if what:
        msg = f"a torch tensor that {what} cannot become an array"
        raise ExchangeError(msg, expected="a dense tensor with values", hint=hint)


def plain(tensor: torch.Tensor, *, copy: bool | None = None) -> torch.Tensor:
    """The tensor itself if its memory says what its values are, else a dense copy.

    Raises:
        LayoutError: ``copy=False`` and a copy is needed.
    """
    reason = ""
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
        reason = "it stands for the conjugate, the negative or the zeros of what its memory holds"
    elif not tensor.is_contiguous():
        reason = f"it is not contiguous (shape {tuple(tensor.shape)}, strides {tensor.stride()})"
    if not reason:
        return tensor
    if copy is False:
        raise refuse_copy(reason, "the torch tensor")
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_conj().resolve_neg().contiguous()


@final
class TorchAdapter(TensorAdapter):
    """Dense torch tensors of the CPU and of CUDA devices. History of autograd stays behind."""

    name = "torch"

    def accepts(self, cls: type) -> bool:
        return issubclass(cls, torch.Tensor)

    def import_(self, x: Any, *, device: object = None, copy: bool | None = None) -> Array:
        if x.requires_grad:
            shape = tuple(x.shape)
            refuse_to_freeze(f"a torch tensor of shape {shape} that requires grad", "x.detach()")
        if (
            copy is None
            and device is None
            and is_ready(x)
            and x.dtype in DTYPES
            and x.dtype != torch.bool
            and is_aligned(x.data_ptr())
            and x.untyped_storage().nbytes() >= (x.storage_offset() * x.itemsize + x.nbytes)
            and not modes_active()
        ):
            # The common case, in a third of the time.
            where = placement_of(CPU, 0)
            view = pinned_view(x.detach())
            return put_numpy(view, where, committed=is_chosen(where), borrow=True)
        ours = ROWS.ours(str(x.dtype).removeprefix("torch."))
        check_has_values(x)
        # Under a mode (FakeTensorMode, FunctionalTensorMode) detach and contiguous would give
        # tensors of that mode.
        with _disable_current_modes(), torch.no_grad():
            tensor = plain(x.detach(), copy=copy)
            if tensor.device.type == "cpu":
                view = pinned_view(tensor)
                where = placement_of(CPU, 0)
                return placed(
                    take_host(view, where, copy=copy, what="the torch tensor"), device, copy
                )
            if ours.kind == "b":
                tensor = tensor.view(torch.uint8) != 0
            return placed(_import_device(tensor, copy), device, copy)

    def export(self, array: Array, *, copy: bool | None = None) -> torch.Tensor:
        ROWS.name(array.dtype)  # or its error
        return to_tensor(exportable(array, copy, "torch"))


def _import_device(tensor: torch.Tensor, copy: bool | None) -> Array:
    """By DLPack. torch makes our stream wait for its current one."""
    kind, ordinal = tensor.__dlpack_device__()
    where = placement_of(int(kind), int(ordinal))
    stream = None
    if int(kind) == CUDA:
        stream = where.device.get_stream_for_external_ready_events()
        # torch refuses to export a tensor of another device than the current one.
        with torch.cuda.device(tensor.device):
            capsule = tensor.__dlpack__(stream=stream)
    else:
        capsule = tensor.__dlpack__()
    return import_capsule(capsule, where, stream=stream, copy=copy, what="torch tensor")


def to_tensor(array: Array) -> torch.Tensor:
    """A tensor over the memory of an Array that may be handed out (see ``exportable``)."""
    device = array.device
    buffer = export_buffer(array)
    if device.platform == "cpu":
        return _from_capsule(door.to_capsule(buffer))
    return _from_capsule(hand_out(buffer, device, current_stream(device)))


def current_stream(device: Any) -> int | None:
    """The stream of torch that must wait for the array; None where there are no streams."""
    if device.platform == "cpu":
        return None
    stream = torch.cuda.current_stream(device.local_hardware_id).cuda_stream
    return stream or LEGACY_STREAM


torch_adapter = TorchAdapter()
