"""Which rows the statements of a transaction changed, as its commit tells the metastore (P38)."""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.base.config import Settings
from acid_platform.base.table_properties import CONFLICT_DETECTION
from acid_platform.metastore.records import RowReport, TableRecord
from acid_platform.storage.files import Files
from acid_platform.transactions import RowOperation
from acid_platform.write.changed_rows import NO_ROWS, ChangedRows, deleted_rows
from acid_platform.write.publishing import WrittenDirectory

_Place = tuple[str, str | None, RowOperation]
"""Table, partition and operation."""


class RowReports:
    """The changed rows of each table, partition and operation of one transaction.

    What is not reported conflicts by partition: foreign writers, and a MERGE that inserted rows.
    Such a MERGE has seen that no row has their keys, which two of them could insert twice.
    """

    def __init__(self, settings: Settings) -> None:
        self._detection = settings.text(CONFLICT_DETECTION.name)
        self._limit = settings.integer("acid.conflict.rows.bytes")
        self._rows: dict[_Place, ChangedRows] = {}
        self._unknown: set[_Place] = set()

    def begun(self, record: TableRecord, partition: str | None, operation: RowOperation) -> None:
        """Notes an UPDATE or DELETE that locks this entity, where it may match no row."""
        self._rows.setdefault((record.name, partition, operation), NO_ROWS)

    def unknown(self, record: TableRecord, partition: str | None, operation: RowOperation) -> None:
        """Notes a change of rows that can't be named."""
        self._unknown.add((record.name, partition, operation))

    def add(
        self,
        record: TableRecord,
        operation: RowOperation,
        written: Sequence[WrittenDirectory],
        unmatched: bool = False,
    ) -> None:
        """Adds what an UPDATE, DELETE or MERGE has published.

        `unmatched`: a MERGE inserted rows, wherever it wrote rows. Raises CorruptFile if a file of
        delete events can't be read.
        """
        if not self._by_row(record):
            return
        deleted = {published.partition for published in written if published.deletes}
        for published in written:
            place = (record.name, published.partition or None, operation)
            if published.deletes:
                rows = published.changed or self._read(record, published)
                self._rows[place] = ChangedRows.union([self._rows.get(place, NO_ROWS), rows])
            elif unmatched or published.partition not in deleted:
                self._unknown.add(place)

    def reports(self) -> list[RowReport]:
        """The reports for the commit, which share `acid.conflict.rows.bytes`."""
        counted = {place: rows for place, rows in self._rows.items() if place not in self._unknown}
        texts = {place: rows.row_set(self._limit) for place, rows in counted.items()}
        if sum(len(rows.text) if rows else self._limit for rows in texts.values()) > self._limit:
            share = self._limit // len(texts)
            texts = {
                place: rows if rows and len(rows.text) <= share else counted[place].row_set(share)
                for place, rows in texts.items()
            }
        return [RowReport(*place, rows) for place, rows in texts.items() if rows is not None]

    def _by_row(self, record: TableRecord) -> bool:
        own = CONFLICT_DETECTION.stated(record.properties)
        return (own or self._detection).lower() == "row"

    @staticmethod
    def _read(record: TableRecord, published: WrittenDirectory) -> ChangedRows:
        files, location = Files.of(record.location)
        directory = f"{location}/{published.partition}/{published.directory}".replace("//", "/")
        return deleted_rows(files, directory, published.contents)
