"""The text and the bases of the classes that build their message themselves."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tracebridge.core.errors.config_errors import OptionValueError, UnknownOptionError
from tracebridge.core.errors.dtype_errors import (
    DtypeMismatchError,
    TypePromotionError,
    UnsupportedDtypeError,
)
from tracebridge.core.errors.exchange_errors import (
    ExchangeError,
    LayoutError,
    OwnershipError,
    UnsupportedExchangeDtypeError,
)
from tracebridge.core.errors.runtime_errors import (
    ArgumentMismatchError,
    DeletedArrayError,
    NonFiniteError,
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
    LinearityError,
    MissingRuleError,
    TreeMismatchError,
    UnboundAxisNameError,
    UndefinedRuleError,
)
from tracebridge.core.ir.aval import ShapedArray


class FakeTracer:
    """What a message needs of a tracer."""

    aval = ShapedArray((3,), np.dtype(np.float32))

    def describe_origin(self) -> str:
        return "argument x of f at model.py:3"


@pytest.mark.parametrize(
    ("cls", "bases"),
    [
        (UnexpectedTracerError, (TypeError,)),
        (ConcretizationTypeError, (TypeError,)),
        (TracerBoolConversionError, (TypeError, ConcretizationTypeError)),
        (TracerArrayConversionError, (TypeError,)),
        (TracerIntegerConversionError, (TypeError, ConcretizationTypeError)),
        (NonConcreteBooleanIndexError, (IndexError,)),
        (NonHashableStaticArgumentError, (ValueError,)),
        (ShapeMismatchError, (TypeError, ValueError)),
        (BroadcastError, (TypeError, ValueError)),
        (RankError, (TypeError, ValueError)),
        (AxisError, (ValueError, IndexError, np.exceptions.AxisError)),
        (IndexingError, (IndexError, ValueError)),
        (InconclusiveDimensionError, (ValueError,)),
        (DtypeMismatchError, (TypeError,)),
        (UnsupportedDtypeError, (TypeError,)),
        (TypePromotionError, (ValueError, TypeError)),
        (GradientTypeError, (TypeError,)),
        (ArgumentSpecError, (ValueError, TypeError)),
        (FormatFieldError, (ArgumentSpecError, KeyError, IndexError)),
        (AxisSpecError, (ValueError, TypeError)),
        (AxisSizeError, (ValueError,)),
        (UnboundAxisNameError, (NameError,)),
        (TreeMismatchError, (ValueError, TypeError)),
        (CustomRuleError, (TypeError, ValueError)),
        (UndefinedRuleError, (CustomRuleError, AttributeError)),
        (ClosedOverValueError, (CustomRuleError, UnexpectedTracerError)),
        (MissingRuleError, (TypeError, NotImplementedError)),
        (LinearityError, (TypeError,)),
        (EffectError, (ValueError, NotImplementedError)),
        (DeletedArrayError, (RuntimeError,)),
        (ArgumentMismatchError, (TypeError,)),
        (NonFiniteError, (FloatingPointError,)),
        (ExchangeError, (TypeError,)),
        (UnsupportedExchangeDtypeError, (ExchangeError,)),
        (LayoutError, (ValueError,)),
        (OwnershipError, (RuntimeError,)),
        (UnknownOptionError, (AttributeError,)),
        (OptionValueError, (ValueError, TypeError)),
    ],
)
def test_code_that_catches_a_builtin_keeps_working(
    cls: type[Exception], bases: tuple[type[Exception], ...]
) -> None:
    """Each class derives from what comparable libraries raise in its place."""
    assert [base for base in bases if not issubclass(cls, base)] == []


def test_bool_of_a_tracer() -> None:
    """The message names the type, the place, the cause and replacements for `if`."""
    assert str(TracerBoolConversionError(FakeTracer())) == (
        "Abstract tracer value where a concrete value is needed: "
        "got a traced value of type f32[3]. "
        "Attempted boolean conversion, as in `if x:` or `x and y`.\n"
        "    where: argument x of f at model.py:3\n"
        "    way out: use tb.numpy.where, tb.lax.cond, tb.lax.while_loop or "
        "tb.numpy.logical_and, or make the argument static (static_argnums)\n"
        "    see https://tracebridge.readthedocs.io/en/latest/errors/TracerBoolConversionError.html"
    )


def test_concretization_shows_the_context() -> None:
    """What needed the value stands in the message."""
    text = str(ConcretizationTypeError(FakeTracer(), "It is the shape of zeros()."))

    assert text.startswith(
        "Abstract tracer value where a concrete value is needed: "
        "got a traced value of type f32[3]. "
        "It is the shape of zeros().\n    where: argument x"
    )


@pytest.mark.parametrize(
    ("cls", "word"),
    [
        (TracerArrayConversionError, "__array__()"),
        (TracerIntegerConversionError, "__index__()"),
        (NonConcreteBooleanIndexError, "boolean index"),
    ],
)
def test_conversions_name_the_method_and_the_origin(cls: type[Exception], word: str) -> None:
    """The reader sees which conversion failed, of what, and where it came from."""
    text = str(cls(FakeTracer()))

    assert word in text
    assert "f32[3]" in text
    assert "model.py:3" in text


def test_leaked_tracer() -> None:
    """A leak names the function whose tracing ended."""
    text = str(UnexpectedTracerError(tracer=FakeTracer(), function="f"))

    assert text.startswith(
        "Encountered an unexpected tracer: a traced value of type f32[3] was made"
    )
    assert "while f was traced" in text
    assert "it has leaked" in text
    assert str(UnexpectedTracerError("own words")).startswith("own words\n")


def test_an_error_does_not_keep_its_tracer_alive() -> None:
    """Holding the exception must not hold the tracer: that would be a leak itself."""
    tracer = FakeTracer()
    ref = weakref.ref(tracer)
    errors = [
        TracerBoolConversionError(tracer),
        TracerArrayConversionError(tracer),
        TracerIntegerConversionError(tracer),
        NonConcreteBooleanIndexError(tracer),
        UnexpectedTracerError(tracer=tracer),
    ]
    del tracer
    gc.collect()

    assert ref() is None
    assert len(errors) == 5


def test_non_hashable_static_argument() -> None:
    """Names the argument, the call and the type that cannot be hashed."""
    text = str(NonHashableStaticArgumentError([1], argument="'n'", call="jit(f)"))

    assert text.startswith(
        "jit(f): argument 'n' is static, so it must be hashable; got a value of type list\n"
    )


@pytest.mark.parametrize(
    ("axis", "ndim", "allowed"),
    [
        (5, 2, "an integer from -2 to 1"),
        (-3, 2, "an integer from -2 to 1"),
        (0, 0, "no axis at all"),
    ],
)
def test_axis_error_says_what_is_allowed(axis: int, ndim: int, allowed: str) -> None:
    """The range of right values is in the message, the numbers in NumPy's attributes."""
    exc = AxisError(axis, ndim, call="sum")

    assert str(exc) == (
        f"sum: axis {axis} is out of bounds for an array of dimension {ndim}, "
        f"expected {allowed}\n    see https://tracebridge.readthedocs.io/en/latest/errors/AxisError.html"
    )
    assert (exc.axis, exc.ndim) == (axis, ndim)


