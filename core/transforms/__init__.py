"""Transformations of whole user programs, each an interpreter of Jaxprs."""
