"""Composition root: fills the hooks of the engine. Nothing else changes anything at import.

1. the eager traces, which execute operations at once;
2. the array namespace, through which operators and methods of arrays reach tracebridge.numpy.
"""

from __future__ import annotations

from tracebridge.core.ir.trace import install_eager_trace
from tracebridge.core.runtime.dispatch import EagerTrace

install_eager_trace(EagerTrace(), EagerTrace(debug=True))
