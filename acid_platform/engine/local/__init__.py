"""The local engine: Arrow, NumPy and DuckDB in this process, for tables that are small."""
