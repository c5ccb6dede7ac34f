"""Arguments of transformed functions: positions, trees, statics, placements."""
