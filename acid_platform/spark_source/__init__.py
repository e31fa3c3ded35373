"""The data source `acid` for plain Spark code: batches and streams, in both directions (P42).

Spark calls it in processes of its own, which share nothing but pickled values: some plan a read or
a write beside the driver, some run its tasks, some commit it. Of ours, only those beside the driver
speak to the metastore; `keeper` keeps their transactions alive from one to the next.
"""
