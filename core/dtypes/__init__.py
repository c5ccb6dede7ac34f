"""Dtypes of the engine: constants, groups, weak types, promotion and the 64-bit rule."""
