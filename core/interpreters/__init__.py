"""Interpreters of programs: staging, jvp, linearize, transpose, batching, partial evaluation, dce."""
