"""Pure Python helpers that know nothing of the engine."""
