"""Where arrays live: shardings as plain data."""
