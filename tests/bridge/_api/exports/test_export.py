"""export: what is exported, and what calls of it give, alone and inside transformations."""

from __future__ import annotations

import concurrent.futures
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import export, lax
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.testing import assert_allclose

X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
# No row of X sends two columns to one value: rounding would decide which is the largest.
W = np.sin(np.arange(12, dtype=np.float32)).reshape(3, 4)
ALL_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def sizes(text: str, **options: Any) -> Any:
    """Float32 arrays of these symbolic sizes."""
    return tb.ShapeDtypeStruct(export.symbolic_shape(text, **options), np.float32)


def layer(params: Any, x: Any) -> Any:
    """A tree to a tree, with a result that has no gradient."""
    y = tnp.tanh(x @ params["w"])
    return {"y": y, "best": y.argmax(-1), "n": x.shape[0]}


def exported_layer(**options: Any) -> Any:
    """``layer`` for a batch of any size."""
    params = {"w": tb.ShapeDtypeStruct((3, 4), np.float32)}
    return export.export(tb.jit(layer), **options)(params, sizes("b, 3"))


def test_fields() -> None:
    """What callers of other engines read."""
    e = exported_layer(platforms=["tpu", "cpu"])
    assert "layer" == e.fun_name
    assert tb.tree.structure((({"w": 0}, 0), {})) == e.in_tree
    assert ["f32[3,4]", "f32[b,3]"] == [a.str_short() for a in e.in_avals]
    assert tb.tree.structure({"y": 0, "best": 0, "n": 0}) == e.out_tree
    assert ["i32[b]", "i32[]", "f32[b,4]"] == [a.str_short() for a in e.out_avals]
    assert ("tpu", "cpu") == e.platforms
    assert (0, 1) == e.module_kept_var_idx
    assert 1 == e.nr_devices
    assert () == e.ordered_effects == e.unordered_effects == tuple(e.disabled_safety_checks)
    assert (None, None) == e.in_shardings_hlo == e.in_shardings_jax(None)
    assert (None,) * 3 == e.out_shardings_hlo == e.out_shardings_jax(None)
    assert e.uses_global_constants
    assert export.maximum_supported_calling_convention_version == e.calling_convention_version
    assert "func.func public @main(%arg0: tensor<i32>" in e.mlir_module()
    assert e.mlir_module() == str(e.mlir_module(serialized=False))
    with pytest.raises(AttributeError):
        e.fun_name = "other"


@pytest.mark.parametrize("n", [1, 5])
def test_values_and_gradients_at_sizes(n: int) -> None:
    """One program for all; derivatives of both arguments, of first and second order."""
    call, params = exported_layer().call, {"w": W}
    x = np.tile(X, (n, 1))[:n]
    assert_allclose(call(params, x), layer(params, x))

    def loss(f: Any) -> Any:
        return lambda params, x: (f(params, x)["y"] ** 2).sum()

    def penalty(f: Any) -> Any:
        return lambda x: (tb.grad(loss(f))(params, x)["w"] ** 2).sum()

    both = [tb.grad(loss(f), argnums=(0, 1))(params, x) for f in (call, layer)]
    assert_allclose(*both, rtol=1e-6)
    assert_allclose(*[tb.jit(tb.grad(penalty(f)))(x) for f in (call, layer)], rtol=1e-5)


def test_inside_transformations() -> None:
    """jit, vmap over either argument, scan, checkpoint."""
    call, params = exported_layer().call, {"w": W}
    xs = np.stack([X, -X])
    want = np.stack([layer(params, x)["y"] for x in xs])
    assert_allclose(tb.jit(call)(params, X)["y"], want[0])
    assert_allclose(tb.vmap(call, in_axes=(None, 0))(params, xs)["y"], want)
    assert_allclose(tb.vmap(call, in_axes=({"w": 0}, None))({"w": W[None]}, X)["y"], want[:1])
    _, scanned = lax.scan(lambda c, x: (c, call(params, x)["y"]), None, xs)
    assert_allclose(scanned, want)
    kept = tb.grad(lambda x: tb.checkpoint(call)(params, x)["y"].sum())(X)
    assert_allclose(kept, tb.grad(lambda x: layer(params, x)["y"].sum())(X), rtol=1e-6)


