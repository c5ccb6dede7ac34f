"""Programs: compiling functions, and looking at what was traced."""
