"""Types and operations that programs define: what the public module of high-level types shows."""
