"""Tables whose files may belong to another warehouse: they may only be read (P31)."""

from __future__ import annotations

from acid_platform.errors import ForeignLocation
from acid_platform.metastore.rules.state import TableState


def refuse_foreign(table: TableState, what: str) -> None:
    """Raises ForeignLocation."""
    if table.record.foreign:
        raise ForeignLocation(f"{table.record.name}: {what} is refused, {why(table)}")


def why(table: TableState) -> str:
    """The reason for an error text, with the next step."""
    return (
        f"as {table.record.location} may belong to the warehouse that this one was copied from;"
        f" `acid metastore take-over {table.record.name}` if it no longer does"
    )
