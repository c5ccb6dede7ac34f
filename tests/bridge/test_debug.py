"""tracebridge.debug: prints, callbacks, the prompt, placements."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, lax

X = np.arange(3, dtype=np.float32)


class Lines:
    """The lines that were printed since the last look."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def taken(self) -> list[str]:
        """The lines, after all effects have happened."""
        tb.effects_barrier()
        return self._capsys.readouterr().out.splitlines()


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """What is printed."""
    return Lines(capsys)


# print -------------------------------------------------------------------------------------------

FORMATS = {
    "positions": (lambda x: tb.debug.print("{} and {}", x, 2 * x), "1.5 and 3.0"),
    "names": (lambda x: tb.debug.print("{x} {y}", x=x, y=1), "1.5 1"),
    "numbers": (lambda x: tb.debug.print("{1} {0}", x, 1), "1 1.5"),
    "format": (lambda x: tb.debug.print("{x:8.3f}|{x:{w}}", x=x, w="5"), "   1.500|  1.5"),
    "conversion": (lambda x: tb.debug.print("{!r}", x), "Array(1.5, dtype=float32)"),
    "braces": (lambda x: tb.debug.print("{{}} {}", x), "{} 1.5"),
    "text": (lambda x: tb.debug.print("{} {}", "text", x), "text 1.5"),
    "tree": (lambda x: tb.debug.print("{d[a]} {t[0]}", d={"a": x}, t=(x,)), "1.5 1.5"),
    "constant": (lambda x: tb.debug.print("no values"), "no values"),
    "options": (lambda x: tb.debug.print(ordered=True)("{ordered}", ordered=x), "1.5"),
    "unchecked": (lambda x: tb.debug.print("{}", x, 2, skip_format_check=True), "1.5"),
}


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", FORMATS)
def test_print_formats(lines: Lines, wrap: Any, name: str) -> None:
    """The text is that of str.format, eagerly and from a program, at every call."""
    fun, expected = FORMATS[name]
    f = wrap(fun)
    for _ in range(2):
        f(tnp.float32(1.5))
        assert lines.taken() == [expected]


BAD_FORMATS = {
    "missing position": (lambda: tb.debug.print("{} {}", 1), "names values that are not given"),
    "missing name": (lambda: tb.debug.print("{x}", y=1), "names values that are not given: {x}"),
    "unused position": (lambda: tb.debug.print("{}", 1, 2), "does not use .* {1}"),
    "unused name": (lambda: tb.debug.print("{x}", x=1, y=2), "does not use .* {y}"),
    "f-string": (lambda: tb.debug.print(f"{X}", X), "f-string"),
    "syntax": (lambda: tb.debug.print("{", 1), "no format string"),
    "no text": (lambda: tb.debug.print(3), "fmt is 3"),
    "options with values": (lambda: tb.debug.print(None, 3), "no function or text"),
}


@pytest.mark.parametrize("name", BAD_FORMATS)
def test_print_checks_while_tracing(name: str) -> None:
    """Text and values that do not fit are found before the program runs."""
    call, message = BAD_FORMATS[name]
    with pytest.raises(errors.ArgumentSpecError, match=message):
        tb.make_jaxpr(lambda x: (call(), x)[1])(1.0)


def test_print_keeps_numpys_options(lines: Lines) -> None:
    """Arrays are printed as where the function was traced."""
    with np.printoptions(precision=2):
        f = tb.jit(lambda x: tb.debug.print("{}", x))
        f(np.float32([0.123456]))
    f(np.float32([0.123456]))
    assert lines.taken() == ["[0.12]", "[0.12]"]


def test_log(caplog: pytest.LogCaptureFixture) -> None:
    """The text becomes a record of logging."""
    with caplog.at_level(logging.INFO, logger="tracebridge.debug"):
        tb.jit(lambda x: tb.debug.log("x is {}", x))(1.0)
        tb.debug.log(ordered=True)("y is {y}", y=2)
    assert [r.getMessage() for r in caplog.records] == ["x is 1.0", "y is 2"]
    with pytest.raises(errors.ArgumentSpecError, match=r"debug\.log"):
        tb.debug.log("{}")


# transformations ---------------------------------------------------------------------------------


