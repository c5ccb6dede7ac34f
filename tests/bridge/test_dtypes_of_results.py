"""Dtypes of results with 64 bits: elements decide, not parameters, nor how a formula is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.nn as nn
import tracebridge.numpy as tnp
from tracebridge.scipy import linalg, signal, sparse, special, stats

EDGES = np.array([0.0, 1.0, 2.0])
NARROW = np.array([1, 2, 2], np.int8)
FEW = np.array([1, 2, 2], np.float32)

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "softmax": (lambda: nn.softmax(NARROW), "float32"),
    "log_softmax": (lambda: nn.log_softmax(NARROW), "float32"),
    "gelu": (lambda: nn.gelu(NARROW), "float32"),
    "squareplus": (lambda: nn.squareplus(NARROW), "float32"),
    "squareplus of two": (lambda: nn.squareplus(NARROW, np.float16(1)), "float16"),
    "lstsq": (lambda: tnp.linalg.lstsq(np.eye(3), FEW)[2], "int64"),
    "lu": (lambda: linalg.lu(np.eye(3) * 1j)[0], "float64"),
    "hard_silu": (lambda: nn.hard_silu(NARROW), "float64"),
    "quantile": (lambda: tnp.quantile(FEW, EDGES / 4), "float32"),
    "quantile of bfloat16": (
        lambda: tnp.quantile(tnp.asarray(FEW, "bfloat16"), np.float32(0.5)),
        "bfloat16",
    ),
    "percentile of integers": (lambda: tnp.percentile(NARROW, EDGES), "float32"),
    "edges": (lambda: tnp.histogram_bin_edges(FEW, EDGES), "float32"),
    "edges of integers": (lambda: tnp.histogram(NARROW, np.arange(3))[1], "float32"),
    "edges of bools": (lambda: tnp.histogram_bin_edges(NARROW > 1, 2, (0, 1)), "float32"),
    "edges beside weights": (lambda: tnp.histogram(FEW, EDGES, weights=EDGES)[1], "float64"),
    "counts": (lambda: tnp.histogram(FEW, EDGES, density=True)[0], "float32"),
    "counts of cells": (
        lambda: tnp.histogramdd(FEW[:, None], [EDGES], density=True)[0],
        "float32",
    ),
    "cells with weights": (lambda: tnp.histogramdd(FEW[:, None], weights=NARROW)[0], "float32"),
    "trapezoid": (lambda: tnp.trapezoid(NARROW, np.float16(FEW)), "float16"),
    "trapezoid of narrow steps": (lambda: tnp.trapezoid(NARROW, dx=2.0), "float32"),
    "interp": (lambda: tnp.interp(1.5, np.float16(FEW), FEW), "float32"),
    "gradient": (lambda: tnp.gradient(np.int32(NARROW), np.arange(3.0)), "float64"),
    "take": (lambda: tnp.take(NARROW, NARROW > 1), "int8"),
    "welch": (lambda: signal.welch(FEW, window=np.ones(3), nperseg=3)[1], "float32"),
    "gmres": (lambda: sparse.linalg.gmres(np.eye(3), FEW)[1], "int64"),
    "polyint": (lambda: tnp.polyint(np.array([True, True])), "float64"),
    "unwrap": (lambda: tnp.unwrap(NARROW), "float64"),
    "unwrap of bools": (lambda: tnp.unwrap(NARROW > 1, period=2), "int64"),
    "mode": (lambda: stats.mode(NARROW).count, "int64"),
    "sem": (lambda: stats.sem(NARROW), "float32"),
    "gaussian_kde": (lambda: stats.gaussian_kde(NARROW).pdf(NARROW), "float32"),
}


@pytest.mark.parametrize("name", CALLS)
def test_dtype_of_result(name: str) -> None:
    """Integers of up to 32 bits give float32; wide parameters do not widen."""
    call, expected = CALLS[name]
    with tb.enable_x64():
        assert expected == call().dtype.name


def test_edges_decide_with_all_their_digits() -> None:
    """A narrow result does not round what elements are compared with."""
    with tb.enable_x64():
        counts, edges = tnp.histogram(np.ones(1, np.float32), np.array([0, 1 - 1e-12, 1 + 1e-12]))

    assert [0, 1] == counts.tolist()
    assert [0, 1, 1] == edges.tolist()


def test_sums_of_complex_exponentials() -> None:
    """The logarithm has the phase of the sum; apart from the sign, it is real."""
    x = np.array([1, 2 + 1j, 0.5 - 2j], np.complex64)
    total = np.exp(x.astype(complex)).sum()

    log, sign = special.logsumexp(x, return_sign=True)

    np.testing.assert_allclose(special.logsumexp(x), np.log(total), rtol=1e-6)
    np.testing.assert_allclose(log, np.log(abs(total)), rtol=1e-6)
    np.testing.assert_allclose(sign, total / abs(total), rtol=1e-6)
    assert log.dtype == np.float32
