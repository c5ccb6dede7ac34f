"""Functions of one element as functions of many."""