def show(name: str, x: Any, *, ordered: bool = False) -> None:
    """Print a value."""
    tb.debug.print(name + " {}", x, ordered=ordered)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("size", [3, 20])
@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
def test_vmap_prints_each_element(lines: Lines, wrap: Any, size: int, ordered: bool) -> None:
    """One line for each element, in order, whether written out or looped over."""
    wrap(tb.vmap(lambda x: show("x", x, ordered=ordered)))(np.arange(size))
    found = lines.taken()
    assert found == [f"x {k}" for k in range(size)]


@pytest.mark.parametrize("ordered", [False, True])
def test_derivatives_print_primals_once(lines: Lines, ordered: bool) -> None:
    """grad, jvp and linearize run the callback with the primals; pullbacks print nothing."""

    def f(x: Any) -> Any:
        show("x", x, ordered=ordered)
        return x * x

    for g in (tb.grad(f), tb.jit(tb.grad(f)), tb.grad(tb.jit(f)), tb.grad(tb.grad(f))):
        g(3.0)
        assert lines.taken() == ["x 3.0"]
    tb.jvp(f, (3.0,), (1.0,))
    assert lines.taken() == ["x 3.0"]
    pullback = tb.vjp(tb.jit(f), 3.0)[1]
    assert lines.taken() == ["x 3.0"]
    pullback(1.0)
    assert lines.taken() == []


def test_derivative_of_loops(lines: Lines) -> None:
    """The forward pass prints, the backward pass does not."""

    def scanned(x: Any) -> Any:
        def body(c: Any, k: Any) -> Any:
            tb.debug.print("{} {}", k, c, ordered=True)
            return c * x, c

        return lax.scan(body, 1.0, np.arange(2))[0]

    tb.grad(scanned)(2.0)
    assert lines.taken() == ["0 1.0", "1 2.0"]
    tb.jit(tb.grad(lambda x: lax.cond(x > 0, lambda: (show("T", x), x)[1], lambda: 0.0)))(2.0)
    assert lines.taken() == ["T 2.0"]

    def repeated(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 4, lambda c: (show("w", c), c * 2)[1], x)

    for run in (lambda: tb.jvp(repeated, (1.0,), (1.0,)), lambda: tb.linearize(repeated, 1.0)):
        run()
        assert lines.taken() == ["w 1.0", "w 2.0"]


def test_batched_choices_run_all_branches(lines: Lines) -> None:
    """Under vmap with different predicates the branches all run, for all elements."""
    xs = np.arange(2)
    tb.vmap(lambda x: lax.cond(x > 0, lambda: show("T", x), lambda: show("F", x)))(xs)
    assert lines.taken() == ["F 0", "F 1", "T 0", "T 1"]
    tb.vmap(lambda x: lax.while_loop(lambda c: c < 2, lambda c: (show("w", c), c + 1)[1], x))(xs)
    assert lines.taken() == ["w 0", "w 1", "w 1", "w 2"]


def test_checkpoint_prints_again(lines: Lines) -> None:
    """A checkpoint computes its body again, callbacks included; side effects are refused."""

    def f(x: Any) -> Any:
        show("x", x)
        return tnp.sin(tnp.sin(x))

    tb.grad(tb.checkpoint(f))(1.0)
    assert lines.taken() == ["x 1.0", "x 1.0"]
    tb.checkpoint(f)(1.0)
    assert lines.taken() == ["x 1.0"]

    def g(x: Any) -> Any:
        tb.experimental.io_callback(lambda: None, None)
        return tnp.sin(x)

    assert np.isclose(float(tb.checkpoint(g)(1.0)), np.sin(1.0))
    with pytest.raises(errors.EffectError, match="IOEffect cannot stand in a checkpoint"):
        tb.grad(tb.checkpoint(g))(1.0)


