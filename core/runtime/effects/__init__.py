"""What orders effects: tokens and callbacks on the host."""
