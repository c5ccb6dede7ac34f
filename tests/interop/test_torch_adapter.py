"""Exchange with torch: memory is shared where it can be, and values are never wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.dlpack import from_dlpack
from tracebridge.errors import ExchangeError, LayoutError, UnsupportedExchangeDtypeError
from tracebridge.interop.torch_adapter import DTYPES
from tracebridge.torch import from_torch, to_torch

pytestmark = pytest.mark.torch

SHAPES = [(), (0,), (0, 3), (5,), (1, 1), (2, 3, 4)]


def bits(x):
    """The memory of a tensor as bytes."""
    return x.contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_round_trip_shares_memory(dtype, shape):
    """Every dtype that both have, in and out, at one address."""
    x = torch.arange(24).reshape(-1)[: max(1, int(np.prod(shape)))].to(torch.float32) % 2
    x = x[: int(np.prod(shape))].reshape(shape).to(dtype).clone()

    array = from_torch(x)
    back = to_torch(array)

    assert (dtype, x.shape) == (back.dtype, back.shape)
    assert (DTYPES[dtype], tuple(shape)) == (array.dtype, array.shape)
    assert torch.equal(bits(x), bits(back))
    if x.numel():
        assert x.data_ptr() == array.unsafe_buffer_pointer()
    if x.numel() and x.ndim:
        assert x.data_ptr() == back.data_ptr()


@pytest.mark.parametrize("convert", [from_torch, from_dlpack, tnp.asarray])
def test_all_doors_share_memory(convert):
    """from_torch, from_dlpack and numpy.asarray take a tensor in the same way."""
    x = torch.randn(8, 8, dtype=torch.float64)

    array = convert(x)

    assert array.dtype == np.float64
    assert x.data_ptr() == array.unsafe_buffer_pointer()


def test_torch_takes_arrays():
    """torch.from_dlpack(array) and torch.asarray share the memory of an Array."""
    array = put_numpy(np.arange(4.0))

    for tensor in (torch.from_dlpack(array), torch.utils.dlpack.from_dlpack(array)):
        assert array.unsafe_buffer_pointer() == tensor.data_ptr()
        assert [0.0, 1.0, 2.0, 3.0] == tensor.tolist()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[:, 1:],
        lambda x: x[:1].expand(4, 6),
        lambda x: x.to(memory_format=torch.channels_last) if x.ndim == 4 else x.mT,
    ],
    ids=["transposed", "strided", "columns", "expanded", "mT"],
)
def test_strided_tensors_are_copied(view):
    """Right values; copy=False says why not."""
    x = view(torch.arange(24.0).reshape(4, 6))

    assert x.tolist() == from_torch(x).tolist()
    with pytest.raises(LayoutError, match="not contiguous"):
        from_torch(x, copy=False)


def test_size_one_axes_with_odd_strides():
    """Strides of axes of size 1 mean nothing."""
    x = torch.arange(6.0).as_strided((1, 6), (77, 1))

    assert x.data_ptr() == from_torch(x).unsafe_buffer_pointer()
    assert x.tolist() == from_torch(x).tolist()


def test_misaligned_tensors_are_copied():
    """Rows of a matrix rarely begin at a multiple of 64 bytes."""
    x = torch.arange(10.0)[1:]

    array = from_torch(x)
    x.zero_()

    assert [float(i) for i in range(1, 10)] == array.tolist()
    with pytest.raises(LayoutError, match="not aligned"):
        from_torch(x, copy=False)


def test_lazy_bits_are_resolved():
    """Conjugate, negative and zero tensors say other things than their memory."""
    z = torch.tensor([1 + 2j, 3 - 4j])

    assert [1 - 2j, 3 + 4j] == from_torch(z.conj()).tolist()
    assert [-2.0, 4.0] == from_torch(z.conj().imag).tolist()
    assert [0.0, 0.0] == from_torch(torch._efficientzerotensor((2,))).tolist()
    for x in (z.conj(), z.conj().imag, torch._efficientzerotensor((2,))):
        with pytest.raises(LayoutError, match="conjugate"):
            from_torch(x, copy=False)


def test_bool_bytes_are_normalised():
    """torch calls 2 true; XLA would compute with it."""
    x = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)

    assert [False, True, True, True] == from_torch(x).tolist()
    assert 3 == int(tnp.sum(from_torch(x).astype("int32")))


def test_parameters_leave_their_history():
    """A tensor that requires a gradient is taken as a value."""
    p = torch.nn.Parameter(torch.ones(3))

    array = from_torch(p)

    assert p.data_ptr() == array.unsafe_buffer_pointer()
    assert not to_torch(array).requires_grad


def test_tensors_without_values_are_refused():
    """A capsule of a fake tensor is a null pointer, which would be read as garbage."""
    with FakeTensorMode():
        fake = torch.ones(3)
    refused = {
        "wrapper without memory": fake,
        "meta": torch.ones(3, device="meta"),
        "layout": torch.ones(3, 3).to_sparse(),
        "nested": torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    }
    for x in refused.values():
        with pytest.raises(ExchangeError):
            from_torch(x)
    with pytest.raises(ExchangeError, match=r"transformed by torch\.func"):
        torch.func.vmap(lambda x: torch.zeros(from_torch(x).shape))(torch.ones(3))


@pytest.mark.parametrize("size", [0, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.bfloat16])
def test_tensors_without_memory_are_refused(size, dtype):
    """What a storage lost when it was resized is never read; views of it are no different."""
    x = torch.ones(3, 4).to(dtype)
    given = [x, x[1:], x.T, x[::2], x.expand(2, 3, 4)]
    rest = x[0, :2]
    x.untyped_storage().resize_(size)
    for tensor in given:
        for read in (tnp.asarray, from_torch, from_dlpack):
            with pytest.raises(ExchangeError, match="was resized to less"):
                read(tensor)

    assert (0, 3) == tnp.asarray(torch.zeros(0, 3)).shape
    if size:
        assert [1.0, 1.0] == tnp.asarray(rest).tolist()


def test_real_tensors_under_a_mode_are_real():
    """A fake mode does not turn the exchange of a real tensor into a fake one."""
    x = torch.arange(6.0).reshape(2, 3).t()
    with FakeTensorMode(allow_non_fake_inputs=True):
        array = from_torch(x)

    assert x.tolist() == array.tolist()


# torch warns that it supports these dtypes badly itself.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["complex32", "int4", "uint4", "int1", "bits8", "quint8"])
def test_dtypes_that_the_engine_stores_otherwise(name):
    """torch's sub-byte dtypes would come in as whole bytes."""
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    x = (
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, dtype)
        if name == "quint8"
        else torch.empty(2, dtype=dtype)
    )

    with pytest.raises(UnsupportedExchangeDtypeError, match=name):
        from_torch(x)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float8_e4m3", "float8_e3m4"])
