"""Torch functions as operations of traced code: what ``call_torch`` is made of."""
