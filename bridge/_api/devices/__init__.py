"""Devices, processes, meshes, and arrays over several of them."""
