"""Special functions that are programs of their own: loops, series and expansions."""
