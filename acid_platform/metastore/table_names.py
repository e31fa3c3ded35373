"""The normal form of a table's name."""

from __future__ import annotations


def table_name(name: str) -> str:
    """`db.t` in lower case; a name without a database is in `default`."""
    lower = name.strip().lower()
    return lower if "." in lower else f"default.{lower}"
