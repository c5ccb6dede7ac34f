"""The version of this package, as text and as numbers.

>>> from tracebridge import version
>>> version.__version__ == ".".join(map(str, version.__version_info__))
True
"""

from __future__ import annotations

__all__ = ["__version__", "__version_info__"]

__version__ = "0.1.0"
__version_info__ = tuple(int(part) for part in __version__.split("."))
"""To compare with: ``__version_info__ >= (0, 1)``."""
