"""pmap: one replica of a program for each element of a mapped axis."""
