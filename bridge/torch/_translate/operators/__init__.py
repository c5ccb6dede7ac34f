"""ATen operators as functions of arrays: a table for each family, a row for each operator."""
