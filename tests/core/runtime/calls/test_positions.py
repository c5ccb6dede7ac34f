"""Functions that take positions are one program when they are called eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.runtime.calls import positions, staged_functions
from tracebridge.errors import RankError, ShapeMismatchError

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("at", [-1, 0, 2, 7, -9], ids=str)
@pytest.mark.parametrize("kind", [int, np.int32, tnp.int32, np.uint8])
def test_positions_count_from_the_end_and_are_clamped(at: int, kind: Any) -> None:
    """Numbers, NumPy scalars and arrays mean the same; what is out of range is moved inwards."""
    if kind is np.uint8 and at < 0:
        at += 256
    x, i = tnp.asarray(X), kind(at)
    row = min(max(at + 3 if at < 0 else at, 0), 2)

    assert lax.dynamic_index_in_dim(x, i, 0, keepdims=False).tolist() == X[row].tolist()
    assert lax.dynamic_index_in_dim(x, i).tolist() == X[row : row + 1].tolist()
    assert lax.dynamic_slice(x, (i, i * 0 + 1), [1, 2]).tolist() == X[row : row + 1, 1:3].tolist()
    expected = X.copy()
    expected[row] = 7
    new = tnp.full((1, 4), 7.0)
    assert lax.dynamic_update_slice(x, new, [i, i * 0]).tolist() == expected.tolist()
    assert lax.dynamic_update_index_in_dim(x, new[0], i, 0).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
@pytest.mark.parametrize("value", [1, 0.1, -0.0, float("nan"), 6e4, 60001, 2**53, True])
def test_numbers_are_written_as_elements(dtype: str, value: Any) -> None:
    """Rounded once, as without the program; what the function refuses is refused."""
    x = tnp.zeros(3, dtype)
    outcomes = []
    for write in (lax.dynamic_update_index_in_dim, lambda *args: no_program(*args)):
        try:
            out = write(x, value, 1, 0)
            outcomes.append((out.dtype, out.weak_type, np.asarray(out).tobytes()))
        except (TypeError, OverflowError) as error:
            outcomes.append(str(error))

    assert outcomes[0] == outcomes[1]


def no_program(*args: Any) -> Any:
    """The function itself."""
    with tb.disable_jit():
        return lax.dynamic_update_index_in_dim(*args)


def test_numbers_that_are_written_take_no_second_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers beside floats were staged in vain by each call."""
    x = tnp.asarray(X[0])
    lax.dynamic_update_index_in_dim(x, 1, 2, 0)
    monkeypatch.setattr(staged_functions.StagedFunction, "eager", None)

    assert lax.dynamic_update_index_in_dim(x, 5, 2, 0).tolist() == [0.0, 1.0, 5.0, 3.0]
    assert lax.dynamic_update_index_in_dim(x, 0.5, -1, 0).tolist() == [0.0, 1.0, 2.0, 0.5]


def test_no_program_is_made_for_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number runs the same executable."""
    x = tnp.asarray(X)
    lax.dynamic_slice_in_dim(x, 0, 2)
    monkeypatch.setattr(staged_functions.StagedFunction, "eager", None)

    for i in range(3):
        row = min(i, 1)
        assert lax.dynamic_slice_in_dim(x, i, 2).tolist() == X[row : row + 2].tolist()


def test_traces_and_blocks_with_options_see_the_function_itself() -> None:
    """Derivatives, batches and compiled functions are as they were."""
    x = tnp.asarray(X)

    assert tb.grad(lambda x: lax.dynamic_index_in_dim(x, 1, 0).sum())(x).sum() == 4
    rows = tb.vmap(lambda i: lax.dynamic_index_in_dim(x, i, 0, False))(tnp.arange(3))
    assert rows.tolist() == X.tolist()
    assert tb.jit(lambda i: lax.dynamic_slice(x, (i, i), (1, 1)))(2).tolist() == [[10.0]]
    with tb.disable_jit():
        assert lax.dynamic_index_in_dim(x, 1, 0, False).tolist() == X[1].tolist()


def test_errors_are_those_of_the_function() -> None:
    """What cannot be done is said by the function, not by its program."""
    x = tnp.asarray(X)

    with pytest.raises(RankError, match="dynamic_slice"):
        lax.dynamic_slice(x, (0,), (1, 1))
    with pytest.raises(ShapeMismatchError):
        lax.dynamic_slice(x, (0, 0), (4, 4))


def test_what_is_taken_apart() -> None:
    """Only arrays and small numbers; other values that equal each other are told apart."""
    x = tnp.asarray(X)
    taken = positions._taken_apart

    assert taken((X, 1), {}, range(2)) is None
    assert taken((x, 1 << 31), {}, range(2)) is None
    assert taken((x, 1, "axis"), {}, range(2)) is None
    assert taken((x, 1, 1), {}, range(2)) != taken((x, 1, True), {}, range(2))
    given, _ = taken((x, (1, x), (2, 2)), {}, range(2)) or ([], ())
    assert [type(g) for g in given] == [type(x), int, type(x)]
