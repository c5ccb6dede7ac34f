"""Options of the peer library that are no choice here, and those of it that are parts of one.

A program that asks for what is done anyway runs; one that asks for something else is told.
"""

from __future__ import annotations

from typing import Any, Final

from tracebridge.core.config import values
from tracebridge.core.config.guard_levels import DIRECTIONS, LEVELS, guard_levels, joined_levels
from tracebridge.core.errors.config_errors import OptionValueError

FIXED: Final[dict[str, tuple[Any, ...]]] = {
    "array_garbage_collection_guard": ("allow",),
    "auto_pcast": (True,),
    "compilation_cache_include_metadata_in_key": (False,),
    "compilation_cache_max_size": (-1,),
    "enable_compilation_cache": (True,),
    "mutable_array_checks": (True,),
    # Hints to compilers for GPUs: what is computed does not depend on them.
    "persistent_cache_enable_xla_caches": ("xla_gpu_per_fusion_autotune_cache_dir", "none", "all"),
    "persistent_cache_min_entry_size_bytes": (0, -1),
    "raise_persistent_cache_errors": (False,),
    "random_seed_offset": (0,),
    "remove_size_one_mesh_axis_from_type": (False,),
    "softmax_custom_jvp": (True,),
    "thread_guard": (False,),
    "use_shardy_partitioner": (True,),
}
"""By name: the values that say what is done; the first is what reading the option gives."""

_GUARD: Final = "transfer_guard"
GUARDS: Final[dict[str, str]] = {f"{_GUARD}_{direction}": direction for direction in DIRECTIONS}
"""The options that set the guard of one direction."""


def is_fixed(name: str) -> bool:
    """Whether a name is one of these options."""
    return name in FIXED or name in GUARDS


def read_fixed(name: str) -> Any:
    """The value of such an option."""
    if name in GUARDS:
        return guard_levels(values.option(_GUARD))[GUARDS[name]]
    return FIXED[name][0]


def update_fixed(name: str, value: object) -> None:
    """Set such an option.

    Raises:
        OptionValueError: another value than those that are possible.
    """
    if name in GUARDS:
        level = "allow" if value is None else value
        if level not in LEVELS:
            expected = " or ".join(map(repr, LEVELS))
            raise OptionValueError(call=name, got=repr(value), expected=expected)
        levels = guard_levels(values.global_value(_GUARD))
        values.update(_GUARD, joined_levels({**levels, GUARDS[name]: str(level)}))
    elif value not in FIXED[name]:
        raise OptionValueError(
            call=name,
            got=repr(value),
            expected=" or ".join(map(repr, FIXED[name])) + ": it is no choice here",
        )
