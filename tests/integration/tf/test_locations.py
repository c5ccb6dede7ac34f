"""Programs in graphs and files know the lines of the user's code that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp

HERE = str(Path(__file__)).encode()


def modules(graph: Any) -> list[bytes]:
    """The programs of a graph and of its functions."""
    definition = graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
        nodes.extend(function.node_def)
    return [n.attr["module"].s for n in nodes if n.op == "XlaCallModule"]


@pytest.fixture
def without_locations() -> Iterator[None]:
    tb.config.update("source_locations", False)
    yield
    tb.config.update("source_locations", True)


def squashed(x: Any) -> Any:
    return tnp.tanh(x @ x)


def graph_of(fun: Any) -> Any:
    return tf.function(tb.tf.to_tf(fun)).get_concrete_function(tf.TensorSpec((4, 4))).graph


def test_functions_in_graphs() -> None:
    found = modules(graph_of(lambda x: squashed(x)))

    assert len(found) == 1
    assert HERE in found[0]


@pytest.mark.usefixtures("without_locations")
def test_option_leaves_them_out() -> None:
    found = modules(graph_of(lambda x: squashed(x)))

    assert len(found) == 1
    assert HERE not in found[0]


def test_files_and_their_gradients(tmp_path: Path) -> None:
    tb.tf.save(squashed, tmp_path, [tf.TensorSpec((None, None))], polymorphic_shapes=["(n, n)"])
    data = (tmp_path / "saved_model.pb").read_bytes()

    assert data.count(HERE) > 1


def test_sizes_that_do_not_fit_name_the_function() -> None:
    """The rule, the input, and where the function begins."""

    def halves(x: Any) -> Any:
        return x.reshape(2, -1)

    spec = tf.TensorSpec((None,))
    run = tf.function(tb.tf.to_tf(halves, polymorphic_shapes="2*b"), input_signature=[spec])
    line = halves.__code__.co_firstlineno

    assert run(tf.ones(4)).shape == (2, 2)
    with pytest.raises(tf.errors.OpError) as failed:
        run(tf.ones(5))
    assert f"{__file__}:{line}" in str(failed.value)
    assert "x.shape[0] is 5, expected 4, the value of 2*b" in str(failed.value)
