"""What a snapshot has of a table, opened for reading: plain values for either engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.names import parse_bucket_file
from acid_platform.layout.rowids import decode_bucket
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import DeleteKeys
from acid_platform.scan.selection import AcidDirectory
from acid_platform.scan.source_files import EntitySources, Source, SourceKind
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList


@dataclass(frozen=True, slots=True)
class EntityScan:
    """An entity of a snapshot, opened for reading."""

    directory: AcidDirectory
    sources: EntitySources
    deletes: DeleteKeys
    partition: str
    """Such as `month=3`; empty for an unpartitioned table."""
    values: tuple[str | None, ...]
    """Partition values in column order, as written in the directory name."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """Everything that is needed to read a table at a snapshot, as a plain value."""

    files: Files
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    entities: tuple[EntityScan, ...]
    write_ids: ValidWriteIdList
    format: FileFormat = ORC
    still_open: Callable[[], object] | None = field(default=None, compare=False)
    """Raises SnapshotExpired or TxnAborted unless the files of the scan must still be there."""

    @property
    def read_bytes(self) -> int:
        """The size of the insert files that the scan opens, before column pruning."""
        return sum(source.size for entity in self.entities for source in entity.sources.inserts)

    @property
    def may_hold_rows(self) -> bool:
        """Whether it opens a file that may hold rows, all of which may be deleted."""
        return any(
            source.rows != 0 for entity in self.entities for source in entity.sources.inserts
        )

    def without_empty_files(self) -> TableScan:
        """The scan without files that are known to have no rows, such as those of TRUNCATE, whose
        columns may have been of other types."""
        return replace(
            self,
            entities=tuple(
                replace(
                    entity,
                    sources=replace(
                        entity.sources,
                        inserts=tuple(one for one in entity.sources.inserts if one.rows != 0),
                    ),
                )
                for entity in self.entities
            ),
        )

    @property
    def highest_bucket(self) -> int:
        """The highest bucket number that a row of the scan can have; 0 without files."""
        return max(
            (
                _highest_bucket(source)
                for entity in self.entities
                for source in entity.sources.inserts
            ),
            default=0,
        )


def _highest_bucket(source: Source) -> int:
    if source.kind is SourceKind.RAW:
        return decode_bucket(source.bucket).number
    name = parse_bucket_file(source.path.rpartition("/")[2])
    return name.bucket if name else 0
