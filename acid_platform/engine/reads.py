"""What a query reads, as plain values for either engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.scan.scans import Scan

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan


@dataclass(frozen=True, slots=True)
class TableRead:
    """What a query reads of a table; `columns` None: all. The scan applies `where`."""

    scan: Scan
    columns: tuple[str, ...] | None = None
    where: str | None = None
    row_id: bool = False
    file_name: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRead:
    """What a query reads of the changes of a table; `columns` None: all."""

    scan: ChangeScan
    columns: tuple[str, ...] | None = None

    @property
    def file_name(self) -> bool:
        """Whether it reads the name of each row's file; a change has none."""
        return False


Sources = Mapping[str, TableRead | ChangeRead]
"""By placeholder."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that also reads other tables: `FROM <target> AS … WHERE …`.

    `target` and the keys of `sources` are placeholders in `text`. `pruning`: the part of the
    predicate that only reads the table itself.
    """

    text: str
    """What follows the columns of a SELECT that returns the accepted rows."""
    target: str
    sources: Sources
    pruning: str | None = None


Where = str | Condition | None
"""Which rows a statement changes; None: all rows."""
