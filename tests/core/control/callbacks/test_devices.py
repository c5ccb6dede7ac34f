"""Callbacks in programs for several devices, in a process that has some."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import numpy as np, tracebridge as tb, tracebridge.numpy as tnp
from tracebridge import errors
from tracebridge.sharding import Mesh, NamedSharding, PartitionSpec
tb.config.update("num_cpu_devices", 2)
seen = []
x = tnp.arange(4.0)
double = lambda x: tb.pure_callback(
    lambda v: np.asarray(v) * 2, tb.ShapeDtypeStruct(x.shape, x.dtype), x)
note = lambda x: tb.debug.callback(lambda v: seen.append(np.asarray(v).tolist()), x)
fail = lambda x: tb.debug.callback(lambda v: 1 // 0, x)

# Each device of pmap calls with its part.
assert tb.pmap(double)(x.reshape(2, 2)).tolist() == [[0.0, 2.0], [4.0, 6.0]]
tb.pmap(note)(x.reshape(2, 2))
tb.effects_barrier()
assert sorted(seen) == [[0.0, 1.0], [2.0, 3.0]]

# A program that is split calls once, with whole arrays.
mesh = Mesh(np.array(tb.devices()), ("a",))
split = tb.device_put(x, NamedSharding(mesh, PartitionSpec("a")))
assert tb.jit(double)(split).tolist() == [0.0, 2.0, 4.0, 6.0]

def message(f):
    try:
        f()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]

print(message(lambda: tb.pmap(fail)(x.reshape(2, 2))))
seen.clear()
tb.jit(note)(split)
tb.effects_barrier()
assert seen == [[0.0, 1.0, 2.0, 3.0]], seen
print(message(lambda: tb.jit(fail)(split)))
# On the second device alone everything works.
other = tb.device_put(x, tb.devices()[1])
seen.clear()
tb.jit(lambda x: tb.debug.callback(lambda v: seen.append(1), x, ordered=True))(other)
print(len(seen), double(other).devices() == {tb.devices()[1]})
"""


def test_several_devices(run_alone: Callable[[str], str]) -> None:
    """pmap calls for each device, programs that XLA splits call once; errors arrive."""
    first, second, third = run_alone(PROGRAM).splitlines()
    for line in (first, second):
        assert "CallbackError: debug.callback(<lambda>): the callback raised ZeroDivis" in line
    assert third == "1 True"
