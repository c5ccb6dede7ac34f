"""Contractions."""
