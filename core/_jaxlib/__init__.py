"""The one door to jaxlib: no other package of the engine imports it.

Rules of this folder: no process-wide state of jaxlib is written (no attributes on its classes,
no tracer class, no default pytree registry, no global configuration), so that another library on
the same jaxlib keeps working in this process; and every difference between jaxlib versions
is decided here, by feature tests.

`xla` and `pytree` are imported at start-up; `mlir` loads its dialects at first use; `dlpack`,
`ffi`, `plugins`, `profiler` and `distributed` are small and are imported by who needs them.
"""

from __future__ import annotations

from tracebridge.core._jaxlib.version import JAXLIB_VERSION, UnsupportedJaxlibError

__all__ = ["JAXLIB_VERSION", "UnsupportedJaxlibError"]
