"""The two engines, and what they share: Spark, and the local engine, which needs no JVM."""
