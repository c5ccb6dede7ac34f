"""Options and the thread-scoped state.

One table (`options`), values and state (`scopes`), the public object (`config`), the only reader
of the environment (`env`).
"""
