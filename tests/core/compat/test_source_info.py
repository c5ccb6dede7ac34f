"""Where equations come from, told by interpreters that make them anew."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors import filtering
from tracebridge.extend import core
from tracebridge.extend import source_info_util as sources


def layers(x):
    with tb.named_scope("outer"):
        x = tnp.sin(x)
        with tb.named_scope("inner"):
            return tnp.log(x)


def names_in(closed):
    return [str(e.source_info.name_stack) for e in closed.eqns]


def evaluate(closed, x, op=None):
    """Equations one by one, in their places; ``op`` may stand for their primitives."""
    env = {closed.jaxpr.invars[0]: x}
    for eqn in closed.eqns:
        names = sources.current_name_stack() + eqn.source_info.name_stack
        with sources.user_context(eqn.source_info.traceback, name_stack=names):
            bind = eqn.primitive.bind if op is None else op
            (var,) = eqn.invars
            env[eqn.outvars[0]] = bind(env[var], **eqn.params)
    return env[closed.jaxpr.outvars[0]]


def test_equations_know_their_scopes():
    """As a path whose text is joined by slashes; it is a tuple of names as well."""
    closed = tb.make_jaxpr(layers)(1.0)
    assert ["outer", "outer/inner"] == names_in(closed)
    names = closed.eqns[1].source_info.name_stack
    assert ("outer", "inner") == names == names.stack
    assert isinstance(names, sources.NameStack)


def test_repeated_equations_keep_their_scopes():
    """Inside of the scopes in which they are repeated."""
    closed = tb.make_jaxpr(layers)(1.0)

    def again(x):
        with tb.named_scope("again"):
            return evaluate(closed, x)

    assert names_in(closed) == names_in(tb.make_jaxpr(lambda x: evaluate(closed, x))(1.0))
    assert ["again/outer", "again/outer/inner"] == names_in(tb.make_jaxpr(again)(1.0))
    assert "again/outer/inner/log" in tb.jit(again).lower(1.0).as_text(debug_info=True)


def test_errors_name_the_line_of_the_equation():
    """Once, however many interpreters are around."""
    closed = tb.make_jaxpr(layers)(1.0)

    def fail(x, **_):
        raise ZeroDivisionError

    def nested(x, **_):
        return evaluate(closed, x, fail)

    with pytest.raises(ZeroDivisionError) as caught:
        evaluate(closed, 1.0, nested)
    text = "".join(traceback.format_exception_only(caught.value))
    assert 1 == text.count("equation of ")
    assert f"{Path(__file__).name}:" in text
    assert "(layers)" in text
    with pytest.raises(ZeroDivisionError) as caught, sources.user_context(None):
        fail(1.0)
    assert "equation of" not in "".join(traceback.format_exception_only(caught.value))


def test_scopes_of_blocks():
    """They nest, are replaced, and end with the block."""
    with sources.extend_name_stack("a") as names:
        assert "a" == str(names)
        with sources.set_name_stack(names + sources.new_name_stack("b")):
            assert "a/b" == str(sources.current_name_stack())
        with sources.set_name_stack(sources.new_name_stack("c")):
            assert "c" == str(sources.current_name_stack())
            with contextlib.suppress(ZeroDivisionError), sources.reset_name_stack():
                assert "" == str(sources.current_name_stack())
                raise ZeroDivisionError
            assert "c" == str(sources.current_name_stack())
        assert ("a",) == sources.current().name_stack
    assert () == sources.current_name_stack() == sources.new_source_info().name_stack


def test_lines():
    """The user's line, or nothing known."""
    (equation,) = tb.make_jaxpr(tb.lax.sin)(1.0).eqns
    assert Path(__file__).name in sources.summarize(equation.source_info)
    assert Path(__file__).name in sources.summarize(sources.current())
    assert "unknown" == sources.summarize(sources.new_source_info())


def test_sources_of_built_equations():
    """Replaced equations keep where they come from, and take what they are given."""
    closed = tb.make_jaxpr(layers)(1.0)
    moved = [
        e.replace(source_info=e.source_info._replace(name_stack=sources.new_name_stack("new")))
        for e in closed.eqns
    ]
    jaxpr = closed.jaxpr.replace(eqns=moved)
    assert ["new", "new"] == names_in(core.ClosedJaxpr(jaxpr, closed.consts))
    assert sources.summarize(closed.eqns[0].source_info) == sources.summarize(
        jaxpr.eqns[0].source_info
    )


def test_files_can_be_left_out(monkeypatch, tmp_path):
    """Frames of a folder are not the user's; files beside it with a longer name are."""
    monkeypatch.setattr(filtering, "_extra_prefixes", filtering._extra_prefixes)
    monkeypatch.setattr(filtering, "_is_internal", {})
    sources.register_exclusion(str(tmp_path))
    assert filtering.is_internal_file(str(tmp_path / "a.py"))
    assert not filtering.is_internal_file(f"{tmp_path}_more.py")
