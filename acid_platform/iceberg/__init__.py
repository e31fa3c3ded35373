"""Tables told to readers of Apache Iceberg: metadata beside their files, which nobody copies."""