@pytest.mark.parametrize("outer", ["5, 3", "c, 3", "c + 2, 3", "2*c, 3"])
def test_exports_of_exports(outer: str) -> None:
    """Static and symbolic sizes; two calls of one program, and one of another of that name."""
    first = exported_layer()

    def twice(x: Any) -> Any:
        once = first.call({"w": W}, x)["y"]
        return first.call({"w": W}, once[:, :3])["y"] + second.call(once)

    def layer(x: Any) -> Any:
        return x.sum(-1, keepdims=True)

    second = export.export(tb.jit(layer))(sizes("d, 4"))
    whole = export.export(tb.jit(twice))(sizes(outer))
    outside = export.export(tb.jit(lambda x: -whole.call(x)))(sizes(outer))
    x = X if "5" in outer else np.concatenate([X, X[:1]])
    assert_allclose(outside.call(x), -twice(x))
    read = export.deserialize(outside.serialize(vjp_order=1))
    got, want = (tb.grad(lambda x, f=f: f(x).sum())(x) for f in (read.call, lambda x: -twice(x)))
    assert_allclose(got, want, rtol=1e-5)


def test_several_platforms() -> None:
    """The program chooses where it runs, also inside a program for other ones in another order."""

    def where(x: Any) -> Any:
        return lax.platform_dependent(
            x, cpu=lambda x: x + 1, cuda=lambda x: x + 2, default=lambda x: x + 3
        )

    inner = export.export(tb.jit(where), platforms=("tpu", "cpu", "cuda"))(1.0)
    assert 2.0 == inner.call(1.0)
    outer = export.export(tb.jit(lambda x: inner.call(x) * 10), platforms=("cuda", "cpu"))(1.0)
    assert 20.0 == outer.call(1.0)
    only = export.export(tb.jit(lambda x: inner.call(x) * 10), platforms=("cpu",))(1.0)
    assert 20.0 == export.deserialize(only.serialize()).call(1.0)
    with pytest.raises(ExportError, match="cannot be part of rocm"):
        export.export(tb.jit(inner.call), platforms=("cpu", "rocm"))(1.0)


def test_several_platforms_and_sizes() -> None:
    """The number of the platform is no size: the first one stays the first where sizes vary."""

    def shifted(x: Any) -> Any:
        return x + lax.platform_dependent(tpu=lambda: 6.0, default=lambda: 4.0)

    exported = export.export(tb.jit(shifted), platforms=("cpu", "tpu"))(sizes("b"))
    assert_allclose(exported.call(np.ones(3, "f")), np.full(3, 5.0, "f"))


def test_platform_of_the_call() -> None:
    """A program runs where it was exported for, unless that is not checked."""
    tpu = export.export(tb.jit(tnp.sin), platforms=["tpu"])(1.0)
    with pytest.raises(ExportError, match="cannot be part of cpu"):
        tpu.call(1.0)
    check = export.DisabledSafetyCheck.platform()
    free = export.export(tb.jit(tnp.sin), platforms=["tpu"], disabled_checks=[check])(1.0)
    assert_allclose(free.call(1.0), np.sin(np.float32(1)))
    assert_allclose(export.deserialize(free.serialize()).call(1.0), np.sin(np.float32(1)))
    assert export.default_export_platform() in ALL_PLATFORMS


def test_integers_have_no_cotangents() -> None:
    """The pullback takes and gives float0 for them; others may stand between them."""

    def fun(n: Any, x: Any, flags: Any) -> Any:
        return n + 1, tnp.where(flags, x * n, 0), flags

    args = np.int32(3), X, X > 0
    pull = export.export(tb.jit(fun))(*args).vjp()
    assert ["i32[]", "f32[5,3]", "bool[5,3]"] == [a.str_short() for a in pull.in_avals[:3]]
    zeros = [np.zeros(a.shape, tb.dtypes.float0) for a in pull.in_avals]
    cts = zeros[3], np.ones_like(X), zeros[5]
    got = pull.call(*args, *cts)
    assert [tb.dtypes.float0, np.float32, tb.dtypes.float0] == [g.dtype for g in got]
    assert_allclose(got[1], np.where(X > 0, 3.0, 0.0).astype(np.float32))
    read = export.deserialize(export.export(tb.jit(fun))(*args).serialize(vjp_order=1))
    assert_allclose(read.vjp().call(*args, *cts)[1], got[1])
    assert_allclose(tb.grad(lambda x: read.call(args[0], x, args[2])[1].sum())(X), got[1])
    shape = export.symbolic_shape("n, 3")
    specs = [tb.ShapeDtypeStruct(shape, dtype) for dtype in (np.float32, np.bool_)]
    of_any_size = export.export(tb.jit(fun))(np.int32(3), *specs).vjp()
    assert (5, 3) == of_any_size.call(*args, *cts)[2].shape


