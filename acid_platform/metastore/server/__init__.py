"""The metastore process: connections, the journal, and the DuckDB file."""
