"""Every exception and warning that the package raises on purpose; docs/errors explains each."""

from __future__ import annotations

from tracebridge.core.errors.base import (
    InternalError,
    TracebridgeError,
)
from tracebridge.core.errors.config_errors import (
    OptionValueError,
    UnknownOptionError,
)
from tracebridge.core.errors.dtype_errors import (
    DtypeMismatchError,
    ExplicitX64Warning,
    TypePromotionError,
    UnsupportedDtypeError,
)
from tracebridge.core.errors.exchange_errors import (
    ExchangeError,
    LayoutError,
    OwnershipError,
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
    ForkedProcessError,
    NonFiniteError,
    PluginError,
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
    CustomRuleError,
    GradientTypeError,
    JaxprTypeError,
    KeyReuseError,
    LinearityError,
    MissingRuleError,
    TreeMismatchError,
    UnboundAxisNameError,
)

__all__ = [
    "ArgumentMismatchError",
    "ArgumentSpecError",
    "AxisError",
    "AxisSizeError",
    "AxisSpecError",
    "BackendNotFoundError",
    "BroadcastError",
    "CallbackError",
    "CompileError",
    "ConcretizationTypeError",
    "CustomRuleError",
    "DeletedArrayError",
    "DevicePlacementError",
    "DonationError",
    "DtypeMismatchError",
    "ExchangeError",
    "ExplicitX64Warning",
    "ExportError",
    "ForkedProcessError",
    "GradientTypeError",
    "InconclusiveDimensionError",
    "IndexingError",
    "InternalError",
    "JaxprTypeError",
    "KeyReuseError",
    "LayoutError",
    "LinearityError",
    "MissingRuleError",
    "NonConcreteBooleanIndexError",
    "NonFiniteError",
    "NonHashableStaticArgumentError",
    "OptionValueError",
    "OwnershipError",
    "PluginError",
    "RankError",
    "ShapeMismatchError",
    "TracebridgeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TreeMismatchError",
    "TypePromotionError",
    "UnboundAxisNameError",
    "UnexpectedTracerError",
    "UnknownOptionError",
    "RefError",
    "UnsupportedDtypeError",
    "UnsupportedExchangeDtypeError",
    "UnsupportedJaxlibError",
    "XlaRuntimeError",
]