def test_axis_error_from_text() -> None:
    """Like NumPy's, it takes a finished message."""
    exc = AxisError("repeated axis")

    assert (
        str(exc)
        == "repeated axis\n    see https://tracebridge.readthedocs.io/en/latest/errors/AxisError.html"
    )
    assert exc.axis is None


def test_unbound_axis_name_lists_those_that_are_bound() -> None:
    """A misspelt name is found by comparing."""
    text = str(UnboundAxisNameError("i", call="psum", bound=("batch", "model")))

    assert text.startswith("psum: unbound axis name: i; axis names bound here: 'batch', 'model'\n")
    assert "bound here: none" in str(UnboundAxisNameError("i"))


def test_missing_rule_names_primitive_and_rule() -> None:
    """Both are in the message and in attributes."""
    exc = MissingRuleError("sin", "transpose")

    assert str(exc).startswith("Transpose rule for 'sin' not implemented\n")
    assert (exc.primitive, exc.rule) == ("sin", "transpose")


def test_deleted_array_tells_donation_from_deletion() -> None:
    """When the call that took the array is known, it is named."""
    donated = str(DeletedArrayError("float32[3]", donated_to="f (argument 0)"))
    deleted = str(DeletedArrayError("float32[3]"))

    assert donated.startswith("the array float32[3] was donated to f (argument 0) and cannot")
    assert "donate_argnums" in donated
    assert deleted.startswith("Array has been deleted or donated: the array float32[3] cannot")
