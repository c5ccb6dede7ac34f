"""debug.breakpoint: looks at the frames of traced code while the program runs.

Where the function is traced the frames are captured: files, lines, local variables. The values of
those that are arrays come from the running program, so that the prompt shows numbers. It is a
look back: lines that come later cannot be stepped through, they ran when the function was traced.
"""

from __future__ import annotations

import bdb
import cmd
import linecache
import pprint
import sys
import types
from typing import Any, TextIO, final

from tracebridge.core.control.callbacks.debug import bind_debug
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import is_internal_file
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import flatten

_CONTEXT = 5  # lines shown around the current one
_MAX_TEXT = 500


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> Any:
    """Stop the program here and look at the values of traced code from a prompt.

    The prompt has the commands of pdb that look: ``p``, ``pp``, ``list``, ``up``, ``down``,
    ``where``, ``args``, and ``continue`` and ``quit``. Code that comes later has been traced
    already, so that there is no stepping. Without an interactive standard input the values
    of the innermost frame are printed and the program goes on.

    Args:
        backend: None or "cli", the prompt on the terminal.
        filter_frames: whether frames of this package are left out.
        num_frames: how many frames to keep, the innermost ones; None for all.
        ordered: whether it happens after the ordered debugging calls before it.
        token: a tree of arrays that must be there first; it is the result.
        **kwargs: ``stdin`` and ``stdout``, streams to use instead of those of the process.

    Returns:
        ``token``.

    Raises:
        ArgumentSpecError: an argument is not as described.
        CallbackError: the prompt was left with ``quit``, in a compiled program; else bdb.BdbQuit.

    >>> import io
    >>> import tracebridge as tb
    >>> @tb.jit
    ... def f(x):
    ...     y = x * 2
    ...     tb.debug.breakpoint(num_frames=1, stdin=io.StringIO("p y"))
    ...     return y
    >>> print(f(3.0))
    stopped in f at line 4 of ...
    (tbdb) Array(6., dtype=float32)
    (tbdb)
    6.0
    """
    if backend not in (None, "cli"):
        msg = f"debug.breakpoint: backend is {backend!r}"
        raise ArgumentSpecError(msg, expected="None or 'cli'")
    wrong = sorted(set(kwargs) - {"stdin", "stdout"})
    if wrong:
        msg = f"debug.breakpoint: got {', '.join(wrong)}"
        raise ArgumentSpecError(msg, expected="stdin or stdout as further arguments")
    frames = _captured(sys._getframe(1), filter_frames, num_frames)
    values = [{n: _kept(v) for n, v in f.variables.items()} for f in frames]
    prompt = _Prompt(frames, kwargs.get("stdin"), kwargs.get("stdout"))
    bind_debug("debug.breakpoint", prompt, (values, token), {}, ordered=ordered, partitioned=False)
    return token


@final
class Frame:
    """One Python frame: where it is, its variables and those of its module."""

    __slots__ = ("filename", "function", "line", "module", "variables")

    def __init__(self, frame: types.FrameType) -> None:
        self.filename = frame.f_code.co_filename
        self.function = frame.f_code.co_name
        self.line = frame.f_lineno
        names = frame.f_locals
        # The variables of a module are those of its namespace, which is not to be copied.
        self.variables = {} if frame.f_locals is frame.f_globals else dict(names)
        self.module = frame.f_globals

    def describe(self) -> str:
        return f"{self.function} at line {self.line} of {self.filename}"


def _captured(
    frame: types.FrameType | None, filter_frames: bool, num_frames: int | None
) -> list[Frame]:
    """The frames from the innermost one on."""
    found: list[Frame] = []
    while frame is not None and (num_frames is None or len(found) < num_frames):
        if not (filter_frames and is_internal_file(frame.f_code.co_filename)):
            found.append(Frame(frame))
        frame = frame.f_back
    return found


