"""Doors for code that extends the engine: primitives of functions, programs of variables."""