def test_float0_arguments() -> None:
    """They are part of the structure."""
    nothing = np.zeros((3,), tb.dtypes.float0)
    e = export.export(tb.jit(lambda x, y: (y * 2, x)))(nothing, 1.0)
    doubled, same = export.deserialize(e.serialize()).call(nothing, 4.0)
    assert (8.0, nothing.shape, nothing.dtype) == (doubled, same.shape, same.dtype)


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint8", "int64", "bfloat16", "float8_e4m3fn",
                                   "float16", "float64", "complex64", "complex128"])  # fmt: skip
def test_dtypes(dtype: str) -> None:
    """Each goes through unchanged; 64 bits where they are on."""
    with tb.enable_x64(dtype in {"int64", "float64", "complex128"}):
        x = tnp.asarray([0, 1, 1]).astype(dtype)
        e = export.export(tb.jit(lambda x: (x, x.reshape(3, 1))))(x)
        same, column = export.deserialize(e.serialize()).call(x)
        assert (x.dtype, x.dtype, (3, 1)) == (same.dtype, column.dtype, column.shape)
        assert np.array_equal(np.asarray(same), np.asarray(x))


def test_complex_gradients() -> None:
    """The engine's convention, through the file."""
    z = np.array([1 + 2j, -3j], np.complex64)

    def fun(z: Any) -> Any:
        return (z**3 * (1 - 2j)).imag.sum()

    e = export.export(tb.jit(fun))(z)
    read = export.deserialize(e.serialize(vjp_order=1))
    assert_allclose(tb.grad(read.call)(z), tb.grad(fun)(z), rtol=1e-6)


def test_keys() -> None:
    """Random keys are arguments and results."""
    key = tb.random.key(3)
    e = export.export(tb.jit(lambda k: (tb.random.split(k), tb.random.normal(k, (4,)))))(key)
    keys, values = export.deserialize(e.serialize()).call(key)
    assert keys.dtype == key.dtype
    assert np.array_equal(tb.random.key_data(keys), tb.random.key_data(tb.random.split(key)))
    assert_allclose(values, tb.random.normal(key, (4,)))


def test_constants_are_in_the_program() -> None:
    """Small and large ones, of any owner, which may die."""
    large = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)

    def made() -> tuple[Any, Any]:
        held = tnp.asarray(large)
        e = export.export(tb.jit(lambda x: x @ held.T + 1))(sizes("b, 3"))
        return e.serialize(vjp_order=1), weakref.ref(held)

    blob, reference = made()
    tb.clear_caches()
    gc.collect()
    assert reference() is None
    read = export.deserialize(blob)
    assert_allclose(read.call(X), X @ large.T + 1, rtol=1e-5)
    assert_allclose(
        tb.grad(lambda x: read.call(x).sum())(X), np.tile(large.sum(0), (5, 1)), rtol=1e-4
    )


def test_rules_of_ones_own() -> None:
    """Derivatives by custom rules are those that are saved; stopped gradients stay stopped."""

    @tb.custom_vjp
    def clipped(x: Any) -> Any:
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (tnp.clip(ct, -1, 1),))
    e = export.export(tb.jit(lambda x: (5 * clipped(x)).sum() + lax.stop_gradient(x).sum()))(X)
    read = export.deserialize(e.serialize(vjp_order=1))
    assert_allclose(tb.grad(read.call)(X), np.ones_like(X))


def test_static_and_keyword_arguments() -> None:
    """Static ones are left out of the call; keywords are found by name."""

    @tb.jit(static_argnames="power")
    def fun(x: Any, power: int, *, shift: Any) -> Any:
        return x**power + shift

    e = export.export(fun)(X, 2, shift=1.0)
    assert_allclose(e.call(X, shift=3.0), X**2 + 3)
    with pytest.raises(ShapeMismatchError, match="another structure"):
        e.call(X, 2, shift=3.0)


def test_options_in_force_are_those_of_the_export() -> None:
    """What tracing was told holds when the program is called under other options."""
    with tb.default_matmul_precision("highest"):
        e = export.export(tb.jit(tnp.matmul))(X, W)
    assert "HIGHEST" in e.mlir_module()
    with tb.enable_x64(True):
        assert np.float32 == e.call(X, W).dtype


