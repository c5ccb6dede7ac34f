"""``tracebridge.numpy`` against the text of the array API standard, version 2024.12."""

from __future__ import annotations

import inspect
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

# Name -> parameters, as the standard writes them; "/" and "*" as in Python.
FUNCTIONS = """
arange(start, /, stop, step, *, dtype, device)
asarray(obj, /, *, dtype, device, copy)
empty(shape, *, dtype, device)
empty_like(x, /, *, dtype, device)
eye(n_rows, n_cols, /, *, k, dtype, device)
from_dlpack(x, /, *, device, copy)
full(shape, fill_value, *, dtype, device)
full_like(x, /, fill_value, *, dtype, device)
linspace(start, stop, /, num, *, dtype, device, endpoint)
meshgrid(*arrays, indexing)
ones(shape, *, dtype, device)
ones_like(x, /, *, dtype, device)
tril(x, /, *, k)
triu(x, /, *, k)
zeros(shape, *, dtype, device)
zeros_like(x, /, *, dtype, device)
astype(x, dtype, /, *, copy, device)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
take(x, indices, /, *, axis)
take_along_axis(x, indices, /, *, axis)
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes)
vecdot(x1, x2, /, *, axis)
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis)
expand_dims(x, /, *, axis)
flip(x, /, *, axis)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis)
reshape(x, /, shape, *, copy)
roll(x, /, shift, *, axis)
squeeze(x, /, axis)
stack(arrays, /, *, axis)
tile(x, repetitions, /)
unstack(x, /, *, axis)
argmax(x, /, *, axis, keepdims)
argmin(x, /, *, axis, keepdims)
count_nonzero(x, /, *, axis, keepdims)
nonzero(x, /)
searchsorted(x1, x2, /, *, side, sorter)
where(condition, x1, x2, /)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis, descending, stable)
sort(x, /, *, axis, descending, stable)
cumulative_prod(x, /, *, axis, dtype, include_initial)
cumulative_sum(x, /, *, axis, dtype, include_initial)
max(x, /, *, axis, keepdims)
mean(x, /, *, axis, keepdims)
min(x, /, *, axis, keepdims)
prod(x, /, *, axis, dtype, keepdims)
std(x, /, *, axis, correction, keepdims)
sum(x, /, *, axis, dtype, keepdims)
var(x, /, *, axis, correction, keepdims)
all(x, /, *, axis, keepdims)
any(x, /, *, axis, keepdims)
diff(x, /, *, axis, n, prepend, append)
clip(x, /, min, max)
"""

UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj",
    "cos", "cosh", "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log",
    "log1p", "log2", "log10", "logical_not", "negative", "positive", "real", "reciprocal",
    "round", "sign", "signbit", "sin", "sinh", "square", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip

BINARY = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal",
    "hypot", "less", "less_equal", "logaddexp", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow", "remainder", "subtract",
]  # fmt: skip

CONSTANTS = {"e": math.e, "inf": math.inf, "pi": math.pi, "newaxis": None}


@pytest.mark.parametrize("line", FUNCTIONS.strip().splitlines())
def test_functions_take_what_the_standard_says(line: str) -> None:
    """Positional arguments by position, those after the star by their names."""
    name, _, inside = line.partition("(")
    required, _, keywords = inside.rstrip(")").partition("*")
    signature = inspect.signature(getattr(tnp, name))
    if inside.startswith("*"):
        assert inspect.Parameter.VAR_POSITIONAL in {p.kind for p in signature.parameters.values()}
        return
    positional = [p.strip() for p in required.split(",") if p.strip() not in ("", "/")]
    names = [p.strip() for p in keywords.split(",") if p.strip()]

    signature.bind(*[0] * len(positional), **dict.fromkeys(names, 0))


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_elementwise_functions_take_arrays_by_position(name: str) -> None:
    """One operand or two, and arrays of the namespace come out."""
    f = getattr(tnp, name)
    integers = name.startswith("bitwise")
    x = tnp.ones(3, dtype="int32" if integers else "float32")

    assert isinstance(f(x) if name in UNARY else f(x, x), tb.Array)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name: str) -> None:
    """The four constants; nan beside them."""
    assert CONSTANTS[name] == getattr(tnp, name)
    assert math.isnan(tnp.nan)


