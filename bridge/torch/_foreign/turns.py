"""What calls of torch functions share, so that one comes after the other."""

from __future__ import annotations

import threading
from typing import Any

from tracebridge.core.util.caching import WeakIdCache
from tracebridge.interop.turns import Turn

# torch has one generator of random numbers for all threads.
of_generator = Turn()

_of_modules: WeakIdCache[Turn] = WeakIdCache("turns of modules", 2, register=False)
_making = threading.Lock()


def of_module(module: Any) -> Turn:
    """The turn of a module: while it is called with other parameters it is changed."""
    with _making:
        found = _of_modules.get(module, "turn")
        if found is None:
            found = Turn()
            _of_modules.set(module, "turn", found)
    return found
