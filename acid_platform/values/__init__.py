"""One way for a value into a column, from Python, frames or Arrow, and out of it."""