def test_arrays_know_their_namespace() -> None:
    """Outside of jit and inside."""
    seen: list[ModuleType] = []
    x = tnp.ones(3)
    tb.jit(lambda y: seen.append(y.__array_namespace__()))(x)

    assert [tnp, tnp, tnp] == [
        *seen, x.__array_namespace__(), x.__array_namespace__(api_version="2024.12"),
    ]  # fmt: skip
    assert tnp.__array_api_version__ == "2024.12"


def test_other_versions_are_refused() -> None:
    """The error names the version that there is."""
    with pytest.raises(ValueError, match=r"'1999', expected '2024\.12'"):
        tnp.ones(3).__array_namespace__(api_version="1999")


@pytest.mark.parametrize("name", ["T", "mT", "device", "dtype", "ndim", "shape", "size"])
def test_attributes_of_arrays(name: str) -> None:
    """What generic code reads."""
    assert hasattr(tnp.ones((2, 3)), name)


def test_to_device() -> None:
    """An array can be moved to each device that the namespace lists."""
    x = tnp.arange(3)
    for device in tnp.__array_namespace_info__().devices():
        moved = x.to_device(device)
        assert device is None or moved.device == device
        np.testing.assert_array_equal(np.asarray(x), np.asarray(moved))


# What the namespace says of itself ---------------------------------------------------------------


@pytest.mark.parametrize(("x64", "bits"), [(False, 32), (True, 64)])
def test_default_dtypes_are_those_of_new_arrays(x64: bool, bits: int) -> None:
    """They follow the option for 64 bits, as creation functions do."""
    with tb.enable_x64(x64):
        defaults = tnp.__array_namespace_info__().default_dtypes()

        assert f"float{bits}" == defaults["real floating"] == tnp.zeros(2).dtype
        assert f"complex{2 * bits}" == defaults["complex floating"] == tnp.asarray(1j).dtype
        assert f"int{bits}" == defaults["integral"] == tnp.asarray(1).dtype
        assert f"int{bits}" == defaults["indexing"] == tnp.argmax(tnp.zeros(2)).dtype


@pytest.mark.parametrize("kind", ["bool", "signed integer", "unsigned integer", "integral",
                                  "real floating", "complex floating", "numeric"])  # fmt: skip
def test_dtypes_are_of_their_kind(kind: str) -> None:
    """Each is of the kind, by its name, and arrays of it can be made."""
    found = tnp.__array_namespace_info__().dtypes(kind=kind)

    assert found
    for name, dtype in found.items():
        assert tnp.isdtype(dtype, kind)
        assert name == tnp.zeros(2, dtype=dtype).dtype.name


def test_dtypes_of_several_kinds() -> None:
    """A tuple is the union, None is everything."""
    info = tnp.__array_namespace_info__()

    assert {*info.dtypes(kind="bool"), *info.dtypes(kind="integral")} == {
        *info.dtypes(kind=("bool", "integral"))
    }
    assert {*info.dtypes(kind=("bool", "numeric"))} == {*info.dtypes()}


@pytest.mark.parametrize("kind", ["float", "floats", 3])
def test_other_kinds_are_refused(kind: Any) -> None:
    """A ValueError for a name, a TypeError for what is no name."""
    with pytest.raises(TypeError if kind == 3 else ValueError, match="kind"):
        tnp.__array_namespace_info__().dtypes(kind=kind)


def test_capabilities() -> None:
    """The three keys of the standard."""
    capabilities = tnp.__array_namespace_info__().capabilities()

    assert {"boolean indexing", "data-dependent shapes", "max dimensions"} == {*capabilities}


# Special cases: the first operand, the second, the result ----------------------------------------

