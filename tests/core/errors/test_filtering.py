"""Tracebacks show the user's frames; boundaries, nesting, causes, stored tracebacks."""

from __future__ import annotations

import collections
import functools
import pickle
import statistics
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tracebridge.core._jaxlib.xla import get_traceback
from tracebridge.core.errors import filtering
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.base import InternalError
from tracebridge.core.errors.filtering import api_boundary, user_frame

ENGINE = """
def apply(boundary):
    @boundary
    def outer(fn):
        return middle(fn)

    def middle(fn):
        return fn()

    @boundary
    def op():
        raise_error()

    @boundary
    def op_of_op():
        return helper(op)

    def helper(fn):
        return fn()

    @boundary
    def internal_error(make):
        raise make()

    @boundary
    def chained():
        try:
            helper(op)
        except ValueError as exc:
            raise TypeError("second") from exc

    return outer, op, op_of_op, internal_error, chained

def raise_error():
    raise ValueError("first")

def where(call):
    return call()
"""


class Engine:
    """Functions whose file belongs to the engine."""

    def __init__(self) -> None:
        names: dict[str, Any] = {}
        exec(compile(ENGINE, "<tracebridge test engine>", "exec"), names)
        self.outer, self.op, self.op_of_op, self.internal_error, self.chained = names["apply"](
            api_boundary
        )
        self.where: Callable[..., Any] = names["where"]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture(autouse=True)
def _filtering_on() -> Iterator[None]:
    """Tests of the engine may run with filtering off."""
    before = filtering.mode
    filtering.set_mode("auto")
    yield
    filtering.set_mode(before)


def frames_of(fn: Callable[..., Any], *args: Any) -> list[str]:
    """Names of the functions in the traceback of the exception that `fn` raises."""
    with pytest.raises(Exception) as info:  # noqa: PT011 - any exception has a traceback
        fn(*args)
    return [frame.name for frame in traceback.extract_tb(info.value.__traceback__)][1:]


def test_result_and_arguments_pass_through() -> None:
    """A boundary changes nothing on success, and keeps name and docstring."""

    @api_boundary
    def add(x: int, *, y: int = 0) -> int:
        """Add."""
        return x + y

    assert add(1, y=2) == 3
    assert (add.__name__, add.__doc__) == ("add", "Add.")


def test_internal_frames_go_user_frames_stay(engine: Engine) -> None:
    """User -> public -> internal -> user: the internal ones are gone."""

    def user() -> None:
        raise KeyError("mine")

    assert frames_of(engine.outer, user) == ["user"]


def test_an_error_inside_a_public_function_ends_at_its_call(engine: Engine) -> None:
    """The engine shows nothing, the public function neither."""
    assert frames_of(engine.op) == []


def test_the_line_that_called_a_public_function_is_the_last(engine: Engine) -> None:
    """Nested boundaries: a user function that the engine called stays."""

    def user() -> None:
        engine.op()

    assert frames_of(engine.outer, user) == ["user"]


def test_public_functions_called_by_the_engine_are_hidden(engine: Engine) -> None:
    """A public function that another one uses is an internal detail there."""
    assert frames_of(engine.op_of_op) == []


