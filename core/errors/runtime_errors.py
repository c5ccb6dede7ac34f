"""Errors about arrays, devices, compilation and execution."""

from __future__ import annotations

from tracebridge.core._jaxlib.version import UnsupportedJaxlibError
from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.errors.base import TracebridgeError

__all__ = [
    "ArgumentMismatchError",
    "BackendNotFoundError",
    "CallbackError",
    "CompileError",
    "DeletedArrayError",
    "DevicePlacementError",
    "DonationError",
    "ExecutionError",
    "ForkedProcessError",
    "GuardError",
    "NonFiniteError",
    "OtherProcessesError",
    "OutOfMemoryError",
    "PluginError",
    "ProcessesError",
    "UnsupportedJaxlibError",
    "XlaRuntimeError",
]


class DeletedArrayError(TracebridgeError, RuntimeError):
    """An array was used after it had been deleted, or donated to a computation.

    An array was used after `delete()`, or after it had been donated to a computation that took
    over its memory.

    Wrong::

        step = tb.jit(lambda x: x + 1, donate_argnums=0)
        x = tnp.zeros(3)
        y = step(x)
        x + y  # x is gone

    Right::

        step = tb.jit(lambda x: x + 1, donate_argnums=0)
        x = tnp.zeros(3)
        x = step(x)  # use the result in its place
    """

    def __init__(self, array: str = "", *, donated_to: str = "", message: str = "") -> None:
        what = f"the array {array}" if array else "an array"
        if donated_to:
            text = f"{what} was donated to {donated_to} and cannot be used any more"
            hint = "do not use an argument after donating it, or drop donate_argnums"
        else:
            text = f"Array has been deleted or donated: {what} cannot be used any more"
            hint = "keep a copy (x.copy()) if the value is needed after delete() or donation"
        super().__init__(message or text, hint=hint)


class DonationError(TracebridgeError, RuntimeError, ValueError):
    """A buffer cannot be donated: it is borrowed, or passed twice, or the argument is wrong.

    An argument cannot be donated: its memory belongs to NumPy, PyTorch or TensorFlow, it is
    passed twice, or the argument is static.

    Wrong::

        add = tb.jit(lambda x, y: x + y, donate_argnums=0)
        x = tnp.zeros(3)
        add(x, x)

    Right::

        add = tb.jit(lambda x, y: x + y, donate_argnums=0)
        x = tnp.zeros(3)
        add(x, x.copy())
    """


class DevicePlacementError(TracebridgeError, ValueError, TypeError):
    """Arguments of one computation are committed to different devices, or to unfit ones.

    Arguments of one computation were put on different devices explicitly, so that it is not clear
    where it should run.

    Wrong::

        a = tb.device_put(tnp.ones(3), tb.devices()[0])
        b = tb.device_put(tnp.ones(3), tb.devices()[1])
        a + b

    Right::

        a = tb.device_put(tnp.ones(3), tb.devices()[0])
        b = tb.device_put(tnp.ones(3), tb.devices()[0])
        a + b
    """


class OtherProcessesError(DevicePlacementError, RuntimeError):
    """Something takes devices of other processes, or what only they hold.

    The program runs in several processes, and each reaches the memory of its own devices only. So
    it has parts of an array that is spread over all devices, and cannot put anything on devices of
    others.

    Wrong::

        rows = NamedSharding(tb.make_mesh((tb.device_count(),), ("x",)), tb.P("x"))
        x = tb.device_put(np.arange(8.0), rows)
        np.asarray(x)

    Right::

        rows = NamedSharding(tb.make_mesh((tb.device_count(),), ("x",)), tb.P("x"))
        x = tb.device_put(np.arange(8.0), rows)
        mine = [shard.data for shard in x.addressable_shards]
        whole = multihost_utils.process_allgather(x, tiled=True)
    """


class ForkedProcessError(TracebridgeError, RuntimeError):
    """The engine was used in a process that was forked after the engine had started threads.

    The process was forked after the engine had started its threads. The child has none of them
    and would wait for ever.

    Wrong::

        import multiprocessing

        tnp.ones(3)
        multiprocessing.get_context("fork").Pool(2).map(tnp.sin, [1.0, 2.0])

    Right::

        import multiprocessing

        tnp.ones(3)
        multiprocessing.get_context("spawn").Pool(2).map(tnp.sin, [1.0, 2.0])
    """


class GuardError(TracebridgeError, RuntimeError):
    """A transfer, a trace or an execution that an option does not allow.

    Something happened that an option does not allow: a transfer between host and devices or
    between devices (`transfer_guard`), a trace of a jitted function (`no_tracing`), or an
    execution on a device (`no_execution`).

    Wrong::

        step = tb.jit(lambda x: x + 1)
        with tb.transfer_guard("disallow"):
            step(np.ones(3))

    Right::

        step = tb.jit(lambda x: x + 1)
        with tb.transfer_guard("disallow"):
            step(tb.device_put(np.ones(3)))
    """


