"""The version of this package, and the version of the peer's interface that it follows.

>>> from tracebridge import version
>>> version.__version_info__ >= (0, 4, 26)
True
"""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing

__all__ = ["__version__", "__version_info__"]

__dir__ = _listing(globals())

__version__ = "0.1.0"
__version_info__ = (0, 10, 2)
"""The release of JAX whose interface this one is.

Libraries compare it to choose between ways to call what they need: the answer is which ways
exist here, not how old this package is.
"""

_version = ".".join(map(str, __version_info__))
"""The same as text, under the name that torchax reads."""
