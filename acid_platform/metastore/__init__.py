"""Transactions, write ids and locks, kept in DuckDB by one process."""
