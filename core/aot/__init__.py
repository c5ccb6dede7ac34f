"""Ahead of time: trace, lower and compile as separate steps, each with its result to look at."""