INF, NAN = math.inf, math.nan
SPECIAL = {
    # "If x1_i is either +infinity or -infinity and x2_i is either, the result is NaN", and so on.
    "floor_divide": [
        (INF, INF, NAN), (INF, -INF, NAN), (-INF, INF, NAN), (0.0, 0.0, NAN), (-0.0, 0.0, NAN),
        (0.0, 2.0, 0.0), (0.0, -2.0, -0.0), (-0.0, 2.0, -0.0), (-0.0, -2.0, 0.0),
        (2.0, 0.0, INF), (2.0, -0.0, -INF), (-2.0, 0.0, -INF), (-2.0, -0.0, INF),
        (2.0, INF, 0.0), (-2.0, -INF, 0.0), (NAN, 1.0, NAN), (1.0, NAN, NAN),
    ],
    "remainder": [
        (INF, 2.0, NAN), (-INF, 2.0, NAN), (INF, INF, NAN), (0.0, 0.0, NAN), (-0.0, -0.0, NAN),
        (2.0, 0.0, NAN), (2.0, -0.0, NAN), (-2.0, 0.0, NAN), (0.0, 3.0, 0.0), (-0.0, 3.0, 0.0),
        (0.0, -3.0, -0.0), (-0.0, -3.0, -0.0), (2.0, INF, 2.0), (2.0, -INF, -INF),
        (-2.0, INF, INF), (-2.0, -INF, -2.0), (NAN, 1.0, NAN),
    ],
    "pow": [
        (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (NAN, 2.0, NAN), (2.0, INF, INF),
        (2.0, -INF, 0.0), (-1.0, INF, 1.0), (1.0, -INF, 1.0), (0.5, INF, 0.0), (0.5, -INF, INF),
        (INF, 2.0, INF), (INF, -2.0, 0.0), (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF),
        (-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (0.0, 2.0, 0.0), (0.0, -2.0, INF),
        (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -3.0, -INF), (-0.0, -2.0, INF),
        (-2.0, 0.5, NAN),
    ],
    "divide": [
        (INF, INF, NAN), (0.0, 0.0, NAN), (0.0, -2.0, -0.0), (2.0, 0.0, INF), (2.0, -0.0, -INF),
        (-2.0, 0.0, -INF), (INF, -0.0, -INF), (2.0, INF, 0.0), (-2.0, INF, -0.0),
    ],
    "atan2": [
        (1.0, 0.0, math.pi / 2), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.0, -0.0, math.pi),
        (0.0, -1.0, math.pi), (-0.0, 1.0, -0.0), (-0.0, -0.0, -math.pi), (-1.0, 0.0, -math.pi / 2),
        (1.0, INF, 0.0), (1.0, -INF, math.pi), (INF, 1.0, math.pi / 2), (INF, INF, math.pi / 4),
        (INF, -INF, 3 * math.pi / 4), (-INF, INF, -math.pi / 4),
    ],
    "hypot": [(INF, NAN, INF), (NAN, -INF, INF), (NAN, 1.0, NAN), (-0.0, 0.0, 0.0)],
    "logaddexp": [(NAN, INF, NAN), (INF, 1.0, INF), (-INF, -INF, -INF), (-INF, 1.0, 1.0)],
    "maximum": [(NAN, 1.0, NAN), (1.0, NAN, NAN)],
    "minimum": [(NAN, 1.0, NAN), (1.0, NAN, NAN)],
    "copysign": [(NAN, -1.0, NAN), (1.0, -0.0, -1.0), (0.0, -1.0, -0.0)],
    "nextafter": [(0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (NAN, 1.0, NAN)],
}  # fmt: skip
CASES = [(name, *case) for name, cases in SPECIAL.items() for case in cases]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "x1", "x2", "expected"), CASES)
def test_special_cases(name: str, x1: float, x2: float, expected: float, dtype: str) -> None:
    """Zeros with their signs, infinities and NaN; eager and compiled, as numbers and as arrays."""
    with tb.enable_x64(dtype == "float64"):
        f = getattr(tnp, name)
        a, b = tnp.full(3, x1, dtype), tnp.full(3, x2, dtype)
        for got in (f(a, b), tb.jit(f)(a, b), f(a[0], b[0])):
            rtol = 1e-6 if dtype == "float32" else 1e-14
            np.testing.assert_allclose(np.asarray(got), expected, rtol=rtol)
            if expected == 0:
                assert np.all(np.signbit(got) == (math.copysign(1, expected) < 0))
            assert dtype == got.dtype.name


@pytest.mark.parametrize("operator", ["floordiv", "mod"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_in_place_forms_are_the_functions(operator: str, dtype: str) -> None:
    """``x //= y`` and ``x %= y`` bind the name to the result of the function."""
    values = [0.0, -0.0, 1, -7, 7] + ([INF, -INF, NAN] if dtype == "float32" else [])
    a, b = (tnp.asarray(v.ravel(), dtype=dtype) for v in np.meshgrid(values, values))
    x, f = a, {"floordiv": tnp.floor_divide, "mod": tnp.remainder}[operator]
    if operator == "floordiv":
        x //= b
    else:
        x %= b

    expected = np.asarray(f(a, b))
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.signbit(np.asarray(x)), np.signbit(expected))
