"""Queries and changes of small tables in this process, by Arrow, NumPy and DuckDB.

A query: `run_query` translates it (`translation`), and DuckDB computes it over scans
(`computation`). A change: `write`, `dml` and `merge` compute rows, which `event_files` writes and
publishes.
"""
