"""The profiler: sessions, annotations, the server, profiles that were read, memory profiles."""

from __future__ import annotations

from typing import Any

from jaxlib import _jax, _profile_data, _profiler

ProfileOptions = _profiler.ProfileOptions
ProfilerSession = _profiler.ProfilerSession
TraceMe = _profiler.TraceMe
start_server = _profiler.start_server
register_subprocess = _profiler.register_subprocess
pprof_profile_to_json = _jax.pprof_profile_to_json
json_to_pprof_profile = _jax.json_to_pprof_profile
ProfileData = _profile_data.ProfileData
ProfileEvent = _profile_data.ProfileEvent
ProfilePlane = _profile_data.ProfilePlane


def heap_profile(client: Any) -> bytes:
    """What lives in the memory of a client's devices, in pprof's format."""
    return client.heap_profile()


__all__ = [
    "ProfileData",
    "ProfileEvent",
    "ProfileOptions",
    "ProfilePlane",
    "ProfilerSession",
    "TraceMe",
    "heap_profile",
    "json_to_pprof_profile",
    "pprof_profile_to_json",
    "register_subprocess",
    "start_server",
]
