"""Scans: the files of a table at a snapshot, and which rows count. Both engines run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.names import parse_bucket_file
from acid_platform.layout.schema import decode_bucket
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_numpy import scalar_of
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.partition_texts import partition_value


@dataclass(frozen=True, slots=True)
class EntityScan:
    """The files of one partition, or of an unpartitioned table, and the keys of deleted rows."""

    sources: EntitySources
    deletes: DeleteKeys = NO_DELETES
    partition: str = ""
    """Such as `month=3`; empty for an unpartitioned table."""
    values: tuple[str | None, ...] = ()
    """Partition values in column order, as written in the directory name."""
    paths: tuple[str, ...] = ()
    """The directories and original files that the snapshot reads, whether pruned or not."""

    @classmethod
    def of_file(cls, source: SourceFile, values: tuple[str | None, ...] = ()) -> EntityScan:
        """One file, of which no row is deleted."""
        return cls(EntitySources("", (source,), ()), values=values)

    def with_inserts(self, inserts: Iterable[SourceFile]) -> EntityScan:
        """The entity with these of its insert files."""
        return replace(self, sources=replace(self.sources, inserts=tuple(inserts)))


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of a table at a snapshot.

    Each file of an entity comes with the tests that its rows need (`SourceFile.test_rows`, `above`,
    `length`); a row is left out if its key is among the deleted ones of its entity.
    """

    files: Files
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    entities: tuple[EntityScan, ...]
    write_ids: ValidWriteIdList
    format: FileFormat = ACID_FORMAT
    still_open: Callable[[], object] | None = field(default=None, compare=False)
    """Raises SnapshotExpired or TxnAborted unless the files of the scan must still be there."""

    @property
    def read_bytes(self) -> int:
        """The size of the insert files that the scan opens, before column pruning."""
        return sum(source.size for entity in self.entities for source in entity.sources.inserts)

    def without_empty_files(self) -> Scan:
        """The scan without files that are known to have no rows, such as those of TRUNCATE, whose
        columns may have been of other types."""
        return replace(
            self,
            entities=tuple(
                entity.with_inserts(one for one in entity.sources.inserts if one.rows != 0)
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


def _highest_bucket(source: SourceFile) -> int:
    if source.identity is RowIdentity.RUN:
        return decode_bucket(source.bucket).number
    name = parse_bucket_file(source.path.rpartition("/")[2])
    return name.bucket if name else 0


def partition_scalars(
    columns: Sequence[Column], texts: Sequence[str | None]
) -> dict[str, pa.Scalar]:
    """The values of a partition by column; `texts` as its directory name spells them."""
    return {
        column.name: scalar_of(partition_value(text, column.type), arrow_type(column.type))
        for column, text in zip(columns, texts, strict=True)
    }