def test_frames_of_a_framework_go_where_the_engine_called_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User -> framework -> engine -> framework -> user: only what the engine called is its own."""
    monkeypatch.setattr(filtering, "_is_framework", {"<framework>": True})
    names: dict[str, Any] = {}
    exec(compile("def framework(call): return call()", "<framework>", "exec"), names)

    def user() -> None:
        raise KeyError("mine")

    def dispatched() -> Any:
        return engine.outer(lambda: names["framework"](user))

    assert frames_of(names["framework"], dispatched) == [
        "framework", "dispatched", "<lambda>", "framework", "user"
    ]  # fmt: skip
    called_by_engine = functools.partial(names["framework"], user)
    assert frames_of(engine.outer, called_by_engine) == ["user"]


def test_causes_are_filtered_too(engine: Engine) -> None:
    """The traceback of the exception behind `from` has no engine frames either."""
    with pytest.raises(TypeError) as info:
        engine.chained()

    cause = info.value.__cause__
    assert cause is not None
    assert "helper" not in [f.name for f in traceback.extract_tb(cause.__traceback__)]


def test_off_shows_everything(engine: Engine) -> None:
    """Who debugs the engine sees all frames."""
    filtering.set_mode("off")

    assert frames_of(engine.op) == ["boundary", "op", "raise_error"]


@pytest.mark.parametrize("mode", ["auto", "remove_frames", "quiet_remove_frames"])
def test_modes_that_remove_frames(engine: Engine, mode: str) -> None:
    """They show the same, and add nothing to the message."""
    filtering.set_mode(mode)

    assert frames_of(engine.op) == []
    with pytest.raises(ValueError, match=r"^first$") as info:
        engine.op()
    assert not hasattr(info.value, "__notes__")


def test_tracebackhide_marks_what_the_others_remove(engine: Engine) -> None:
    """All frames are there; those of the engine ask IPython and pytest to hide them."""

    def user() -> None:
        engine.op()

    removed = frames_of(engine.outer, user)
    filtering.set_mode("tracebackhide")
    with pytest.raises(ValueError, match="first") as info:
        engine.outer(user)

    frames = [frame for frame, _ in traceback.walk_tb(info.value.__traceback__)][1:]
    names = [frame.f_code.co_name for frame in frames]
    hidden = [frame.f_locals.get("__tracebackhide__", False) for frame in frames]
    assert names == ["boundary", "outer", "middle", "user", "boundary", "op", "raise_error"]
    assert removed == [name for name, hide in zip(names, hidden, strict=True) if not hide]


def test_internal_errors_are_never_filtered(engine: Engine) -> None:
    """A bug of ours keeps its whole traceback."""
    frames = frames_of(engine.internal_error, lambda: InternalError("broken"))

    assert frames == ["boundary", "internal_error"]


def test_a_traceback_of_internal_frames_only_is_kept() -> None:
    """Rather too much than nothing."""
    names: dict[str, Any] = {}
    exec(compile("def f(): raise ValueError", "<tracebridge test>", "exec"), names)
    try:
        names["f"]()
    except ValueError as exc:
        tb = exc.__traceback__
    assert tb is not None

    assert filtering.filter_traceback(tb.tb_next) is tb.tb_next


def test_files_of_the_package_and_of_jaxlib_are_internal() -> None:
    """Tests and user code are not, the engine and its back end are."""
    assert filtering.is_internal_file(filtering.__file__)
    assert filtering.is_internal_file("<frozen runpy>")
    assert not filtering.is_internal_file(__file__)
    assert not filtering.is_internal_file("<string>")


def test_mark_internal_hides_further_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library built on the engine may hide its own frames."""
    monkeypatch.setattr(filtering, "_extra_prefixes", filtering._extra_prefixes)
    assert not filtering.is_internal_file("/elsewhere/lib/a.py")

    filtering.mark_internal("/elsewhere/lib/")

    assert filtering.is_internal_file("/elsewhere/lib/a.py")
    assert not filtering.is_internal_file("/elsewhere/other.py")
    filtering._is_internal.clear()


def test_user_frame_of_the_running_frames(engine: Engine) -> None:
    """The innermost frame outside the engine, with file, line and function."""
    found = engine.where(lambda: engine.where(user_frame))

    assert found is not None
    file, line, function = found
    assert file == __file__
    assert function.endswith("test_user_frame_of_the_running_frames.<locals>.<lambda>")
    assert line > 0


def test_user_frame_of_a_stored_traceback(engine: Engine) -> None:
    """A `Traceback` stored earlier resolves to the line that made it."""

    def user() -> Any:
        return engine.where(get_traceback)

    stored = user()
    found = user_frame(stored)

    assert found is not None
    assert found[0] == __file__
    assert found[1] == user.__code__.co_firstlineno + 1
    assert found[2].endswith("<locals>.user")


def test_base_exceptions_pass_untouched(engine: Engine) -> None:
    """KeyboardInterrupt and SystemExit are not ours to edit."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as info:
        engine.outer(interrupt)

    names = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)][1:]
    assert names == ["boundary", "outer", "middle", "interrupt"]


NAMED = """
from tracebridge.core.errors.argument_errors import ArgumentValueError
def steps(index_error):
    def plain(x):
        return range(x)
    def ours(x):
        raise ArgumentValueError(x)
    def other(x):
        raise index_error("out")
    def call(fn):
        return fn()
    return plain, ours, other, call
