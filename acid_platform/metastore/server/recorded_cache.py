"""The files of each directory of an entity, from the table `manifests` of a snapshot (P26).

It may have millions of rows and has no index. Recent results stay in memory, up to a limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acid_platform.metastore.server import metastore_schema as schema
from acid_platform.metastore.server.stored_kinds import Columns

Entity = tuple[int, str | None]
Read = Callable[[str, Columns, str, Sequence[Any]], list[dict[str, Any]]]
"""Reads rows of a table: its name, its columns, a WHERE clause and the clause's values."""

MOST_CHARACTERS = 64 << 20
"""The most characters that stay in memory, which are about as many bytes."""
_ENTRY = 200
"""Approximate bytes of a directory besides its text."""
_FEW = 100
"""The most partitions in one query; for more, the whole table is read at once."""


class RecordedCache:
    """The recorded files of entities; the least recently used entities are evicted first."""

    def __init__(self, read: Read, most: int = MOST_CHARACTERS) -> None:
        self._read, self._most = read, most
        self._entities: OrderedDict[Entity, dict[str, str]] = OrderedDict()
        self._size = 0

    def of(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> dict[tuple[str | None, str], str]:
        """The recorded text of each directory, by partition and name. Raises what `read` raises."""
        recorded: dict[str | None, dict[str, str]] = {}
        for partition in partitions:
            if (table_id, partition) in self._entities:
                self._entities.move_to_end((table_id, partition))
                recorded[partition] = self._entities[table_id, partition]
        lacking = [partition for partition in partitions if partition not in recorded]
        if lacking:
            for partition, contents in self._look_up(table_id, lacking).items():
                recorded[partition] = contents
                self._keep((table_id, partition), contents)
        return {
            (partition, name): text
            for partition, contents in recorded.items()
            for name, text in contents.items()
        }

    def _look_up(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> dict[str | None, dict[str, str]]:
        where, values = "WHERE table_id = $1", list[Any]([table_id])
        if len(partitions) == 1:
            where += ' AND "partition" IS NOT DISTINCT FROM $2'
            values.append(partitions[0])
        elif len(partitions) <= _FEW:
            where += ' AND "partition" IN (SELECT unnest($2::VARCHAR[]))'
            values.append([*partitions])
        files: dict[str | None, dict[str, str]] = {partition: {} for partition in partitions}
        for row in self._read("manifests", schema.RECORDED["manifests"], where, values):
            if row["partition"] in files:
                files[row["partition"]][row["directory"]] = row["contents"]
        return files

    def _keep(self, entity: Entity, contents: dict[str, str]) -> None:
        self._entities[entity] = contents
        self._size += _size(contents)
        while self._size > self._most:
            _, oldest = self._entities.popitem(last=False)
            self._size -= _size(oldest)


def _size(contents: Mapping[str, str]) -> int:
    return _ENTRY + sum(_ENTRY + len(name) + len(text) for name, text in contents.items())
