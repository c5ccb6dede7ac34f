"""ffi_call: LAPACK's kernels, and handlers that the C++ compiler makes of the headers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core._jaxlib import ffi
from tracebridge.core._jaxlib.ffi import lapack_target
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, EffectError
from tracebridge.experimental.layout import Layout
from tracebridge.interpreters import mlir
from tracebridge.testing import assert_allclose

SOURCE = """
#include <atomic>
#include <cstdint>
#include <string_view>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;
static std::atomic<int64_t> calls{0};
extern "C" int64_t CallCount() { return calls.load(); }

static ffi::Error Affine(F32 x, ffi::ResultBuffer<ffi::F32> y, float scale, int64_t times,
                         std::string_view name, ffi::Span<const double> shifts) {
  calls++;
  if (name == "fail") return ffi::Error::InvalidArgument("asked to fail");
  for (size_t i = 0; i < x.element_count(); ++i) {
    float v = x.typed_data()[i];
    for (int64_t k = 0; k < times; ++k) v = v * scale;
    for (double s : shifts) v += s;
    y->typed_data()[i] = v;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(AffineHandler, Affine, ffi::Ffi::Bind()
    .Arg<F32>().Ret<F32>().Attr<float>("scale").Attr<int64_t>("times")
    .Attr<std::string_view>("name").Attr<ffi::Span<const double>>("shifts"));

static ffi::Error AddRows(F32 x, F32 y, ffi::ResultBuffer<ffi::F32> z,
                          ffi::ResultBuffer<ffi::S32> ranks) {
  size_t n = z->element_count(), nx = x.element_count(), ny = y.element_count();
  for (size_t i = 0; i < n; ++i)
    z->typed_data()[i] = x.typed_data()[i % nx] + y.typed_data()[i % ny];
  for (size_t i = 0; i < ranks->element_count(); ++i)
    ranks->typed_data()[i] = 10 * x.dimensions().size() + y.dimensions().size();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(AddRowsHandler, AddRows, ffi::Ffi::Bind()
    .Arg<F32>().Arg<F32>().Ret<F32>().Ret<ffi::Buffer<ffi::S32>>());
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Two handlers, compiled and registered."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("ffi")
    (folder / "kernels.cc").write_text(SOURCE)
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", f"-I{tb.ffi.include_dir()}"]
    command = [compiler, *flags, "kernels.cc", "-o", "kernels.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    loaded = ctypes.CDLL(str(folder / "kernels.so"))
    loaded.CallCount.restype = ctypes.c_int64
    tb.ffi.register_ffi_target("test_affine", tb.ffi.pycapsule(loaded.AffineHandler))
    tb.ffi.register_ffi_target(
        "test_add_rows", {"execute": tb.ffi.pycapsule(loaded.AddRowsHandler)}
    )
    return loaded


def affine(x: Any, **changes: Any) -> Any:
    """``x * 2 ** 3 + 0.5 + 1``, by the compiled handler."""
    attributes: dict[str, Any] = {
        "scale": np.float32(2.0), "times": 3, "name": "a", "shifts": np.array([0.5, 1.0]),
    }  # fmt: skip
    options = {k: changes.pop(k) for k in list(changes) if k in {"has_side_effect", "vmap_method"}}
    spec = tb.ShapeDtypeStruct(np.shape(x), np.float32)
    return tb.ffi.ffi_call("test_affine", spec, **options)(x, **{**attributes, **changes})


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_attributes(library: ctypes.CDLL) -> None:
    """Numbers with their width, strings and vectors reach the handler, eagerly and in a program."""
    assert (8 * X + 1.5).tolist() == affine(X).tolist()
    assert (8 * X + 1.5).tolist() == tb.jit(affine)(X).tolist()
    assert (9 * X).tolist() == affine(X, scale=np.float32(3), times=2, shifts=np.zeros(0)).tolist()


def test_calls_with_different_attributes_are_different(library: ctypes.CDLL) -> None:
    """What Python calls equal is not the same attribute."""
    with pytest.raises(Exception, match="expected S64 but got F64"):
        affine(X, times=3.0).block_until_ready()
    assert (8 * X + 1.5).tolist() == affine(X, times=3).tolist()


def test_exported_programs_call_what_is_registered(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where it is allowed when it is exported, and registered where it runs."""
    specs = (tb.ShapeDtypeStruct((2, 3), np.float32), tb.ShapeDtypeStruct((), np.int32))
    call = tb.jit(lambda x: tb.ffi.ffi_call("test_add_rows", specs)(x, x)[0] * 2)
    with pytest.raises(ExportError, match="test_add_rows, which only this process"):
        tb.export.export(call)(X)
    check = tb.export.DisabledSafetyCheck.custom_call("test_add_rows")
    blob = tb.export.export(call, disabled_checks=[check])(X).serialize()
    read = tb.export.deserialize(blob)
    assert [check] == list(read.disabled_safety_checks)
    assert (4 * X).tolist() == read.call(X).tolist()
    monkeypatch.setattr(ffi, "targets_of_users", set())
    with pytest.raises(ExportError, match="calls test_add_rows") as caught:
        tb.export.deserialize(blob).call(X)
    assert "register_ffi_target" in str(caught.value)


def test_what_no_file_can_hold(library: ctypes.CDLL) -> None:
    """Vectors of numbers among the attributes."""
    check = tb.export.DisabledSafetyCheck.custom_call("test_affine")
    with pytest.raises(ExportError, match=r"stablehlo.custom_call .* cannot be written"):
        tb.export.export(tb.jit(affine), disabled_checks=[check])(X)


def test_failures_of_handlers(library: ctypes.CDLL) -> None:
    """The message of the handler reaches Python."""
    with pytest.raises(Exception, match="asked to fail"):
        affine(X, name="fail").block_until_ready()


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled"])
def test_one_call_for_each_element(library: ctypes.CDLL, method: str) -> None:
    """Sequential methods call as often as there are elements."""
    before = library.CallCount()
    found = tb.jit(tb.vmap(lambda x: affine(x, vmap_method=method), in_axes=1))(X)
    found.block_until_ready()

    assert (8 * X.T + 1.5).tolist() == found.tolist()
    assert before + 3 == library.CallCount()


@pytest.mark.parametrize(
    ("method", "ranks"), [("expand_dims", 22), ("broadcast_all", 22), ("legacy_vectorized", 21)]
)
def test_one_call_for_the_batch(library: ctypes.CDLL, method: str, ranks: int) -> None:
    """Other methods call once, with the batch in front; unmapped arguments differ."""
    specs = (tb.ShapeDtypeStruct((3,), np.float32), tb.ShapeDtypeStruct((), np.int32))
    call = tb.ffi.ffi_call("test_add_rows", specs, vmap_method=method)
    total, found = tb.vmap(call, in_axes=(0, None))(X, np.ones(3, np.float32))

    assert (X + 1).tolist() == total.tolist()
    assert [ranks] * 2 == found.tolist()
    assert isinstance(call(X[0], X[1]), tuple)


def test_side_effects_keep_a_call(library: ctypes.CDLL) -> None:
    """A call whose result nobody uses is dropped unless it has a side effect."""
    for effect in (False, True):
        before = library.CallCount()
        tb.jit(lambda x, e=effect: (affine(x, has_side_effect=e), x + 1)[1])(X).block_until_ready()
        tb.effects_barrier()

        assert before + effect == library.CallCount()


def test_derivatives_are_given_by_custom_rules(library: ctypes.CDLL) -> None:
    """The engine does not know what a handler computes; its user does."""
    with pytest.raises(EffectError, match="differentiation reached a foreign function"):
        tb.grad(lambda x: affine(x).sum())(X)

    @tb.custom_jvp
    def known(x: Any) -> Any:
        return affine(x)

    known.defjvp(lambda primals, tangents: (known(*primals), 8 * tangents[0]))

    assert np.full_like(X, 8).tolist() == tb.grad(lambda x: known(x).sum())(X).tolist()


def test_vmap_needs_a_method(library: ctypes.CDLL) -> None:
    """Nothing is assumed."""
    with pytest.raises(EffectError, match="vmap needs to know how"):
        tb.vmap(affine)(X)


def test_lowering_rule(library: ctypes.CDLL) -> None:
    """A primitive of a user whose lowering is a call."""
    primitive = tb.extend.core.Primitive("test_affine_p")
    primitive.def_abstract_eval(lambda x, **params: x)
    shifts = np.array([1.0])
    rule = tb.ffi.ffi_lowering("test_affine", backend_config={"name": "b", "shifts": shifts})
    mlir.register_lowering(primitive, rule, platform="cpu")

    def run(x: Any) -> Any:
        return primitive.bind(x, scale=np.float32(2), times=1)

    assert (2 * X + 1).tolist() == tb.jit(run)(tb.numpy.array(X)).tolist()


# LAPACK ------------------------------------------------------------------------------------------


def cholesky(a: Any, layout: Any = (1, 0), **options: Any) -> Any:
    """The factor by LAPACK, which stores columns one after the other and works in place."""
    name = lapack_target("potrf_ffi", np.float32)
    specs = [tb.ShapeDtypeStruct(a.shape, np.float32), tb.ShapeDtypeStruct((), np.int32)]
    call = tb.ffi.ffi_call(
        name, specs, input_layouts=[layout], output_layouts=[layout, None],
        input_output_aliases={0: 0}, **options,
    )  # fmt: skip
    return call(a, uplo=np.uint8(ord("L")))[0]


def positive(*batch: int) -> np.ndarray[Any, Any]:
    """Symmetric positive definite matrices."""
    a = np.random.default_rng(0).normal(size=(*batch, 4, 4)).astype(np.float32)
    return a @ np.swapaxes(a, -1, -2) + np.eye(4, dtype=np.float32)


@pytest.mark.parametrize("layout", [(1, 0), [1, 0], Layout((1, 0))], ids=str)
def test_layouts_and_aliases(layout: Any) -> None:
    """Column-major operands and results; the argument of the user is not overwritten."""
    a = tb.numpy.array(positive())
    kept = a.tolist()

    assert_allclose(
        tb.numpy.tril(tb.jit(lambda a: cholesky(a, layout))(a)), np.linalg.cholesky(positive()),
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    assert kept == a.tolist()


def test_layouts_of_a_batch() -> None:
    """The batch is the slowest axis."""
    run = tb.vmap(lambda a: cholesky(a, vmap_method="sequential"))
    found = tb.numpy.tril(run(positive(3)))

    assert_allclose(found, np.linalg.cholesky(positive(3)), rtol=1e-5, atol=1e-5)
    text = tb.jit(tb.vmap(lambda a: cholesky(a, vmap_method="broadcast_all"))).lower(positive(3))
    assert "operand_layouts = [dense<[1, 2, 0]>" in text.as_text()


BAD = [
    (ArgumentSpecError, "vmap_method is 'fast'", {"vmap_method": "fast"}, {}),
    (ArgumentValueError, "2 input_layouts for 1 arrays", {"input_layouts": [None, None]}, {}),
    (ArgumentValueError, r"input_layouts\[0\] is \(0,\)", {"input_layouts": [(0,)]}, {}),
    (ArgumentTypeError, "expected: a sequence with", {"input_layouts": 3}, {}),
    (ArgumentTypeError, r"output_layouts\[0\] is 3", {"output_layouts": 3}, {}),
    (ArgumentValueError, "there are 1 inputs and 1 outputs", {"input_output_aliases": {1: 0}}, {}),
    (ArgumentValueError, "for a custom_call_api_version below", {"legacy_backend_config": "x"}, {}),
    (
        ArgumentValueError,
        r"attributes \['a'\] for an old",
        {"custom_call_api_version": 2},
        {"a": 1},
    ),
    (ArgumentTypeError, "an attribute is <object", {}, {"a": object()}),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_arguments(i: int) -> None:
    """Errors say what was expected, before anything is compiled."""
    kind, text, options, attributes = BAD[i]
    with pytest.raises(kind, match=text):
        tb.ffi.ffi_call("t", tb.ShapeDtypeStruct((2, 3), np.float32), **options)(X, **attributes)


def test_results_are_described() -> None:
    """Something with shape and dtype for each result."""
    with pytest.raises(ArgumentSpecError, match="result_shape_dtypes"):
        tb.ffi.ffi_call("t", 3)
    spec = tb.ShapeDtypeStruct((3,), np.float32)
    with pytest.raises(ArgumentValueError, match=r"f32\[2,3\] is not f32\[3\]"):
        tb.ffi.ffi_call("t", spec, input_output_aliases={0: 0})(X)
