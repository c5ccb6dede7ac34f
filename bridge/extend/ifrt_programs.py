"""jaxlib's constructors of programs that a platform's plugin runs, and of the options for them.

>>> from tracebridge.extend.ifrt_programs import ifrt_programs
>>> callable(ifrt_programs.make_plugin_program)
True
"""

from __future__ import annotations

from tracebridge.core._jaxlib.programs_of_plugins import ifrt_programs
from tracebridge.core.util.listing import listing as _listing

__all__ = ["ifrt_programs"]

__dir__ = _listing(globals())
