"""What to use instead of names that programs for the same API may ask for, and that are not here.

One table; it is loaded when a name is not found.
"""

from __future__ import annotations

_FOLDERS = "tracebridge.experimental.array_serialization"
_BESIDE = "beside the traced function"
_DEVICES = "tracebridge.shard_map, which casts values where they meet others that vary more"
_RESTART = (
    "tracebridge.experimental.multihost_utils.reached_preemption_sync_point, and a start of all "
    f"processes from what {_FOLDERS}.pytree_serialization saved: when one fails, the others end"
)
_TREE_FUNCTIONS = (
    *("all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map"),
    *("map_with_path", "reduce", "structure", "transpose", "unflatten"),
)
_PRIMITIVES = "a primitive of your own, see tracebridge.extend.core"

# Module -> (names, what to use). A name that ends with a star is the beginning of names.
_TABLE: dict[str, tuple[tuple[str, str], ...]] = {
    "tracebridge": (
        ("allow_f16_reductions", "tracebridge.numpy.sum: 16-bit floats add up in float32"),
        ("array_garbage_collection_guard", "tracebridge.live_arrays, and gc.get_referrers"),
        ("auto_pcast remove_size_one_mesh_axis_from_type", _DEVICES),
        ("jax2tf_associative_scan_reductions", "tracebridge.tf.save: it needs no such option"),
        ("softmax_custom_jvp", "tracebridge.nn.softmax: it has that derivative"),
        ("thread_guard", "tracebridge.distributed.initialize: all compute in one order"),
        *[(f"tree_{name}", f"tracebridge.tree.{name}") for name in _TREE_FUNCTIONS],
        ("tree_multimap", "tracebridge.tree.map"),
    ),
    "tracebridge.lax": (
        ("ragged_all_to_all_p", "tracebridge.lax.ragged_all_to_all"),
        ("*_p", _PRIMITIVES),
    ),
    "tracebridge.extend.core": (
        ("AbstractToken Token", "tracebridge.lax.create_token: tokens are arrays, bool[0]"),
    ),
    "tracebridge.ffi": (
        ("register_ffi_type_id", "tracebridge.ffi.register_ffi_type"),
    ),
    "tracebridge.experimental": (
        ("pallas", "tracebridge.jit of plain operations, which XLA fuses"),
        ("control_deps", "tracebridge.lax.optimization_barrier"),
        ("roofline", "tracebridge.jit: f.lower(...).compile().cost_analysis()"),
        ("source_mapper", "tracebridge.jit: f.lower(...).as_text(debug_info=True)"),
        ("transfer", "tracebridge.distributed.initialize, then tracebridge.device_put"),
    ),
    "tracebridge.experimental.hijax": (
        ("HiPspec", "tracebridge.shard_map of the arrays that a value consists of"),
        ("TransformedRef", "tracebridge.ref.Ref: a view of a reference is a reference"),
    ),
    "tracebridge.experimental.multihost_utils": (
        ("live_devices ProcessFailureError", _RESTART),
    ),
    "tracebridge.experimental.array_serialization": (
        ("tensorstore_impl", f"{_FOLDERS}.pytree_serialization"),
    ),
    "tracebridge.experimental.array_serialization.serialization": (
        ("*", f"{_FOLDERS}.pytree_serialization"),
    ),
}  # fmt: skip


def missing(module: str, name: str) -> AttributeError:
    """The error for a name that a module does not have."""
    way_out = instead(module, name)
    text = f"module {module!r} has no attribute {name!r}"
    if way_out:
        text += f": it is not part of this version\n    way out: {way_out}"
    return AttributeError(text, name=name)


def instead(module: str, name: str) -> str:
    """What to use instead of a name; "" if nothing is known."""
    for names, way_out in _TABLE.get(module, ()):
        for pattern in names.split():
            if pattern == name or (
                "*" in pattern
                and name.startswith(pattern.partition("*")[0])
                and name.endswith(pattern.partition("*")[2])
            ):
                return way_out
    return ""


def names_in_table() -> dict[str, list[str]]:
    """The names without a star, by module."""
    return {
        module: [name for names, _ in rows for name in names.split() if "*" not in name]
        for module, rows in _TABLE.items()
    }
