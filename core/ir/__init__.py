"""Intermediate representation: avals, primitives, traces, tracers, Jaxprs."""
