"""shard_map: a program that each device of a mesh runs on its blocks of the arrays."""