def test_linear_algebra_needs_no_library() -> None:
    """Decompositions are plain operations; their derivatives too."""
    a = X.T @ X + 2 * np.eye(3, dtype=np.float32)

    def fun(a: Any) -> Any:
        return tnp.linalg.slogdet(a)[1] + tnp.linalg.cholesky(a).sum() + tnp.linalg.eigh(a)[0][0]

    e = export.export(tb.jit(fun), platforms=ALL_PLATFORMS)(a)
    read = export.deserialize(e.serialize(vjp_order=1))
    assert_allclose(read.call(a), fun(a), rtol=1e-5)
    assert_allclose(tb.grad(read.call)(a), tb.grad(fun)(a), rtol=1e-3, atol=1e-4)


def test_threads() -> None:
    """First calls and first derivatives at once."""
    e = exported_layer()
    read = export.deserialize(e.serialize(vjp_order=1))

    def work(k: int) -> Any:
        x = np.full((1 + k % 3, 3), k, np.float32)
        return tb.grad(lambda x: read.call({"w": W}, x)["y"].sum())(x)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(work, range(16)))
    for k, g in enumerate(got):
        x = np.full((1 + k % 3, 3), k, np.float32)
        want = tb.grad(lambda x: layer({"w": W}, x)["y"].sum())(x)
        assert_allclose(g, want, rtol=1e-5, atol=1e-6)


def test_programs_die_with_their_owner() -> None:
    """Nothing holds what was called and differentiated."""

    def used() -> Any:
        e = exported_layer()
        tb.grad(lambda x: e.call({"w": W}, x)["y"].sum())(X)
        return weakref.ref(e)

    held = used()
    tb.clear_caches()
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((X,), "another structure"),
        (({"w": W, "v": W}, X), "another structure"),
        (({"w": W}, X.astype(np.int32)), r"Dtype mismatch for args\[1\], got i32\[5,3\]"),
        (({"w": W[0]}, X), r"Rank mismatch for args\[0\]\['w'\], got f32\[4\]"),
        (({"w": W}, X[:, :2]), r"Shape mismatch for args\[1\]\.shape\[1\]"),
        (({"w": W}, X[:0]), "called with"),
    ],
)
def test_wrong_arguments(args: Any, says: str) -> None:
    """The message names the argument, what was expected, and the way out."""
    with pytest.raises(ShapeMismatchError, match=says) as caught:
        exported_layer().call(*args)
    assert "way out" in str(caught.value)


def test_sizes_and_their_constraints() -> None:
    """Rules of the scope hold at each call, also of what was read; empty sizes where allowed."""
    scope = export.SymbolicScope(["a >= 2*b", "mod(a, 2) == 0"])
    x, y = sizes("a", scope=scope), sizes("b, max(a, 3)", scope=scope)
    e = export.export(tb.jit(lambda x, y: x.sum() + y.sum() + y.shape[0] * x.shape[0]))(x, y)
    for each in (e, export.deserialize(e.serialize())):
        assert 6 + 6 + 6 == each.call(np.ones(6, np.float32), np.ones((1, 6), np.float32))
        with pytest.raises(ShapeMismatchError):
            each.call(np.ones(6, np.float32), np.ones((1, 5), np.float32))
        with pytest.raises(ShapeMismatchError, match=r"constraint"):
            each.call(np.ones(4, np.float32), np.ones((3, 4), np.float32))
        with pytest.raises(ShapeMismatchError):
            each.call(np.ones(5, np.float32), np.ones((1, 5), np.float32))
    empty = sizes("n", scope=export.SymbolicScope(least=0))
    e = export.export(tb.jit(tnp.sum))(empty)
    assert 0.0 == export.deserialize(e.serialize()).call(np.ones(0, np.float32))


def test_functions_of_the_library() -> None:
    """They need no jit: compiled or not, they are the same."""
    x = np.arange(3, dtype=np.float32)
    saved = export.export(tnp.sin, platforms=("tpu", "cpu"))(x)

    assert ("sin", ("tpu", "cpu")) == (saved.fun_name, saved.platforms)
    assert_allclose(np.sin(x), saved.call(x))


def test_what_cannot_be_exported() -> None:
    """Each says why."""
    with pytest.raises(ArgumentSpecError, match="expected: what jit returns"):
        export.export(lambda x: x)
    with pytest.raises(ArgumentSpecError, match="expected: what jit returns"):
        export.export(tb.pmap(lambda x: x))
    with pytest.raises(ArgumentValueError, match="has 'gpu'"):
        export.export(tb.jit(tnp.sin), platforms=["cpu", "gpu"])
    with pytest.raises(ArgumentValueError, match="empty"):
        export.export(tb.jit(tnp.sin), platforms=[])
    with pytest.raises(ExportError, match=r"callback|Python function"):
        export.export(tb.jit(lambda x: tb.pure_callback(np.sin, x, x)))(1.0)
    with pytest.raises(ExportError, match="Ref"):
        export.export(tb.jit(lambda ref: ref[...]))(tb.new_ref(tnp.zeros(3)))
    with pytest.raises(UnexpectedTracerError, match="enclosing trace"):
        tb.jit(lambda y: export.export(tb.jit(lambda x: x + y))(1.0))(2.0)


