"""No public function is forgotten: each is in the table, or is tested elsewhere."""

from __future__ import annotations

import types

import tracebridge.numpy as tnp
from tests.bridge.numpy.test_table import CASES

DTYPES = "gives a dtype or a fact about dtypes: tests/bridge/numpy/test_dtype_functions.py"
SHAPES = "gives Python numbers: tests/bridge/numpy/test_dtype_functions.py"
FILES = "reads, writes or prints: tests/bridge/numpy/test_io.py"
MAKES = "gives a function: tests/bridge/numpy/test_ufuncs.py"
ORDER = "the order inside the two parts is free: tests/bridge/numpy/test_partition.py"

FITS = "by linear algebra, several results: tests/bridge/numpy/test_polynomial_fits.py"

EXEMPT = {
    **dict.fromkeys(["array_repr", "array_str", "from_dlpack", "frombuffer", "fromfile"], FILES),
    **dict.fromkeys(["fromiter", "fromstring", "get_printoptions", "load", "printoptions"], FILES),
    **dict.fromkeys(["save", "savez", "set_printoptions"], FILES),
    **dict.fromkeys(["can_cast", "isdtype", "issubdtype"], DTYPES),
    **dict.fromkeys(["promote_types", "result_type", "iscomplexobj", "isrealobj"], DTYPES),
    **dict.fromkeys(["broadcast_shapes", "isscalar", "iterable", "ndim", "shape", "size"], SHAPES),
    **dict.fromkeys(["frompyfunc", "vectorize"], MAKES),
    **dict.fromkeys(["argpartition", "partition"], ORDER),
    **dict.fromkeys(["polyfit", "roots"], FITS),
    "einsum_path": "gives a plan: tests/bridge/numpy/test_einsum.py",
}


def public_functions() -> set[str]:
    """The names of what can be called and is no class."""
    found = {name for name in dir(tnp) if not name.startswith("_")}
    values = {name: getattr(tnp, name) for name in found}
    return {
        name
        for name, value in values.items()
        if callable(value) and not isinstance(value, type | types.ModuleType)
    }


def test_every_function_is_in_the_table_or_exempt() -> None:
    """A new function needs a line."""
    assert set() == public_functions() - {c.name for c in CASES} - set(EXEMPT)


def test_arguments_by_name() -> None:
    """Functions that NumPy makes ufuncs, and others take names, take names."""
    two, one = ["fmax", "fmin", "gcd", "lcm"], ["i0", "iscomplex", "isreal", "trunc"]

    assert [3, 2, 1, 6] == [int(getattr(tnp, name)(x1=3, x2=2)) for name in two]
    assert [1.0, False, True, 0.0] == [float(getattr(tnp, name)(x=0.0)) for name in one]


def test_exemptions_are_needed() -> None:
    """What is in the table, or gone, is not exempt."""
    assert set() == set(EXEMPT) & {c.name for c in CASES}
    assert set() == set(EXEMPT) - public_functions()


def test_functions_have_derivatives_in_the_table() -> None:
    """Functions that are no steps, no comparisons and no searches are differentiated."""
    plain = {c.name for c in CASES} - {c.name for c in CASES if c.derivative}

    assert WITHOUT_DERIVATIVE == plain


# Steps, comparisons, searches, positions and constants: their derivatives are zero, or they have
# no float argument to differentiate.
WITHOUT_DERIVATIVE = {
    "all",
    "allclose",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "around",
    "array_equal",
    "array_equiv",
    "bartlett",
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "blackman",
    "ceil",
    "count_nonzero",
    "diag_indices",
    "diag_indices_from",
    "digitize",
    "empty",
    "empty_like",
    "equal",
    "eye",
    "flatnonzero",
    "floor",
    "frexp",
    "fromfunction",
    "gcd",
    "greater",
    "greater_equal",
    "hamming",
    "hanning",
    "heaviside",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "identity",
    "indices",
    "intersect1d",
    "invert",
    "isclose",
    "iscomplex",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "ix_",
    "kaiser",
    "lcm",
    "left_shift",
    "less",
    "less_equal",
    "lexsort",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "mask_indices",
    "nanargmax",
    "nanargmin",
    "nextafter",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "packbits",
    "ravel_multi_index",
    "right_shift",
    "rint",
    "round",
    "searchsorted",
    "setdiff1d",
    "setxor1d",
    "sign",
    "signbit",
    "sort_complex",
    "spacing",
    "tri",
    "tril_indices",
    "tril_indices_from",
    "trim_zeros",
    "triu_indices",
    "triu_indices_from",
    "trunc",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unpackbits",
    "unravel_index",
    "zeros",
    "zeros_like",
}