def test_dtypes_that_torch_has_not(dtype):
    """A clear error instead of torch's."""
    import ml_dtypes

    with pytest.raises(UnsupportedExchangeDtypeError, match=f"{dtype} has no counterpart in torch"):
        to_torch(put_numpy(np.zeros(4, getattr(ml_dtypes, dtype))))


def test_copy():
    """copy=True separates the two sides."""
    x = torch.zeros(8)
    array = from_torch(x, copy=True)
    back = to_torch(array, copy=True)

    x += 1
    back += 5

    assert [0.0] * 8 == array.tolist()


def test_trees():
    """Tensors in a tree are exchanged, other leaves stay."""
    tree = {"a": torch.ones(2), "b": [3, None, "text"]}

    there = from_torch(tree)

    assert there["b"] == [3, None, "text"]
    assert [1.0, 1.0] == there["a"].tolist()
    assert [1.0, 1.0] == to_torch(there)["a"].tolist()


def test_numbers_of_the_engine_cannot_be_written_to():
    """The buffer of a Python number serves all arrays made of it."""
    from tracebridge.core.ir.typeof import as_value
    from tracebridge.core.runtime.calls.dispatch import to_array

    for number in (tnp.asarray(2.5), to_array(as_value(2.5))):
        to_torch(number).fill_(-1.0)

    assert 2.5 == float(to_array(as_value(2.5)))
    assert 5.0 == float(tnp.asarray(2.0) * 2.5)


def test_storage_of_shared_tensors_cannot_be_resized():
    """Resizing frees memory that the Array reads; replacing the storage does not."""
    x = torch.ones(16)
    array = from_torch(x)

    with pytest.raises(RuntimeError, match="not resizable"):
        x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(1000)
    x.data = torch.zeros(16)

    assert [1.0] * 16 == array.tolist()


def test_storage_of_exported_arrays():
    """A tensor over an Array is an ordinary one: it can be pickled, copied and shared."""
    import pickle
    from copy import deepcopy

    x = to_torch(put_numpy(np.arange(4.0)))

    assert x.tolist() == pickle.loads(pickle.dumps(x)).tolist() == deepcopy(x).tolist()
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(100)


def test_tracers_are_no_arrays():
    """to_torch of a traced value is an error that names the cause."""
    import tracebridge as tb

    with pytest.raises(ExchangeError, match="is traced and has no elements to give to torch"):
        tb.jit(lambda x: to_torch(x))(1.0)


class OldProducer:
    """Any object of the protocol: only the two methods, without keyword arguments."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None):
        return torch._C._to_dlpack(self.tensor)

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "complex128", "bool"]
)
def test_other_producers(name):
    """Dtypes that NumPy does not import cross from any producer; shapes and values are right."""
    tensor = torch.ones(2, 3).to(getattr(torch, name))
    for x in (tensor, tensor[0], tensor[0, 0], tensor[:0]):
        array = from_dlpack(OldProducer(x))

        assert (name, tuple(x.shape)) == (str(array.dtype), array.shape)
        assert x.to(torch.complex64).tolist() == array.astype("complex64").tolist()


def test_producers_of_other_things(monkeypatch):
    """What is no capsule is named."""
    producer = OldProducer(torch.ones(2, dtype=torch.bfloat16))
    capsule = producer.__dlpack__()
    monkeypatch.setattr(OldProducer, "__dlpack__", lambda self, stream=None: capsule)
    from_dlpack(producer)

    with pytest.raises(ExchangeError, match="__dlpack__ of a OldProducer gave no capsule"):
        from_dlpack(producer)


def test_arrays_over_a_mesh_of_one_device():
    """Results of computations over such a mesh become tensors over the same memory."""
    with tb.set_mesh(tb.make_mesh((1,), ("x",))):
        array = tb.jit(lambda x: 2 * x)(tnp.arange(64.0))
    tensor = to_torch(array)

    assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    assert array.tolist() == tensor.tolist()
