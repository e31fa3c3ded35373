"""Spark: scans, writes, DML and compaction of ACID tables."""
