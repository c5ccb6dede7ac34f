"""Solvers differentiated by the implicit function theorem."""
