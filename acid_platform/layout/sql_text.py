"""Values as SQL text."""

from __future__ import annotations


def sql_string(text: str) -> str:
    """The text as a string literal of Spark's and Hive's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
