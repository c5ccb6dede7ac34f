"""Programs of jaxlib: compiling, executing, donation, several devices, callbacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core._jaxlib.programs import (
    ADD,
    CALLBACK,
    POTRF,
    SHARDED,
    TOKENS,
    Aval,
    aligned,
    build,
    numpy,
    put,
    run,
)
from tracebridge.core._jaxlib import ffi, mlir, xla


def test_execute_and_wrap(client: xla.Client, context: Any) -> None:
    """`execute_sharded(...).consume_with_handlers(...)`: our aval, our sharding, right values."""
    executable = build(client, context, ADD.replace("ATTRS", ""))
    x = put(client, np.arange(4, dtype=np.float32))
    aval = Aval((4,))
    (out,) = run(client, executable, [x, x], [aval])

    assert type(out) is xla.ArrayImpl
    assert out.aval is aval
    assert out._sharding is xla.single_device_sharding(client.devices()[0])
    assert not out._committed
    np.testing.assert_array_equal([0, 2, 4, 6], numpy(out))


@pytest.mark.parametrize("form", ["text", "bytecode", "module"])
def test_all_forms_of_a_program_compile(client: xla.Client, context: Any, form: str) -> None:
    """Text, bytecode and module objects give the same program."""
    text = ADD.replace("ATTRS", "")
    module = mlir.parse_module(text, context)
    program = {"text": text, "bytecode": mlir.module_to_bytecode(module), "module": module}[form]
    devices = xla.DeviceList((client.devices()[0],))
    executable = xla.compile_and_load(client, program, devices, xla.make_compile_options())
    x = put(client, np.ones(4, np.float32))

    np.testing.assert_array_equal(
        [2, 2, 2, 2], numpy(run(client, executable, [x, x], [Aval((4,))])[0])
    )


def test_donated_argument_is_deleted_and_reused(client: xla.Client, context: Any) -> None:
    """`tf.aliasing_output` gives the argument's memory to the result."""
    executable = build(client, context, ADD.replace("ATTRS", "{tf.aliasing_output = 0 : i32}"))
    x, y = (put(client, np.arange(4, dtype=np.float32)) for _ in range(2))
    address = x.unsafe_buffer_pointer()
    (out,) = run(client, executable, [x, y], [Aval((4,))])

    assert (x.is_deleted(), y.is_deleted()) == (True, False)
    assert out.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal([0, 2, 4, 6], numpy(out))


def test_borrowed_memory_is_not_overwritten_by_donation(client: xla.Client, context: Any) -> None:
    """Donating a zero-copy buffer leaves the owner's memory as it is."""
    executable = build(client, context, ADD.replace("ATTRS", "{tf.aliasing_output = 0 : i32}"))
    memory = aligned(4)
    x = put(client, memory, xla.HostBufferSemantics.ZERO_COPY)
    y = put(client, np.ones(4, np.float32))
    (out,) = run(client, executable, [x, y], [Aval((4,))])

    np.testing.assert_array_equal([0, 1, 2, 3], memory)
    np.testing.assert_array_equal([1, 2, 3, 4], numpy(out))


def test_serialised_executable_runs(client: xla.Client, context: Any) -> None:
    """Compiled programs survive a round trip through bytes."""
    executable = build(client, context, ADD.replace("ATTRS", ""))
    data = xla.serialize_executable(client, executable)
    devices = xla.DeviceList((client.devices()[0],))
    loaded = xla.deserialize_executable(client, data, devices, xla.make_compile_options())
    x = put(client, np.ones(4, np.float32))

    np.testing.assert_array_equal([2, 2, 2, 2], numpy(run(client, loaded, [x, x], [Aval((4,))])[0]))


def test_compile_errors_are_xla_runtime_errors(client: xla.Client) -> None:
    """A program that does not parse raises the class that we translate."""
    devices = xla.DeviceList((client.devices()[0],))

    with pytest.raises(xla.XlaRuntimeError):
        xla.compile_and_load(client, "not a module", devices, xla.make_compile_options())


def test_compile_options_are_set() -> None:
    """Each parameter of ours reaches the field of XLA."""
    options = xla.make_compile_options(
        2,
        2,
        [[0, 1], [2, 3]],
        True,
        [("xla_cpu_enable_fast_math", False)],
        propagate_to_parameters=[True],
        propagate_to_outputs=[False, True],
        optimization_level=1,
    )
    build_options = options.executable_build_options

    assert (options.num_replicas, options.num_partitions) == (2, 2)
    assert options.device_assignment.replica_count() == 2
    assert options.device_assignment.computation_count() == 2
    assert build_options.use_spmd_partitioning
    assert build_options.use_shardy_partitioner
    assert list(build_options.allow_spmd_sharding_propagation_to_output) == [False, True]
    assert build_options.debug_options.xla_backend_optimization_level == 1
    assert [tuple(pair) for pair in options.env_option_overrides] == [
        ("xla_cpu_enable_fast_math", False)
    ]
    assert options.SerializeAsString() != xla.make_compile_options().SerializeAsString()


