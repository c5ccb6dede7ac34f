"""Export: jitted functions as programs that other processes run."""
