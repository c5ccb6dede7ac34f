"""The programs use every primitive, and lower for every platform; no device is needed."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import tracebridge as tb
import tracebridge.core
from tests.devices.programs import PROGRAMS, Program
from tests.equations import primitives_in
from tracebridge.core.ir.primitive import all_primitives

PLATFORMS = ("cpu", "cuda", "tpu")

# reason -> primitives that no program needs to have
ELSEWHERE = {
    "collectives take several devices: tests/core/collectives": (
        "all_gather all_to_all axis_index mark_shared pcast pmap pmax pmin ppermute psum "
        "psum_shared reduce_scatter shard_alike shard_map sharding_constraint inspect_sharding "
        "custom_partitioning unsplit"
    ),
    "nothing of them is left when a program is lowered": "check stage unchosen",
    "parts of derived programs and of lowerings": (
        "batch_kernel chosen closed_call composed custom_lin geqrf guarded plain_call remat_opt "
        "row_kernel running_kernel scan_by_blocks scan_kernel"
    ),
    "taken apart before programs are lowered: tests/core/compat/hijax": (
        "add_of_users call_hi_primitive call_hi_primitive_linearized"
    ),
    "targets are those of a user: tests/bridge/test_ffi.py": "ffi_call",
    "no code of their own": "dce_sink device_put key_use xla_metadata_value",
    "a size that is known when the program runs: tests/core/symbolic": "dimension_size",
    "calls a function that somebody registered for one platform": "ffi_call",
    "takes memory of this process: tests/bridge/experimental": "buffer_callback",
    "no function binds it: tests/core/windows": "select_and_scatter",
    "functions of other libraries: tests/integration/torch/test_call_torch.py": (
        "foreign_call foreign_tangent"
    ),
    "programs of files: tests/integration/torch/test_saved_programs.py": "exported_call",
    "memory and layouts are those of one platform": "to_memory layout_constraint",
}


def test_every_primitive_has_a_program() -> None:
    """A new primitive needs a line in tests/devices/programs.py, or a reason here."""
    for module in pkgutil.walk_packages(tracebridge.core.__path__, "tracebridge.core."):
        importlib.import_module(module.name)
    ours = {p.name for p in all_primitives() if type(p).__module__.startswith("tracebridge.core.")}
    exempt = {name for names in ELSEWHERE.values() for name in names.split()}
    used: set[str] = set()
    with tb.enable_x64(True):
        for program in PROGRAMS:
            used |= set(primitives_in(tb.make_jaxpr(program.fun)(*program.args), inside=True))

    assert set() == ours - used - exempt
    assert set() == exempt - ours


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_programs_lower(program: Program, platform: str) -> None:
    """Every platform has its text, or an error that names the platform."""
    if platform in program.not_on:
        with pytest.raises(tb.errors.TracebridgeError, match=platform):
            program.text(platform)
        return

    assert "func.func public @main" in program.text(platform)
