"""Every public function has a row of calls, and is judged by its arguments alone."""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.op_table import TABLE as ELEMENTWISE
from tests.properties.library_calls import ALL, MODULES_OF_OTHERS, OTHERS, TABLES
from tracebridge.core.config.option_scopes import numpy_dtype_promotion, numpy_rank_promotion
from tracebridge.core.errors.dtype_errors import TypePromotionError
from tracebridge.core.errors.shape_errors import BroadcastError
from tracebridge.errors import ExplicitX64Warning

LAX_LEFT_OUT = {
    **dict.fromkeys(
        [
            "all_gather",
            "all_to_all",
            "axis_index",
            "axis_size",
            "pbroadcast",
            "pcast",
            "pmax",
            "pmean",
            "pmin",
            "ppermute",
            "precv",
            "psend",
            "pshuffle",
            "psum",
            "psum_scatter",
            "pswapaxes",
            "ragged_all_to_all",
        ],
        "needs a named axis: tests/core/collectives",
    ),
    **dict.fromkeys(
        [
            "conv_dimension_numbers",
            "conv_general_permutations",
            "conv_general_shape_tuple",
            "conv_shape_tuple",
            "conv_transpose_shape_tuple",
            "padtype_to_pads",
            "reduce_window_shape_tuple",
            "broadcast_shapes",
        ],
        "gives shapes: tests/core/conv, tests/core/lax",
    ),
    **dict.fromkeys(["after_all", "create_token"], "gives tokens: tests/core/lax/test_barriers.py"),
    "composite": "decorates: tests/core/control",
    "DotDimensionNumbers": "a type: tests/core/lax/contract",
    "ragged_dot_general": "the general form of ragged_dot: tests/core/lax/contract",
    "scaled_dot": "rounds to bfloat16: tests/core/products/test_scaled.py",
    "dce_sink": "gives nothing: tests/core/lax/test_sink.py",
    "dtype": "gives a dtype: tests/core/lax/test_dtype_of.py",
    "platform_dependent": "takes functions of platforms: tests/core/control",
    "rng_bit_generator": "bits: tests/core/lax/test_rng.py",
    "rng_uniform": "bits that differ each time: tests/core/lax/test_rng.py",
    "stage": "decorates: tests/core/control",
    "with_sharding_constraint": "tests/core/lax/test_sharding_constraint.py",
}
LEFT_OUT: dict[str, dict[str, str]] = {
    "lax": LAX_LEFT_OUT,
    "nn": dict.fromkeys(
        ["get_scaled_dot_general_config", "scaled_dot_general", "scaled_matmul"],
        "formats of few bits: tests/bridge/nn/test_scaled.py",
    ),
    "random": {
        **dict.fromkeys(
            ["PRNGKey", "key", "key_data", "key_dtype", "key_impl", "wrap_key_data"],
            "keys: tests/bridge/random/test_keys.py",
        ),
    },
}


def missing_rows(module_name: str) -> set[str]:
    """Public functions of a module without a row or a reason."""
    module, table = TABLES[module_name]
    names = {
        name
        for name in dir(module)
        if not name.startswith("_")
        and callable(value := getattr(module, name))
        and not isinstance(value, type | types.ModuleType)
        # What a module imports for itself is not its own.
        and (module_name != "numpy.fft" or name in tb.numpy.fft.__all__)
        and (module_name != "nn.initializers" or name in tb.nn.initializers.__all__)
    }
    rows = set(table) | set(LEFT_OUT.get(module_name, {}))
    return names - rows - ({op.name for op in ELEMENTWISE} if module_name == "lax" else set())


@pytest.mark.parametrize("module", TABLES)
def test_every_function_has_a_row_or_a_reason(module: str) -> None:
    """A new function needs a line."""
    assert set() == missing_rows(module)


@pytest.mark.parametrize("table", OTHERS)
def test_modules_that_share_a_table_have_their_rows(table: str) -> None:
    """Functions and classes of scipy, image and ops; distributions are modules of their own."""
    public = {
        name
        for module in MODULES_OF_OTHERS[table]
        for name in module.__all__
        if not isinstance(getattr(module, name), types.ModuleType)
    }

    assert set() == public - set(OTHERS[table]) - {"OptimizeResults", "ResizeMethod"}


def program(run: Callable[..., Any], arrays: list[Any]) -> str:
    """The program of a call as text, without addresses of rules."""
    return re.sub(r"0x[0-9a-f]+", "", str(tb.make_jaxpr(run)(*arrays)))


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("wide", [False, True])
def test_options_of_promotion_do_not_judge_inner_steps(part: int, wide: bool) -> None:
    """Well-typed arguments make the same program under strict options, in 32 and in 64 bits."""
    wrong: list[str] = []
    with tb.enable_x64(wide), warnings.catch_warnings():
        # Rows ask for 64 bits.
        warnings.simplefilter("ignore", ExplicitX64Warning)
        for name, (run, args) in list(ALL.items())[part::4]:
            arrays = [tnp.asarray(x) for x in args]
            expected = program(run, arrays)
            try:
                with numpy_rank_promotion("raise"), numpy_dtype_promotion("strict"):
                    actual = program(run, arrays)
            except (BroadcastError, TypePromotionError) as error:
                actual = str(error)
            if actual != expected:
                wrong.append(f"{name}: {actual[:200]}")

    assert [] == wrong
