"""Calls that torch.compile or torch.export traces, and the operator that they become."""
