"""Columns that views read, although their tables no longer have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.records import TableRecord, ViewRecord


def refuse_names_of_views(
    views: Iterable[ViewRecord], before: TableRecord, columns: Sequence[tuple[str, str]]
) -> None:
    """Raises InvalidDefinition if another column would get a name under which a view still reads
    one that is gone: the view would read it without a word."""
    names = {name for name, _ in columns}.difference(name for name, _ in before.columns)
    for view in views if names else ():
        for table, read in view.reads:
            again = [name for name, _ in read if table == before.name and name in names]
            if again:
                raise InvalidDefinition(
                    f"view {view.name} reads a column {again[0]!r} that {table} no longer has; drop"
                    " the view, or make it again, before another column gets the name"
                )
