"""Calls of programs: eager dispatch, planned functions, the cached call."""
