"""ORC files of Hive ACID tables: their bytes, reading and writing them."""
