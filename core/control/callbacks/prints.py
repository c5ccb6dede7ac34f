"""debug.print and debug.log: formatted values of traced code."""

from __future__ import annotations

import contextlib
import logging
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.control.callbacks.debug import bind_debug, check_options
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError, FormatFieldError

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


logger = logging.getLogger("tracebridge.debug")


@api_boundary
def print_values(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Callable[..., None] | None:
    """Print values of traced code when the program runs.

    The text is made by ``fmt.format(*args, **kwargs)`` each time the program comes to this point.
    An f-string would be made once, while tracing. See ``debug.callback`` for what transformations
    do.

    Args:
        fmt: the text, with ``{}`` and ``{name}`` for the values. Without it the result is a
            function that takes it with its values, with the options set.
        *args: trees of arrays, or anything that can be formatted.
        ordered: whether it prints after the ordered debugging calls before it.
        partitioned: whether to print the parts of arrays on each device; programs run on one.
        skip_format_check: whether to leave it to the program to find out that values and text do
            not fit.
        **kwargs: values by name.

    Raises:
        ArgumentSpecError: the text names a value that is not given, or a value is not named.

    >>> import tracebridge as tb
    >>> @tb.jit
    ... def double(x):
    ...     tb.debug.print("x is {} and twice that {twice:.1f}", x, twice=2.0 * x)
    ...     return 2 * x
    >>> y = double(3)
    x is 3 and twice that 6.0
    """
    call = "debug.log" if _use_logging else "debug.print"
    options = {"ordered": ordered, "partitioned": partitioned}
    if fmt is None:
        check_options(call, args, kwargs)

        def with_options(fmt: str, *args: Any, **kwargs: Any) -> None:
            _print(call, fmt, args, kwargs, check=not skip_format_check, **options)

        return api_boundary(with_options)
    _print(call, fmt, args, kwargs, check=not skip_format_check, **options)
    return None


print_values.__name__ = print_values.__qualname__ = "print"


@api_boundary
def log(
    fmt: str | None = None,
    *args: object,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = True,
    **kwargs: object,
) -> Callable[..., None] | None:
    """Log values of traced code when the program runs: ``debug.print`` into ``logging``.

    The record goes to logger ``tracebridge.debug`` at level INFO. Arguments are those of
    ``debug.print``.

    >>> import tracebridge as tb
    >>> tb.jit(lambda x: tb.debug.log("x is {}", x))(1.0)
    """
    return print_values(
        fmt,
        *args,
        ordered=ordered,
        partitioned=partitioned,
        skip_format_check=skip_format_check,
        _use_logging=_use_logging,
        **kwargs,
    )


def _print(
    call: str,
    fmt: object,
    args: tuple[Value, ...],
    kwargs: Mapping[str, object],
    *,
    check: bool,
    ordered: bool,
    partitioned: bool,
) -> None:
    if not isinstance(fmt, str):
        msg = f"{call}: fmt is {fmt!r} of type {type(fmt).__name__}"
        raise ArgumentSpecError(msg, expected="a str")
    if check:
        check_format(call, fmt, args, kwargs)
    write = Writer(fmt, to_log=call == "debug.log")
    bind_debug(call, write, args, kwargs, ordered=ordered, partitioned=partitioned)


@final
class Writer:
    """Formats values and writes the text."""

    __slots__ = ("__weakref__", "_options", "fmt", "to_log")

    def __init__(self, fmt: str, *, to_log: bool) -> None:
        self.fmt = fmt
        self.to_log = to_log
        # Programs may run on threads of the runtime, where NumPy has its default options.
        self._options: Any = np.get_printoptions()

    @property
    def __name__(self) -> str:
        return repr(self.fmt)

    def __call__(self, *args: object, **kwargs: object) -> None:
        known = {k: v for k, v in self._options.items() if k != "override_repr"}
        with np.printoptions(**known):
            text = self.fmt.format(*args, **kwargs)
        if self.to_log:
            logger.info("%s", text)
            return
        sys.stdout.write(f"{text}\n")
        with contextlib.suppress(AttributeError, ValueError):
            sys.stdout.flush()


# checks while tracing ----------------------------------------------------------------------------


@final
class _Names(string.Formatter):
    """Notes which values a text uses; formats nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int | str] = set()

    def get_field(self, field_name: str, args: Sequence[Value], kwargs: Mapping[str, Any]) -> Any:
        first = field_name.replace("[", ".").split(".")[0]
        self.used.add(int(first) if first.isdigit() else first)
        # For the values of format specifications, as in {x:{width}}.
        return 0, first

    def format_field(self, value: object, format_spec: str) -> str:
        del value, format_spec
        return "0"

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(value, conversion)


def check_format(call: str, fmt: str, args: Sequence[Value], kwargs: Mapping[str, Any]) -> None:
    """Raise unless ``fmt`` is well formed and uses exactly the values that are given."""
    names = _Names()
    try:
        names.vformat(fmt, args, kwargs)
    except ValueError as error:
        msg = f"{call}: {fmt!r} is no format string: {error}"
        raise ArgumentSpecError(msg, hint="write {{ and }} for braces") from error
    fields_of_call = {*range(len(args)), *kwargs}
    missing = [n for n in names.used if n not in fields_of_call]
    if missing:
        shown = _shown(missing)
        msg = f"{call}: {fmt!r} names values that are not given: {shown}"
        raise FormatFieldError(msg, got=_listed(args, kwargs))
    unused = [n for n in fields_of_call if n not in names.used]
    if unused:
        shown = _shown(unused)
        msg = f"{call}: {fmt!r} does not use these of its values: {shown}"
        raise ArgumentSpecError(
            msg, hint="give a plain str with {} for each value; an f-string is formatted too early"
        )


def _shown(names: Sequence[int | str]) -> str:
    return ", ".join(sorted([f"{{{n}}}" for n in names]))


def _listed(args: Sequence[Value], kwargs: Mapping[str, Any]) -> str:
    names = ", ".join(kwargs)
    return f"{len(args)} by position" + (f" and {names}" if names else "")
