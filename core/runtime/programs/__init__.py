"""Programs: what the compiler makes of a Jaxpr, for one device and for many."""
