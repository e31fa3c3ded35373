"""From Spark's SQL to DuckDB's, or a refusal by name: queries, expressions, casts, functions."""