@final
class _Plain:
    """A variable that is kept as it is, whatever it is made of."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _kept(value: object) -> Any:
    """A variable in the form in which it goes through the program."""
    try:
        leaves, tree = flatten(value)
    except Exception:  # noqa: BLE001 - classes of others may refuse to be taken apart
        return _Plain(value)
    if not any([isinstance(leaf, Tracer) for leaf in leaves]):
        return _Plain(value)
    return tree.unflatten([_traced(leaf) for leaf in leaves])


def _traced(leaf: object) -> Any:
    if isinstance(leaf, Tracer):
        unusable = leaf._trace.done or is_extended(leaf.aval.dtype)
        return _Plain(repr(leaf)) if unusable else leaf
    try:
        as_value(leaf)
    except UnsupportedDtypeError:
        return _Plain(leaf)
    return leaf


def _unwrapped(value: object) -> Any:
    leaves, tree = flatten(value)
    return tree.unflatten([leaf.value if type(leaf) is _Plain else leaf for leaf in leaves])


@final
class _Prompt:
    """What the program calls."""

    __slots__ = ("__weakref__", "_frames", "_stdin", "_stdout")
    __name__ = "prompt"

    def __init__(self, frames: list[Frame], stdin: TextIO | None, stdout: TextIO | None) -> None:
        self._frames = frames
        self._stdin = stdin
        self._stdout = stdout

    def __call__(self, values: list[dict[str, Any]], token: object) -> None:
        del token
        variables = [{n: _unwrapped(v) for n, v in row.items()} for row in values]
        out = self._stdout or sys.stdout
        debugger = Debugger(self._frames, variables, self._stdin or sys.stdin, out)
        if self._frames:
            out.write(f"stopped in {self._frames[0].describe()}\n")
        if self._stdin is None and not _is_interactive():
            out.write("standard input is not interactive, so that there is no prompt:\n")
            debugger.onecmd("args")
            return
        debugger.cmdloop()


def _is_interactive() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:
        return False


@final
class Debugger(cmd.Cmd):
    """The prompt. Frame 0 is the innermost one."""

    prompt = "(tbdb) "

    def __init__(
        self, frames: list[Frame], variables: list[dict[str, Any]], stdin: TextIO, stdout: TextIO
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is sys.__stdin__
        self._frames = frames
        self._variables = variables
        self._position = 0

    def _write(self, text: str) -> None:
        self.stdout.write(f"{text}\n")

    def _evaluated(self, text: str, show: Any) -> None:
        frame, variables = self._frames[self._position], self._variables[self._position]
        try:
            # Names in comprehensions are looked up among globals.
            self._write(show(eval(text, {**frame.module, **variables})))  # noqa: S307 - what a debugger is for
        except Exception as error:  # noqa: BLE001 - what the user typed may do anything
            self._write(f"{type(error).__name__}: {error}")

    def _move(self, steps: int, end: str) -> None:
        target = self._position + steps
        if not 0 <= target < len(self._frames):
            self._write(f"this is the {end} frame")
            return
        self._position = target
        self._write(self._frames[target].describe())

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        """Evaluate an expression."""
        if line == "EOF":
            self._write("")
            return
        self._evaluated(line, repr)

    def precmd(self, line: str) -> str:
        return "continue" if line == "EOF" and self._newline() else line

    def _newline(self) -> bool:
        self._write("")
        return True

    def do_p(self, arg: str) -> None:
        """Show the value of an expression."""
        self._evaluated(arg, repr)

    def do_pp(self, arg: str) -> None:
        """Show the value of an expression, over several lines if it is long."""
        self._evaluated(arg, pprint.pformat)

    def do_up(self, arg: str) -> None:
        """Go to the caller of this frame."""
        del arg
        self._move(1, "outermost")

    def do_down(self, arg: str) -> None:
        """Go to the frame that this one called."""
        del arg
        self._move(-1, "innermost")

    def do_where(self, arg: str) -> None:
        """Show all frames, the innermost one last."""
        del arg
        for i in range(len(self._frames) - 1, -1, -1):
            mark = ">" if i == self._position else " "
            self._write(f"{mark} {self._frames[i].describe()}")

    def do_list(self, arg: str) -> None:
        """Show the lines around the current one."""
        del arg
        frame = self._frames[self._position]
        for number in range(max(1, frame.line - _CONTEXT), frame.line + _CONTEXT + 1):
            text = linecache.getline(frame.filename, number)
            if text:
                mark = "->" if number == frame.line else "  "
                self._write(f"{mark} {number:4} {text.rstrip()}")

    def do_args(self, arg: str) -> None:
        """Show the variables of this frame."""
        del arg
        for name, value in self._variables[self._position].items() if self._variables else ():
            text = repr(value)
            self._write(f"{name} = {text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + '...'}")

    def do_continue(self, arg: str) -> bool:
        """Let the program go on."""
        del arg
        return True

    def do_quit(self, arg: str) -> bool:
        """End the program with an error."""
        del arg
        raise bdb.BdbQuit

    do_u, do_d, do_w, do_bt, do_l = do_up, do_down, do_where, do_where, do_list
    do_a, do_c, do_q, do_exit = do_args, do_continue, do_quit, do_quit
