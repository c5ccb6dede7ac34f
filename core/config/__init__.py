"""Options: one table (`options`), their values and the thread-scoped state (`scopes`),
the public object (`config`), and the only reader of the environment (`env`)."""
