"""How a table is named: one normal form for the metastore and everybody who asks it."""

from __future__ import annotations


def table_name(name: str) -> str:
    """`db.t` in lower case; without a database `default` is meant."""
    lower = name.strip().lower()
    return lower if "." in lower else f"default.{lower}"
