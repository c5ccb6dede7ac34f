"""The base of all our exceptions: the form of a message, the link to its page, pickling.

A message says what was called, what was got, what was expected, where, and the way out. A class
is raised either with one finished sentence or with those five fields.

No exception keeps a tracer or an array: an exception lives as long as its traceback, and keeping
a tracer alive is itself a leak. Fields are text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


_PACKAGE = __name__.partition(".")[0]

DOCUMENTATION = "https://tracebridge.readthedocs.io/en/latest"
_LINK = f"    see {DOCUMENTATION}/errors/"
"""Where the pages of ``docs/`` are read; the one place that says so."""

PUBLIC_MODULE = f"{_PACKAGE}.errors"
"""From where users import the classes: what their ``__module__`` says."""


def compose(
    message: str = "",
    *,
    call: str = "",
    got: str = "",
    expected: str = "",
    where: str = "",
    hint: str = "",
) -> str:
    """Return one message; empty fields are left out.

    With a finished sentence the fields follow it, one a line; without one, `call`, `got` and
    `expected` make the sentence.
    """
    lines = [message]
    if message:
        lines += [f"    got: {got}"] if got else []
        lines += [f"    expected: {expected}"] if expected else []
    else:
        parts = [f"got {got}" if got else "", f"expected {expected}" if expected else ""]
        facts = ", ".join(part for part in parts if part)
        lines = [f"{call}: {facts}" if call and facts else call or facts]
    if where:
        lines.append(f"    where: {where}")
    if hint:
        lines.append(f"    way out: {hint}")
    return "\n".join(line for line in lines if line)


def _rebuild(
    cls: type[TracebridgeError], args: tuple[object, ...], state: Mapping[str, object]
) -> TracebridgeError:
    """Unpickle without calling `__init__`, whose parameters differ from class to class."""
    exc = cls.__new__(cls, *args)
    exc.args = args
    for name, value in state.items():
        setattr(exc, name, value)
    return exc


class TracebridgeError(Exception):
    """Base of all exceptions that this package raises on purpose.

    Concrete classes also derive from the builtin that a reader would expect (TypeError, ...).

    The base class of every exception that this package raises on purpose. You meet its
    subclasses; catch this one to catch them all.

    Wrong::

        try:
            tnp.ones(3).reshape(2)
        except Exception:  # also hides bugs of your own code
            pass

    Right::

        try:
            tnp.ones(3).reshape(2)
        except tb.errors.TracebridgeError as error:
            print(f"left out: {error}")
    """

    page: ClassVar[str] = f"{DOCUMENTATION}/errors/TracebridgeError.html"
    """Address of the page that explains the class; its text is in the docstring too."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Give our classes their own page; a subclass from elsewhere keeps its parent's."""
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] == _PACKAGE:
            cls.page = f"{DOCUMENTATION}/errors/{cls.__name__}.html"
            cls.__module__ = PUBLIC_MODULE

    def __init__(
        self,
        message: str = "",
        *,
        call: str = "",
        got: str = "",
        expected: str = "",
        where: str = "",
        hint: str = "",
    ) -> None:
        self.call = call
        self.got = got
        self.expected = expected
        self.where = where
        self.hint = hint
        text = compose(message, call=call, got=got, expected=expected, where=where, hint=hint)
        link = f"    see {self.page}"
        if _LINK in text:  # of an error that the message quotes
            text = "\n".join([line for line in text.split("\n") if not line.startswith(_LINK)])
        super().__init__(f"{text}\n{link}" if text else link)

    def say(self, name: str) -> None:
        """Let the message begin with the public function `name`, unless it names it already."""
        text = str(self)
        if name not in text:
            self.args = (f"{name}: {text}", *self.args[1:])

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


TracebridgeError.__module__ = PUBLIC_MODULE


class InternalError(TracebridgeError, RuntimeError):
    """The engine broke one of its own rules: a bug of ours, not of the caller.

    Its traceback is never filtered.

    The engine broke one of its own rules. Your program is not to blame. The traceback is shown in
    full; please report it together with the smallest program that shows it.

    Wrong::

        try:
            tb.jit(tnp.sin)(1.0)
        except tb.errors.InternalError:
            pass  # the result is missing, and nobody learns of the bug

    Right::

        with tb.disable_jit():  # often a way round, and it narrows the place down
            tb.jit(tnp.sin)(1.0)
    """

    def __init__(self, message: str = "", **fields: str) -> None:
        fields.setdefault("hint", "please report this message with the program that caused it")
        super().__init__(message, **fields)
