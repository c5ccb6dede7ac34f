"""The transformations that users call; one file each."""
