"""Building MLIR: types, attributes, constants, operations, the one context."""
