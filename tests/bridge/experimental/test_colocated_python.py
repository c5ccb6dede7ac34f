"""Functions of Python that run on the hosts of devices."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentTypeError, ArgumentValueError
from tracebridge.experimental import colocated_python as cp


def test_devices_and_meshes_of_the_host() -> None:
    """CPU devices belong to themselves, alone and in a mesh."""
    mesh = tb.make_mesh((1, 1), ("x", "y"))

    assert cp.colocated_cpu_devices(tb.devices("cpu")) == tb.devices("cpu")
    assert cp.colocated_cpu_devices(mesh) == mesh


def test_functions_run_in_python_and_give_arrays() -> None:
    """The function sees arrays; numbers and ndarrays in its result become arrays."""

    @cp.colocated_python
    def f(tree, *, scale):
        assert isinstance(tree["x"], tb.Array)
        return np.asarray(tree["x"]) * scale, 2.5

    product, number = f({"x": tnp.arange(3)}, scale=2)

    assert isinstance(product, tb.Array)
    assert [0, 2, 4] == product.tolist()
    assert number == 2.5
    assert f.__name__ == "f"


def test_what_is_said_is_checked() -> None:
    """Types of arguments and results are those that were said, and a place is needed."""
    struct = tb.ShapeDtypeStruct((3,), np.int32)
    f = cp.colocated_python(lambda x: x)

    good = f.specialize(in_specs=((struct,), {}), out_specs_fn=lambda x: x)
    assert [0, 1, 2] == good(tnp.arange(3)).tolist()
    with pytest.raises(ArgumentValueError, match="arguments are"):
        good(tnp.arange(4))
    with pytest.raises(ArgumentValueError, match="results are"):
        f.specialize(out_specs_fn=lambda x: tb.ShapeDtypeStruct((2,), x.dtype))(tnp.arange(3))
    with pytest.raises(ArgumentValueError, match="specialize"):
        cp.colocated_python(lambda: 1)()
    assert cp.colocated_python(lambda: 1).specialize(devices=tb.devices())() == 1
    with pytest.raises(ArgumentTypeError, match="type str"):
        cp.colocated_python(lambda x: "text")(tnp.arange(3))


def test_objects_are_made_at_their_first_call() -> None:
    """The arguments of the constructor are kept until then; state stays."""
    made = []

    @cp.colocated_python_class
    class Counter:
        """Counts."""

        def __init__(self, start):
            made.append(start)
            self.n = start

        def count(self, x):
            self.n += int(x)
            return self.n

    counter, other = Counter(1), Counter(5)

    assert made == []
    assert [3, 5] == [int(counter.count(tnp.int32(2))) for _ in range(2)]
    assert made == [1]
    assert int(other.count(tnp.int32(0))) == 5
    assert (Counter.__name__, Counter.__doc__) == ("Counter", "Counts.")


def test_threads_that_call_first_share_the_object() -> None:
    """The constructor runs once, however long it takes."""
    made = []

    @cp.colocated_python_class
    class Slow:
        def __init__(self):
            time.sleep(0.05)
            made.append(self)

        def same(self, x):
            return x

    slow = Slow()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(slow.same, [tnp.arange(2)] * 4))

    assert len(made) == 1


def test_results_have_the_structure_that_was_said() -> None:
    """Another tree of results is an error with both trees."""
    function = cp.colocated_python(lambda x: [x]).specialize(out_specs_fn=lambda x: {"a": x})

    with pytest.raises(ArgumentValueError, match="results are a tree"):
        function(tnp.arange(3))
