"""Reads and fills tables as another engine does: by what the gateway tells, and by Hive's rules.

Nothing of this platform's reader is used. The directories are listed and chosen as Hive's AcidUtils
does, PyArrow decodes the files, and the keys decide what is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
from pyarrow import orc, parquet

from acid_platform.layout.types import parse_type
from acid_platform.values.arrow_types import arrow_type
from tests.acid_files import P
from tests.gateway.clients import ACQUIRED, INSERT, Statement, m, place_of, shown

_DIRECTORY = re.compile(r"(base|delta|delete_delta)_(\d+)(?:_(\d+))?(?:_(\d{4}))?(?:_v(\d+))?")
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Seen:
    """Which ids a list of the protocol lets its reader see."""

    highest: int
    unseen: frozenset[int]
    still_open: frozenset[int]

    @classmethod
    def of(cls, highest: int, unseen: Sequence[int], aborted_bits: bytes) -> Seen:
        aborted = int.from_bytes(aborted_bits, "little")
        still_open = {number for bit, number in enumerate(unseen) if not aborted >> bit & 1}
        return cls(highest, frozenset(unseen), frozenset(still_open))

    def sees(self, number: int) -> bool:
        return number <= self.highest and number not in self.unseen

    def sees_all_below(self, number: int) -> bool:
        """Whether nothing up to this id can change any more."""
        return number <= self.highest and all(number < other for other in self.still_open)


@dataclass(frozen=True, slots=True)
class _Directory:
    path: Path
    kind: str
    first: int
    last: int
    statement: int


def tables_of(client: Any, database: str) -> list[str]:
    """The tables of the database, without its views."""
    kinds = ["MANAGED_TABLE", "EXTERNAL_TABLE"]
    return [str(meta.tableName) for meta in client.get_table_meta(database, "*", kinds)]


def rows_of(client: Any, table: str) -> list[list[Any]]:
    """The rows of the table that a new statement of another engine reads."""
    database, name = table.split(".")
    declared = shown(client, table)
    transactions = client.get_open_txns()
    seen_transactions = Seen.of(
        transactions.txn_high_water_mark, transactions.open_txns, transactions.abortedBits
    )
    request = m.GetValidWriteIdsRequest(fullTableNames=[table])
    (listed,) = client.get_valid_write_ids(request).tblValidWriteIds
    write_ids = Seen.of(listed.writeIdHighWaterMark, listed.invalidWriteIds, listed.abortedBits)
    columns = {column.name: _arrow(column.type) for column in declared.sd.cols}
    keys = [_arrow(key.type) for key in declared.partitionKeys]
    if keys:
        partitions = client.get_partitions(database, name, -1)
        entities = [(one.sd.location, one.values) for one in partitions]
    else:
        entities = [(declared.sd.location, [])]
    rows = []
    for location, values in entities:
        of_partition = [_key(text, kind) for text, kind in zip(values, keys, strict=True)]
        insert_only = declared.parameters.get("transactional_properties") == "insert_only"
        chosen = _chosen(Path(location.removeprefix("file://")), seen_transactions, write_ids)
        read = _lines(chosen) if insert_only else _live(chosen, write_ids)
        lowered = ({name.lower(): value for name, value in row.items()} for row in read)
        rows += [[*(row.get(column) for column in columns), *of_partition] for row in lowered]
    return rows


def _arrow(kind: str) -> pa.DataType:
    return arrow_type(parse_type(kind))


def _key(text: str, kind: pa.DataType) -> Any:
    return None if text == _NULL else pa.scalar(text).cast(kind).as_py()


def _chosen(entity: Path, transactions: Seen, write_ids: Seen) -> list[_Directory]:
    """The base, and the deltas after it of which no other covers the ids."""
    found = []
    for path in entity.iterdir() if entity.exists() else ():
        if path.name.startswith(("_", ".")) or (path.is_dir() and "=" in path.name):
            continue
        name = _DIRECTORY.fullmatch(path.name)
        assert name, f"{path} is no directory of Hive's"
        kind, first, last, statement, compacted_by = name.groups()
        if compacted_by and not transactions.sees(int(compacted_by)):
            continue
        one = _Directory(path, kind, int(first), int(last or first), int(statement or -1))
        if kind == "base":
            visible = (write_ids.sees_all_below if compacted_by else write_ids.sees)(one.first)
        else:
            visible = any(map(write_ids.sees, range(one.first, one.last + 1)))
        if visible:
            found.append(one)
    bases = [one for one in found if one.kind == "base"]
    chosen = [max(bases, key=lambda one: one.first)] if bases else []
    covered, statement = (chosen[0].last if chosen else 0), -1
    before: _Directory | None = None
    deltas = [one for one in found if one.kind != "base"]
    for one in sorted(deltas, key=lambda one: (one.first, -one.last, one.statement)):
        beside = before and (one.first, one.last, one.statement) == (
            before.first,
            before.last,
            before.statement,
        )
        if one.last > covered or (one.last == covered and statement >= 0) or beside:
            chosen.append(one)
            covered, statement, before = one.last, one.statement, one
    return chosen


def _files(directory: _Directory) -> Iterator[Path]:
    for path in sorted(directory.path.iterdir()):
        if not path.name.startswith(("_", ".")):
            yield path


def _lines(chosen: Sequence[_Directory]) -> Iterator[Mapping[str, Any]]:
    """The rows of an insert-only table."""
    for directory in chosen:
        for path in _files(directory):
            is_orc = path.read_bytes()[:3] == b"ORC"
            yield from (orc if is_orc else parquet).read_table(path).to_pylist()


def _live(chosen: Sequence[_Directory], write_ids: Seen) -> Iterator[Mapping[str, Any]]:
    """The rows of a table with keys: inserted, and not deleted by what the reader sees."""
    inserted: dict[tuple[int, int, int], Mapping[str, Any]] = {}
    deleted = set[tuple[int, int, int]]()
    for directory in chosen:
        for path in _files(directory):
            for event in orc.read_table(path).to_pylist():
                if not write_ids.sees(event["currentTransaction"]):
                    continue
                key = (event["originalTransaction"], event["bucket"], event["rowId"])
                if event["operation"] == 2:
                    deleted.add(key)
                else:
                    assert key not in inserted, f"{path} has the key {key} of another row"
                    inserted[key] = event["row"]
    yield from (row for key, row in inserted.items() if key not in deleted)


# --- writing --------------------------------------------------------------------------------------


def insert(client: Any, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows that JSON gave, written and committed as Trino does.

    By PyORC: Arrow's writer changes values in a struct of which another row has none.
    """
    columns = shown(client, table).sd.cols
    statement = Statement(client)
    assert statement.lock(table, INSERT).state == ACQUIRED
    write_id = statement.allocate(table)
    file = place_of(client, table) / f"delta_{write_id:07}_{write_id:07}_0000" / "bucket_00000"
    file.parent.mkdir(parents=True)
    row = ",".join(f"{column.name}:{column.type}" for column in columns)
    schema = (
        "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
        f"currentTransaction:bigint,row:struct<{row}>>"
    )
    with file.open("wb") as stream, pyorc.Writer(stream, schema) as writer:
        for number, given in enumerate(rows):
            values = (_made(given.get(column.name), _arrow(column.type)) for column in columns)
            writer.write((0, write_id, P, number, write_id, tuple(values)))
    statement.commit()


def _made(value: Any, kind: pa.DataType) -> Any:
    """What PyORC takes for a value of this type."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_struct(kind):
        return tuple(_made(value.get(field.name), field.type) for field in kind)
    return value
