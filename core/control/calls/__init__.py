"""Calls of Jaxprs as equations, and tracing of the functions that become them."""
