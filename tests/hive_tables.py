"""Tables that Hive wrote, with the expected rows of each snapshot."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acid_platform.formats.orc import orc_schema
from acid_platform.layout.names import partition_name
from acid_platform.layout.types import Column, parse_type
from acid_platform.scan.open import TableLayout
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList

HERE = Path(__file__).parent / "fixtures" / "hive"
MORE = os.environ.get("ACID_FIXTURES")
"""A directory with more tables of the same form."""


def tables() -> list[Path]:
    found = {
        path.parent.name: path.parent
        for root in (MORE, HERE)
        if root
        for path in Path(root).glob("*/expected.json")
    }
    return [found[name] for name in sorted(found)]


def snapshots() -> list[Any]:
    return [
        pytest.param(table, snapshot, id=f"{table.name}-{name}")
        for table in tables()
        for name, snapshot in json.loads((table / "expected.json").read_text())["snapshots"].items()
    ]


def layout_of(root: Path) -> TableLayout:
    files, path = Files.of(str(root))
    partitions = sorted(
        entry.name for entry in root.iterdir() if entry.is_dir() and "=" in entry.name
    )
    original = next(root.glob("00000?_0"), None)
    some = (
        original
        or next(root.rglob("*delta_*/bucket_*"), None)
        or next(root.rglob("base_*/bucket_*"))
    )
    kind = parse_type(orc_schema(files, str(some)))
    fields = kind.children if original else kind.children[5][1].children
    keys = (Column("p", parse_type("string")),) if partitions else ()
    return TableLayout(
        root.name,
        files,
        path,
        tuple(Column(*field) for field in fields),
        keys,
        dict.fromkeys(partitions, ()),
    )


def _canonical(value: Any) -> Any:
    match value:
        case dict():
            return [_canonical(item) for item in value.values()]
        case list() if value and isinstance(value[0], tuple):
            return {str(key): _canonical(item) for key, item in value}
        case list():
            return [_canonical(item) for item in value]
        case datetime.datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        case datetime.date() | decimal.Decimal():
            return str(value)
        case float():
            return repr(value)
        case _:
            return value


def _canonical_row(table: TableLayout, row: dict[str, Any]) -> str:
    """The table's columns, then the partition's directory name."""
    values = [
        {} if column.type.kind == "map" and row[column.name] == [] else _canonical(row[column.name])
        for column in table.columns
    ]
    values += [
        partition_name({"p": row[partition_column.name]})
        for partition_column in table.partition_columns
    ]
    return json.dumps(values, separators=(",", ":"), sort_keys=True)


def _sha(lines: list[str]) -> str:
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


def opened(
    root: Path, tmp_path: Path, snapshot: dict[str, Any]
) -> tuple[TableLayout, ValidWriteIdList]:
    """A copy of the table, without the stray file that would rightly be refused beside originals,
    and the snapshot's list."""
    copy = shutil.copytree(
        root, tmp_path / root.name, ignore=shutil.ignore_patterns("expected.json")
    )
    write_ids = ValidWriteIdList.of(
        "d.t", snapshot["high_watermark"], aborted=snapshot["invalid_write_ids"]
    )
    return layout_of(copy), write_ids


def assert_expected(found: pa.Table, table: TableLayout, snapshot: dict[str, Any]) -> None:
    """Rows and row ids (column row__id) of a snapshot equal Hive's."""
    assert found.num_rows == snapshot["rows"]
    ids = sorted(tuple(row_id.values()) for row_id in found.column("row__id").to_pylist())
    assert _sha([f"{w},{b},{r}" for w, b, r in ids]) == snapshot["sha256_row_ids"]
    rows = [_canonical_row(table, row) for row in found.drop_columns("row__id").to_pylist()]
    assert _sha(sorted(rows)) == snapshot["sha256_rows"]