@pytest.mark.parametrize(
    ("policy", "times"),
    [
        (tb.checkpoint_policies.everything_saveable, 1),
        (tb.checkpoint_policies.nothing_saveable, 2),
        (tb.checkpoint_policies.save_any_names_but_these("z"), 2),
        (tb.checkpoint_policies.save_anything_except_these_names("y"), 1),
        (tb.checkpoint_policies.dots_saveable, 2),
    ],
    ids=["everything", "nothing", "without z", "without y", "dots"],
)
@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_policies_say_what_prints_again(lines: Lines, policy: Any, times: int, wrap: Any) -> None:
    """What is shown is shown again where it is computed again, and nothing more is computed."""

    def f(x: Any) -> Any:
        y = tb.ad_checkpoint.checkpoint_name(x + 1.0, "y")
        z = tb.ad_checkpoint.checkpoint_name(y * 2.0, "z")
        tb.debug.print("yz {} {}", y, z)
        return tb.ad_checkpoint.checkpoint_name(tnp.exp(z), "w")

    assert np.isclose(float(wrap(tb.grad(tb.checkpoint(f, policy=policy)))(0.5)), 2 * np.exp(3.0))
    assert lines.taken() == ["yz 1.5 3.0"] * times


def test_linear_transpose_drops_it(lines: Lines) -> None:
    """A transposed function does not compute the values to look at."""

    def f(x: Any) -> Any:
        show("x", x)
        return 2 * x

    (out,) = tb.linear_transpose(f, 1.0)(3.0)
    assert float(out) == 6.0
    assert lines.taken() == []


def test_custom_rules(lines: Lines) -> None:
    """The function prints where it runs, its rule where that runs."""

    @tb.custom_jvp
    def f(x: Any) -> Any:
        show("f", x)
        return x

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        show("rule", primals[0])
        return primals[0], tangents[0]

    tb.jit(f)(1.0)
    assert lines.taken() == ["f 1.0"]
    tb.grad(tb.jit(f))(1.0)
    assert lines.taken() == ["rule 1.0"]


# callback ----------------------------------------------------------------------------------------


def test_callback() -> None:
    """The function gets arrays and keywords; what it returns is ignored."""
    seen: list[Any] = []

    def look(x: Any, *, y: Any) -> int:
        seen.append((type(x) is tb.Array, float(x), float(y)))
        return 3

    assert tb.debug.callback(look, 1.0, y=2.0) is None
    tb.jit(lambda x: tb.debug.callback(look, x, y=x))(3.0)
    tb.debug.callback(ordered=True)(look, 4.0, y=5.0)
    tb.effects_barrier()
    assert seen == [(True, 1.0, 2.0), (True, 3.0, 3.0), (True, 4.0, 5.0)]