"""


@pytest.fixture
def steps() -> Any:
    """Functions of the engine: a plain TypeError, one of ours, another builtin, a callback."""
    space: dict[str, Any] = {}
    exec(compile(NAMED, "<tracebridge steps>", "exec"), space)
    return space["steps"](IndexError)


def test_plain_errors_of_a_step_become_ours_and_say_the_function(steps: Any) -> None:
    """A TypeError from inside is an ArgumentTypeError of the public function."""
    with pytest.raises(ArgumentTypeError, match=r"^ranges: 'str' object") as caught:
        filtering.hiding(steps[0], "ranges")("a")

    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_option_off_keeps_the_plain_error_as_cause(steps: Any) -> None:
    """Who debugs the engine sees where it was raised."""
    filtering.set_mode("off")
    with pytest.raises(ArgumentTypeError) as caught:
        filtering.hiding(steps[0], "ranges")("a")

    assert type(caught.value.__cause__) is TypeError


def test_our_errors_get_the_name_once(steps: Any) -> None:
    """The innermost public function names itself; one that is named already stays."""
    inner = filtering.hiding(steps[1], "inner")
    with pytest.raises(ArgumentValueError, match=r"^inner: bad\n"):
        filtering.hiding(lambda: inner("bad"), "outer")()
    with pytest.raises(ArgumentValueError, match=r"^inner got 3\n"):
        inner("inner got 3")


def test_errors_of_the_callers_code_and_of_the_signature_stay(steps: Any) -> None:
    """What a callback raises is not ours; a wrong number of arguments is Python's to say."""
    plain, ours, other, call = steps
    with pytest.raises(ArgumentValueError, match=r"^mine\n"):
        filtering.hiding(call, "apply")(lambda: ours("mine"))
    with pytest.raises(TypeError, match=r"plain\(\) missing 1 required") as caught:
        filtering.hiding(plain, "ranges")()
    assert type(caught.value) is TypeError
    with pytest.raises(IndexError, match=r"^out$"):
        filtering.hiding(other, "other")(1)


def test_a_named_error_pickles(steps: Any) -> None:
    """Errors cross processes."""
    with pytest.raises(ArgumentValueError) as caught:
        filtering.hiding(steps[1], "inner")("bad")

    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))


class _Asked:
    """Whose hash and equality note whether a user asked."""

    def __init__(self) -> None:
        self.by_user: list[bool] = []

    def __hash__(self) -> int:
        self.by_user.append(filtering.is_line_of_user())
        return 0

    def __eq__(self, other: object) -> bool:
        self.by_user.append(filtering.is_line_of_user())
        return False


OURS = """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Record:
    value: object

def same(x):
    return Record(x) == Record(1), {x: 1}, (x, 1) == (1, 1), __import__("statistics").mode([x])

def call(fun, *args):
    return fun(*args)
"""


def test_whose_line_it_is() -> None:
    """Lines of the package are ours, also through C and generated methods; others the user's."""
    x = _Asked()
    ours: dict[str, Any] = {"__name__": filtering.__name__}
    exec(compile(OURS, "<string>", "exec"), ours)

    ours["same"](x)
    assert len(x.by_user) >= 4
    assert not any(x.by_user)
    for line in (
        lambda: x == 1,
        lambda: (1, x) == (1, 2),
        lambda: x in [1, 2],
        lambda: {x: 1},
        lambda: statistics.mode([x]),
        lambda: collections.UserDict({0: 1}).get(x),
        lambda: ours["call"](lambda: x != 1),
        lambda: eval("x == 1", {"x": x}),
    ):
        x.by_user.clear()
        line()
        assert x.by_user
        assert all(x.by_user)


def test_who_called_the_line() -> None:
    """A function that the engine calls, or somebody at the top."""
    ours: dict[str, Any] = {"__name__": filtering.__name__}
    exec(compile(OURS, "<string>", "exec"), ours)

    assert not filtering.is_called_by_engine()
    assert not ours["call"](filtering.is_called_by_engine)
    assert ours["call"](lambda: filtering.is_called_by_engine())
