"""Every exception and warning that the package raises on purpose; docs/errors explains each."""

from __future__ import annotations

from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    IntegerRangeError,
    TreeDepthError,
    UnsupportedArgumentError,
)
from tracebridge.core.errors.base import (
    InternalError,
    TracebridgeError,
)
from tracebridge.core.errors.check_errors import (
    CheckError,
    DivisionByZeroError,
    FailedCheckError,
    NanError,
    OutOfBoundsError,
)
from tracebridge.core.errors.config_errors import (
    OptionFrozenError,
    OptionValueError,
    UnknownOptionError,
)
from tracebridge.core.errors.dtype_errors import (
    DtypeMismatchError,
    ExplicitX64Error,
    ExplicitX64Warning,
    TypePromotionError,
    UnsupportedDtypeError,
)
from tracebridge.core.errors.exchange_errors import (
    ExchangeError,
    LayoutError,
    OwnershipError,
    ProgramMismatchError,
    UnsupportedExchangeDtypeError,
)
from tracebridge.core.errors.export_errors import (
    ExportError,
)
from tracebridge.core.errors.ref_errors import (
    RefError,
)
from tracebridge.core.errors.runtime_errors import (
    ArgumentMismatchError,
    BackendNotFoundError,
    CallbackError,
    CompileError,
    DeletedArrayError,
    DevicePlacementError,
    DonationError,
    ExecutionError,
    ForkedProcessError,
    GuardError,
    NonFiniteError,
    OtherProcessesError,
    OutOfMemoryError,
    PluginError,
    ProcessesError,
    ProfilerError,
    UnsupportedJaxlibError,
    XlaRuntimeError,
)
from tracebridge.core.errors.shape_errors import (
    AxisError,
    BroadcastError,
    InconclusiveDimensionError,
    IndexingError,
    RankError,
    ShapeMismatchError,
)
from tracebridge.core.errors.tracer_errors import (
    ConcretizationTypeError,
    NonConcreteBooleanIndexError,
    NonHashableStaticArgumentError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    AxisSpecError,
    ClosedOverValueError,
    CustomRuleError,
    EffectError,
    FormatFieldError,
    GradientTypeError,
    JaxprTypeError,
    KeyReuseError,
    LinearityError,
    MissingRuleError,
    NoMeshError,
    ShardingAssertionError,
    ShardingTypeError,
    TreeMismatchError,
    UnboundAxisNameError,
    UndefinedRuleError,
)

# Names by which code written for others knows these classes. The most general ones stand for
# several classes there.
_ALIASES: dict[str, type[Exception]] = {
    "InconclusiveDimensionOperation": InconclusiveDimensionError,
    "JAXIndexError": NonConcreteBooleanIndexError,
    "JAXTypeError": TracebridgeError,
    "JaxRuntimeError": XlaRuntimeError,
}


def __getattr__(name: str) -> type[Exception]:
    """The class that another name stands for."""
    if name not in _ALIASES:
        msg = f"module 'tracebridge.errors' has no attribute {name!r}"
        raise AttributeError(msg)
    return _ALIASES[name]


def __dir__() -> list[str]:
    return sorted([*__all__, *_ALIASES])


__all__ = [
    "ArgumentMismatchError",
    "ArgumentSpecError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "AxisError",
    "AxisSizeError",
    "AxisSpecError",
    "BackendNotFoundError",
    "BroadcastError",
    "CallbackError",
    "CheckError",
    "ClosedOverValueError",
    "CompileError",
    "ConcretizationTypeError",
    "CustomRuleError",
    "DeletedArrayError",
    "DevicePlacementError",
    "DivisionByZeroError",
    "DonationError",
    "DtypeMismatchError",
    "EffectError",
    "ExchangeError",
    "ExecutionError",
    "ExplicitX64Error",
    "ExplicitX64Warning",
    "ExportError",
    "FailedCheckError",
    "ForkedProcessError",
    "FormatFieldError",
    "GradientTypeError",
    "GuardError",
    "InconclusiveDimensionError",
    "IndexingError",
    "IntegerRangeError",
    "InternalError",
    "JaxprTypeError",
    "KeyReuseError",
    "LayoutError",
    "LinearityError",
    "MissingRuleError",
    "NanError",
    "NoMeshError",
    "NonConcreteBooleanIndexError",
    "NonFiniteError",
    "NonHashableStaticArgumentError",
    "OptionFrozenError",
    "OptionValueError",
    "OtherProcessesError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "OwnershipError",
    "PluginError",
    "ProcessesError",
    "ProfilerError",
    "ProgramMismatchError",
    "RankError",
    "RefError",
    "ShapeMismatchError",
    "ShardingAssertionError",
    "ShardingTypeError",
    "TracebridgeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TreeDepthError",
    "TreeMismatchError",
    "TypePromotionError",
    "UnboundAxisNameError",
    "UndefinedRuleError",
    "UnexpectedTracerError",
    "UnknownOptionError",
    "UnsupportedArgumentError",
    "UnsupportedDtypeError",
    "UnsupportedExchangeDtypeError",
    "UnsupportedJaxlibError",
    "XlaRuntimeError",
]
