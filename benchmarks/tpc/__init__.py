"""TPC-H and TPC-DS: rows and queries that nobody here wrote."""
