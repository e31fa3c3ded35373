"""Conditions in Spark's SQL, understood without Spark."""