class BackendNotFoundError(TracebridgeError, RuntimeError):
    """There is no backend or device of this name.

    There is no backend of this name: the platform is misspelt, its plugin is not installed, or it
    found no device.

    Wrong::

        tb.devices("cuda13")

    Right::

        tb.devices("cpu")

    The names are `"cpu"`, `"cuda"`, `"rocm"`, `"gpu"` (one of the two) and `"tpu"`; all but the
    first need a plugin for the installed jaxlib.
    """


class PluginError(TracebridgeError, RuntimeError):
    """A device plugin is installed but cannot be loaded.

    A device plugin is installed but cannot be used: its version is not jaxlib's, a library of the
    vendor is missing, or there is no device.

    Wrong::

        pip install jaxlib==0.11.2 jax-cuda13-plugin jax-cuda13-pjrt   # takes the newest plugin

    Right::

        pip install jaxlib==0.11.2 jax-cuda13-plugin[with-cuda]==0.11.2 jax-cuda13-pjrt==0.11.2
    """


class ProfilerError(TracebridgeError, RuntimeError, ValueError):
    """A profile or a profiler server was started twice, or stopped without being started.

    There is one profile and one profiler server at a time in a process. One was started while
    another runs, or stopped while none does.

    Wrong::

        tb.profiler.start_trace("logs")
        tb.profiler.start_trace("logs")

    Right::

        with tb.profiler.trace("logs"):
            f(x).block_until_ready()
    """


class CompileError(TracebridgeError, XlaRuntimeError):
    """XLA rejected a program or failed to compile it.

    XLA rejected the program or failed to compile it. The message of XLA follows. Usual reasons:
    an operation that the platform does not have, or a program too large for the device.

    Wrong::

        tb.jit(tnp.sin, compiler_options={"xla_no_such_option": True})(1.0)

    Right::

        tb.jit(tnp.sin)(1.0)
    """


class OutOfMemoryError(TracebridgeError, XlaRuntimeError, MemoryError):
    """A device has not the memory that a program or an array needs.

    A device has not the memory that a program or an array needs. The message says how much was
    asked for and which arrays hold memory. It is a `MemoryError` too.

    Wrong::

        x = tnp.ones(1 << 22)
        tnp.outer(x, x)

    Right::

        x = tnp.ones(1 << 10)
        tnp.outer(x, x)

    Arrays that are not needed any more are freed with their last name; `tb.live_arrays()` lists
    those that live. Gradients need less with `tb.checkpoint`, loops over parts (`lax.map` with
    *batch_size*) less than one large `vmap`, and `donate_argnums` lets results take the memory
    of arguments.
    """


class ExecutionError(TracebridgeError, XlaRuntimeError):
    """XLA failed to run a program that it had compiled.

    XLA failed to run a program that it had compiled. The message of XLA follows. It is no fault
    of a shape or dtype, which are checked before; usual reasons are a device that was lost, or
    a custom call that refused its operands.

    Wrong::

    A custom call of `tracebridge.extend` whose kernel returns an error.

    Right::

    Let the kernel accept the operands that it is registered for.
    """


class CallbackError(TracebridgeError, XlaRuntimeError):
    """A Python callback inside a compiled program raised, or returned the wrong thing.

    A Python function called from a compiled program raised an exception, or its results do not
    have the declared shapes and dtypes.

    Wrong::

        three = tb.ShapeDtypeStruct((3,), "float32")
        tb.pure_callback(lambda x: np.append(x, 0), three, tnp.ones(3))

    Right::

        tb.pure_callback(
            lambda x: np.append(x, np.float32(0)), tb.ShapeDtypeStruct((4,), "float32"), tnp.ones(3)
        )
    """


class NonFiniteError(TracebridgeError, FloatingPointError):
    """A NaN or an infinity appeared while `debug_nans` or `debug_infs` is on.

    A computation returned a NaN (`debug_nans`) or an infinity (`debug_infs`). The option asked
    for an error at the place where it appears.

    Wrong::

        with tb.debug_nans():
            tnp.log(-1.0)

    Right::

        with tb.debug_nans():
            x = tnp.asarray(-1.0)
            tnp.where(x > 0, tnp.log(tnp.where(x > 0, x, 1.0)), 0.0)
    """


class ArgumentMismatchError(TracebridgeError, TypeError):
    """A compiled function was called with arguments that it was not compiled for.

    A function that was compiled ahead of time was called with other shapes, dtypes, devices or
    another structure. It does not compile anew.

    Wrong::

        compiled = tb.jit(tnp.sin).lower(tnp.ones(3)).compile()
        compiled(tnp.ones(4))

    Right::

        compiled = tb.jit(tnp.sin).lower(tnp.ones(4)).compile()
        compiled(tnp.ones(4))
    """


class ProcessesError(TracebridgeError, RuntimeError, AssertionError):
    """Processes of one program did not meet, or do not do the same.

    A program in several processes calls `distributed.initialize` once in each, before it uses a
    device. Afterwards all make the same calls, with data of the same structure and shapes.

    Wrong::

        x = tnp.ones(3)
        tb.distributed.initialize("host0:12345", num_processes=2, process_id=0)

    Right::

        tb.distributed.initialize("host0:12345", num_processes=2, process_id=0)
        x = tnp.ones(3)
    """
