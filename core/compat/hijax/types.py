"""Types of values that programs define, and the attributes that traced values have by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from tracebridge.core.compat.programs import AbstractValue
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.late_attributes import present
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import identity, register_value_type
from tracebridge.core.ir.user_type import CLASSES, UserType
from tracebridge.core.util.public_path import public_path

_PATH = "tracebridge.experimental.hijax"


@public_path(_PATH)
@final
class aval_method:
    """A method of a type that traced values of the type have: ``fun(value, *args)``."""

    __slots__ = ("fun",)

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


@public_path(_PATH)
@final
class aval_property:
    """A property of a type that traced values of the type have: ``fget(value)``."""

    __slots__ = ("fget",)

    def __init__(self, fget: Callable[[Any], Any]) -> None:
        self.fget = fget


@final
class _OfType:
    """An attribute of tracers that the type of the value defines, if it does."""

    __slots__ = ("_name", "_otherwise")

    def __init__(self, name: str, otherwise: Any) -> None:
        self._name, self._otherwise = name, otherwise

    def __get__(self, instance: Any, owner: type) -> Any:
        found = None
        if instance is not None and isinstance(instance.aval, UserType):
            found = _in_mro(type(instance.aval), self._name)
        if type(found) is aval_method:
            return found.fun.__get__(instance)
        if type(found) is aval_property:
            return found.fget(instance)
        if self._otherwise is not None:
            return self._otherwise.__get__(instance, owner)
        who = f"type object {owner.__name__!r}"
        if instance is not None:
            who = f"a traced value of type {instance.aval.str_short()}"
        raise AttributeError(f"{who} has no attribute {self._name!r}")


def _in_mro(cls: type, name: str) -> Any:
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)


def offer_on_tracers(cls: type) -> None:
    """Let traced values have what a class of types defines for them.

    An attribute that arrays have stays theirs: types of users come before it.
    """
    for name, value in list(vars(cls).items()):
        # Operators of arrays are looked up by each operation: they stay as they are.
        if not isinstance(value, aval_method | aval_property) or name.startswith("__"):
            continue
        known = _in_mro(Tracer, name)
        if type(known) is not _OfType:
            setattr(Tracer, name, _OfType(name, known if name in present(Tracer, [name]) else None))


@public_path(_PATH)
class HiType(UserType):
    """Base of types of values that a program defines; the values are immutable objects.

    A subclass is hashable and comparable, and defines how a value is made of arrays: ``lo_ty``
    (their types), ``lower_val`` and ``raise_val``; for derivatives ``to_tangent_aval``, and of
    types of tangents ``vspace_zero`` and ``vspace_add``; for ``vmap`` and loops over slices
    ``dec_rank``, ``inc_rank`` and ``leading_axis_spec``. ``register_hitype`` says which objects
    are values of it. Operations on them are ``HiPrimitive`` and ``VJPHiPrimitive``.
    """

    is_high: ClassVar[bool] = True
    has_qdd: Any = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        offer_on_tracers(cls)


AbstractValue.register(UserType)


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Let objects of a class be values of a type that a program defines.

    The class gets the attributes ``aval``, the type, and ``_trace``, by which the engine knows
    values.

    Args:
        val_cls: the class; none of Python's own.
        typeof_fn: function of an object that gives its type, a ``HiType``.

    Raises:
        ArgumentTypeError: no attributes can be set on the class.

    >>> import dataclasses
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.hijax import HiType, ShapedArray, register_hitype
    >>> @dataclasses.dataclass(frozen=True)
    ... class Celsius:
    ...     degrees: tb.Array
    >>> @dataclasses.dataclass(frozen=True)
    ... class CelsiusType(HiType):
    ...     def lo_ty(self):
    ...         return [ShapedArray((), "float32")]
    ...     def lower_val(self, value):
    ...         return [value.degrees]
    ...     def raise_val(self, degrees):
    ...         return Celsius(degrees)
    >>> register_hitype(Celsius, lambda value: CelsiusType())
    >>> print(tb.jit(lambda value: value)(Celsius(tb.numpy.float32(20.0))).degrees)
    20.0
    """
    try:
        val_cls.aval = property(typeof_fn)
        val_cls._trace = None
    except TypeError as error:
        msg = f"register_hitype: attributes of {val_cls!r} cannot be set"
        raise ArgumentTypeError(msg, hint="register a class of your own") from error
    CLASSES.add(val_cls)
    register_value_type(val_cls, identity)
