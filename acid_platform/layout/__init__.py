"""Names and bytes of Hive ACID tables on disk, as pure functions."""
