"""Queries and changes of small tables in this process, by Arrow, NumPy and DuckDB.

A query: `run_query` translates it (`translation`), and computes it over the scans
of `query_sources`. A change: `write`, `dml` and `merge` compute rows (`computation`), which
`stored_values` makes the table's, and `event_files` writes and publishes them.
"""
