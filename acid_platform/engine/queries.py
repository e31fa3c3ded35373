"""What a query reads, as plain values for either engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acid_platform.engine.scans import TableScan


@dataclass(frozen=True, slots=True)
class SourceRead:
    """What a query reads of a table; `columns` None: all. The scan applies `where`."""

    scan: TableScan
    columns: tuple[str, ...] | None = None
    where: str | None = None
    row_id: bool = False
    file_name: bool = False


Sources = Mapping[str, SourceRead]
"""By placeholder."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that also reads other tables: `SELECT * FROM <target> AS … WHERE …`.

    `target` and the keys of `sources` are placeholders in `text`. `pruning`: the part of the
    predicate that only reads the table itself.
    """

    text: str
    target: str
    sources: Sources
    pruning: str | None = None


Where = str | Condition | None
"""Which rows a statement changes; None: all rows."""
