"""LLVM, through llvmlite: text to machine code for this processor. Nothing else imports it.

llvmlite is an extra (``pip install tracebridge[kernels]``); without it there are no kernels, and
programs are XLA's alone. Thread-safety: one lock around LLVM, whose context is shared.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracebridge.core.config import env
from tracebridge.core.kernels.sharing import EXPORTED, LIBRARY, N_SEATS, SEAT_BYTES, SEATS
from tracebridge.core.kernels.text import TWICE
from tracebridge.core.util.processor import processor_lines

_LOCK = threading.Lock()
_ENGINES: list[Any] = []
"""Machine code stays for the life of the process: XLA knows its address by name for good."""

_SEATS = ctypes.create_string_buffer(N_SEATS * SEAT_BYTES)
"""Where threads wait that have just helped (``sharing.py``)."""


def _leave_seats() -> None:
    """In a child, which has no threads of its parent."""
    ctypes.memset(_SEATS, 0, N_SEATS * SEAT_BYTES)


class Machine(NamedTuple):
    """The processor: float32 in a vector, a text that tells processors and LLVMs apart.

    ``fuses``: whether it multiplies and adds in one step; others would call a function for each.
    """

    lanes: int
    description: str
    fuses: bool


@functools.lru_cache(maxsize=1)
def is_there() -> bool:
    """Whether kernels can be compiled for this processor."""
    if sys.platform != "linux" or importlib.util.find_spec("llvmlite") is None:
        return False
    return machine().fuses


def n_threads() -> int:
    """How many threads XLA starts: what ``NPROC`` says, else one for each core we may use."""
    given = env.get("NPROC")
    if given:
        with contextlib.suppress(ValueError):
            return max(1, int(given))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=1)
def machine() -> Machine:
    """This processor, as the system describes it.

    Programs are lowered with it. LLVM would tell as much, but takes 25 ms to load: it is loaded
    where the first kernel is compiled, beside XLA, and never if there is none.
    """
    lines = processor_lines(of_all_cores=False) or []
    named = [line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))]
    instructions = set(" ".join(named).split()) or _instructions_by_llvm()
    lanes = 16 if "avx512f" in instructions else 8 if "avx2" in instructions else 4
    fuses = platform.machine() != "x86_64" or "fma" in instructions
    version = importlib.import_module("llvmlite").__version__
    described = "\n".join([*lines, *([] if named else sorted(instructions))])
    return Machine(lanes, f"{described} llvmlite {version}", fuses)


def _instructions_by_llvm() -> set[str]:
    binding = importlib.import_module("llvmlite.binding")
    with _LOCK:
        features = binding.get_host_cpu_features()
    return {name for name, is_there in features.items() if is_there}


@functools.lru_cache(maxsize=1)
def target() -> Any:
    """LLVM's machine for this processor. Whoever calls has the lock."""
    binding = importlib.import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # A thread may still wait in a seat when the interpreter ends and frees what modules have.
    # So may kernels run then, in threads that are not waited for: their code is never freed.
    for kept in (_SEATS, _ENGINES):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    binding.add_symbol(SEATS, ctypes.addressof(_SEATS))
    os.register_at_fork(after_in_child=_leave_seats)
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=2,
        codemodel="jitdefault",
        jit=True,
    )


def _run_passes(binding: Any, module: Any, text: str) -> None:
    """Let LLVM do what makes kernels faster. Whoever calls has the lock.

    The texts have vectors and blocks in registers already. What is added up in memory that a
    function has for itself must get registers as well: without that, rows took twice as long. All
    else that LLVM does takes more than half of its time and makes nothing faster.
    """
    options = binding.create_pipeline_tuning_options()
    builder = binding.create_pass_builder(target(), options)
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    if TWICE in text:
        passes.add_new_gvn_pass()  # first: the next one puts values where only one branch has them
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    passes.run(module, builder)


def compile_text(text: str, entries: Sequence[str], *, by_itself: bool = False) -> list[int]:
    """The addresses of the functions ``entries`` of a module; 0 of those that it has not.

    ``by_itself``: it calls no function of the library.
    """
    with _LOCK:
        if not by_itself:
            _load_library()
        return _compiled(text, entries)


@functools.lru_cache(maxsize=1)
def _load_library() -> None:
    """Compile what all kernels call. Whoever calls has the lock."""
    binding = importlib.import_module("llvmlite.binding")
    for name, address in zip(EXPORTED, _compiled(LIBRARY, EXPORTED), strict=True):
        binding.add_symbol(name, address)


def _compiled(text: str, entries: Sequence[str]) -> list[int]:
    binding = importlib.import_module("llvmlite.binding")
    machine_of_llvm = target()
    with binding.parse_assembly(text) as module:
        module.verify()
        _run_passes(binding, module, text)
        code = machine_of_llvm.emit_object(module)
    # An engine that was given the code, not the module, does not keep LLVM's form of it.
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine_of_llvm)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    there = [f"@{entry}(" in text for entry in entries]
    pairs = zip(entries, there, strict=True)
    return [engine.get_function_address(entry) if here else 0 for entry, here in pairs]
