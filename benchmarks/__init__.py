"""Benchmarks that anybody can repeat; see the make targets under Measure."""