def test_programs_of_several_devices(run_alone: Any) -> None:
    """They are called on as many devices, over any mesh, and split arguments and results alike."""
    run_alone(
        """
import numpy as np, pytest
import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.sharding import NamedSharding, PartitionSpec as P
tb.config.update("num_cpu_devices", 4)
mesh = tb.make_mesh((2,), ("x",), tb.sharding.AxisType.Auto, devices=tb.devices()[:2])
split = NamedSharding(mesh, P("x"))
x = np.arange(4, dtype=np.float32)
turned = tb.sharding.Mesh(mesh.devices[::-1], "other")
there = tb.device_put(x, NamedSharding(turned, P()))
for fun, arg in [
    (tb.jit(tnp.sin, in_shardings=split, out_shardings=split), x),
    (tb.jit(tnp.sin, out_shardings=split), tb.device_put(x, split)),
    (tb.jit(tnp.sin, out_shardings=split), tb.ShapeDtypeStruct((4,), "float32", sharding=split)),
    (tb.jit(lambda x: tb.lax.with_sharding_constraint(tnp.sin(x), split)), x),
]:
    made = tb.export.export(fun)(arg)
    read = tb.export.deserialize(made.serialize(vjp_order=1))
    for exported in (made, read):
        assert 2 == exported.nr_devices == exported.vjp().nr_devices
        np.testing.assert_allclose(exported.call(there), np.sin(x), rtol=1e-6)
        slope = tb.grad(lambda x: exported.call(x).sum())(there)
        np.testing.assert_allclose(slope, np.cos(x), rtol=1e-6)
        with pytest.raises(ValueError, match="exported for 2 devices, and is called on 1"):
            exported.call(x)

fun = tb.jit(lambda x, y: (x * y, y), in_shardings=(split, None), out_shardings=(split, None))
exported = tb.export.deserialize(tb.export.export(fun)(x, x).serialize())
assert (NamedSharding(turned, P("other")), True) == (
    exported.in_shardings_jax(turned)[0], exported.in_shardings_jax(turned)[1].is_fully_replicated
)
assert exported.out_shardings_hlo[0].is_tiled() and exported.out_shardings_hlo[1] is None
out = exported.call(there, there)[0]
assert NamedSharding(turned, P("other")) == out.sharding
assert list(turned.device_tuple) == [s.device for s in out.addressable_shards]
with pytest.raises(ValueError, match="exported for 2 devices"):
    exported.in_shardings_jax(tb.make_mesh((4,), ("x",)))
"""
    )


def test_programs_of_one_device_over_several(run_alone: Any) -> None:
    """They run there if nothing says how they are split; symbolic sizes can be split too."""
    run_alone(
        """
import numpy as np, pytest
import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.sharding import NamedSharding, PartitionSpec as P
tb.config.update("num_cpu_devices", 4)
mesh = tb.make_mesh((2,), ("x",), devices=tb.devices()[:2])
split = NamedSharding(mesh, P("x"))
x = np.arange(4, dtype=np.float32)
there = tb.device_put(x, NamedSharding(mesh, P()))
one = tb.make_mesh((1,), ("x",), devices=tb.devices()[:1])
plain = tb.export.export(tb.jit(tnp.sin))(x)
assert 1 == plain.nr_devices
np.testing.assert_allclose(plain.call(there), np.sin(x), rtol=1e-6)
alone = tb.export.export(tb.jit(tnp.sin, in_shardings=NamedSharding(one, P("x"))))(x)
np.testing.assert_allclose(alone.call(x), np.sin(x), rtol=1e-6)
with pytest.raises(ValueError, match="exported for 1 devices, and is called on 2"):
    alone.call(there)

# Sizes that are symbolic, and blocks of them.
(n,) = tb.export.symbolic_shape("2*n")
mapped = tb.shard_map(
    lambda b: tb.lax.ppermute(b, "x", [(0, 1), (1, 0)]),
    mesh=mesh, in_specs=P("x"), out_specs=P("x"),
)
exported = tb.export.export(tb.jit(mapped, in_shardings=split, out_shardings=split))(
    tb.ShapeDtypeStruct((n,), "float32")
)
assert [2, 3, 0, 1] == exported.call(there).tolist()
"""
    )
