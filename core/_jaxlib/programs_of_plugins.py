"""jaxlib's constructors of programs that a plugin runs, and of the options for them."""

from __future__ import annotations

from jaxlib import _jax

ifrt_programs = _jax.ifrt_programs
