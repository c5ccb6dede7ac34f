"""The profiler: sessions, annotations, the server, and memory profiles."""

from __future__ import annotations

from jaxlib import _jax, _profiler

ProfileOptions = _profiler.ProfileOptions
ProfilerSession = _profiler.ProfilerSession
TraceMe = _profiler.TraceMe
start_server = _profiler.start_server
pprof_profile_to_json = _jax.pprof_profile_to_json
json_to_pprof_profile = _jax.json_to_pprof_profile

__all__ = [
    "ProfileOptions",
    "ProfilerSession",
    "TraceMe",
    "json_to_pprof_profile",
    "pprof_profile_to_json",
    "start_server",
]
