"""Export: Jaxpr -> portable StableHLO artifact."""
