"""First-order primitives over named axes."""
