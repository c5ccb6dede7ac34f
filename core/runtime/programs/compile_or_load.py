"""Executables of modules: compiled by XLA, or loaded from the persistent compilation cache."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracebridge.core._jaxlib.ffi import ONEDNN
from tracebridge.core._jaxlib.xla import (
    NO_EMITTERS,
    DeviceList,
    XlaRuntimeError,
    compile_and_load,
    with_flag,
)
from tracebridge.core.config.values import option
from tracebridge.core.kernels.waiting import compile_kernels
from tracebridge.core.runtime.programs.library_fusions import SAFE_FUSIONS, has_wrong_fusions
from tracebridge.core.runtime.programs.memory_maps import make_room_for_program

_NOT_KEPT = ONEDNN.encode()  # what no executable in a file may call
# Dtypes without -0, whose bits are NaN: the quick way rounds small negative numbers to it.
_WRONG_QUICKLY = "fnuz["


def compile_or_load(
    client: Any,
    module: Any,
    devices: Sequence[Any],
    options: Any,
    *,
    bytecode: bytes | None,
    host_callbacks: Sequence[Any] = (),
) -> Any:
    """Compile a module for devices, or load what an equal one became before.

    Args:
        client: of the devices.
        module: the StableHLO program; whoever calls has entered its context.
        devices: those that run it.
        options: XLA's compile options.
        bytecode: of the module; None for a program that no other process may run.
        host_callbacks: functions of this process that the program calls.
    """
    if client.platform != "cpu":
        return _made(client, module, devices, options, bytecode, host_callbacks)
    make_room_for_program()
    kernels = compile_kernels(module, bytecode)
    try:
        return _made(client, module, devices, options, bytecode, host_callbacks)
    finally:
        if kernels is not None:
            kernels.wait()


def _made(
    client: Any,
    module: Any,
    devices: Sequence[Any],
    options: Any,
    bytecode: bytes | None,
    host_callbacks: Sequence[Any],
) -> Any:
    """The program, compiled or loaded."""
    folder = option("compilation_cache_dir")
    if not folder or bytecode is None or host_callbacks or _NOT_KEPT in bytecode:
        return _compile(client, module, DeviceList(devices), options, host_callbacks)
    # Hashes and files are loaded with the first folder: they are a tenth of the import.
    cache = importlib.import_module("tracebridge.core.runtime.programs.compilation_cache")
    return cache.load_or_make(
        Path(folder),
        lambda: _compile(client, module, DeviceList(devices), options),
        client,
        devices,
        options,
        bytecode,
    )


def _compile(
    client: Any,
    module: Any,
    devices: DeviceList,
    options: Any,
    host_callbacks: Sequence[Any] = (),
) -> Any:
    """Compile a module; again if XLA's library for CPUs or its quick way got something wrong."""
    executable = _compile_with(client, module, devices, options, host_callbacks)
    if client.platform != "cpu":
        return executable
    text = executable.get_hlo_text()
    better = [SAFE_FUSIONS] if has_wrong_fusions(text) else []
    if _WRONG_QUICKLY in text:
        better += [(flag[0], True) for flag in NO_EMITTERS if flag in options.env_option_overrides]
    if not better:
        return executable
    del executable
    for name, value in better:
        options = with_flag(options, name, value)
    return _compile_with(client, module, devices, options, host_callbacks)


def _compile_with(
    client: Any, module: Any, devices: DeviceList, options: Any, host_callbacks: Sequence[Any]
) -> Any:
    """Compile a module; again if the quick way of making code failed, which knows fewer dtypes."""
    try:
        return compile_and_load(client, module, devices, options, host_callbacks)
    except XlaRuntimeError:
        quick = [flag for flag in NO_EMITTERS if flag in options.env_option_overrides]
        if not quick:
            raise
    for name, _ in quick:
        options = with_flag(options, name, True)
    return compile_and_load(client, module, devices, options, host_callbacks)
