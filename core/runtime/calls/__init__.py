"""Calls of programs: eager dispatch, staged functions, the cached call."""
