"""Where Spark finds the data source `acid` by itself.

Spark 4 looks for packages whose name begins with `pyspark_` and registers their `DefaultSource`.
"""

from acid_platform.spark_source.source import AcidDataSource as DefaultSource

__all__ = ["DefaultSource"]
