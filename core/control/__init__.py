"""Higher-order primitives: those with a Jaxpr in their parameters."""
