"""Tables told to readers of Iceberg and DuckLake: metadata beside files that nobody copies."""
