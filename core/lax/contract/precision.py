"""How precise products are: Precision, DotAlgorithm, the presets, and their normal form."""

from __future__ import annotations

__all__ = ["DotAlgorithm", "DotAlgorithmPreset", "Precision", "PrecisionLike"]

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from tracebridge.core._jaxlib import mlir
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import as_dtype, bfloat16, float16, float32, float64
from tracebridge.core.errors.config_errors import OptionValueError
from tracebridge.core.mlir.types import element_type
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.lax")
class Precision(enum.Enum):
    """How many passes a product of floating arrays may take. CPU computes in full in any case.

    >>> import tracebridge as tb
    >>> tb.lax.Precision("float32")
    Precision.HIGHEST
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        return _NAMES.get(value) if isinstance(value, str | None) else None

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


_NAMES: dict[Any, Precision] = {
    None: Precision.DEFAULT,
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}


class _TF32:
    """The 19-bit format of some accelerators: it has no NumPy dtype."""

    name = "tf32"


tf32: Any = _TF32()


@public_path("tracebridge.lax")
class DotAlgorithm(NamedTuple):
    """Which formats a product uses inside: the fields of StableHLO's ``dot_algorithm``.

    >>> import tracebridge as tb
    >>> tb.lax.DotAlgorithm("bfloat16", "bfloat16", "float32").accumulation_type
    'float32'
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


@public_path("tracebridge.lax")
class DotAlgorithmPreset(enum.Enum):
    """Named algorithms: format of the factors, of the sum, and the number of products.

    >>> import tracebridge as tb
    >>> tb.lax.DotAlgorithmPreset["BF16_BF16_F32"]
    DotAlgorithmPreset.BF16_BF16_F32
    """

    DEFAULT = 1
    ANY_F8_ANY_F8_F32 = 2
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 3
    ANY_F8_ANY_F8_ANY = 4
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 5
    F16_F16_F16 = 6
    F16_F16_F32 = 7
    BF16_BF16_BF16 = 8
    BF16_BF16_F32 = 9
    BF16_BF16_F32_X3 = 10
    BF16_BF16_F32_X6 = 11
    BF16_BF16_F32_X9 = 12
    TF32_TF32_F32 = 13
    TF32_TF32_F32_X3 = 14
    F32_F32_F32 = 15
    F64_F64_F64 = 16

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def __str__(self) -> str:
        return self.name

    def algorithm(self, lhs: object, rhs: object, out: object) -> DotAlgorithm | None:
        """The algorithm for operands and a result of the given dtypes; None leaves it to XLA."""
        if self is DotAlgorithmPreset.DEFAULT:
            return None
        fast = self.name.endswith("_FAST_ACCUM")
        if self.name.startswith("ANY_F8"):
            total = float32 if "F8_F32" in self.name else out
            return DotAlgorithm(lhs, rhs, total, allow_imprecise_accumulation=fast)
        a, b, c, *times = self.name.split("_")
        count = int(times[0][1:]) if times else 1
        return DotAlgorithm(_FORMATS[a], _FORMATS[b], _FORMATS[c], num_primitive_operations=count)


_FORMATS = {"F16": float16, "BF16": bfloat16, "TF32": tf32, "F32": float32, "F64": float64}

PrecisionLike = (
    None
    | str
    | Precision
    | tuple[str | Precision, str | Precision]
    | DotAlgorithm
    | DotAlgorithmPreset
)

_EXPECTED = (
    "None, one of 'default', 'high', 'highest' (or 'fastest', 'bfloat16', 'bfloat16_3x', "
    "'tensorfloat32', 'float32'), a Precision, a pair of these, a DotAlgorithm, or a "
    "DotAlgorithmPreset or its name"
)


def canonical_precision(precision: object, name: str) -> Any:
    """The normal form: None, a pair of Precisions, a DotAlgorithm or a DotAlgorithmPreset.

    ``None`` stands for the option ``default_matmul_precision``.
    """
    if precision is None:
        precision = option("default_matmul_precision")
        if precision is None:
            return None
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision]
    if isinstance(precision, DotAlgorithmPreset | DotAlgorithm):
        return precision
    pair = precision if isinstance(precision, tuple | list) else (precision, precision)
    if len(pair) == 2 and all(map(_is_precision, pair)):
        first, second = [p if isinstance(p, Precision) else _NAMES[p] for p in pair]
        return first, second
    raise OptionValueError(call=name, got=f"precision={precision!r}", expected=_EXPECTED)


def is_pair(precision: object) -> bool:
    """Whether a precision in normal form is one for each operand. Algorithms are tuples, too."""
    return isinstance(precision, tuple) and not isinstance(precision, DotAlgorithm)


def exchanged(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a dot_general with its operands in the other order.

    The free axes of the result come in the other order, too.
    """
    (xc, yc), (xb, yb) = params["dimension_numbers"]
    precision = params["precision"]
    if is_pair(precision):
        precision = precision[::-1]
    return {**params, "dimension_numbers": ((yc, xc), (yb, xb)), "precision": precision}


def _is_precision(x: object) -> bool:
    return isinstance(x, Precision) or (isinstance(x, str) and x in _NAMES)


def precision_attributes(precision: Any, lhs: Any, rhs: Any, out: Any) -> dict[str, Any]:
    """Attributes ``precision_config`` and ``algorithm`` for operands and result of these dtypes."""
    hlo = mlir.stablehlo
    pair = precision
    attributes: dict[str, Any] = {}
    if isinstance(precision, DotAlgorithmPreset | DotAlgorithm):
        pair = None
        if isinstance(precision, DotAlgorithmPreset):
            algorithm = precision.algorithm(lhs, rhs, out)
        else:
            algorithm = precision
        if algorithm is not None:
            attributes["algorithm"] = _algorithm_attribute(algorithm)
    names = ("DEFAULT", "DEFAULT") if pair is None else (pair[0].name, pair[1].name)
    attributes["precision_config"] = mlir.ir.ArrayAttr.get(
        [hlo.PrecisionAttr.get(n) for n in names]
    )
    return attributes


def _algorithm_attribute(algorithm: DotAlgorithm) -> Any:
    def format_type(x: Any) -> Any:
        if x is tf32 or (isinstance(x, str) and x.lower() in ("tf32", "tensorfloat32")):
            return mlir.ir.FloatTF32Type.get()
        dtype: Any = as_dtype(x)
        return element_type(dtype)

    return mlir.stablehlo.DotAlgorithm.get(
        format_type(algorithm.lhs_precision_type),
        format_type(algorithm.rhs_precision_type),
        format_type(algorithm.accumulation_type),
        algorithm.lhs_component_count,
        algorithm.rhs_component_count,
        algorithm.num_primitive_operations,
        algorithm.allow_imprecise_accumulation,
    )
