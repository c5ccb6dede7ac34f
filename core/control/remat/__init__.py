"""Rematerialization: calls that compute their intermediate values again on the way back."""
