"""Reading without Spark: which files a predicate needs, and Arrow batches from them."""
