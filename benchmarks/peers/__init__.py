"""The benchmark `peers`: our tables beside Iceberg, Delta, Hudi and plain files, each in its Spark.

The peers' packages live in environments of their own, in a cache directory. Every Spark also loads,
reads and appends plain Parquet and ORC, and ratios are given after division by these. With `--spark
4.1.4` ours runs in that Spark; beside a peer in the same one, seconds are compared as they are.
"""
