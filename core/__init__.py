"""The engine: tracers, Jaxprs, transformations, lowering to StableHLO, dispatch to XLA."""
