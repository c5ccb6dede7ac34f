"""Lowering: Jaxpr -> StableHLO module."""
