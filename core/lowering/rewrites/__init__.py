"""Faster forms of several equations of a program together, found just before it is lowered."""
