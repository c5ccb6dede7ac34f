"""Array constants of the functions that lowering rules trace."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.extend.core import Primitive
from tracebridge.interpreters import mlir

X = np.float32([1.0, 2.0, 3.0])


def test_arrays_of_lowering_functions():
    """Each traced definition has its own array constants, however short they live."""
    p = Primitive("add_counts")
    p.def_abstract_eval(lambda x, *, k: x)

    def add(x, *, k):
        counts = np.arange(3, dtype=np.float32) if k % 2 else np.arange(3, dtype=np.int32)
        return x + tnp.asarray(counts + k)

    mlir.register_lowering(p, mlir.lower_fun(add, multiple_results=False))

    def f(x):
        return [p.bind(x, k=k) for k in range(12)]

    expected = [X + np.arange(3) + k for k in range(12)]
    np.testing.assert_array_equal(expected, tb.jit(f)(X))