def test_callback_errors() -> None:
    """What is no function is refused; what the function raises reaches the caller."""
    with pytest.raises(errors.ArgumentSpecError, match="callback is 3"):
        tb.debug.callback(3)
    with pytest.raises(errors.ArgumentSpecError, match="got arguments"):
        tb.debug.callback(None, 3)
    with pytest.raises(errors.CallbackError, match="ZeroDivisionError"):
        tb.jit(lambda x: tb.debug.callback(lambda _: 1 // 0, x))(1.0)


def test_callbacks_outside_of_programs_raise_their_own_errors() -> None:
    """As any function that is called; a note says by whom it was called."""

    def fails(x: Any) -> Any:
        tb.debug.callback(lambda _: 1 // 0, x)
        return x

    for call, x in ((fails, 1.0), (tb.grad(fails), 1.0), (tb.vmap(fails), tnp.ones(2))):
        with pytest.raises(ZeroDivisionError) as caught:
            call(x)
        assert caught.value.__notes__ == ["raised in debug.callback(<lambda>)"]


# breakpoint --------------------------------------------------------------------------------------


def stop_in(text: str, wrap: Any = tb.jit, **options: Any) -> str:
    """What a prompt writes that gets the commands ``text``."""
    out = io.StringIO()

    def outer(x: Any) -> Any:
        y = {"twice": 2 * x, "word": "text"}
        return inner(y)

    def inner(y: Any) -> Any:
        z = y["twice"] + 1
        tb.debug.breakpoint(stdin=io.StringIO(text), stdout=out, **options)
        return z

    wrap(outer)(tnp.float32(1.5))
    tb.effects_barrier()
    return out.getvalue()


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit, tb.grad], ids=["eager", "jit", "grad"])
def test_breakpoint_shows_numbers(wrap: Any) -> None:
    """Variables of the frame, and expressions of them, have the numbers of the run."""
    text = stop_in("p z\ny['twice'] * 10\npp y['word']\n", wrap)
    assert "stopped in inner at line" in text
    for shown in ("Array(4., dtype=float32)", "30.", "'text'"):
        assert shown in text


def test_breakpoint_moves_between_frames() -> None:
    """up and down change the frame, where and list show it, args its variables."""
    text = stop_in("up\nargs\ndown\ndown\nlist\nwhere\nnonsense +\nundefined\ncontinue\n")
    assert "outer at line" in text
    assert "x = Array(1.5, dtype=float32)" in text
    assert "this is the innermost frame" in text
    assert "z = y[" in text
    assert "> inner at line" in text
    assert "SyntaxError" in text
    assert "NameError" in text


def test_breakpoint_limits() -> None:
    """num_frames keeps the innermost frames; unknown options are refused."""
    assert "this is the outermost frame" in stop_in("up\n", num_frames=1)
    with pytest.raises(errors.ArgumentSpecError, match="backend is 'web'"):
        tb.debug.breakpoint(backend="web")
    with pytest.raises(errors.ArgumentSpecError, match="got colour"):
        tb.debug.breakpoint(colour=True)


def test_breakpoint_quit() -> None:
    """quit ends the program with an error."""
    with pytest.raises(errors.CallbackError, match="BdbQuit"):
        stop_in("quit\n")


def test_breakpoint_without_a_terminal(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an interactive input it prints the variables and goes on."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def f(x: Any) -> Any:
        y = 2 * x
        return tb.debug.breakpoint(token=y, num_frames=1)

    assert float(tb.jit(f)(1.5)) == 3.0
    found = lines.taken()
    assert "not interactive" in found[1]
    assert found[2:] == ["x = Array(1.5, dtype=float32)", "y = Array(3., dtype=float32)"]


# placements --------------------------------------------------------------------------------------


def test_inspect_array_sharding() -> None:
    """Arrays tell at once, traced ones when the program is compiled, once for each array."""
    seen: list[Any] = []
    x = tnp.ones(3)
    tb.debug.inspect_array_sharding({"a": x, "b": x}, callback=seen.append)
    assert seen == [x.sharding, x.sharding]
    seen.clear()

    @tb.jit
    def f(x: Any) -> Any:
        tb.debug.inspect_array_sharding(x, callback=seen.append)
        return x + 1

    f(x)
    f(x)
    assert seen == [x.sharding]
    tb.grad(lambda x: tnp.sum(tb.vmap(f)(x)))(tnp.ones((2, 3)))
    assert set(seen) == {x.sharding}
    with pytest.raises(errors.ArgumentSpecError, match="callback is 3"):
        tb.debug.inspect_array_sharding(x, callback=3)


def test_visualize(lines: Lines) -> None:
    """A box for each part, with the device's name."""
    box = ["+---------+", "|  CPU 0  |", "+---------+"]
    x = tnp.ones((2, 2))
    tb.debug.visualize_array_sharding(x)
    assert lines.taken() == box
    tb.jit(lambda x: (tb.debug.visualize_array_sharding(x), x)[1])(x)
    assert lines.taken() == box
    tb.debug.visualize_sharding((4,), x.sharding, min_width=11)
    assert lines.taken() == ["+-----------+", "|   CPU 0   |", "+-----------+"]
    with pytest.raises(errors.ArgumentSpecError, match="shape is"):
        tb.debug.visualize_sharding((1, 1, 1), x.sharding)


def test_visualize_parts(lines: Lines) -> None:
    """Parts stand where they are in the array."""

    class Device:
        platform = "cpu"

        def __init__(self, number: int) -> None:
            self.id = number

    class Quarters:
        def devices_indices_map(self, shape: tuple[int, ...]) -> Any:
            rows, columns = shape
            return {
                Device(2 * i + j): (
                    slice(i * rows // 2, (i + 1) * rows // 2),
                    slice(j * columns // 2, (j + 1) * columns // 2),
                )
                for i in range(2)
                for j in range(2)
            }

    tb.debug.visualize_sharding((4, 4), Quarters())
    line = "+---------+---------+"
    expected = [line, "|  CPU 0  |  CPU 1  |", line, "|  CPU 2  |  CPU 3  |", line]
    assert lines.taken() == expected
