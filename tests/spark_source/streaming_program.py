"""A plain Spark program: a stream from one table into another, until it has read all.

Arguments: the warehouse, the checkpoint, and a directory of Parquet files. The test kills it.
Before Spark 4.2 a batch of a table can't be limited to one commit: the stream reads the files.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from acid_platform.engine.spark import installed_version

if __name__ == "__main__":
    warehouse, checkpoint, files = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if installed_version().streams_have_limits:
        source = (
            spark.readStream.format("acid")
            .option("warehouse", warehouse)
            .option("since", "0")
            .option("maxCommitsPerTrigger", "1")
            .load("db.t")
        )
    else:
        reads = spark.readStream.schema("id int").option("maxFilesPerTrigger", "1")
        source = reads.parquet(files)
    query = (
        source.writeStream.format("acid")
        .option("warehouse", warehouse)
        .option("sink", "copy")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start("db.copy")
    )
    query.awaitTermination()
