"""Private modules of the peer library, for libraries that import from them.

Not an interface of this package: each name is one of ours under the name that the peer's own
modules have for it, and only names are here that published libraries use. New code takes them
from the public modules.
"""

from __future__ import annotations

from tracebridge._src import _modules as _modules
