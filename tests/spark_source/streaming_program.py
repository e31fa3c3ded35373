"""A plain Spark program: a stream from one table into another, until it has read all.

Arguments: the warehouse, the checkpoint. The test kills it.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    warehouse, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = (
        spark.readStream.format("acid")
        .option("warehouse", warehouse)
        .option("since", "0")
        .option("maxCommitsPerTrigger", "1")
        .load("db.t")
    )
    query = (
        source.writeStream.format("acid")
        .option("warehouse", warehouse)
        .option("sink", "copy")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start("db.copy")
    )
    query.awaitTermination()
