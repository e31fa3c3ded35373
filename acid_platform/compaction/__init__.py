"""When to compact, what, and what may be removed afterwards."""
