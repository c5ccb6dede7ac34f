"""The check that no random key is used twice: ``tracebridge.debug_key_reuse`` turns it on.

>>> import tracebridge as tb
>>> with tb.debug_key_reuse(True):
...     key = tb.random.key(0)
...     one = tb.random.normal(key)
...     another = tb.random.normal(key)
Traceback (most recent call last):
tracebridge.errors.KeyReuseError: ...
"""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing

__all__: list[str] = []  # programs import it for the option

__dir__ = _listing(globals())
