"""Loops that end by a condition or a count, and what is built of scans."""
