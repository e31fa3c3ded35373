"""On-disk names and bytes of Hive ACID tables, as pure functions."""
