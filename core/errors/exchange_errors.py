"""Errors about exchanging tensors with other libraries."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError


class ExchangeError(TracebridgeError, TypeError, BufferError):
    """An object cannot be taken as, or given as, a tensor of another library.

    An object is not a tensor that can be taken over, or an array cannot be handed to the other
    library: the type is unknown, or the object has no values (a fake or a traced tensor). Or
    plain tensors stand beside DTensors of `torch.distributed`, or DTensors of two meshes.

    Wrong::

        tb.dlpack.from_dlpack("not a tensor")

    Right::

        tb.dlpack.from_dlpack(np.ones(3))
    """


class UnsupportedExchangeDtypeError(ExchangeError, UnsupportedDtypeError):
    """The other library, or the exchange protocol, has no such dtype.

    The other library, or the protocol between the two, has no such dtype.

    Wrong::

        tb.torch.to_torch(tnp.zeros(4, dtype="int4"))

    Right::

        tb.torch.to_torch(tnp.zeros(4, dtype="int4").astype("int8"))
    """


class ProgramMismatchError(ExchangeError):
    """A saved or cached graph calls a function that is another one in this process.

    A graph of PyTorch that does not hold the program itself (a compiled graph, or an exported one
    of a function with callbacks, with shardings or with large constants) holds the import path of
    each wrapped function that it calls, and a fingerprint of the program that the function was
    when the graph was made. In this process no function of that path makes this program: its
    code, a constant in it, a static argument or an option such as `enable_x64` has changed.
    Lambdas and functions defined inside other functions are not looked up in another process at
    all, because their paths do not tell which one is meant.

    Wrong::

        program = torch.export.export(Model(wrap(lambda x: tb.pure_callback(host, x, x))), (x,))
        torch.export.save(program, "model.pt2")
        # in another process
        torch.export.load("model.pt2").module()(x)

    Right::

        # my_functions.py
        @wrap
        def called(x):
            return tb.pure_callback(host, x, x)

        # where the graph is made, and where it is loaded
        import my_functions

    If the function has changed on purpose, make the graph again. Functions that compute the same
    in both processes may be written differently.
    """


class LayoutError(TracebridgeError, ValueError, BufferError):
    """The memory layout (strides, alignment, negative steps) cannot be shared.

    The memory of a tensor cannot be shared as it is: negative or overlapping strides, or an
    alignment that XLA does not take, while a copy was forbidden.

    Wrong::

        tb.dlpack.from_dlpack(np.arange(6.0)[::2], copy=False)

    Right::

        tb.dlpack.from_dlpack(np.arange(6.0)[::2])  # a copy, because it cannot be a view
    """


class OwnershipError(TracebridgeError, RuntimeError):
    """An operation would write to, donate or delete memory that belongs to somebody else.

    An operation would write to, give away or free memory that belongs to somebody else, such as
    the memory of a Python number, which all arrays made of that number share.

    Wrong::

        tb.dlpack.to_dlpack(1.5, copy=False)

    Right::

        tb.dlpack.to_dlpack(1.5)
    """