def test_sharded_program_runs_on_four_devices(client: xla.Client, context: Any) -> None:
    """Shardy attributes, a device assignment, shards in and shards out."""
    devices = client.devices()
    sharding = xla.gspmd_sharding(devices, xla.HloSharding.iota_tile([4]))
    x = np.arange(8, dtype=np.float32)
    arg = xla.batched_device_put(Aval((8,)), sharding, list(x.reshape(4, 2)), devices, True)
    options = xla.make_compile_options(1, 4, [[0, 1, 2, 3]], spmd=True)
    module = mlir.parse_module(SHARDED, context)
    executable = xla.compile_and_load(client, module, xla.DeviceList(tuple(devices)), options)
    handler = xla.array_result_handler(Aval((8,)), sharding, True)
    (out,) = executable.execute_sharded([arg]).consume_with_handlers([handler])

    shards = [numpy(shard) for shard in out._arrays]
    np.testing.assert_array_equal(2 * x, np.concatenate(shards))


def test_array_from_shards(client: xla.Client) -> None:
    """Single-device buffers become one global array without copies."""
    devices = client.devices()
    shards = [put(client, np.full(2, i, np.float32), index=i) for i in range(4)]
    sharding = xla.gspmd_sharding(devices, xla.HloSharding.iota_tile([4]))
    whole = xla.array_from_shards(Aval((8,)), sharding, shards)

    assert [a.unsafe_buffer_pointer() for a in whole._arrays] == [
        s.unsafe_buffer_pointer() for s in shards
    ]


def test_callback_gets_read_only_arrays(client: xla.Client, context: Any) -> None:
    """A Python function in `host_callbacks` is called with ndarrays that it cannot write."""
    seen: list[bool] = []

    def double(x: np.ndarray) -> tuple[np.ndarray]:
        seen.append(x.flags.writeable)
        return (x * 2,)

    executable = build(client, context, CALLBACK, (double,))
    (out,) = run(client, executable, [put(client, np.ones(3, np.float32))], [Aval((3,))])

    np.testing.assert_array_equal([2, 2, 2], numpy(out))
    assert seen == [False]


def test_callback_errors_arrive_with_their_text(client: xla.Client, context: Any) -> None:
    """An exception inside the callback raises at the call or at the first read."""

    def fail(x: np.ndarray) -> tuple[np.ndarray]:
        raise KeyError("my reason")

    executable = build(client, context, CALLBACK, (fail,))

    with pytest.raises(xla.XlaRuntimeError, match="my reason"):
        numpy(run(client, executable, [put(client, np.ones(3, np.float32))], [Aval((3,))])[0])


def test_tokens_reach_callbacks_as_none(client: xla.Client, context: Any) -> None:
    """Tokens are operands and results of callbacks; executions have a token to wait for."""
    seen: list[Any] = []

    def first(token: Any, x: Any) -> tuple[Any, ...]:
        seen.append((1, token))
        return None, x + np.float32(1)

    def second(token: Any, x: Any) -> tuple[Any, ...]:
        seen.append((2, token, float(x)))
        return (None,)

    executable = build(client, context, TOKENS, (first, second))
    sharding = xla.single_device_sharding(client.devices()[0])
    avals = [Aval((0,), np.bool_), Aval((), np.float32)]
    values = [np.zeros(0, np.bool_), np.float32(2)]
    arguments = [
        xla.batched_device_put(a, sharding, [v], client.devices()[:1])
        for a, v in zip(avals, values, strict=True)
    ]
    results = executable.execute_sharded(arguments, with_tokens=True)
    token = results.consume_token()
    handlers = [xla.array_result_handler(a, sharding, True) for a in reversed(avals)]
    out, _ = results.consume_with_handlers(handlers)
    token.block_until_ready()

    assert float(xla.buffer_to_numpy(out)[0]) == 3.0
    assert seen == [(1, None), (2, None, 3.0)]


def test_callbacks_need_a_module_object(client: xla.Client) -> None:
    """jaxlib would drop the callbacks silently; we refuse."""
    devices = xla.DeviceList((client.devices()[0],))

    with pytest.raises(TypeError, match=r"ir\.Module"):
        xla.compile_and_load(client, CALLBACK, devices, xla.make_compile_options(), (print,))


def test_cost_analysis_and_memory_stats(client: xla.Client, context: Any) -> None:
    """Compiled programs report flops and sizes."""
    executable = build(client, context, ADD.replace("ATTRS", ""))

    cost = executable.cost_analysis()
    assert cost["flops"] == 4.0
    assert xla.hlo_module_cost_analysis(client, executable.hlo_modules()[0])["flops"] == 4.0
    assert executable.get_compiled_memory_stats().argument_size_in_bytes == 32


def test_lapack_target_runs(client: xla.Client, context: Any) -> None:
    """A Cholesky factor through the registered LAPACK kernel."""
    assert ffi.lapack_target("potrf_ffi", np.float32) == "lapack_spotrf_ffi"
    executable = build(client, context, POTRF)
    a = np.array([[4, 2], [2, 3]], np.float32)
    factor, info = run(client, executable, [put(client, a)], [Aval((2, 2)), Aval((), np.int32)])

    np.testing.assert_allclose(np.linalg.cholesky(a), np.tril(numpy(factor)), rtol=1e-6)
    assert numpy(info) == 0
