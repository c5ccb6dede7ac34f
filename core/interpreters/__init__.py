"""Interpreters: staging, jvp, linearize, transpose, batching, partial evaluation, dce."""
